"""Distributed backward passes among the ranks of an MPI job."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.driving import eventually, left_over
from distributed.autograd.remote import (
    add,
    constant,
    fail,
    gradient_of,
    identity,
    mul,
    number,
    times_parameter,
    twice,
    via,
    without_grad,
)
from mpi.conftest import RpcWorld
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc

pytestmark = pytest.mark.mpi

MIB = 1 << 20


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


def nothing_left(world: RpcWorld) -> None:
    for rank in world.everybody:
        eventually(lambda rank=rank: rpc.rpc_sync(rank, left_over) == (0, 0))  # type: ignore[misc]


@pytest.mark.ranks(2)
def test_the_published_example(world: RpcWorld) -> None:
    if world.rank == 0:
        rpc.init_rpc("worker", rank=0, world_size=2)
        t = tp.randn(4, requires_grad=True)
        with dist_autograd.context() as ctx_id:
            loss = rpc.rpc_sync("worker", add, args=(t, t)).sum()
            dist_autograd.backward(ctx_id, loss)
        grads = dist_autograd.get_gradients(ctx_id)
        assert list(grads) == [t]
        assert grads[t].tolist() == [2.0, 2.0, 2.0, 2.0]
        assert t.grad is None
    else:
        rpc.init_rpc("other", rank=1, world_size=2)
    rpc.shutdown(timeout=30)


@pytest.mark.mpi(min_size=2)
def test_the_documented_example_with_two_workers(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    with dist_autograd.context() as context_id:
        t1 = tp.rand(3, 3, requires_grad=True)
        t2 = tp.rand(3, 3, requires_grad=True)
        t3 = rpc.rpc_sync("worker1", add, args=(t1, t2))
        t4 = tp.rand(3, 3, requires_grad=True)
        loss = mul(t3, t4).sum()
        dist_autograd.backward(context_id, [loss])
        grads = dist_autograd.get_gradients(context_id)
    np.testing.assert_array_equal(grads[t1].numpy(), t4.numpy(force=True))
    np.testing.assert_array_equal(grads[t2].numpy(), t4.numpy(force=True))
    np.testing.assert_allclose(grads[t4].numpy(), (t1 + t2).numpy(force=True))


def through_all(x: tp.Tensor, left: list[int]) -> tp.Tensor:
    """Multiply by this worker's parameter, then go on to the next, and come back."""
    y = times_parameter(x)
    return rpc.rpc_sync(left[0], through_all, args=(y, left[1:])) if left else y


def test_a_chain_through_all_workers_from_each_of_them_at_once(rpc_world: RpcWorld) -> None:
    """Each parameter is 3, and each of its gradients is what the others make of x."""
    size = rpc_world.size
    route = [(rpc_world.rank + i) % size for i in range(1, size)]
    for step in range(1, 6):
        x = leaf(float(step))
        with dist_autograd.context() as context_id:
            loss = through_all(x, route).sum()
            dist_autograd.backward(context_id, [loss])
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [3.0**size] * 2
            for worker in rpc_world.everybody:
                grad = rpc.rpc_sync(worker, gradient_of, args=(context_id,))
                assert grad == [step * 3.0 ** (size - 1)] * 2
    nothing_left(rpc_world)


@pytest.mark.mpi(min_size=2)
def test_results_and_arguments_that_are_not_used(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    last = rpc_world.size - 1
    used, unused, passed_on = leaf(2.0), leaf(), leaf()
    with dist_autograd.context() as context_id:
        for function in (twice, without_grad, constant, number):
            rpc.rpc_sync(last, via, args=([1], function, unused))
        with pytest.raises(KeyError):
            rpc.rpc_sync(1, fail, args=(unused,))
        rpc.remote(1, twice, args=(unused,))
        kept, _ = rpc.rpc_sync(1, via, args=([last], identity, [used, passed_on]))
        dist_autograd.backward(context_id, (kept * kept).sum())
        grads = dist_autograd.get_gradients(context_id)
        assert {one: grad.tolist() for one, grad in grads.items()} == {used: [4.0, 4.0]}
    nothing_left(rpc_world)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("nbytes", [8, 9 * 1024, MIB, 16 * MIB])
def test_activations_of_all_sizes(rpc_world: RpcWorld, nbytes: int) -> None:
    if rpc_world.rank:
        return
    count = nbytes // 8
    generator = np.random.default_rng(count)
    x, y = (tp.tensor(generator.random(count), requires_grad=True) for _ in range(2))
    last = rpc_world.size - 1
    with dist_autograd.context() as context_id:
        product = rpc.rpc_sync(1, via, args=([last], mul, x, y))
        futures = [rpc.rpc_async(rank, mul, args=(product, y)) for rank in (1, last)]
        total = futures[0].wait() + futures[1].wait()
        dist_autograd.backward(context_id, total.sum())
        grads = dist_autograd.get_gradients(context_id)
    a, b = x.numpy(force=True), y.numpy(force=True)
    np.testing.assert_allclose(grads[x].numpy(), 2 * b * b, rtol=1e-13)
    np.testing.assert_allclose(grads[y].numpy(), 4 * a * b, rtol=1e-13)


@pytest.mark.mpi(min_size=2)
def test_passes_over_a_retained_graph_and_further_losses(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    last = rpc_world.size - 1
    x = leaf()
    with dist_autograd.context() as context_id:
        loss = rpc.rpc_sync(1, via, args=([last], times_parameter, x)).sum()
        for _ in range(20):
            dist_autograd.backward(context_id, loss, retain_graph=True)
        dist_autograd.backward(context_id, loss)
        with pytest.raises(RuntimeError, match="second time"):
            dist_autograd.backward(context_id, loss)
        for _ in range(20):
            another = rpc.rpc_sync(1, via, args=([last], times_parameter, x)).sum()
            dist_autograd.backward(context_id, another)
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [41 * 3.0] * 2
        assert rpc.rpc_sync(last, gradient_of, args=(context_id,)) == [41.0] * 2
    nothing_left(rpc_world)


def differentiate_there(context_id: int, x: tp.Tensor) -> None:
    dist_autograd.backward(context_id, times_parameter(x).sum(), retain_graph=True)


@pytest.mark.mpi(min_size=2)
def test_passes_that_several_workers_start_in_one_context_at_once(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    x = leaf()
    others = range(1, rpc_world.size)
    with dist_autograd.context() as context_id:
        calls = [
            rpc.rpc_async(worker, differentiate_there, args=(context_id, x))
            for worker in [*others] * 10
        ]
        for call in calls:
            call.wait()
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [30.0 * len(others)] * 2
        for worker in others:
            assert rpc.rpc_sync(worker, gradient_of, args=(context_id,)) == [10.0, 10.0]
    nothing_left(rpc_world)


class Failing(tp.autograd.Function):
    """The identity; its rule fails."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise OSError(28, "no space on this worker")


class Slow(tp.autograd.Function):
    """The identity; its rule takes longer than anybody waits."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        time.sleep(0.5)
        return grad


def failing(x: Any) -> Any:
    return Failing.apply(x)


def slow(x: Any) -> Any:
    return Slow.apply(x)


@pytest.mark.mpi(min_size=2)
def test_what_a_rule_raises_arrives_and_the_context_goes_on(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    last = rpc_world.size - 1
    x = leaf()
    with dist_autograd.context() as context_id:
        for _ in range(10):
            with pytest.raises(OSError, match="no space on this worker") as caught:
                dist_autograd.backward(
                    context_id, rpc.rpc_sync(1, via, args=([last], failing, x)).sum()
                )
            assert caught.value.errno == 28
            assert f"worker{last}" in str(caught.value.__cause__)
        with pytest.raises(rpc.RpcTimeoutError):
            dist_autograd.backward(
                context_id, rpc.rpc_sync(1, via, args=([last], slow, x)).sum(), timeout=0.1
            )
        loss = rpc.rpc_sync(1, via, args=([last], times_parameter, x)).sum()
        dist_autograd.backward(context_id, loss)
        assert dist_autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]
    nothing_left(rpc_world)


def test_many_threads_of_all_workers_against_one(rpc_world: RpcWorld) -> None:
    errors: list[BaseException] = []

    def trainer(scale: float) -> None:
        try:
            for _ in range(3):
                x = leaf(scale)
                with dist_autograd.context() as context_id:
                    there = rpc.rpc_async(0, times_parameter, args=(x,))
                    loss = there.wait() + rpc.rpc_sync(0, mul, args=(x, x))
                    dist_autograd.backward(context_id, loss.sum())
                    grads = dist_autograd.get_gradients(context_id)
                    assert grads[x].tolist() == [3.0 + 2 * scale] * 2
                    found = rpc.rpc_sync(0, gradient_of, args=(context_id,))
                    assert found == [scale] * 2
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=trainer, args=(float(n + 1),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    nothing_left(rpc_world)


@pytest.mark.mpi(min_size=2)
def test_many_contexts_leave_nothing_behind(rpc_world: RpcWorld) -> None:
    largest = 0
    for _ in range(300):
        x = leaf()
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(rpc_world.next, times_parameter, args=(x,)).sum()
            dist_autograd.backward(context_id, loss)
        largest = max(largest, left_over()[0])
    assert largest < 100
    nothing_left(rpc_world)


def test_it_all_works_again_in_a_second_session(world: RpcWorld) -> None:
    for _ in range(3):
        rpc.init_rpc()
        x = leaf()
        with dist_autograd.context() as context_id:
            assert context_id == world.rank << 48
            dist_autograd.backward(context_id, rpc.rpc_sync(world.next, twice, args=(x,)).sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]
        rpc.shutdown(timeout=30)
