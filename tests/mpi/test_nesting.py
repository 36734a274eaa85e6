"""Calls that wait for calls, in every way that could starve a worker of threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mpi.conftest import RpcWorld
from mpi.served import LIMIT, Gate, add, eventually, gate, here, hold, identity, open_gate
from tensorplay.distributed import rpc

pytestmark = pytest.mark.mpi


def bounce(depth: int, partner: int) -> int:
    """Call back and forth between two workers; the number of calls."""
    if depth == 0:
        return 0
    return 1 + int(rpc.rpc_sync(partner, bounce, args=(depth - 1, here())))


def test_two_workers_call_each_other_fifty_deep(rpc_world: RpcWorld) -> None:
    assert bounce(50, rpc_world.next) == 50


def test_five_such_towers_of_calls_at_once(rpc_world: RpcWorld) -> None:
    futures = [rpc.rpc_async(rpc_world.next, bounce, args=(50, rpc_world.rank)) for _ in range(5)]
    assert [future.wait() for future in futures] == [50] * 5


def test_two_hundred_blocked_calls_wait_for_one_more(
    closed_gate: None, rpc_world: RpcWorld
) -> None:
    # All on rank 0, from all ranks.
    share = 200 // rpc_world.size + 1
    futures = [rpc.rpc_async(0, hold, args=(i,)) for i in range(share)]
    if rpc_world.rank == 0:
        eventually(lambda: gate.held == share * rpc_world.size)
        rpc.rpc_sync(0, open_gate)
    assert [future.wait() for future in futures] == list(range(share))


def ask_to_open(to: int) -> None:
    rpc.rpc_sync(to, open_gate)


def test_blocked_call_waits_for_a_call_of_a_third_worker(
    closed_gate: None, rpc_world: RpcWorld
) -> None:
    future = rpc.rpc_async(rpc_world.next, hold, args=(5,))
    third = (rpc_world.rank + 2) % rpc_world.size
    rpc.rpc_sync(third, ask_to_open, args=(rpc_world.next,))
    assert future.wait() == 5


def test_callbacks_wait_for_other_calls(rpc_world: RpcWorld) -> None:
    to = rpc_world.next

    def callback(future: rpc.Future) -> Any:
        inner = rpc.rpc_async(to, add, args=(future.wait(), 1))
        # A callback of a callback, which waits as well.
        return inner.then(lambda f: rpc.rpc_sync(to, add, args=(f.wait(), 1))).wait()

    futures = [rpc.rpc_async(to, identity, args=(i,)).then(callback) for i in range(100)]
    assert [future.wait() for future in futures] == [i + 2 for i in range(100)]


def test_futures_that_only_wait_for_the_one_before(rpc_world: RpcWorld) -> None:
    future = rpc.rpc_async(rpc_world.next, identity, args=(5,))
    for _ in range(500):
        future = future.then(lambda f: f.wait())
    assert future.wait() == 5


#: Holds calls until their callbacks have been registered: else these would run where they are.
registration = Gate()


@pytest.fixture
def closed_registration() -> Iterator[None]:
    registration.close()
    yield
    registration.open()


def hold_for_registration(value: Any) -> Any:
    registration.hold()
    return value


def end_registration() -> None:
    registration.open()


def test_callbacks_in_a_loop_wait_for_a_blocked_call(
    closed_gate: None, closed_registration: None, rpc_world: RpcWorld
) -> None:
    blocked = rpc.rpc_async(rpc_world.next, hold, args=(5,))
    waiting = [
        rpc.rpc_async(rpc_world.next, hold_for_registration, args=(i,)).then(
            lambda _: blocked.wait()
        )
        for i in range(100)
    ]
    rpc.rpc_sync(rpc_world.next, end_registration)
    assert not blocked.done()
    assert rpc.rpc_sync(rpc_world.next, here) == rpc_world.next
    rpc.rpc_sync(rpc_world.next, open_gate)
    assert [future.wait() for future in waiting] == [5] * 100


def test_done_callback_waits_for_another_call(rpc_world: RpcWorld) -> None:
    results: list[Any] = []
    finished = threading.Event()

    def callback(future: rpc.Future) -> None:
        results.append(rpc.rpc_sync(rpc_world.next, add, args=(future.wait(), 1)))
        finished.set()

    rpc.rpc_async(rpc_world.next, identity, args=(5,)).add_done_callback(callback)
    assert finished.wait(LIMIT)
    assert results == [6]


# -- finalisers ----------------------------------------------------------------------------------


class CallsInTheEnd:
    """Its finaliser, which may run in the middle of anything, makes a call."""

    futures: list[rpc.Future] = []  # noqa: RUF012

    def __init__(self, to: int) -> None:
        self.to = to
        self.itself = self  # only Python's collector ends it

    def __del__(self) -> None:
        CallsInTheEnd.futures.append(rpc.rpc_async(self.to, identity, args=(7,)))


class DropsInTheEnd:
    """A cycle that holds a reference: dropped whenever the collector runs."""

    def __init__(self, rref: Any) -> None:
        self.rref = rref
        self.itself = self


class CollectsWhileItIsPickled:
    """Runs the collector in the middle of the packing of a message, or of its unpacking."""

    def __reduce__(self) -> Any:
        gc.collect()
        return (collect_and_return, ())


def collect_and_return() -> int:
    gc.collect()
    return 9


@pytest.fixture
def rare_collections() -> Any:
    """No collection but where the test asks for one, and those quick: of new objects only."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def test_finaliser_makes_a_call_while_another_is_packed(
    rare_collections: None, rpc_world: RpcWorld
) -> None:
    CallsInTheEnd.futures.clear()
    for _ in range(20):
        CallsInTheEnd(rpc_world.next)
        got = rpc.rpc_sync(rpc_world.next, identity, args=([CollectsWhileItIsPickled()],))
        assert got == [9]
    gc.collect()
    assert len(CallsInTheEnd.futures) == 20
    assert {future.wait() for future in CallsInTheEnd.futures} == {7}


def test_finaliser_drops_references_while_a_call_is_packed(
    rare_collections: None, rpc_world: RpcWorld
) -> None:
    for _ in range(20):
        DropsInTheEnd(rpc.remote(rpc_world.next, identity, args=(5,)))
        DropsInTheEnd(rpc.RRef(6))
        got = rpc.rpc_sync(rpc_world.next, identity, args=([CollectsWhileItIsPickled()],))
        assert got == [9]
    gc.collect()
    eventually(lambda: rpc.statistics().values_owned == 0)


def test_finalisers_run_at_any_moment_of_many_calls(rpc_world: RpcWorld) -> None:
    CallsInTheEnd.futures.clear()
    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)  # in the middle of everything
    try:
        for i in range(150):
            CallsInTheEnd(rpc_world.next)
            DropsInTheEnd(rpc.remote(rpc_world.next, identity, args=([i],)))
            assert rpc.rpc_async(rpc_world.next, add, args=(i, 1)).wait() == i + 1
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert {future.wait() for future in CallsInTheEnd.futures} == {7}
    eventually(lambda: rpc.statistics().values_owned == 0)
