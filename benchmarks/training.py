"""What a training step costs over several workers, against torch in the same run.

    mpiexec -n 2 python benchmarks/training.py [--rounds 3] [--steps 100] [--peer PYTHON]
    mpiexec -n 4 python benchmarks/training.py ...

Two ranks: a perceptron 784-512-512-10 in one process and in two stages, with the distributed
optimizer.  Four: three trainers and a server of a perceptron 784-128-10, batch 32.  `--peer` names
a Python that has torch (by default this one, if it has).  Run with ``OPENBLAS_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys

import workloads
from calls import line, measure_peer, ratio, wait_for_all

import tensorplay as tp
from tensorplay.distributed import autograd, rpc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    has_torch = importlib.util.find_spec("torch") is not None
    parser.add_argument("--peer", metavar="PYTHON", default=sys.executable if has_torch else None)
    args = parser.parse_args()

    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    size = comm.Get_size()
    if size not in (2, 4):
        raise SystemExit("needs two or four ranks: mpiexec -n 2 python benchmarks/training.py")
    workloads.use(tp, rpc, autograd)
    ours, peers = [], []
    for _ in range(args.rounds):
        rpc.init_rpc()
        if comm.Get_rank() == 0:
            ours.append(workloads.measure(args.steps))
        rpc.shutdown()
        if comm.Get_rank() == 0 and args.peer:
            peers.append(measure_peer(args.peer, args.steps, size, "workloads"))
        wait_for_all(comm)
    if comm.Get_rank() == 0:
        library = MPI.Get_library_version().splitlines()[0].rstrip("\0")
        print(f"{library}; {size} ranks; microseconds a step")
        print(f"{'':26}" + "".join(f"{name:>11}" for name in ("median", "lowest", "highest")))
        for name in ours[0]:
            values = [found[name] for found in ours]
            print(line(name, values), end="")
            if peers:
                theirs = [found[name] for found in peers]
                print(line("   torch", theirs), f"   to torch {ratio(values, theirs):.3f}", end="")
            print()


if __name__ == "__main__":
    main()
