"""Jobs of their own: sixteen ranks, and ranks that fork."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from harness.launcher import Finished, run_ranks

CHECKOUT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.timeout(90)

HEADER = """
import os, signal, sys
from mpi4py import MPI
from tensorplay.distributed import rpc
rank = MPI.COMM_WORLD.Get_rank()

def tell(text):
    # In one piece: the lines of ranks mix otherwise.
    sys.stdout.write(f"{text} {rank}.\\n")
    sys.stdout.flush()

def here():
    return rpc.get_worker_info().id

"""


def run_program(folder: Path, size: int, body: str) -> Finished:
    script = folder / "program.py"
    script.write_text(HEADER + textwrap.dedent(body))
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return run_ranks(
        size,
        [sys.executable, str(script)],
        limit=60,
        variables={"PYTHONPATH": os.pathsep.join(paths)},
    )


def test_sixteen_ranks(tmp_path: Path) -> None:
    finished = run_program(
        tmp_path,
        16,
        """
            def walk(depth):
                if depth:
                    rpc.rpc_async((here() + 7) % 16, walk, args=(depth - 1,))
                else:
                    tell("end of the chain")

            # All sizes of worlds from 1 to 15, two side by side.
            for size in range(1, 16):
                part = MPI.COMM_WORLD.Split(rank < size, rank)
                rpc.init_rpc(comm=part)
                rpc.rpc_async((here() + 1) % rpc.get_world_size(), here)
                rpc.shutdown()
                part.Free()
            rpc.init_rpc()
            assert rpc.get_world_size() == 16
            assert [rpc.rpc_sync(to, here) for to in range(16)] == list(range(16))
            if rank == 3:
                walk(20)
            rpc.shutdown()
            tell("ended well")
        """,
    )
    assert finished.status == 0, finished.output
    assert finished.output.count("ended well") == 16
    assert finished.output.count("end of the chain") == 1


def test_child_of_a_fork_gets_a_clear_error(tmp_path: Path) -> None:
    finished = run_program(
        tmp_path,
        2,
        """
            rpc.init_rpc()
            rref = rpc.remote(1 - rank, here)
            rref.to_here()
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)  # should it hang
                for call in (
                    lambda: rpc.rpc_sync(1 - rank, here, timeout=5),
                    lambda: rpc.rpc_async(1 - rank, here),
                    lambda: rpc.remote(1 - rank, here),
                    rref.to_here,
                    rpc.shutdown,
                ):
                    try:
                        call()
                    except RuntimeError as error:
                        assert "fork" in str(error)
                    else:
                        os._exit(1)
                tell("five clear errors")
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert rpc.rpc_sync(1 - rank, here) == 1 - rank
            rpc.shutdown()
            tell("ended well")
        """,
    )
    assert finished.status == 0, finished.output
    assert finished.output.count("ended well") == 2
    assert finished.output.count("five clear errors") == 2
