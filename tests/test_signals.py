"""Signals end the whole job promptly, with an error, wherever its ranks are waiting."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.launcher import launcher

CHECKOUT = Path(__file__).resolve().parents[1]
START_SECONDS = 30.0
"""For the ranks to come up."""
END_SECONDS = 10.0
"""For the job to be over after a signal; a few seconds would do on a quiet machine."""

# Each starts a job of its own.
pytestmark = pytest.mark.timeout(90)

HEADER = """
import os, sys, threading, time
from mpi4py import MPI
from tensorplay.distributed import rpc
rank = MPI.COMM_WORLD.Get_rank()

def tell(text):
    # In one piece: the lines of ranks mix otherwise.
    sys.stdout.write(f"{text} {rank} {os.getpid()}.\\n")
    sys.stdout.flush()

def ready():
    # A little later, so that this rank has begun to wait.
    threading.Timer(0.3, tell, args=("ready",)).start()

def here():
    return rpc.get_worker_info().id

"""

WAITS = {
    "a call": """
        rpc.init_rpc()
        ready()
        rpc.rpc_sync(1 - rank, time.sleep, args=(1000,), timeout=0)
        """,
    "a fetch": """
        rpc.init_rpc()
        ready()
        rpc.remote(1 - rank, time.sleep, args=(1000,)).to_here(timeout=0)
        """,
    "shutdown": """
        rpc.init_rpc()
        rpc.rpc_async(1 - rank, time.sleep, args=(1000,), timeout=0)
        ready()
        rpc.shutdown()
        """,
    "init_rpc": """
        ready()
        if rank:
            time.sleep(1000)
        rpc.init_rpc()
        """,
    "Python": "rpc.init_rpc(); ready()\nwhile True: pass",
}


class Job:
    """Two ranks that run a program until they are ended."""

    def __init__(self, folder: Path, body: str) -> None:
        script = folder / "program.py"
        script.write_text(HEADER + textwrap.dedent(body))
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.launcher = subprocess.Popen(
            [*launcher(), "-n", "2", sys.executable, str(script)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pids: dict[int, int] = {}

    @property
    def output(self) -> str:
        # Not by the shared position of the file, at which the ranks write.
        descriptor = self._output.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(self.pids) < 2:
            assert time.monotonic() < deadline, self.output
            assert self.launcher.poll() is None, self.output
            found = re.findall(r"ready (\d) (\d+)\.", self.output)
            self.pids = {int(rank): int(pid) for rank, pid in found}
            time.sleep(0.02)

    def check_ends(self) -> str:
        """The job ends in time and with an error, none of its ranks lives on; its output."""
        try:
            status = self.launcher.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job goes on:\n{self.output}")
        assert status != 0, self.output
        deadline = time.monotonic() + END_SECONDS
        while any(is_alive(pid) for pid in self.pids.values()):
            assert time.monotonic() < deadline, f"a rank lives on:\n{self.output}"
            time.sleep(0.02)
        return self.output

    def close(self) -> None:
        for target in [-self.launcher.pid, *self.pids.values()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
        self.launcher.wait()
        self._output.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent's notice does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    jobs: list[Job] = []

    def start_job(body: str) -> Job:
        jobs.append(Job(tmp_path, body))
        jobs[-1].wait_until_ready()
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.close()


@pytest.mark.parametrize("waiting_in", WAITS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_a_rank(start: Any, number: signal.Signals, waiting_in: str) -> None:
    job = start(WAITS[waiting_in])
    os.kill(job.pids[0], number)
    output = job.check_ends()
    assert "Fatal Python error" not in output
    if number == signal.SIGINT and waiting_in != "init_rpc":
        assert "KeyboardInterrupt" in output


@pytest.mark.parametrize("waiting_in", ["a call", "init_rpc"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_launcher(start: Any, number: signal.Signals, waiting_in: str) -> None:
    job = start(WAITS[waiting_in])
    os.kill(job.launcher.pid, number)
    job.check_ends()


@pytest.mark.parametrize("waiting_in", ["a fetch", "shutdown"])
def test_ctrl_c_in_a_terminal(start: Any, waiting_in: str) -> None:
    # A terminal sends it to the whole process group.
    job = start(WAITS[waiting_in])
    os.kill(-job.launcher.pid, signal.SIGINT)
    job.check_ends()


@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("waiting_in", ["a call", "shutdown"])
def test_killed_rank_is_named(start: Any, killed: int, waiting_in: str) -> None:
    job = start(WAITS[waiting_in])
    os.kill(job.pids[killed], signal.SIGKILL)
    output = job.check_ends()
    pid = job.pids[killed]
    # By the launcher: its rank, or at least its process. Both say by which signal.
    afterwards = output.replace(f"ready {killed} {pid}.", "")
    named = rf"rank {killed}\b|PID {pid}\b"
    assert re.search(named, afterwards, re.IGNORECASE), output
    assert re.search(r"signal 9|KILLED|Killed|EXIT CODE: 9", afterwards), output


def test_interrupt_that_the_program_handles(start: Any) -> None:
    # Then it is no end: the call that was interrupted has left nothing behind.
    job = start(
        """
        rpc.init_rpc()
        def wait_for_interrupt():
            try:
                rpc.rpc_sync(1, time.sleep, args=(3,), timeout=0)
            except KeyboardInterrupt:
                assert rpc.rpc_sync(1, here) == 1
                tell("handled")
        if rank == 0:
            ready()
            wait_for_interrupt()
        else:
            ready()
        rpc.shutdown()
        tell("ended well")
        """
    )
    os.kill(job.pids[0], signal.SIGINT)
    assert job.launcher.wait(END_SECONDS + 3) == 0, job.output
    assert "handled 0" in job.output
    assert job.output.count("ended well") == 2
