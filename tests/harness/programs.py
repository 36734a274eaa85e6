"""Programs that tests write, and run as jobs of their own."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from harness.launcher import Finished, run_bounded, run_ranks

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT = 60.0
"""Seconds after which a program is ended."""

RunProgram = Callable[..., Finished]

HEADER = """
import os, sys, threading, time
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
rank = int(next((os.environ[v] for v in RANKS if v in os.environ), 0))
from tensorplay.distributed import rpc

def here():
    return rpc.get_worker_info().id

def say(text):
    # In one piece: the lines of ranks mix otherwise.
    sys.stdout.write(f"rank {rank} says {text}\\n")
    sys.stdout.flush()

"""


def program_runner(folder: Path, header: str = HEADER) -> RunProgram:
    """Return a function that runs a program of the given body on `size` ranks; 0: no launcher.

    `header` stands before the body.
    """

    def run(body: str, *, size: int = 2, **variables: str) -> Finished:
        script = folder / "program.py"
        script.write_text(header + textwrap.dedent(body))
        paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables["PYTHONPATH"] = os.pathsep.join(paths)
        command = [sys.executable, str(script)]
        if size:
            return run_ranks(size, command, limit=LIMIT, variables=variables)
        return run_bounded(command, limit=LIMIT, variables=variables)

    return run
