"""Nobody leaves before all have finished, or all who wait are told why."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from distributed.rpc.called import HARSH, LIMIT, Gate, Thing, here, on_first, pass_gate
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import agent as agent_module
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import set_thread_agent
from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.loopback import LoopbackWorld, Weather

# -- shutdown --------------------------------------------------------------------------------------

reached: list[int] = []


def chain(depth: int, size: int) -> None:
    """Send a call that nobody waits for, which does the same."""
    time.sleep(0.002)
    reached.append(depth)
    if depth:
        rpc.rpc_async((here() + 1) % size, chain, args=(depth - 1, size))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_chain_of_calls_that_nobody_waits_for_ends_before_anybody_leaves(size: int) -> None:
    for weather in (Weather(), HARSH):
        reached.clear()
        on_first(size, lambda: chain(30, size), weather=weather)
        assert reached == list(range(30, -1, -1))


def test_callbacks_that_call_end_before_anybody_leaves() -> None:
    ran: list[int] = []

    def program() -> None:
        def more(future: rpc.Future) -> None:
            time.sleep(0.01)
            ran.append(rpc.rpc_sync(1, here))

        for _ in range(5):
            rpc.rpc_async(1, here).add_done_callback(more)

    on_first(2, program)
    assert ran == [1] * 5


def test_worker_that_has_finished_serves_until_all_have() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            for _ in range(20):
                time.sleep(0.005)
                assert [rpc.rpc_sync(to, here) for to in range(4)] == [0, 1, 2, 3]

    run_world(4, program)


def test_call_without_an_agent() -> None:
    for call in (
        lambda: rpc.rpc_sync(0, here),
        lambda: rpc.rpc_async("worker0", here),
        lambda: rpc.remote(0, here),
        rpc.get_worker_info,
        rpc.shutdown,
    ):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            call()
    with pytest.raises(RuntimeError, match="Current RPC agent is not set! Did you initialize"):
        rpc.RRef(1)


def shut_down() -> None:
    rpc.shutdown()


def test_shutdown_by_a_served_function_or_a_callback_is_refused() -> None:
    def program() -> None:
        with pytest.raises(RuntimeError, match="called by a function that is being served"):
            rpc.rpc_sync(1, shut_down)
        future = rpc.Future()
        then = future.then(lambda f: rpc.shutdown())
        future.set_result(0)
        with pytest.raises(RuntimeError, match="called by a function that is being served"):
            then.wait()
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


class Cluster:
    """Workers that a test shuts down in its own way."""

    def __init__(self, size: int) -> None:
        world = LoopbackWorld(size)
        options = MPIRpcBackendOptions(rpc_timeout=LIMIT, switch_interval=None)
        infos = [WorkerInfo(f"worker{rank}", rank) for rank in range(size)]
        self.crashes: list[BaseException] = []
        self.agents = [
            Agent(infos, world.transport(rank), options, self.crashes.append)
            for rank in range(size)
        ]
        for agent in self.agents:
            agent.start()

    def become(self, rank: int) -> Agent:
        set_thread_agent(self.agents[rank])
        return self.agents[rank]

    def close(self) -> None:
        for agent in self.agents:
            agent.close(graceful=False)
        set_thread_agent(None)
        assert self.crashes == []


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(3)
    yield cluster
    cluster.close()


def join_all(agents: list[Agent], timeouts: list[float]) -> list[str]:
    """Have agents join, each with its timeout, none of which suffices; what each is told."""
    told = [""] * len(agents)

    def join(number: int) -> None:
        with pytest.raises(rpc.RpcTimeoutError) as info:
            agents[number].join(timeouts[number])
        told[number] = str(info.value)

    threads = [threading.Thread(target=join, args=(number,)) for number in range(len(agents))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    return told


@pytest.mark.parametrize("timeouts", [[0.5, 1.0], [1.0, 0.5], [0.5, 0.5]])
def test_shutdown_that_takes_too_long_names_who_is_missing(
    cluster: Cluster, timeouts: list[float]
) -> None:
    told = join_all(cluster.agents[:2], timeouts)
    assert told == [f"shutdown took longer than {s:g} s; not there yet: worker2" for s in timeouts]


def leave_together(agents: list[Agent]) -> None:
    """Have agents shut down in good order, at the same time."""
    errors: list[BaseException] = []

    def leave(agent: Agent) -> None:
        try:
            agent.join(LIMIT)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=leave, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT)
    assert errors == []


def test_shutdown_without_the_first_worker(cluster: Cluster) -> None:
    told = join_all(cluster.agents[1:], [0.5, 0.6])
    assert "not there yet: worker0" in told[0]
    assert "not there yet: worker0" in told[1]
    cluster.agents[0].close(graceful=False)
    leave_together(cluster.agents[1:])


def test_shutdown_that_waits_for_one_when_another_has_gone(cluster: Cluster) -> None:
    cluster.agents[0].close(graceful=False)
    (alone,) = join_all(cluster.agents[2:], [0.5])
    assert alone == "shutdown took longer than 0.5 s; not there yet: worker1"


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_others_leave_in_good_order_when_one_has_departed(cluster: Cluster, gone: int) -> None:
    remaining = [agent for agent in cluster.agents if agent.rank != gone]
    # Messages between it and the others, which nobody will count.
    for agent in cluster.agents:
        set_thread_agent(agent)
        for other in range(3):
            assert rpc.rpc_sync(other, here) == other
    cluster.agents[gone].close(graceful=False)
    leave_together(remaining)


def test_departure_while_the_others_wait_in_shutdown(cluster: Cluster) -> None:
    thread = threading.Thread(target=leave_together, args=(cluster.agents[1:],))
    thread.start()
    cluster.agents[0].close(graceful=False)
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_calls_to_a_worker_that_departs_fail_at_once(
    cluster: Cluster, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "_STOP_PATIENCE", 0.1)
    cluster.become(0)
    future = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=0)
    rref = rpc.remote(1, pass_gate, args=(gate.name,), timeout=0)
    assert gate.waiting.acquire(timeout=LIMIT)
    cluster.agents[1].close(graceful=False)
    for wait in (future.wait, rref.to_here, lambda: rpc.rpc_sync(1, here)):
        with pytest.raises(rpc.WorkerLeftError, match="worker 'worker1' has left"):
            wait()
    assert rpc.rpc_sync(2, here) == 2
    gate.event.set()


def test_shutdown_that_takes_too_long_because_somebody_works(cluster: Cluster, gate: Gate) -> None:
    cluster.become(0)
    rpc.rpc_async(1, pass_gate, args=(gate.name,))
    assert gate.waiting.acquire(timeout=LIMIT)
    told = join_all(cluster.agents, [0.3, 0.3, 0.3])
    assert told == ["shutdown took longer than 0.3 s; others still work"] * 3
    gate.event.set()


def test_calls_unanswered_at_an_abrupt_end_fail_with_all_that_hangs_on_them(
    cluster: Cluster, gate: Gate
) -> None:
    agent = cluster.become(0)
    future = rpc.rpc_async(1, pass_gate, args=(gate.name,))
    then = future.then(lambda f: f.wait())
    later = then.then(lambda f: f.wait())
    raised: list[BaseException] = []

    def wait() -> None:
        set_thread_agent(agent)
        try:
            later.wait()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert gate.waiting.acquire(timeout=LIMIT)
    agent.close(graceful=False)
    for unanswered in (future, then, later):
        with pytest.raises(RuntimeError, match="RPC was shut down before this call was answered"):
            unanswered.wait()
    thread.join(LIMIT)
    assert len(raised) == 1
    gate.event.set()


def test_agent_that_is_closed_takes_no_calls(cluster: Cluster) -> None:
    agent = cluster.become(0)
    rref = rpc.remote(1, Thing)
    own = rpc.RRef(1)
    rref.to_here()
    agent.close(graceful=False)
    for call in (lambda: rpc.rpc_sync(1, here), lambda: rpc.remote(0, here)):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            call()
    with pytest.raises(RuntimeError, match=r"Cannot call to_here\(\) on it after deletion"):
        rref.to_here()
    assert own.is_owner()


def test_reference_after_shutdown_raises() -> None:
    rrefs: list[Any] = []

    def program() -> None:
        rref = rpc.remote(1, Thing)
        rref.to_here()
        rrefs.append(rref)
        rrefs.append(rpc.RRef(1))

    on_first(2, program)
    with pytest.raises(RuntimeError, match=r"Cannot call to_here\(\) on it after deletion"):
        rrefs[0].to_here()
    for rref in rrefs:
        assert "RRef" in repr(rref)
