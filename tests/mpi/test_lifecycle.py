"""Starting and ending: time and again, at once, with work under way, and without grace."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from mpi.conftest import RpcWorld
from mpi.served import LIMIT, eventually, gate, here, hold, identity
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import agent

pytestmark = pytest.mark.mpi


@pytest.mark.ranks(1, 2, 4)
def test_hundred_times_in_one_process(world: RpcWorld) -> None:
    """Every other time with calls, and with a graph of references left over."""
    left: list[Any] = []
    threads = threading.active_count()
    for round_ in range(100):
        rpc.init_rpc()
        if round_ % 2:
            rref = rpc.remote(world.next, identity, args=([round_],))
            assert rpc.rpc_sync(world.next, identity, args=(rref,)).to_here() == [round_]
            left.append([rref, left])
            del left[:-20]
        rpc.shutdown()
    assert threading.active_count() <= threads


def test_job_that_made_no_call_leaves_at_once(world: RpcWorld) -> None:
    world.comm.Barrier()
    rpc.init_rpc()
    start = time.monotonic()
    rpc.shutdown()
    # No time limit of any protocol's stands in between; a busy machine is not a fault.
    assert time.monotonic() - start < 2


visited: list[int] = []


def walk(depth: int, size: int) -> None:
    """Go on to another worker without waiting for it."""
    visited.append(depth)
    if depth:
        to = (here() + 1 + depth % max(1, size - 1)) % size
        rpc.rpc_async(to, walk, args=(depth - 1, size))


def test_chains_of_calls_from_all_ranks_end_before_anybody_leaves(world: RpcWorld) -> None:
    visited.clear()
    world.comm.Barrier()
    rpc.init_rpc()
    for _ in range(5):
        walk(20, world.size)
    rpc.shutdown()
    total = sum(world.comm.allgather(len(visited)))
    assert total == 5 * 21 * world.size


def walk_by_remote(depth: int, size: int) -> Any:
    visited.append(depth)
    if depth == 0:
        return None
    return rpc.remote((here() + 1) % size, walk_by_remote, args=(depth - 1, size))


def walk_by_callback(depth: int, size: int) -> None:
    visited.append(depth)
    if depth:
        to = (here() + 1) % size
        rpc.rpc_async(to, here).then(lambda _: walk_by_callback(depth - 1, size))


@pytest.mark.parametrize("walk_otherwise", [walk_by_remote, walk_by_callback])
def test_chains_of_other_kinds_end_too(world: RpcWorld, walk_otherwise: Any) -> None:
    visited.clear()
    world.comm.Barrier()
    rpc.init_rpc()
    walk_otherwise(20, world.size)
    rpc.shutdown()
    assert sum(world.comm.allgather(len(visited))) == 21 * world.size


def test_every_outstanding_future_fails_at_ungraceful_shutdown(
    closed_gate: None, world: RpcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The calls that are held would keep their threads for longer.
    monkeypatch.setattr(agent, "_STOP_PATIENCE", 0.1)
    rpc.init_rpc()
    size = world.size
    futures = [rpc.rpc_async(i % size, hold, args=(i,)) for i in range(30)]
    creations = [rpc.remote(i % size, hold, args=(i,)) for i in range(10)]
    then = [future.then(lambda f: f.wait()) for future in futures]
    chained = [future.then(lambda f: f.wait()) for future in then]
    called = threading.Event()
    futures[0].add_done_callback(lambda f: called.set())
    errors: list[BaseException] = []
    waiting = threading.Event()

    def wait_in_thread() -> None:
        waiting.set()
        try:
            futures[3].wait()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait_in_thread)
    thread.start()
    assert waiting.wait(LIMIT)
    world.comm.Barrier()
    rpc.shutdown(graceful=False)
    for future in (*futures, *then, *chained):
        assert future.done()
        with pytest.raises(RuntimeError, match="shut down"):
            future.wait()
    assert called.wait(LIMIT)
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert "shut down" in str(errors[0])
    for rref in creations:
        with pytest.raises(RuntimeError, match=r"shut down|has not been initialized"):
            rref.to_here()
    gate.open()
    world.comm.Barrier()
    # What was held back then does not disturb what comes now.
    rpc.init_rpc()
    assert rpc.rpc_sync(world.next, here) == world.next
    rpc.shutdown()


@pytest.mark.mpi(min_size=3)
def test_shutdown_names_all_who_did_not_come(world: RpcWorld) -> None:
    rpc.init_rpc()
    late = world.rank != 0 and world.rank != world.size - 1
    if late:
        world.comm.Barrier()
    else:
        with pytest.raises(rpc.RpcTimeoutError) as info:
            rpc.shutdown(timeout=0.3)
        text = str(info.value)
        for rank in world.everybody:
            assert (f"worker{rank}" in text) == (0 < rank < world.size - 1)
        world.comm.Barrier()
    if late:
        # The others have gone; those that remain leave in good order.
        rpc.shutdown(timeout=LIMIT)
    world.comm.Barrier()
    rpc.init_rpc()
    assert rpc.rpc_sync(world.next, here) == world.next
    rpc.shutdown()


def test_shutdown_from_another_thread(world: RpcWorld) -> None:
    rpc.init_rpc()
    errors: list[BaseException] = []

    def end() -> None:
        try:
            rpc.shutdown(timeout=LIMIT)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert errors == []
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rpc.rpc_sync(0, here)


def test_threads_end_with_rpc(world: RpcWorld) -> None:
    before = threading.active_count()
    rpc.init_rpc()
    futures = [rpc.rpc_async(world.next, identity, args=(i,)) for i in range(50)]
    assert [future.wait() for future in futures] == list(range(50))
    rpc.shutdown()
    eventually(lambda: threading.active_count() <= before)


def test_shutdown_from_several_threads_at_once(world: RpcWorld) -> None:
    rpc.init_rpc()
    errors: list[BaseException] = []
    together = threading.Barrier(3)

    def end() -> None:
        together.wait()
        try:
            rpc.shutdown(timeout=LIMIT)
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=end) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT)
    assert len(errors) == 2
    for error in errors:
        assert "under way on another thread" in str(error) or "initialized" in str(error)
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rpc.shutdown()


@pytest.mark.parametrize(
    ("timeout", "kind"),
    [("a", TypeError), (None, TypeError), (float("nan"), ValueError), (-3, ValueError)],
)
def test_shutdown_with_a_bad_timeout_does_nothing(
    rpc_world: RpcWorld, timeout: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="timeout"):
        rpc.shutdown(timeout=timeout)
    assert rpc.rpc_sync(rpc_world.next, here) == rpc_world.next
