"""Backward passes that need a worker that has left end with an error, everywhere and at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import LIMIT, eventually, left_over, rank
from tensorplay.distributed import autograd, rpc
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import set_thread_agent
from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.loopback import LoopbackWorld

SIZE = 3
reached = threading.Event()
leave = threading.Event()


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    """Three workers; the thread of the test is worker 0's."""
    world = LoopbackWorld(SIZE)
    options = MPIRpcBackendOptions(rpc_timeout=LIMIT, switch_interval=None)
    infos = [WorkerInfo(f"worker{rank}", rank) for rank in range(SIZE)]
    crashes: list[BaseException] = []
    agents = [Agent(infos, world.transport(r), options, crashes.append) for r in range(SIZE)]
    for agent in agents:
        agent.start()
    set_thread_agent(agents[0])
    reached.clear()
    leave.clear()
    yield agents
    leave.set()
    for agent in agents:
        agent.close(graceful=False)
    set_thread_agent(None)
    assert crashes == []


def twice(x: Any) -> Any:
    return x * 2


def twice_on(worker: int, x: Any) -> Any:
    return rpc.rpc_sync(worker, twice, args=(x,))


class Held(tp.autograd.Function):
    """The identity, whose rule waits."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        reached.set()
        assert leave.wait(LIMIT)
        return grad


def held(x: Any) -> Any:
    return Held.apply(x)


def check_that_others_go_on() -> None:
    x = tp.ones(2, requires_grad=True)
    with autograd.context() as context_id:
        autograd.backward(context_id, [rpc.rpc_sync(1, twice, args=(x,)).sum()])
        assert autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]
    for worker in (0, 1):
        eventually(lambda worker=worker: rpc.rpc_sync(worker, left_over) == (0, 0))


@pytest.mark.parametrize("through", [False, True], ids=["callee", "callee of the callee"])
def test_pass_that_begins_after_the_departure(agents: list[Agent], through: bool) -> None:
    x = tp.ones(2, requires_grad=True)
    with autograd.context() as context_id:
        if through:
            loss = rpc.rpc_sync(1, twice_on, args=(2, x)).sum()
        else:
            loss = rpc.rpc_sync(2, twice, args=(x,)).sum()
        agents[2].close(graceful=False)
        eventually(lambda: 2 in agents[0].departed and 2 in agents[1].departed)
        for _ in range(2):
            with pytest.raises(rpc.WorkerLeftError, match="worker2 took part"):
                autograd.backward(context_id, [loss], retain_graph=True)
    check_that_others_go_on()


def depart(agents: list[Agent], worker: int) -> None:
    """In a thread of its own: the closing one leaves the context that it is in."""
    closing = threading.Thread(target=agents[worker].close, kwargs={"graceful": False})
    closing.start()
    closing.join(LIMIT)
    for other in agents:
        if other is not agents[worker]:
            eventually(lambda other=other: worker in other.departed)


_ran_on: list[int] = []


class Noted(tp.autograd.Function):
    """The identity; notes where its rule runs."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        _ran_on.append(rank())
        return grad


def noted_on_the_way(workers: list[int], x: Any) -> Any:
    if not workers:
        return Noted.apply(x)
    y = rpc.rpc_sync(workers[0], noted_on_the_way, args=(workers[1:], Noted.apply(x)))
    return Noted.apply(y)


def test_pass_that_cannot_end_uses_up_nothing_where_that_is_known(agents: list[Agent]) -> None:
    """The workers that have exchanged messages with the one that left run no rule."""
    _ran_on.clear()
    x, y = (tp.ones(2, requires_grad=True) for _ in range(2))
    with autograd.context() as context_id:
        aside = Noted.apply(y * y)
        through = rpc.rpc_sync(1, noted_on_the_way, args=([2, 0], x))
        beyond = rpc.rpc_sync(1, noted_on_the_way, args=([0], x))
        depart(agents, 2)
        for _ in range(3):
            with pytest.raises(rpc.WorkerLeftError, match="worker2 took part"):
                autograd.backward(context_id, [aside.sum(), through.sum(), beyond.sum()])
            with pytest.raises(rpc.WorkerLeftError, match="worker2 took part"):
                rpc.rpc_sync(1, autograd.backward, args=(context_id, [beyond.sum()]))
        assert _ran_on == []
        assert autograd.get_gradients(context_id) == {}
        # What needs nobody else is still whole.
        aside.sum().backward()
        assert y.grad.tolist() == [2.0, 2.0]
        assert autograd._get_debug_info()["num_current_backward_passes"] == 0
    check_that_others_go_on()


def test_pass_of_a_worker_that_does_not_know_who_has_left(agents: list[Agent]) -> None:
    """It starts; whoever knows runs none of its rules."""
    _ran_on.clear()
    x = tp.ones(2, requires_grad=True)
    with autograd.context() as context_id:
        loss = rpc.rpc_sync(1, noted_on_the_way, args=([2], x)).sum()
        depart(agents, 2)
        with pytest.raises(rpc.WorkerLeftError, match="worker2 took part"):
            autograd.backward(context_id, [loss])
        assert _ran_on == []
        assert autograd.get_gradients(context_id) == {}
    check_that_others_go_on()


def test_pass_that_is_under_way(agents: list[Agent]) -> None:
    x = tp.ones(2, requires_grad=True)
    errors: list[BaseException] = []

    def differentiate() -> None:
        set_thread_agent(agents[0])
        try:
            with autograd.context() as context_id:
                loss = rpc.rpc_sync(2, held, args=(x,)).sum()
                autograd.backward(context_id, [loss])
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=differentiate)
    thread.start()
    assert reached.wait(LIMIT)
    closing = threading.Thread(target=agents[2].close, kwargs={"graceful": False})
    closing.start()
    thread.join(LIMIT)
    (error,) = errors
    assert isinstance(error, rpc.WorkerLeftError)
    leave.set()
    closing.join(LIMIT)
    check_that_others_go_on()
