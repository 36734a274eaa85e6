"""What a call costs, against the raw MPI operation in the same run.

    mpiexec -n 2 python benchmarks/calls.py [--rounds 5] [--calls 2000]

Each round measures MPI's own pickled ping-pong (``comm.send``/``comm.recv``), then the calls
between `init_rpc` and `shutdown`.  Printed: the median over all rounds, the lowest and highest
median of a round, and the ratio to the ping-pong of the same round (median over rounds).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from tensorplay.distributed import rpc

#: Elements of the large message: 16 MiB of float32.
LARGE = 4 * 1024 * 1024


def nothing() -> None:
    """The small call."""


def echo(x: tp.Tensor) -> tp.Tensor:
    return x


def times(operation: Callable[[], object], count: int) -> float:
    """Median seconds of one operation."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        operation()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def raw_ping_pong(comm, count: int) -> float:
    """Median seconds of a small pickled tuple there and back; on rank 0."""
    message = (1, "name", None, 3.0)
    if comm.Get_rank() == 0:

        def there_and_back() -> None:
            comm.send(message, 1)
            comm.recv(source=1)

        result = times(there_and_back, count)
    else:
        result = times(lambda: comm.send(comm.recv(source=0), 0), count)
    comm.Barrier()
    return result


def raw_large(comm, count: int) -> float:
    """Median seconds of 16 MiB there and back into preallocated memory; on rank 0."""
    import numpy as np

    buffer = np.ones(LARGE, np.float32)
    if comm.Get_rank() == 0:

        def there_and_back() -> None:
            comm.Send(buffer, 1)
            comm.Recv(buffer, 1)

        result = times(there_and_back, count)
    else:

        def back() -> None:
            comm.Recv(buffer, 0)
            comm.Send(buffer, 0)

        result = times(back, count)
    comm.Barrier()
    return result


def documented_example() -> None:
    """The autograd example of PyTorch's pages: a context, a call, a backward pass."""
    with dist_autograd.context() as context_id:
        a = tp.ones(3, 3, requires_grad=True)
        b = tp.ones(3, 3, requires_grad=True)
        loss = rpc.rpc_sync(1, tp.add, (a, b)).sum()
        dist_autograd.backward(context_id, [loss])
        dist_autograd.get_gradients(context_id)


def measure(calls: int) -> dict[str, float]:
    """Rank 0's medians, in seconds."""
    small, large = tp.ones(1), tp.ones(LARGE)
    results = {
        "rpc_sync, None": times(lambda: rpc.rpc_sync(1, nothing), calls),
        "rpc_sync, 1 element": times(lambda: rpc.rpc_sync(1, echo, (small,)), calls),
        "rpc_sync, 16 MiB": times(lambda: rpc.rpc_sync(1, echo, (large,)), 20),
        "autograd example": times(documented_example, calls // 4),
    }
    began = time.perf_counter()
    for _ in range(calls // 64):
        for future in [rpc.rpc_async(1, nothing) for _ in range(64)]:
            future.wait()
    results["64 outstanding, each"] = (time.perf_counter() - began) / (calls // 64 * 64)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    args = parser.parse_args()

    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.Get_size() < 2:
        raise SystemExit("needs two ranks: mpiexec -n 2 python benchmarks/calls.py")
    pair = comm.Split(0 if comm.Get_rank() < 2 else MPI.UNDEFINED)
    rounds: list[dict[str, float]] = []
    for _ in range(args.rounds):
        found: dict[str, float] = {}
        if comm.Get_rank() < 2:
            found["raw pickled ping-pong"] = raw_ping_pong(pair, args.calls)
            found["raw 16 MiB ping-pong"] = raw_large(pair, 20)
        rpc.init_rpc()
        if comm.Get_rank() == 0:
            found |= measure(args.calls)
        rpc.shutdown()
        rounds.append(found)
    if comm.Get_rank() == 0:
        show(rounds, MPI.Get_library_version().splitlines()[0].rstrip("\0"), comm.Get_size())


def show(rounds: list[dict[str, float]], library: str, size: int) -> None:
    """The table."""
    print(f"{library}; {size} ranks; microseconds")
    print(f"{'':24} {'median':>10} {'lowest':>10} {'highest':>10} {'ratio to raw':>14}")
    for name in rounds[0]:
        values = [found[name] for found in rounds]
        raw = "raw 16 MiB ping-pong" if "16 MiB" in name else "raw pickled ping-pong"
        ratio = median([found[name] / found[raw] for found in rounds])
        low, middle, high = min(values) * 1e6, median(values) * 1e6, max(values) * 1e6
        print(f"{name:24} {middle:10.1f} {low:10.1f} {high:10.1f} {ratio:14.2f}")


if __name__ == "__main__":
    main()
