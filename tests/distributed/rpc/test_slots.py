"""No more requests run at once than the user allows, and none starves."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from distributed.rpc.called import LIMIT, Gate, here, on_first, pass_gate
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.slots import Slots, Task

_running = 0
_most = 0
_lock = threading.Lock()


class Machine:
    """Slots whose tasks a test executes one by one."""

    def __init__(self, limit: int) -> None:
        self.submitted: deque[Task] = deque()
        self.slots = Slots(limit, self.submitted.append)

    def admit(self, task: Task) -> bool:
        admitted = self.slots.admit(task)
        if admitted is not None:
            self.submitted.append(admitted)
        return admitted is not None

    def execute(self) -> None:
        self.submitted.popleft()()


def test_what_exceeds_the_limit_waits_for_its_turn() -> None:
    machine = Machine(2)
    done: list[int] = []
    assert [machine.admit(lambda n=n: done.append(n)) for n in range(4)] == [1, 1, 0, 0]
    assert len(machine.slots) == 2
    machine.execute()
    assert len(machine.slots) == 1
    assert len(machine.submitted) == 2
    for _ in range(3):
        machine.execute()
    assert done == [0, 1, 2, 3]
    assert [machine.admit(lambda: None) for _ in range(3)] == [True, True, False]


def test_a_task_that_raises_gives_its_slot_back() -> None:
    machine = Machine(1)
    machine.admit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        machine.execute()
    assert machine.admit(lambda: None)


def test_who_waits_lets_another_run_and_goes_on_at_once() -> None:
    machine = Machine(1)
    order: list[str] = []

    def waits() -> None:
        order.append("begins")
        with machine.slots.given_up():
            machine.execute()
        order.append("goes on")
        assert not machine.admit(lambda: order.append("last"))

    machine.admit(waits)
    machine.admit(lambda: order.append("other"))
    machine.execute()
    assert order == ["begins", "other", "goes on"]
    machine.execute()
    assert order[-1] == "last"
    assert machine.admit(lambda: None)


def test_waiting_outside_a_request_changes_nothing() -> None:
    machine = Machine(1)
    with machine.slots.given_up():
        assert machine.admit(lambda: None)
        assert not machine.admit(lambda: None)


def count_running(name: str) -> None:
    global _running, _most
    with _lock:
        _running += 1
        _most = max(_most, _running)
    pass_gate(name)
    with _lock:
        _running -= 1


@pytest.mark.parametrize("limit", [1, 2])
def test_worker_runs_no_more_requests_at_once(gate: Gate, limit: int) -> None:
    global _most
    _most = 0

    def program() -> Any:
        futures = [rpc.rpc_async(1, count_running, args=(gate.name,)) for _ in range(6)]
        for _ in range(limit):
            assert gate.waiting.acquire(timeout=LIMIT)
        with pytest.raises(rpc.RpcTimeoutError, match=f"num_worker_threads={limit} allows"):
            rpc.rpc_sync(1, here, timeout=0.5)
        gate.event.set()
        for future in futures:
            future.wait()

    on_first(2, program, num_worker_threads=limit)
    assert _most == limit


def bounce(depth: int) -> int:
    if depth == 0:
        return 0
    return 1 + rpc.rpc_sync(1 - here(), bounce, args=(depth - 1,))


def test_requests_that_call_each_other_cannot_starve() -> None:
    def program(rank: int) -> Any:
        return rpc.rpc_sync(1 - rank, bounce, args=(20,))

    assert run_world(2, program, num_worker_threads=1) == [20, 20]


def make_slowly(name: str) -> str:
    pass_gate(name)
    return "made"


def test_fetch_of_a_value_that_is_being_made(gate: Gate) -> None:
    def program() -> Any:
        rref = rpc.remote(1, make_slowly, args=(gate.name,))
        assert gate.waiting.acquire(timeout=LIMIT)
        threading.Timer(0.1, gate.event.set).start()
        return rref.to_here()

    assert on_first(2, program, num_worker_threads=1) == "made"
