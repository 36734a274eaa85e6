"""What a call costs, against the raw MPI operation and against torch, in the same run.

    mpiexec -n 2 python benchmarks/calls.py [--rounds 5] [--calls 2000] [--peer PYTHON]

Each round measures MPI's own pickled ping-pong (``comm.send``/``comm.recv``) and one of
preallocated memory (``Send``/``Recv``), then the calls between `init_rpc` and `shutdown`, then the
same program in torch's RPC, if `--peer` names a Python that has torch (by default this one, if it
has).  Printed: the median over all rounds, the lowest and highest median of a round, and the ratios
to the raw operation and to torch of the same round (medians over rounds).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import operations
from operations import SIZES, times

import tensorplay as tp
from tensorplay.distributed import autograd, rpc

PING_PONG = "raw pickled ping-pong"


def raw_ping_pong(comm, count: int) -> float:
    """Median seconds of a small pickled tuple there and back; on rank 0."""
    message = (1, "name", None, 3.0)

    def there_and_back() -> None:
        comm.send(message, 1)
        comm.recv(source=1)

    def back() -> None:
        comm.send(comm.recv(source=0), 0)

    return both(comm, there_and_back, back, count)


def raw_memory(comm, size: int, count: int) -> float:
    """Median seconds of so many bytes there and back, in preallocated memory; on rank 0."""
    buffer = np.ones(size, np.uint8)

    def there_and_back() -> None:
        comm.Send(buffer, 1)
        comm.Recv(buffer, 1)

    def back() -> None:
        comm.Recv(buffer, 0)
        comm.Send(buffer, 0)

    return both(comm, there_and_back, back, count)


def both(comm, first: Callable[[], None], second: Callable[[], None], count: int) -> float:
    result = times(second if comm.Get_rank() else first, count)
    comm.Barrier()
    return result


def measure_raw(comm, calls: int) -> dict[str, float]:
    found = {PING_PONG: raw_ping_pong(comm, calls)}
    for name, size in SIZES.items():
        found[f"raw {name}"] = raw_memory(comm, size, max(3, min(calls // 10, (256 << 20) // size)))
    return found


def measure_peer(
    python: str, calls: int, size: int = 2, what: str = "operations"
) -> dict[str, float]:
    peer = Path(__file__).with_name("peer.py")
    command = [python, str(peer), "--calls", str(calls), "--size", str(size), "--what", what]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return json.loads(ran.stdout.splitlines()[-1])


def wait_for_all(comm) -> None:
    """A barrier that leaves the cores to whoever measures meanwhile."""
    barrier = comm.Ibarrier()
    while not barrier.Test():
        time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    has_torch = importlib.util.find_spec("torch") is not None
    parser.add_argument("--peer", metavar="PYTHON", default=sys.executable if has_torch else None)
    args = parser.parse_args()

    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.Get_size() < 2:
        raise SystemExit("needs two ranks: mpiexec -n 2 python benchmarks/calls.py")
    operations.use(tp, rpc, autograd)
    pair = comm.Split(0 if comm.Get_rank() < 2 else MPI.UNDEFINED, comm.Get_rank())
    raw, ours, peers = [], [], []
    for _ in range(args.rounds):
        if comm.Get_rank() < 2:
            raw.append(measure_raw(pair, args.calls))
        wait_for_all(comm)
        rpc.init_rpc()
        if comm.Get_rank() == 0:
            ours.append(operations.measure(args.calls))
        rpc.shutdown()
        if comm.Get_rank() == 0 and args.peer:
            peers.append(measure_peer(args.peer, args.calls // 4))
        wait_for_all(comm)
    if comm.Get_rank() == 0:
        library = MPI.Get_library_version().splitlines()[0].rstrip("\0")
        print(f"{library}; {comm.Get_size()} ranks; microseconds")
        show(raw, ours, peers)


def show(
    raw: list[dict[str, float]], ours: list[dict[str, float]], peers: list[dict[str, float]]
) -> None:
    """The table."""
    columns = ("median", "lowest", "highest", "to raw", "torch", "to torch")
    print(f"{'':26}" + "".join(f"{column:>11}" for column in columns))
    for name in raw[0]:
        print(line(name, [found[name] for found in raw]))
    for name in ours[0]:
        values = [found[name] for found in ours]
        base = name.replace("echo of", "raw")
        base = base if base in raw[0] else PING_PONG
        text = line(name, values) + f"{ratio(values, [found[base] for found in raw]):11.2f}"
        if peers:
            theirs = [found[name] for found in peers]
            text += f"{median(theirs) * 1e6:11.1f}{ratio(values, theirs):11.3f}"
        print(text)


def line(name: str, seconds: list[float]) -> str:
    figures = (median(seconds), min(seconds), max(seconds))
    return f"{name:26}" + "".join(f"{figure * 1e6:11.1f}" for figure in figures)


def ratio(values: list[float], base: list[float]) -> float:
    return median(value / other for value, other in zip(values, base, strict=True))


if __name__ == "__main__":
    main()
