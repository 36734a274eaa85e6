"""Passes that are cut short, and contexts that end, among the ranks of an MPI job."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import eventually, left_over
from distributed.autograd.remote import gradient_of, times_parameter, twice, via
from mpi.conftest import RpcWorld
from mpi.served import LIMIT, gate, open_gate
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent

pytestmark = pytest.mark.mpi(min_size=2)


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


_ran = 0


class Held(tp.autograd.Function):
    """The identity, whose rule waits for its rank's gate, and is counted."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        global _ran
        _ran += 1
        gate.hold()
        return grad


def held(x: tp.Tensor) -> tp.Tensor:
    y: tp.Tensor = Held.apply(x)
    return y


def held_rules() -> int:
    return gate.held


def check_nothing_left(world: RpcWorld) -> None:
    for rank in world.everybody:
        eventually(lambda rank=rank: rpc.rpc_sync(rank, left_over) == (0, 0))  # type: ignore[misc]


def check_usable(context_id: int, last: int) -> None:
    x = leaf()
    loss = rpc.rpc_sync(1, via, args=([last], times_parameter, x)).sum()
    dist_autograd.backward(context_id, loss)
    assert dist_autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]


def test_a_pass_that_takes_too_long(closed_gate: None, rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    last = rpc_world.size - 1
    with dist_autograd.context() as context_id:
        x = leaf()
        loss = rpc.rpc_sync(1, via, args=([last], held, x)).sum()
        with pytest.raises(rpc.RpcTimeoutError, match="have not finished: worker1"):
            dist_autograd.backward(context_id, loss, timeout=0.2)
        assert x not in dist_autograd.get_gradients(context_id)
        check_usable(context_id, 1)
        with tp.no_grad():
            rpc.rpc_sync(last, open_gate)
        check_usable(context_id, last)
    check_nothing_left(rpc_world)


@pytest.mark.parametrize("who", ["starter", "holder"])
def test_a_release_during_a_pass(closed_gate: None, rpc_world: RpcWorld, who: str) -> None:
    if rpc_world.rank:
        return
    last = rpc_world.size - 1
    context_id = dist_autograd._new_context()._context_id()
    loss = rpc.rpc_sync(1, via, args=([last], held, leaf())).sum()

    def release() -> None:
        eventually(lambda: rpc.rpc_sync(last, held_rules) == 1)
        if who == "starter":
            dist_autograd._release_context(context_id)
        else:
            rpc.rpc_sync(last, dist_autograd._release_context, args=(context_id,))

    thread = threading.Thread(target=release)
    thread.start()
    with pytest.raises(RuntimeError, match=f"context {context_id} was released"):
        dist_autograd.backward(context_id, loss)
    thread.join()
    eventually(lambda: left_over() == (0, 0))
    # The thread that opened it is in it until it says so.
    with pytest.raises(RuntimeError, match="it has been released"):
        dist_autograd._release_context(context_id)
    rpc.rpc_sync(last, open_gate)
    with dist_autograd.context() as another:
        check_usable(another, last)
    check_nothing_left(rpc_world)


def ran() -> int:
    return _ran


def held_on_the_way(to: int, x: tp.Tensor) -> tp.Tensor:
    """Through this rank, with a rule before and after the call that goes on."""
    return held(rpc.rpc_sync(to, twice, args=(held(x),)))


@pytest.mark.mpi(min_size=3)
def test_a_pass_that_needs_a_rank_that_has_left(world: RpcWorld) -> None:
    """Its starter, and who else knows, run no rule; other contexts go on."""
    gate.open()
    rpc.init_rpc()
    gone = world.size - 1
    if world.rank == 0:
        check_without(world, gone)
    if world.rank in range(1, gone):
        world.comm.Barrier()
    if world.rank == gone:
        world.comm.Barrier()
        rpc.shutdown(graceful=False)
    world.comm.Barrier()
    if world.rank != gone:
        rpc.shutdown(timeout=LIMIT)


def departed_here() -> set[int]:
    return set(current_agent().departed)


def check_without(world: RpcWorld, gone: int) -> None:
    x, y = leaf(), leaf()
    before = ran()
    with dist_autograd.context() as context_id:
        aside = held(y * y).sum()
        direct = rpc.rpc_sync(gone, twice, args=(held(x),)).sum()
        with tp.no_grad():
            ran_there = rpc.rpc_sync(1, ran)
        through = rpc.rpc_sync(1, held_on_the_way, args=(gone, x)).sum()
        world.comm.Barrier()
        for rank in range(gone):
            with tp.no_grad():
                eventually(lambda rank=rank: gone in rpc.rpc_sync(rank, departed_here))  # type: ignore[misc]
        for _ in range(2):
            with pytest.raises(rpc.WorkerLeftError, match=f"worker{gone} took part"):
                dist_autograd.backward(context_id, [aside, direct, through])
            with pytest.raises(rpc.WorkerLeftError, match=f"worker{gone} took part"):
                rpc.rpc_sync(1, dist_autograd.backward, args=(context_id, through))
        assert dist_autograd.get_gradients(context_id) == {}
        assert ran() == before
        with tp.no_grad():
            assert rpc.rpc_sync(1, ran) == ran_there
        aside.backward()
        assert y.grad.tolist() == [2.0, 2.0]
    with dist_autograd.context() as another:
        check_usable(another, 1)
        assert rpc.rpc_sync(1, gradient_of, args=(another,)) == [1.0, 1.0]
    for rank in range(gone):
        eventually(lambda rank=rank: rpc.rpc_sync(rank, left_over) == (0, 0))  # type: ignore[misc]
