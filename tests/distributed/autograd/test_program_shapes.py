"""Programs of shapes that a pass could trip over: deep, repeated, branched, begun from anywhere."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.driving import HARSH, on_first, rank
from distributed.autograd.remote import (
    add,
    gradient_of,
    identity,
    mul,
    parameter,
    times_parameter,
    twice,
    via,
)
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, dtype=tp.float64, requires_grad=True)


# -- deep and repeated -----------------------------------------------------------------------------


def bounce(x: tp.Tensor, depth: int) -> tp.Tensor:
    """Between two workers, each within the call of the other, to a depth; a parameter each time."""
    y = x + parameter("step", 1.0)
    if depth:
        y = rpc.rpc_sync(1 - rank(), bounce, args=(y, depth - 1))
    return y


def test_calls_two_hundred_deep() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            loss = bounce(x, 200)
            assert loss.tolist() == [202.0, 202.0]
            dist_autograd.backward(context_id, loss.sum())
            grads = dist_autograd.get_gradients(context_id)
            assert grads[x].tolist() == [1.0, 1.0]
            assert grads[parameter("step")].tolist() == [101.0, 101.0]
            assert rpc.rpc_sync(1, gradient_of, args=(context_id, "step")) == [100.0, 100.0]

    on_first(program)


def test_a_tensor_that_goes_to_and_fro_two_hundred_times() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            y = x
            for _ in range(200):
                y = rpc.rpc_sync(1, add, args=(y, x))
            dist_autograd.backward(context_id, y.sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [201.0, 201.0]

    on_first(program, weather=HARSH)


@pytest.mark.parametrize("together", [False, True])
def test_one_tensor_sent_a_hundred_times(together: bool) -> None:
    def program() -> None:
        x = leaf()
        y = x * 2
        with dist_autograd.context() as context_id:
            total: Any = 0.0
            if together:
                calls = [rpc.rpc_async(i % 3, times_parameter, args=(y,)) for i in range(100)]
                for i, call in enumerate(calls):
                    total = total + call.wait() * i
            else:
                for i in range(100):
                    total = total + rpc.rpc_sync(i % 3, times_parameter, args=(y,)) * i
            dist_autograd.backward(context_id, total.sum())
            # Each parameter is 3.
            expected = 2 * 3 * sum(range(100))
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [expected] * 2
            for worker in range(3):
                grad = rpc.rpc_sync(worker, gradient_of, args=(context_id,))
                assert grad == [2 * sum(range(worker, 100, 3))] * 2

    on_first(program, size=3, weather=HARSH)


# -- branched --------------------------------------------------------------------------------------


def join_at_third(references: list[Any]) -> tp.Tensor:
    """Fetch what two others have made, each with the parameter here."""
    a, b = [reference.to_here() for reference in references]
    result: tp.Tensor = times_parameter(a) * times_parameter(b)
    return result


@pytest.mark.parametrize("nested", [False, True])
def test_diamonds_over_four_workers(nested: bool) -> None:
    """0 gives x to 1 and 2; 3 multiplies what these make of it; four diamonds in a row."""

    def program() -> None:
        x = leaf()
        y: Any = x
        with dist_autograd.context() as context_id:
            for _ in range(4):
                if nested:
                    halves = [rpc.remote(one, times_parameter, args=(y,)) for one in (1, 2)]
                    y = rpc.rpc_sync(3, join_at_third, args=(halves,))
                else:
                    calls = [rpc.rpc_async(one, times_parameter, args=(y,)) for one in (1, 2)]
                    a, b = [call.wait() for call in calls]
                    y = rpc.rpc_sync(3, mul, args=(a, b)) * 9
                y = y / (81 * y.detach())
                y = y * 81
            dist_autograd.backward(context_id, y.sum())
            # Each diamond squares, and is then made 1 again: so its derivative is 2.
            np.testing.assert_allclose(dist_autograd.get_gradients(context_id)[x].numpy(), 16.0)
            for worker, share in ((1, 1.0), (2, 1.0), *([(3, 2.0)] if nested else [])):
                # The parameters are 3, and the diamonds behind each double its share.
                grad = rpc.rpc_sync(worker, gradient_of, args=(context_id,))
                np.testing.assert_allclose(grad, share * (1 + 2 + 4 + 8) / 3)

    on_first(program, size=4, weather=HARSH)


# -- started from anywhere -------------------------------------------------------------------------


def test_a_pass_may_be_started_from_a_callback() -> None:
    def program() -> None:
        x = leaf()
        ran_on: list[str] = []
        with dist_autograd.context() as context_id:

            def differentiate(future: rpc.Future) -> Any:
                ran_on.append(threading.current_thread().name)
                dist_autograd.backward(context_id, (future.wait() * x).sum())
                return dist_autograd.get_gradients(context_id)[x].tolist()

            futures = [
                rpc.rpc_async(one, times_parameter, args=(x,)).then(differentiate)
                for one in (1, 2, 1)
            ]
            # Each adds the derivative of 3 x^2, one after the other.
            totals = [future.wait() for future in futures]
            assert sorted(totals)[-1] == [18.0, 18.0]
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [2.0, 2.0]
        assert len(ran_on) == 3

    on_first(program, size=3)


_kept: dict[int, tp.Tensor] = {}


def through(x: tp.Tensor, left: list[int]) -> None:
    """Pass a value on, and keep what comes of it here for a later pass."""
    y = times_parameter(x)
    _kept[rank()] = y
    if left:
        rpc.rpc_sync(left[0], through, args=(y, left[1:]))


def differentiate_kept(context_id: int) -> None:
    dist_autograd.backward(context_id, _kept.pop(rank()).sum(), retain_graph=True)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_any_worker_of_a_context_may_start_a_pass(order: list[int]) -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            through(x, [1, 2, 3])
            so_far = 0.0
            for starter in order:
                rpc.rpc_sync(starter, differentiate_kept, args=(context_id,))
                so_far += 3.0 ** (starter + 1)
                assert dist_autograd.get_gradients(context_id)[x].tolist() == [so_far] * 2
            for worker in range(4):
                # Its parameter has a part in what it and those after it keep.
                expected = sum([3.0**starter for starter in range(worker, 4)])
                grad = rpc.rpc_sync(worker, gradient_of, args=(context_id,))
                assert grad == [expected] * 2

    on_first(program, size=4)


# -- what is received ------------------------------------------------------------------------------


def scale_in_place(x: tp.Tensor) -> tp.Tensor:
    x.mul_(3.0)
    x.add_(1.0)
    return x


def spoil(x: tp.Tensor) -> tp.Tensor:
    result: tp.Tensor = x * x
    x.mul_(3.0)
    return result


@pytest.mark.parametrize("count", [2, 5000])
@pytest.mark.parametrize("to", [0, 1])
def test_in_place_operations_on_a_received_tensor(to: int, count: int) -> None:
    def program() -> None:
        x = tp.ones(count, dtype=tp.float64, requires_grad=True)
        y = x * 2
        with dist_autograd.context() as context_id:
            result = rpc.rpc_sync(to, scale_in_place, args=(y,))
            result.mul_(5.0)
            assert set(result.tolist()) == {35.0}
            assert set(y.tolist()) == {2.0}, "the caller keeps its own"
            dist_autograd.backward(context_id, (result + y).sum())
            grad = dist_autograd.get_gradients(context_id)[x]
            assert set(grad.tolist()) == {32.0}

    on_first(program)


def test_a_received_tensor_that_a_rule_needs_and_that_was_written_to() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, spoil, args=(x,)).sum()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                dist_autograd.backward(context_id, loss)

    on_first(program)


_seen: list[Any] = []


def watched(x: tp.Tensor) -> tp.Tensor:
    """Use a received tensor twice; note its gradient, which is doubled on its way."""
    x.register_hook(lambda grad: _seen.append(grad.tolist()))
    x.register_hook(lambda grad: grad * 2)
    x.retain_grad()
    _seen.append(x)
    return x * 3 + x


def test_hooks_and_retain_grad_on_a_received_argument() -> None:
    def program() -> None:
        _seen.clear()
        x = leaf()
        with dist_autograd.context() as context_id:
            result = rpc.rpc_sync(1, watched, args=(x,))
            dist_autograd.backward(context_id, result.sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [8.0, 8.0]
            received, before = _seen
            assert before == [4.0, 4.0], "once, with the whole gradient"
            assert received.grad.tolist() == [8.0, 8.0]
        _seen.clear()

    on_first(program)


# -- types -----------------------------------------------------------------------------------------


def widen(x: tp.Tensor, to: Any) -> tp.Tensor:
    result: tp.Tensor = (x * x).to(to)
    return result


def test_precision_may_change_at_every_worker() -> None:
    def program() -> None:
        x = tp.tensor([1.0, 2.0, -3.0], dtype=tp.float16, requires_grad=True)
        with dist_autograd.context() as context_id:
            y = rpc.rpc_sync(1, widen, args=(x, tp.float32))
            z = rpc.rpc_sync(2, widen, args=(y, tp.float64))
            w = tp.ones(3, dtype=tp.float32, requires_grad=True)
            loss = rpc.rpc_sync(1, mul, args=(z, w)).sum()
            assert loss.dtype == tp.float64
            dist_autograd.backward(context_id, loss)
            grads = dist_autograd.get_gradients(context_id)
            assert grads[x].dtype == tp.float16
            assert grads[x].tolist() == [4.0, 32.0, -108.0]
            assert grads[w].dtype == tp.float32
            assert grads[w].tolist() == [1.0, 16.0, 81.0]

    on_first(program, size=3)


def test_complex_numbers_travel_beside_tensors_that_need_gradients() -> None:
    def program() -> None:
        x = leaf()
        waves = tp.tensor([1 + 2j, -1j], dtype=tp.complex128)
        with dist_autograd.context() as context_id:
            there, scaled = rpc.rpc_sync(1, via, args=([2], identity, [waves, x]))
            assert there.dtype == tp.complex128
            assert there.tolist() == waves.tolist()
            assert not there.requires_grad
            loss = rpc.rpc_sync(2, twice, args=(scaled,)).sum()
            dist_autograd.backward(context_id, loss)
            grads = dist_autograd.get_gradients(context_id)
            assert list(grads) == [x]
            assert grads[x].tolist() == [2.0, 2.0]

    on_first(program, size=3)
