"""A rank leaves without waiting for the others, which go on and leave in good order later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from mpi.conftest import RpcWorld
from mpi.served import LIMIT, add, digest, gate, here, hold, identity
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import agent as agent_module
from tensorplay.distributed.rpc.current import current_agent

pytestmark = [pytest.mark.mpi, pytest.mark.ranks(2, 4)]

LONG = np.arange(1 << 20, dtype=np.float64)
#: Calls with long arguments and results that one thread keeps under way.
AT_ONCE = 3


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that leaves cuts off what is under way, and threads that are held."""
    monkeypatch.setattr(agent_module, "_PARTING_PATIENCE", 0.05)
    monkeypatch.setattr(agent_module, "_STOP_PATIENCE", 0.1)


class Stream:
    """A thread that calls another rank with long arrays, until that fails or it is ended."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.under_way: deque[rpc.Future] = deque()
        self.error: BaseException | None = None
        self._ending = threading.Event()
        self._several = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self.under_way.append(rpc.rpc_async(self.to, identity, args=(LONG,), timeout=LIMIT))
                if len(self.under_way) > AT_ONCE:
                    future = self.under_way[0]
                    assert np.array_equal(future.wait(), LONG)
                    self.under_way.popleft()
                    self._several.set()
        except BaseException as error:
            self.error = error
            self._several.set()

    def wait_for_several(self) -> None:
        assert self._several.wait(LIMIT)

    def wait_for_error(self) -> BaseException | None:
        self._thread.join(2 * LIMIT)
        assert not self._thread.is_alive()
        return self.error

    def end(self) -> None:
        self._ending.set()
        assert self.wait_for_error() is None


def outcomes(futures: Iterable[rpc.Future]) -> list[Any]:
    """The results of futures, or their errors; waits for them."""
    ends = []
    for future in futures:
        try:
            ends.append(future.wait())
        except RuntimeError as error:
            ends.append(error)
    return ends


def check_cut_off(stream: Stream, kind: type[Exception], text: str) -> None:
    """The stream has been ended by this error, and none of its calls is left without an end."""
    ends = [stream.wait_for_error(), *outcomes(stream.under_way)]
    for end in ends:
        if isinstance(end, BaseException):
            assert isinstance(end, kind)
            assert text in str(end)
        else:
            assert np.array_equal(end, LONG)
    assert isinstance(ends[0], kind)


def leave_amid_transfers(world: RpcWorld) -> None:
    streams = [Stream(to) for to in world.everybody if to != world.rank]
    held = [rpc.rpc_async(to, hold, timeout=0) for to in world.everybody]
    for stream in streams:
        stream.wait_for_several()
    world.comm.Barrier()
    rpc.shutdown(graceful=False)
    for stream in streams:
        check_cut_off(stream, RuntimeError, "RPC")
    assert all("RPC was shut down" in str(end) for end in outcomes(held))


def go_on(world: RpcWorld, gone: int) -> None:
    others = [rank for rank in world.everybody if rank not in (gone, world.rank)]
    there = Stream(gone)
    streams = [Stream(to) for to in others]
    held = [rpc.rpc_async(gone, hold, timeout=0) for _ in range(5)]
    created = rpc.remote(gone, hold, timeout=0)
    for stream in (there, *streams):
        stream.wait_for_several()
    world.comm.Barrier()
    check_cut_off(there, rpc.WorkerLeftError, f"'worker{gone}' has left")
    assert all(isinstance(end, rpc.WorkerLeftError) for end in outcomes(held))
    uses: list[Callable[[], Any]] = [created.to_here, lambda: rpc.rpc_sync(gone, here)]
    for use in uses:
        with pytest.raises(rpc.WorkerLeftError, match=f"'worker{gone}' has left"):
            use()
    for stream in streams:
        stream.end()
        assert all(np.array_equal(end, LONG) for end in outcomes(stream.under_way))
    for to in others:
        assert rpc.rpc_sync(to, digest, args=(LONG,)) == digest(LONG)
        assert rpc.rpc_sync(to, add, args=(to, 1)) == to + 1
    gate.open()  # for the calls of the one that has left
    agent = current_agent()
    rpc.shutdown(timeout=LIMIT)
    assert agent.calls_outstanding == 0


@pytest.mark.parametrize("first_goes", [True, False])
def test_departure_amid_long_transfers(
    closed_gate: None, little_patience: None, world: RpcWorld, first_goes: bool
) -> None:
    gone = 0 if first_goes else world.size - 1
    rpc.init_rpc()
    if world.rank == gone:
        leave_amid_transfers(world)
        gate.open()
    else:
        go_on(world, gone)
    world.comm.Barrier()
    # All of them together, as if nothing had been.
    rpc.init_rpc()
    for to in world.everybody:
        assert rpc.rpc_sync(to, digest, args=(LONG,)) == digest(LONG)
    rpc.shutdown(timeout=LIMIT)
    # Each by itself, so that MPI gives new communicators the numbers of any that were freed.
    for _ in range(10):
        part = world.comm.Split(world.rank)
        rpc.init_rpc(comm=part)
        assert rpc.rpc_sync(0, add, args=(1, 2)) == 3
        rpc.shutdown()
        part.Free()


@pytest.mark.ranks(4)
def test_one_after_the_other_departs(closed_gate: None, world: RpcWorld) -> None:
    """Each time the first of those that remain, until the last one shuts down in good order."""
    rpc.init_rpc()
    for gone in range(world.size - 1):
        world.comm.Barrier()
        if world.rank == gone:
            rpc.shutdown(graceful=False)
        elif world.rank > gone:
            with pytest.raises(rpc.WorkerLeftError, match=f"'worker{gone}' has left"):
                # However long its answer might take.
                rpc.rpc_sync(gone, hold, timeout=0)
            for to in range(gone + 1, world.size):
                assert rpc.rpc_sync(to, here) == to
        world.comm.Barrier()
    if world.rank == world.size - 1:
        rpc.shutdown(timeout=LIMIT)
    gate.open()
    world.comm.Barrier()
