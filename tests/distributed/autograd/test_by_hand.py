"""Contexts that are opened and released by hand, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import Thread, eventually, on_first
from harness.loopback import run_world
from tensorplay.distributed import autograd, rpc

PER_WORKER = 1 << 48


def times_two(x: Any) -> Any:
    return x * 2


def context_here() -> int:
    return autograd._current_context()._context_id()


def test_a_context_by_hand_does_what_a_block_does() -> None:
    def program() -> None:
        x = tp.ones(2, requires_grad=True)
        context = autograd._new_context()
        context_id = context._context_id()
        assert autograd._current_context() is context
        assert autograd._retrieve_context(context_id) is context
        assert rpc.rpc_sync(1, context_here) == context_id
        y = rpc.rpc_sync(1, times_two, args=(x,))
        assert context._known_worker_ids() == {1}
        (send,) = context._send_functions().values()
        (recv,) = context._recv_functions().values()
        assert send.name() == "SendRpcBackward"
        ((leaf, number),) = send.next_functions
        assert (leaf.name(), number) == ("AccumulateGrad", 0)
        assert leaf.variable is x
        assert y.grad_fn is recv
        assert recv.name() == "RecvRpcBackward"
        assert recv.next_functions == ()
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]
        autograd._release_context(context_id)
        with pytest.raises(RuntimeError, match="Could not find autograd context with id"):
            autograd._is_valid_context(context_id)

    on_first(program)


def test_outside_a_context() -> None:
    def program() -> None:
        with pytest.raises(RuntimeError, match="Current thread doesn't have a valid autograd cont"):
            autograd._current_context()
        calls: list[Callable[[int], Any]] = [
            autograd._retrieve_context,
            autograd._is_valid_context,
            autograd._release_context,
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match="Could not find autograd context with id: 77"):
                call(77)

    on_first(program, size=1)


def test_contexts_cannot_be_nested() -> None:
    def program() -> None:
        context = autograd._new_context()
        with pytest.raises(RuntimeError, match="Already have an autograd context id"):
            autograd._new_context()
        with pytest.raises(RuntimeError, match="Already have an autograd context id"):
            autograd.context().__enter__()
        autograd._release_context(context._context_id())
        with (
            autograd.context(),
            pytest.raises(RuntimeError, match="Already have an autograd context id"),
        ):
            autograd._new_context()

    on_first(program, size=1)


def test_a_context_that_another_thread_has_released_can_still_be_left() -> None:
    def program() -> None:
        context_id = autograd._new_context()._context_id()
        Thread(lambda: autograd._release_context(context_id)).result()
        with pytest.raises(RuntimeError, match=f"with id: {context_id} .it has been released"):
            rpc.rpc_sync(1, times_two, args=(1,))
        with pytest.raises(RuntimeError, match=f"with id: {context_id} .it has been released"):
            autograd._release_context(context_id)
        with autograd.context() as other:
            assert rpc.rpc_sync(1, context_here) == other

    on_first(program)


def test_ids_tell_their_worker() -> None:
    def program(rank: int) -> None:
        assert autograd._get_max_id() == rank * PER_WORKER + PER_WORKER - 1
        with autograd.context() as context_id:
            assert context_id // PER_WORKER == rank
            assert context_id < autograd._get_max_id()
            assert autograd._is_valid_context(context_id) is None
        autograd._init(rank)
        with pytest.raises(ValueError, match=rf"_init\(7\) on worker {rank}"):
            autograd._init(7)

    run_world(2, program)


def test_debug_info_counts() -> None:
    def program() -> None:
        nothing = {"num_current_backward_passes": 0, "num_autograd_contexts": 0}
        assert autograd._get_debug_info() == nothing
        with autograd.context():
            rpc.rpc_sync(1, times_two, args=(1,))
            assert autograd._get_debug_info()["num_autograd_contexts"] == 1
            assert rpc.rpc_sync(1, autograd._get_debug_info)["num_autograd_contexts"] == 1
        eventually(lambda: rpc.rpc_sync(1, autograd._get_debug_info) == nothing)
        assert autograd._get_debug_info() == nothing

    on_first(program)
