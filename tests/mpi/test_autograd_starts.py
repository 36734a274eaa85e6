"""Passes over all kinds of calls, begun anywhere, among the ranks of an MPI job."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.driving import eventually, left_over
from distributed.autograd.remote import (
    current_context,
    gradient_of,
    mul,
    parameter,
    recorded,
    times_parameter,
    twice,
    via,
)
from mpi.conftest import RpcWorld
from tensorplay import nn
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc

pytestmark = pytest.mark.mpi(min_size=2)


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


def check_nothing_left(world: RpcWorld) -> None:
    for rank in world.everybody:
        eventually(lambda rank=rank: rpc.rpc_sync(rank, left_over) == (0, 0))  # type: ignore[misc]


# -- kinds of calls --------------------------------------------------------------------------------


@rpc.functions.async_execution
def later(to: int, x: tp.Tensor, steps: int) -> rpc.Future:
    context_id = current_context()

    def go_on(future: rpc.Future) -> Any:
        assert current_context() == context_id
        y = times_parameter(future.wait())
        return later(to, y, steps - 1) if steps > 1 else y

    return rpc.rpc_async(to, times_parameter, args=(x,)).then(go_on)


def test_continuations_and_callbacks(rpc_world: RpcWorld) -> None:
    """From each rank at once."""
    x = leaf()
    last = rpc_world.size - 1
    with dist_autograd.context() as context_id:
        results = [
            rpc.rpc_sync(rpc_world.next, later, args=(last, x, 2)),
            rpc.remote(rpc_world.next, later, args=(last, x, 2)).to_here(),
            rpc.rpc_async(rpc_world.next, times_parameter, args=(x,))
            .then(lambda future: rpc.rpc_async(last, times_parameter, args=(future.wait(),)))
            .wait(),
        ]
        dist_autograd.backward(context_id, sum(results).sum())
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [171.0, 171.0]
        assert current_context() == context_id


class Model:
    def __init__(self) -> None:
        self.weight = leaf(3.0)

    def __call__(self, x: tp.Tensor) -> tp.Tensor:
        return self.weight * x

    def gradient(self, context_id: int) -> Any:
        return dist_autograd.get_gradients(context_id)[self.weight].tolist()

    def clip(self, context_id: int, factor: float) -> None:
        dist_autograd.get_gradients(context_id)[self.weight].mul_(factor)


def test_proxies_references_and_gradients_edited_in_place(rpc_world: RpcWorld) -> None:
    x = leaf()
    model = rpc.remote(rpc_world.next, Model)
    with dist_autograd.context() as context_id:
        product = model.remote()(x)
        results = [model.rpc_sync()(x), model.rpc_async()(x).wait()]
        # Each fetch adds its own.
        results += [product.to_here(), product.to_here()]
        loss = sum(results).sum()
        dist_autograd.backward(context_id, loss, retain_graph=True)
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [12.0, 12.0]
        model.rpc_sync().clip(context_id, 0.25)
        dist_autograd.get_gradients(context_id)[x].mul_(0.5)
        dist_autograd.backward(context_id, loss)
        assert model.rpc_sync().gradient(context_id) == [1.0 + 4.0] * 2
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [6.0 + 12.0] * 2


def test_parameters_and_whole_modules_as_arguments(rpc_world: RpcWorld) -> None:
    module = nn.Linear(2, 1)
    weight = nn.Parameter(tp.ones(2))
    with dist_autograd.context() as context_id:
        result = rpc.rpc_sync(rpc_world.next, module, args=(tp.ones(1, 2),)).sum()
        result = result + rpc.rpc_sync(rpc_world.next, mul, args=(weight, weight)).sum()
        dist_autograd.backward(context_id, result)
        grads = dist_autograd.get_gradients(context_id)
        assert set(grads) == {module.weight, module.bias, weight}
        assert grads[module.weight].tolist() == [[1.0, 1.0]]
        assert grads[weight].tolist() == [2.0, 2.0]
        assert weight.grad is None


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (70_000,)])
def test_shapes(rpc_world: RpcWorld, shape: tuple[int, ...]) -> None:
    x = tp.ones(*shape, dtype=tp.float64).requires_grad_()
    with dist_autograd.context() as context_id:
        result = rpc.rpc_sync(rpc_world.next, times_two_in_place, args=(x * 1,))
        assert result.shape == shape
        dist_autograd.backward(context_id, result.sum())
        grad = dist_autograd.get_gradients(context_id)[x]
        np.testing.assert_array_equal(grad.numpy(), np.full(shape, 2.0))


def times_two_in_place(x: tp.Tensor) -> tp.Tensor:
    x.mul_(2.0)
    return x


# -- from anywhere ---------------------------------------------------------------------------------


def differentiate(context_id: int, x: tp.Tensor, through: list[int]) -> Any:
    """A callee's own pass: its gradients are added up in the caller's context."""
    loss = rpc.rpc_sync(through[0], via, args=(through[1:], times_parameter, x)).sum()
    dist_autograd.backward(context_id, loss)
    return dist_autograd.get_gradients() == dist_autograd.get_gradients(context_id)


def test_from_callees_callbacks_and_threads(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return  # it only serves, and starts passes all the same
    x = leaf()
    total = 0.0
    with dist_autograd.context() as context_id:
        for starter in rpc_world.everybody:
            route = [(starter + 1) % rpc_world.size, 0]
            assert rpc.rpc_sync(starter, differentiate, args=(context_id, x, route))
            total += 3.0
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [total] * 2

        def differentiate_result(future: rpc.Future) -> None:
            dist_autograd.backward(context_id, future.wait().sum())

        rpc.rpc_async(1, times_parameter, args=(x,)).then(differentiate_result).wait()
        loss = rpc.rpc_sync(1, twice, args=(x,)).sum()
        thread = threading.Thread(target=dist_autograd.backward, args=(context_id, loss))
        thread.start()
        thread.join()
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [total + 3.0 + 2.0] * 2
        found = dist_autograd.get_gradients(context_id)[parameter()].tolist()
        assert found == [1.0 * rpc_world.size] * 2
        assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [1.0, 1.0]
    check_nothing_left(rpc_world)


# -- hooks and rules -------------------------------------------------------------------------------


class Solve(tp.autograd.Function):
    """``x`` with ``A x = b``, by NumPy, with its adjoint by hand."""

    @staticmethod
    def forward(ctx: Any, matrix: Any, right: Any) -> Any:
        ctx.matrix = matrix.numpy(force=True)
        ctx.solution = np.linalg.solve(ctx.matrix, right.numpy(force=True))
        return tp.tensor(ctx.solution)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        adjoint = np.linalg.solve(ctx.matrix.T, grad.numpy(force=True))
        return tp.tensor(-np.outer(adjoint, ctx.solution)), tp.tensor(adjoint)


_seen: list[Any] = []


def solve(matrix: tp.Tensor, right: tp.Tensor) -> tp.Tensor:
    right.register_hook(lambda grad: _seen.append(grad.tolist()))
    solution: tp.Tensor = Solve.apply(matrix, right)
    return solution


def take_seen() -> list[Any]:
    seen = _seen.copy()
    _seen.clear()
    return seen


def test_numpy_in_rules_and_hooks_on_every_rank(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    matrix = tp.tensor([[2.0, 1.0], [0.0, 4.0]], dtype=tp.float64, requires_grad=True)
    right = tp.tensor([1.0, 8.0], dtype=tp.float64, requires_grad=True)
    with dist_autograd.context() as context_id:
        for rank in rpc_world.everybody:
            before = dist_autograd.get_gradients(context_id).get(right)
            start = np.zeros(2) if before is None else before.numpy().copy()
            solution = rpc.rpc_sync(rank, solve, args=(matrix, right))
            assert solution.tolist() == [-0.5, 2.0]
            dist_autograd.backward(context_id, solution.sum())
            grads = dist_autograd.get_gradients(context_id)
            adjoint = np.linalg.solve(matrix.numpy(force=True).T, np.ones(2))
            np.testing.assert_allclose(grads[right].numpy(), start + adjoint)
            assert rpc.rpc_sync(rank, take_seen) == [adjoint.tolist()]
    check_nothing_left(rpc_world)


def test_functions_of_a_message_and_who_knows_whom(rpc_world: RpcWorld) -> None:
    x, y = leaf(), leaf(2.0)
    with dist_autograd.context() as context_id:
        computed = x * y
        result = rpc.rpc_sync(rpc_world.next, mul, args=(computed, y))
        here = recorded(context_id)
        with tp.no_grad():
            there = rpc.rpc_sync(rpc_world.next, recorded, args=(context_id,))
        (request,), (answer,) = here.sends, here.recvs
        edges = ["MulBackward0", "AccumulateGrad"]
        assert here.sends[request] == ("SendRpcBackward", rpc_world.next, edges)
        assert there.recvs == {request: ("RecvRpcBackward", rpc_world.rank, 2)}
        assert there.sends == {answer: ("SendRpcBackward", rpc_world.rank, ["MulBackward0"])}
        assert result.grad_fn is dist_autograd._current_context()._recv_functions()[answer]
        assert (request >> 48, answer >> 48) == (rpc_world.rank, rpc_world.next)
        assert (here.known, there.known) == ({rpc_world.next}, {rpc_world.rank})
