"""Hooks on tensors whose gradients come from several workers, and on those of other workers."""

from __future__ import annotations

from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import HARSH, eventually, on_first, rank
from distributed.autograd.remote import gradient_of, parameter, times_parameter, twice, via
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


_seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> Any:
    _seen.clear()
    yield
    _seen.clear()


def test_an_inner_tensor_s_hook_sees_what_all_workers_add_up_to() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            y = x * 2
            first = y.register_hook(lambda grad: _seen.append(("first", grad.tolist())))
            y.register_hook(lambda grad: _seen.append(("second", grad.tolist())))
            y.register_hook(lambda grad: grad * 0.5)
            y.retain_grad()
            loss = sum([rpc.rpc_sync(to, times_parameter, args=(y,)) for to in (1, 2, 1)], y).sum()
            dist_autograd.backward(context_id, loss, retain_graph=True)
            assert _seen == [("first", [10.0, 10.0]), ("second", [10.0, 10.0])]
            assert y.grad.tolist() == [5.0, 5.0]
            first.remove()
            dist_autograd.backward(context_id, loss)
            assert _seen[2:] == [("second", [10.0, 10.0])]
            assert y.grad.tolist() == [10.0, 10.0]
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [20.0, 20.0]

    on_first(program, size=3, weather=HARSH)


def watch_parameter() -> None:
    parameter().register_hook(lambda grad: _seen.append((rank(), grad.tolist())))
    parameter().register_hook(lambda grad: grad * 10)


def test_a_parameter_s_hook_runs_once_a_pass_on_its_worker() -> None:
    def program() -> None:
        x = leaf()
        rpc.rpc_sync(1, watch_parameter)
        with dist_autograd.context() as context_id:
            near = [rpc.rpc_sync(1, times_parameter, args=(x,)) for _ in range(3)]
            far = rpc.rpc_sync(2, via, args=([1], times_parameter, x))
            loss = sum(near, far).sum()
            for passes in (1, 2):
                dist_autograd.backward(context_id, loss, retain_graph=True)
                assert _seen == [(1, [4.0, 4.0])] * passes
                found = rpc.rpc_sync(1, gradient_of, args=(context_id,))
                assert found == [40.0 * passes] * 2

    on_first(program, size=3)


def failing_hook(x: tp.Tensor) -> tp.Tensor:
    def hook(grad: tp.Tensor) -> None:
        raise KeyError(f"the hook on worker {rank()}")

    y = x * 2
    y.register_hook(hook)
    return y


def wrong_hook(x: tp.Tensor) -> tp.Tensor:
    y = x * 2
    y.register_hook(lambda grad: grad.sum())
    return y


@pytest.mark.parametrize("route", [[], [1], [1, 2]])
def test_what_a_hook_raises_ends_the_pass(route: list[int]) -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            failing = via(route, failing_hook, x).sum()
            wrong = via(route, wrong_hook, x).sum()
            for _ in range(3):
                with pytest.raises(KeyError, match=f"the hook on worker {(route or [0])[-1]}"):
                    dist_autograd.backward(context_id, failing, retain_graph=True)
                with pytest.raises(RuntimeError, match="has changed the size of the gradient"):
                    dist_autograd.backward(context_id, wrong, retain_graph=True)
            dist_autograd.backward(context_id, rpc.rpc_sync(1, twice, args=(x,)).sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]
            for other in range(3):
                eventually(lambda other=other: passes_of(other) == 0)

    on_first(program, size=3)


def passes_of(worker: int) -> int:
    info: dict[str, int] = rpc.rpc_sync(worker, dist_autograd._get_debug_info)
    return info["num_current_backward_passes"]


def test_hooks_of_the_accumulation_run_once_a_pass_after_it() -> None:
    """Those on `.grad` do not run: a distributed pass does not touch it.

    The gradients of the context are those of the passes that have ended.
    """

    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            result = sum([rpc.rpc_sync(to, times_parameter, args=(x,)) for to in (1, 2)], x)
            (send, _) = dist_autograd._current_context()._send_functions().values()
            ((node, _),) = send.next_functions

            def hook(inputs: Any, outputs: Any) -> None:
                kept = [grad.tolist() for grad in dist_autograd.get_gradients(context_id).values()]
                _seen.append((inputs, [grad.tolist() for grad in outputs], kept))

            node.register_hook(hook)
            x.register_post_accumulate_grad_hook(_seen.append)
            for _ in range(2):
                dist_autograd.backward(context_id, result.sum(), retain_graph=True)
            assert _seen == [((), [[7.0] * 2], []), ((), [[7.0] * 2], [[7.0] * 2])]
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [14.0] * 2

    on_first(program, size=3)
