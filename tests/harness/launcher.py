"""Start a program as the ranks of one MPI world, and be sure that it ends."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_SECONDS = 5.0
"""How long a launcher may take to end its ranks after SIGTERM."""

STACKS_SECONDS = 1.0
"""How long ranks get to write their stacks after SIGUSR1."""


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit status (None: ended by the time limit), output and duration."""

    status: int | None
    output: str
    seconds: float


def no_ranks() -> list[int]:
    return []


def launcher() -> list[str]:
    """Return the command that starts ranks: what MPIEXEC says, else mpiexec."""
    return shlex.split(os.environ.get("MPIEXEC", "mpiexec"))


def run_ranks(
    size: int,
    command: Sequence[str],
    *,
    limit: float,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    rank_pids: Callable[[], list[int]] = no_ranks,
) -> Finished:
    """Run `command` on `size` ranks of one world.

    Args:
        size: number of ranks.
        command: program and arguments of each rank.
        limit: seconds after which all of it is ended.
        cwd: folder to start in.
        variables: environment variables set on top of this process's own.
        rank_pids: process ids of the ranks, asked for when the limit is reached. They get
            SIGUSR1 (to write their stacks) before the end, and SIGKILL if they outlive it.
    """
    return run_bounded(
        [*launcher(), "-n", str(size), *command],
        limit=limit,
        cwd=cwd,
        variables=variables,
        rank_pids=rank_pids,
    )


def run_bounded(
    command: Sequence[str],
    *,
    limit: float,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    rank_pids: Callable[[], list[int]] = no_ranks,
    show: bool = False,
) -> Finished:
    """Run `command`, ending its whole process group after `limit` seconds.

    With `show` its output goes straight to this process's, and is empty in the result.
    """
    start = time.monotonic()
    # A file, not a pipe: ranks that outlive the launcher would hold a pipe open.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=None if show else output,
            stderr=None if show else subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            status = None
            _end(process, rank_pids())
        except BaseException:
            _end(process, rank_pids())
            raise
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Finished(status, text, time.monotonic() - start)


def _end(process: subprocess.Popen[bytes], pids: list[int]) -> None:
    for pid in pids:
        _signal(pid, signal.SIGUSR1)
    if pids:
        time.sleep(STACKS_SECONDS)
    _signal(-process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE_SECONDS)
    # Open MPI gives each rank a process group of its own.
    for target in [-process.pid, *pids]:
        _signal(target, signal.SIGKILL)
    process.wait()


def _signal(target: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(target, number)
