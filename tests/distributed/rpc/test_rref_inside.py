"""Sessions, texts, types and backward passes of remote references."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
from typing import Any

import pytest

import tensorplay as tp
from distributed.rpc.called import Thing, count_values, eventually, on_first, values_at
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent


def test_reference_before_init() -> None:
    with pytest.raises(RuntimeError, match="Current RPC agent is not set! Did you initialize"):
        rpc.RRef(1)


def test_references_kept_after_shutdown() -> None:
    def program() -> list[Any]:
        return [rpc.RRef(Thing()), rpc.remote(1, Thing), rpc.remote(0, Thing)]

    kept = on_first(2, program)

    def in_the_next_session() -> None:
        fresh = rpc.RRef(Thing(5))
        for rref in kept:
            for use in ("to_here", "local_value", "rpc_sync", "rpc_async", "remote", "backward"):
                with pytest.raises(RuntimeError, match=rf"Cannot call {use}\(\) on it after dele"):
                    getattr(rref, use)()
            with pytest.raises(RuntimeError, match="Cannot call fork an UserRRef after deletion"):
                rpc.rpc_sync(1, repr, args=(rref,))
            # The agent refuses it too, whoever asks: its number is that of another value now.
            ended = "an RPC session that has been shut down: it cannot be used in this one"
            with pytest.raises(RuntimeError, match=ended):
                current_agent().call_on_value(rref, repr, None, None, 0, waits=True)
            with pytest.raises(RuntimeError, match=ended):
                rpc.api._rref_typeof_on_user(rref)
            assert rref.owner_name() in ("worker0", "worker1")
        kept.clear()
        gc.collect()
        assert fresh.local_value().value == 5
        assert count_values() == 1

    on_first(2, in_the_next_session)


def test_texts_and_ids() -> None:
    def program() -> None:
        own, other = rpc.RRef(1, type_hint=int), rpc.remote(1, Thing)
        assert str(own) == "OwnerRRef(GloballyUniqueId(created_on=0, local_id=0))"
        rref_id, fork_id = (f"GloballyUniqueId(created_on=0, local_id={i})" for i in (1, 2))
        assert str(other) == f"UserRRef(RRefId = {rref_id}, ForkId = {fork_id})"
        with pytest.raises(RuntimeError) as caught:
            other.local_value()
        assert str(caught.value) == (
            f"For UserRRef(rref_id={rref_id}, fork_id={fork_id}), can't call localValue() on user "
            "WorkerInfo(id=0, name=worker0). Call it on owner WorkerInfo(id=1, name=worker1)"
        )
        for refused in (copy.deepcopy, copy.copy, pickle.dumps):
            with pytest.raises(RuntimeError, match="can only be pickled when using RPC"):
                refused(other)
        assert rpc.RRef[int](3).local_value() == 3

    on_first(2, program)


@pytest.mark.parametrize("to", [0, 1])
def test_type_is_asked_for_once(to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, Thing)
        assert rref._get_type() is Thing
        sent = rpc.statistics().messages_sent
        future = rref._get_type(blocking=False)
        assert rref._get_type(blocking=False) is future
        assert future.wait() is rref._get_type() is Thing
        assert rpc.statistics().messages_sent == sent
        assert rref._get_future().wait() is None
        assert rpc.RRef(1)._get_future().done()

    on_first(2, program)


def test_copies_by_hand() -> None:
    def program() -> None:
        rref = rpc.remote(1, Thing, args=(5,))
        fork = rref._serialize()
        del rref
        rpc.rpc_sync(1, count_values)
        again = rpc.RRef._deserialize(fork)
        assert again.to_here().value == 5
        del again
        eventually(lambda: values_at(1) == 0)

    on_first(2, program)


class Holds:
    def __init__(self, rref: Any) -> None:
        self.rref = rref

    def call(self) -> Any:
        return self.rref.to_here().value


def raise_with(rref: Any) -> None:
    raise ValueError("has a reference", rref)


def test_references_in_callables_and_exceptions() -> None:
    def program() -> None:
        rref = rpc.remote(1, Thing, args=(5,))
        assert rpc.rpc_sync(1, Holds(rref).call) == 5
        assert rpc.rpc_sync(1, functools.partial(Holds.call, Holds(rref))) == 5
        with pytest.raises(RuntimeError, match=r"ValueError.*has a reference"):
            rpc.rpc_sync(1, raise_with, args=(rref,))
        del rref
        gc.collect()
        eventually(lambda: values_at(1) == 0)

    on_first(2, program)


# -- backward --------------------------------------------------------------------------------------


def squares(x: Any) -> Any:
    return (x * x).sum()


def test_backward_of_ones_own_value() -> None:
    def program() -> None:
        x = tp.tensor([1.0, 2.0], requires_grad=True)
        rpc.RRef(squares(x)).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2, 4]
        with dist_autograd.context() as context_id:
            loss = rpc.RRef(squares(x))
            loss.backward(context_id, retain_graph=True)
            loss.backward(context_id)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [4, 8]

    on_first(1, program)


def test_backward_of_a_value_on_another_worker() -> None:
    def program() -> None:
        x = tp.tensor([1.0, 2.0], requires_grad=True)
        with dist_autograd.context() as context_id:
            rpc.remote(1, squares, args=(x,)).backward(context_id)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [2, 4]

    on_first(2, program)


def test_what_backward_refuses() -> None:
    def program() -> None:
        x = tp.ones((3,), requires_grad=True)
        for value, arguments, text in (
            (tp.ones((3,)), (), "does not require grad and does not have a grad_fn"),
            (x, (), "grad can be implicitly created only for scalar outputs"),
            (squares(x), (100,), "Could not find autograd context with id: 100"),
            ("text", (), r"RRef should contain a tensor for .backward\(\)"),
        ):
            with pytest.raises(RuntimeError, match=text):
                rpc.RRef(value).backward(*arguments)
        other = rpc.remote(1, Thing)
        with pytest.raises(RuntimeError, match="User RRefs require 'dist_autograd_ctx_id'"):
            other.backward()
        with pytest.raises(RuntimeError, match="RRef should contain a tensor"):
            other.backward(100)
        loss = rpc.remote(1, squares, args=(x,))
        with pytest.raises(RuntimeError, match="Could not find autograd context with id: 100"):
            loss.backward(100)

    on_first(2, program)


def test_shutdown_leaves_nothing_of_references_in_cycles() -> None:
    def program() -> Any:
        cycle: list[Any] = [rpc.remote(1, Thing), rpc.remote(0, Thing), rpc.RRef(Thing())]
        cycle.append(cycle)
        return current_agent()

    gc.disable()
    try:
        agent = on_first(2, program)
        gc.collect()
    finally:
        gc.enable()
    assert len(agent.rrefs) == 0
    assert not agent.rrefs.dropped
