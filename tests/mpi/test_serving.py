"""A rank serves whatever its main thread does, and is quiet when there is nothing to do."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpi.conftest import RpcWorld
from mpi.served import add, digest, gate, here, identity, open_gate
from tensorplay.distributed import rpc

pytestmark = pytest.mark.mpi(min_size=2)

# -- what the main thread of rank 1 does until its gate is opened ---------------------------------


def multiply_matrices(world: RpcWorld) -> None:
    matrix = np.ones((500, 500))
    while not gate.is_open:
        matrix @ matrix


def run_python(world: RpcWorld) -> None:
    steps = 0
    while not gate.is_open:
        steps += sum(i for i in range(1000))


def sleep(world: RpcWorld) -> None:
    while not gate.is_open:
        time.sleep(0.3)


def sit_in_a_barrier(world: RpcWorld) -> None:
    pass  # the barrier at the end of the test


def sort_with_a_slow_key(world: RpcWorld) -> None:
    while not gate.is_open:
        sorted(range(20_000), key=lambda i: -i)


OCCUPATIONS = [multiply_matrices, run_python, sleep, sit_in_a_barrier, sort_with_a_slow_key]


@pytest.mark.parametrize("occupation", OCCUPATIONS)
def test_rank_serves_while_its_main_thread_is_busy(
    closed_gate: None, rpc_world: RpcWorld, occupation: Callable[[RpcWorld], None]
) -> None:
    # Another communicator of the user's than COMM_WORLD.
    mine = rpc_world.comm.Dup()
    if rpc_world.rank == 1:
        occupation(rpc_world)
    elif rpc_world.rank == 0:
        for i in range(20):
            assert rpc.rpc_sync(1, add, args=(i, 1)) == i + 1
        array = np.arange(300_000.0)
        assert rpc.rpc_sync(1, digest, args=(array,)) == digest(array)
        assert np.array_equal(rpc.remote(1, identity, args=(array,)).to_here(), array)
        # It makes calls too, from the threads that serve.
        assert rpc.rpc_sync(1, call_back, args=(0,)) == 0
        rpc.rpc_sync(1, open_gate)
    mine.Barrier()
    mine.Free()


def call_back(to: int) -> Any:
    return rpc.rpc_sync(to, here)


def test_long_messages_leave_while_the_main_thread_is_busy(
    closed_gate: None, rpc_world: RpcWorld
) -> None:
    # Over a network a long send goes on only if somebody calls into MPI.
    array = np.arange(4_000_000.0)
    if rpc_world.rank == 1:
        future = rpc.rpc_async(0, digest, args=(array,))
        while not future.done():
            sum(range(1000))
        assert future.wait() == digest(array)


# -- silence -------------------------------------------------------------------------------------

IDLE_SHARE = 0.05
"""Of a core: twice and more what a quiet rank uses, and a twentieth of what a busy poll would."""
WAITING_SHARE = 0.25
"""The same for a rank that waits for an answer, and so looks more often."""


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def idle_share(seconds: float) -> float:
    """The share of a core that this process uses after a second of silence."""
    time.sleep(1)
    before, start = cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds() - before) / (time.monotonic() - start)


@pytest.mark.ranks(2, 4)
def test_idle_ranks_are_quiet_and_answer(rpc_world: RpcWorld) -> None:
    assert rpc.rpc_sync(rpc_world.next, here) == rpc_world.next
    rpc_world.comm.Barrier()
    assert idle_share(3) < IDLE_SHARE
    assert rpc.rpc_sync(rpc_world.next, here) == rpc_world.next


@pytest.mark.ranks(2)
def test_rank_that_waits_for_an_answer_is_quiet(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 1:
        return
    shares: list[float] = []
    # Longer than the measurement; it begins after a second of silence.
    future = rpc.rpc_async(1, seconds_of_silence, args=(3.5,))
    thread = threading.Thread(target=lambda: shares.append(idle_share(2)))
    thread.start()
    future.wait()
    thread.join()
    assert shares[0] < WAITING_SHARE


def seconds_of_silence(seconds: float) -> None:
    time.sleep(seconds)
