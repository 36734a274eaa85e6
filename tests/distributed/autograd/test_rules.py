"""What backward rules and hooks may do while a pass runs them, on whichever worker and thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.driving import LIMIT, Thread, on_first, rank
from distributed.autograd.remote import current_context, mul, times_parameter, twice, via
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


#: What the rule of `Doing` does on each worker, and what came of it.
_deeds: dict[int, Callable[[], Any]] = {}
_outcomes: list[Any] = []


@pytest.fixture(autouse=True)
def _no_deeds() -> Any:
    _outcomes.clear()
    yield
    _deeds.clear()


class Doing(tp.autograd.Function):
    """The identity, whose rule does what it is told."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        deed = _deeds.get(rank())
        if deed is not None:
            with tp.enable_grad():
                _outcomes.append(deed())
        return grad


def doing(x: Any) -> Any:
    return Doing.apply(x)


# -- passes within passes --------------------------------------------------------------------------


def open_and_differentiate() -> Any:
    w = leaf(3.0)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, rpc.rpc_sync((rank() + 1) % 3, mul, args=(w, w)).sum())
        return dist_autograd.get_gradients(context_id)[w].tolist()


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_rule_runs_in_no_context_and_may_open_its_own(worker: int) -> None:
    """Also where the thread that waits for the pass, and is in its context, runs it."""

    def program() -> None:
        x = leaf()
        for _ in range(3):
            with dist_autograd.context() as context_id:
                y = rpc.rpc_sync(1, doing, args=(doing(x),))
                loss = doing(rpc.rpc_sync(1, via, args=([2], doing, y))).sum()
                _deeds[worker] = lambda: (current_context(), open_and_differentiate())
                dist_autograd.backward(context_id, loss)
                assert current_context() == context_id
                assert dist_autograd.get_gradients(context_id)[x].tolist() == [1.0, 1.0]
        assert _outcomes
        assert all(outcome == (-1, [6.0, 6.0]) for outcome in _outcomes)

    on_first(program, size=3)


def test_another_pass_of_the_same_worker_in_the_same_context_is_refused() -> None:
    """It would wait for the pass whose rule it is in."""

    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            other = rpc.rpc_sync(1, twice, args=(x,)).sum()
            loss = doing(rpc.rpc_sync(1, twice, args=(doing(x),))).sum()
            _deeds[0] = lambda: dist_autograd.backward(context_id, other)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="rule or hook cannot start another pass of"):
                    dist_autograd.backward(context_id, loss, retain_graph=True, timeout=LIMIT)
            _deeds.clear()
            dist_autograd.backward(context_id, [loss, other])
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [4.0, 4.0]

    on_first(program)


_results: list[tp.Tensor] = []


def doing_beside_another(x: tp.Tensor) -> tp.Tensor:
    """Keep one result here, and return one whose rule may differentiate it."""
    _results[:] = [times_parameter(x)]
    result: tp.Tensor = doing(x)
    return result


def test_another_worker_s_pass_within_a_rule_adds_up() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, doing_beside_another, args=(x,)).sum()
            _deeds[1] = lambda: dist_autograd.backward(context_id, _results.pop().sum())
            dist_autograd.backward(context_id, loss)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [4.0, 4.0]

    on_first(program)


def test_the_timeout_counts_while_another_pass_of_the_worker_runs() -> None:
    def program() -> None:
        x = leaf()
        begun, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            assert go_on.wait(LIMIT)

        with dist_autograd.context() as context_id:
            first = rpc.rpc_sync(1, doing, args=(x,)).sum()
            second = rpc.rpc_sync(1, twice, args=(x,)).sum()
            _deeds[1] = hold
            running = Thread(lambda: dist_autograd.backward(context_id, first))
            assert begun.wait(LIMIT)
            with pytest.raises(rpc.RpcTimeoutError, match=r"could not begin within 0\.05 s"):
                dist_autograd.backward(context_id, second, timeout=0.05)
            go_on.set()
            running.result()
            dist_autograd.backward(context_id, second, timeout=LIMIT)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]

    on_first(program)


def start_beside_others(context_id: int, x: tp.Tensor) -> None:
    dist_autograd.backward(context_id, rpc.rpc_sync(2, doing, args=(x,)).sum())


def test_who_waits_for_another_pass_leaves_its_slot_to_the_calls_of_that() -> None:
    """Worker 1 runs one call at a time, and starts three passes whose rules call it."""

    def program() -> None:
        x = leaf()
        _deeds[2] = lambda: rpc.rpc_sync(1, rank, timeout=LIMIT / 4)
        with dist_autograd.context() as context_id:
            calls = [rpc.rpc_async(1, start_beside_others, args=(context_id, x)) for _ in range(3)]
            for call in calls:
                call.wait()
            assert _outcomes == [1, 1, 1]
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]

    on_first(program, size=3, num_worker_threads=1)


# -- calls within rules ----------------------------------------------------------------------------


class Cube(tp.autograd.Function):
    """The third power; another worker does a part of its rule."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return rpc.rpc_sync((rank() + 1) % 3, mul, args=(x * grad, x * 3))


def cube(x: Any) -> Any:
    return Cube.apply(x)


@pytest.mark.parametrize("route", [[], [1], [1, 2], [1, 0]])
def test_calls_of_a_rule_are_part_of_a_recorded_pass(route: list[int]) -> None:
    """Whichever thread runs the rule: so the second derivative goes through them."""

    def program() -> None:
        x = tp.tensor([1.0, -2.0], dtype=tp.float64, requires_grad=True)
        with dist_autograd.context() as context_id:
            loss = via(route, cube, x).sum()
            dist_autograd.backward(context_id, loss, create_graph=True)
            first = dist_autograd.get_gradients(context_id)[x]
            assert first.tolist() == [3.0, 12.0]
            dist_autograd.backward(context_id, first.sum())
            total = dist_autograd.get_gradients(context_id)[x]
            np.testing.assert_allclose(total.numpy(force=True), [3.0 + 6.0, 12.0 - 12.0])

    on_first(program, size=3)


# -- ordinary NumPy --------------------------------------------------------------------------------


class Solve(tp.autograd.Function):
    """``x`` with ``A x = b``, by NumPy, with its adjoint by hand."""

    @staticmethod
    def forward(ctx: Any, matrix: Any, right: Any) -> Any:
        solution = np.linalg.solve(matrix.numpy(force=True), right.numpy(force=True))
        ctx.matrix, ctx.solution = matrix.numpy(force=True), solution
        return tp.tensor(solution)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        adjoint = np.linalg.solve(ctx.matrix.T, grad.numpy(force=True))
        return tp.tensor(-np.outer(adjoint, ctx.solution)), tp.tensor(adjoint)


def solve(matrix: Any, right: Any) -> Any:
    return Solve.apply(matrix, right)


@pytest.mark.parametrize("route", [[], [1], [1, 2], [1, 2, 0]])
def test_functions_with_numpy_inside_on_any_worker(route: list[int]) -> None:
    def program() -> None:
        rng = np.random.default_rng(5)
        a, b = rng.normal(size=(4, 4)) + 4 * np.eye(4), rng.normal(size=4)
        matrix, right = (tp.tensor(one, requires_grad=True) for one in (a, b))
        with dist_autograd.context() as context_id:
            solution = via(route, solve, matrix * 1, right)
            solution = rpc.rpc_sync(2, solve, args=(matrix, solution))
            dist_autograd.backward(context_id, (solution * solution).sum())
            grads = dist_autograd.get_gradients(context_id)

        def loss(a: Any, b: Any) -> float:
            return float(np.sum(np.linalg.solve(a, np.linalg.solve(a, b)) ** 2))

        step = 1e-6
        for i in range(4):
            ahead, behind = loss(a, b + step * np.eye(4)[i]), loss(a, b - step * np.eye(4)[i])
            assert grads[right].tolist()[i] == pytest.approx((ahead - behind) / (2 * step), 1e-6)
            move = step * np.outer(np.eye(4)[i], np.eye(4)[(i + 1) % 4])
            ahead, behind = loss(a + move, b), loss(a - move, b)
            found = grads[matrix].tolist()[i][(i + 1) % 4]
            assert found == pytest.approx((ahead - behind) / (2 * step), 1e-6, 1e-9)

    on_first(program, size=3)
