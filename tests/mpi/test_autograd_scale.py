"""Many contexts, threads, calls and failures among the ranks; at the end nothing is left."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.driving import left_over
from distributed.autograd.remote import add, gradient_of, mul, parameter, times_parameter
from mpi.conftest import RpcWorld
from mpi.served import eventually
from mpi.test_soak import MEMORY_MARGIN, resident
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc

pytestmark = pytest.mark.mpi


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, dtype=tp.float64, requires_grad=True)


def nothing_left(world: RpcWorld) -> None:
    """No contexts, passes, calls or values on any rank; all ranks wait for it together."""

    def clean() -> bool:
        # What is collected on one rank may free values on another.
        gc.collect()
        now = rpc.statistics()
        left = sum(left_over()) + now.calls_outstanding + now.values_owned + now.drops_pending
        return bool(world.comm.allreduce(left) == 0)

    eventually(clean)


# -- threads ---------------------------------------------------------------------------------------


@pytest.mark.ranks(4)
def test_twenty_threads_of_three_ranks_against_one(rpc_world: RpcWorld) -> None:
    errors: list[BaseException] = []

    def trainer(number: int) -> None:
        try:
            for step in range(5):
                scale = float(number * 10 + step + 1)
                x = leaf(scale)
                with dist_autograd.context() as context_id:
                    there = rpc.rpc_async(3, times_parameter, args=(x,))
                    loss = there.wait() + rpc.rpc_sync(3, mul, args=(x, x))
                    dist_autograd.backward(context_id, loss.sum())
                    grads = dist_autograd.get_gradients(context_id)
                    assert {one: grad.tolist() for one, grad in grads.items()} == {
                        x: [3.0 + 2 * scale] * 2
                    }
                    found = rpc.rpc_sync(3, gradient_of, args=(context_id,))
                    assert found == [scale] * 2
        except BaseException as error:
            errors.append(error)

    if rpc_world.rank < 3:
        first = rpc_world.rank * 20
        threads = [threading.Thread(target=trainer, args=(first + n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    nothing_left(rpc_world)


# -- depth and breadth -----------------------------------------------------------------------------


def bounce(x: tp.Tensor, depth: int, partner: int) -> tp.Tensor:
    y = x + parameter("step", 1.0)
    if depth:
        here = rpc.get_worker_info().id
        y = rpc.rpc_sync(partner, bounce, args=(y, depth - 1, here))
    return y


@pytest.mark.mpi(min_size=2)
def test_calls_two_hundred_deep(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        x = leaf()
        with dist_autograd.context() as context_id:
            loss = bounce(x, 200, 1)
            assert loss.tolist() == [202.0, 202.0]
            dist_autograd.backward(context_id, loss.sum())
            grads = dist_autograd.get_gradients(context_id)
            assert grads[x].tolist() == [1.0, 1.0]
            assert grads[parameter("step")].tolist() == [101.0, 101.0]
            assert rpc.rpc_sync(1, gradient_of, args=(context_id, "step")) == [100.0, 100.0]
    nothing_left(rpc_world)


@pytest.mark.mpi(min_size=2)
def test_one_tensor_sent_a_hundred_times_to_each(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        x = leaf()
        with dist_autograd.context() as context_id:
            y = x * 2
            calls = [
                rpc.rpc_async(rank, times_parameter, args=(y,))
                for rank in rpc_world.everybody
                for _ in range(100)
            ]
            total: Any = sum([call.wait() for call in calls])
            dist_autograd.backward(context_id, total.sum())
            expected = 600.0 * rpc_world.size
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [expected] * 2
            for rank in rpc_world.everybody:
                grad = rpc.rpc_sync(rank, gradient_of, args=(context_id,))
                assert grad == [200.0, 200.0]
    nothing_left(rpc_world)


def join_fetched(references: list[Any]) -> tp.Tensor:
    a, b = [reference.to_here() for reference in references]
    result: tp.Tensor = times_parameter(a) * times_parameter(b)
    return result


@pytest.mark.ranks(4)
def test_diamonds_over_four_ranks_from_each_of_them_at_once(rpc_world: RpcWorld) -> None:
    left, right, far = [(rpc_world.rank + i) % 4 for i in (1, 2, 3)]
    for _ in range(10):
        x = leaf()
        y: Any = x
        with dist_autograd.context() as context_id:
            for _ in range(4):
                halves = [rpc.remote(one, times_parameter, args=(y,)) for one in (left, right)]
                y = rpc.rpc_sync(far, join_fetched, args=(halves,))
                y = y / y.detach()
            dist_autograd.backward(context_id, y.sum())
            # Each diamond squares, and is made 1 again: its derivative is 2.
            grad = dist_autograd.get_gradients(context_id)[x]
            np.testing.assert_allclose(grad.numpy(), 16.0)
            # The parameters are 3, and the diamonds behind each double its share.
            for worker, share in ((left, 1.0), (right, 1.0), (far, 2.0)):
                there = rpc.rpc_sync(worker, gradient_of, args=(context_id,))
                np.testing.assert_allclose(there, share * (1 + 2 + 4 + 8) / 3)
        del halves
    nothing_left(rpc_world)


# -- failures --------------------------------------------------------------------------------------


class Failing(tp.autograd.Function):
    """The identity; its rule fails."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise OSError(28, "no space on this worker")


def failing(x: Any) -> Any:
    return Failing.apply(times_parameter(x))


def fail(world: RpcWorld, context_id: int, x: tp.Tensor) -> None:
    good = rpc.rpc_sync(world.next, times_parameter, args=(x,))
    bad = rpc.rpc_sync(world.next, failing, args=(good,))
    with pytest.raises(OSError, match="no space on this worker"):
        dist_autograd.backward(context_id, (good + bad).sum(), retain_graph=True)


def succeed(world: RpcWorld, context_id: int, x: tp.Tensor) -> None:
    loss = rpc.rpc_sync(world.next, times_parameter, args=(x,)).sum()
    before = dist_autograd.get_gradients(context_id).get(x)
    start = np.zeros(2) if before is None else before.numpy().copy()
    dist_autograd.backward(context_id, loss)
    grad = dist_autograd.get_gradients(context_id)[x].numpy()
    np.testing.assert_array_equal(grad - start, [3.0, 3.0])


def test_fifty_failures_and_then_a_success_in_one_context(rpc_world: RpcWorld) -> None:
    """All ranks fail at once, each on the next one."""
    x = leaf()
    with dist_autograd.context() as context_id:
        for _ in range(50):
            fail(rpc_world, context_id, x)
        succeed(rpc_world, context_id, x)
    nothing_left(rpc_world)


def test_fifty_failures_and_then_a_success_in_contexts_of_their_own(rpc_world: RpcWorld) -> None:
    x = leaf()
    for _ in range(50):
        with dist_autograd.context() as context_id:
            fail(rpc_world, context_id, x)
    with dist_autograd.context() as context_id:
        succeed(rpc_world, context_id, x)
    nothing_left(rpc_world)


# -- no growth -------------------------------------------------------------------------------------


def round_trip(x: tp.Tensor, route: list[int]) -> tp.Tensor:
    """Through the ranks of a route, each within the call of the one before, or its creation."""
    y = times_parameter(x)
    if not route:
        return y
    if len(route) % 2:
        return rpc.rpc_sync(route[0], round_trip, args=(y, route[1:]))
    fetched: tp.Tensor = rpc.remote(route[0], round_trip, args=(y, route[1:])).to_here()
    return fetched


def differentiate_round_trips(world: RpcWorld, count: int) -> int:
    """So many contexts, one after the other; the most that this rank has had at any time."""
    route = [(world.rank + i) % world.size for i in range(2, world.size + 1)]
    expected = 3.0**world.size + 2.0
    most = 0
    for _ in range(count):
        x = leaf()
        with dist_autograd.context() as context_id:
            through_all = rpc.rpc_sync(world.next, round_trip, args=(x, route))
            loss = through_all + rpc.rpc_sync(world.next, add, args=(x, x))
            dist_autograd.backward(context_id, loss.sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [expected] * 2
        most = max(most, left_over()[0])
    return most


@pytest.mark.parametrize(
    "count",
    [75, pytest.param(2500, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
@pytest.mark.ranks(4)
def test_contexts_in_a_loop_leave_nothing_behind(rpc_world: RpcWorld, count: int) -> None:
    """So many of each of four ranks, with nested calls; releases keep up."""
    assert differentiate_round_trips(rpc_world, count // 2) < 100
    nothing_left(rpc_world)
    before = resident()
    assert differentiate_round_trips(rpc_world, count) < 100
    nothing_left(rpc_world)
    assert resident() - before < MEMORY_MARGIN
