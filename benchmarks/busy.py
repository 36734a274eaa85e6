"""How long a caller waits for a worker whose main thread is at work.

    mpiexec -n 2 python benchmarks/busy.py [--seconds 3]

Prints the median and the 99th percentile of a small call, with the callee's main thread in
`shutdown` (free), in NumPy, in pure Python, asleep, and in an MPI barrier of its own; then what an
idle worker takes of a core, and how soon it answers its first call after a second of silence.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from tensorplay.distributed import rpc


def nothing() -> None:
    """The small call."""


def in_numpy(until: float) -> None:
    a = np.ones((300, 300))
    while time.monotonic() < until:
        a = a @ a / 300.0


def in_python(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1000))


def asleep(until: float) -> None:
    time.sleep(max(0.0, until - time.monotonic()))


BUSY: dict[str, Callable[[float], None]] = {
    "free": lambda until: None,
    "in NumPy": in_numpy,
    "in Python": in_python,
    "asleep": asleep,
}


def call_for(seconds: float) -> list[float]:
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        rpc.rpc_sync(1, nothing)
        found.append((time.perf_counter() - began) * 1e6)
    return sorted(found)


def show(name: str, found: list[float]) -> None:
    print(f"{name:16} {found[len(found) // 2]:10.1f} {found[len(found) * 99 // 100]:10.1f}")


def idle(comm) -> None:
    """What a worker takes that does nothing, and its first answers afterwards."""
    time.sleep(1.0)
    before = time.process_time()
    time.sleep(3.0)
    share = (time.process_time() - before) / 3.0
    comm.Barrier()
    firsts = []
    for _ in range(10):
        time.sleep(1.0)
        if comm.Get_rank() == 0:
            began = time.perf_counter()
            rpc.rpc_sync(1, nothing)
            firsts.append((time.perf_counter() - began) * 1e6)
    if comm.Get_rank() == 0:
        print(
            f"idle: {share:.1%} of a core; first call {statistics.median(firsts):.0f} us (median)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds

    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    rpc.init_rpc()
    if rank == 0:
        print(f"{'callee is':16} {'median us':>10} {'99 % us':>10}")
    for name, work in BUSY.items():
        comm.Barrier()
        if rank == 0:
            show(name, call_for(seconds))
        elif rank == 1:
            work(time.monotonic() + seconds)
        asleep(time.monotonic() + 0.1)
    comm.Barrier()
    if rank == 0:
        show("in a barrier", call_for(seconds))
    comm.Barrier()
    idle(comm)
    rpc.shutdown()


if __name__ == "__main__":
    main()
