"""A rank that fails ends the whole job, promptly, and its traceback comes last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.launcher import Finished
from harness.programs import program_runner

CHECKOUT = Path(__file__).resolve().parents[1]
LIMIT = 60.0
PROMPT = 20.0
"""Seconds for starting, failing and ending: nobody has waited for a time limit."""

# Each starts a job of its own.
pytestmark = pytest.mark.timeout(90)

RunJob = Callable[..., Finished]

HEADER = """
import os, sys, threading, time
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
rank = int(next((os.environ[v] for v in RANKS if v in os.environ), 0))
from tensorplay.distributed import rpc

def here():
    return rpc.get_worker_info().id

def end_well():
    # In one piece: the lines of ranks mix otherwise.
    sys.stdout.write("ended well\\n")
    sys.stdout.flush()

def fail():
    raise ValueError("of a function that is served")

"""
TRACEBACK = "Traceback (most recent call last)"


@pytest.fixture
def run_job(tmp_path: Path) -> RunJob:
    """Return a function that runs a program of the given body on some ranks, 0 for no launcher."""

    return program_runner(tmp_path, HEADER)


def check_ended(finished: Finished, *parts: str) -> None:
    """Ended promptly, with an error, and with one traceback at most: that of the cause."""
    assert finished.status not in (None, 0), finished.output
    assert finished.seconds < PROMPT, finished.output
    for part in parts:
        assert part in finished.output, finished.output
    assert finished.output.count(TRACEBACK) <= 1, finished.output
    for noise in ("Exception ignored", "Fatal Python error", "Exception in thread"):
        assert noise not in finished.output, finished.output


def check_ended_by(finished: Finished, error: str) -> None:
    """Ended by an exception, whose traceback is the last that Python has to say."""
    check_ended(finished, TRACEBACK, error)
    afterwards = finished.output.split(error, 1)[1]
    assert 'File "' not in afterwards, finished.output
    assert "tensorplay" not in afterwards, finished.output


def check_ended_well(finished: Finished, ranks: int) -> None:
    assert finished.status == 0, finished.output
    assert finished.output.count("ended well") == ranks, finished.output


@pytest.mark.parametrize("failing", [0, 1])
def test_exception_while_others_wait_in_shutdown(run_job: RunJob, failing: int) -> None:
    finished = run_job(
        f"""
        rpc.init_rpc()
        rpc.rpc_sync(1 - rank, here)
        if rank == {failing}:
            time.sleep(0.2)
            raise KeyError("of this rank")
        rpc.shutdown()
        """
    )
    check_ended_by(finished, "KeyError: 'of this rank'")


@pytest.mark.parametrize("failing", [0, 1])
def test_exception_before_init(run_job: RunJob, failing: int) -> None:
    finished = run_job(
        f"""
        if rank == {failing}:
            time.sleep(0.2)
            raise KeyError("of this rank")
        rpc.init_rpc()
        rpc.shutdown()
        """
    )
    check_ended_by(finished, "KeyError: 'of this rank'")


def test_exception_after_shutdown(run_job: RunJob) -> None:
    finished = run_job(
        """
        rpc.init_rpc()
        rpc.shutdown()
        if rank == 1:
            raise KeyError("of this rank")
        from mpi4py import MPI
        MPI.COMM_WORLD.Barrier()
        """
    )
    check_ended_by(finished, "KeyError: 'of this rank'")


@pytest.mark.parametrize(
    "wait",
    [
        "rpc.rpc_sync(1, time.sleep, args=(1000,), timeout=0)",
        "rpc.remote(1, time.sleep, args=(1000,)).to_here(timeout=0)",
        "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()",
        "threading.Event().wait()",
        "while True: pass",
    ],
)
def test_exception_while_others_wait_elsewhere(run_job: RunJob, wait: str) -> None:
    finished = run_job(
        f"""
        rpc.init_rpc()
        if rank == 1:
            time.sleep(0.3)
            raise KeyError("of this rank")
        {wait}
        """
    )
    check_ended_by(finished, "KeyError: 'of this rank'")


def test_hook_of_the_user_is_called_too(run_job: RunJob) -> None:
    finished = run_job(
        """
        before = sys.excepthook
        def hook(*arguments):
            print("hook of the user", file=sys.stderr)
            before(*arguments)
        sys.excepthook = hook
        rpc.init_rpc()
        if rank == 1:
            raise KeyError("of this rank")
        rpc.shutdown()
        """
    )
    check_ended_by(finished, "KeyError: 'of this rank'")
    assert "hook of the user" in finished.output


@pytest.mark.parametrize("code", [0, 3])
def test_exit_while_others_wait_in_shutdown(run_job: RunJob, code: int) -> None:
    finished = run_job(
        f"""
        rpc.init_rpc()
        if rank == 1:
            sys.exit({code})
        rpc.shutdown()
        """
    )
    check_ended(finished, "'worker1' (rank 1) left without calling rpc.shutdown()")
    assert TRACEBACK not in finished.output


def test_exit_after_shutdown_is_the_users(run_job: RunJob) -> None:
    finished = run_job(
        """
        rpc.init_rpc()
        rpc.shutdown()
        sys.exit(3 if rank == 1 else 0)
        """
    )
    assert finished.status not in (None, 0)
    assert TRACEBACK not in finished.output


def test_end_of_the_program_without_shutdown(run_job: RunJob) -> None:
    finished = run_job(
        """
        rpc.init_rpc()
        if rank == 0:
            rpc.shutdown()
        """
    )
    check_ended(finished, "'worker1' (rank 1) left without calling rpc.shutdown()")


def test_failure_of_the_library_on_a_thread_of_its_own(run_job: RunJob) -> None:
    finished = run_job(
        """
        from tensorplay.distributed.rpc import messages
        from tensorplay.distributed.rpc.current import current_agent

        def broken(message):
            raise KeyError("a fault of the library")

        rpc.init_rpc()
        if rank == 1:
            current_agent().handle(messages.CALL, broken)
        else:
            time.sleep(0.2)
            rpc.rpc_sync(1, here, timeout=0)
        rpc.shutdown()
        """
    )
    check_ended(finished, "KeyError: 'a fault of the library'", "serving calls failed")


def test_exceptions_of_served_functions_do_not_end_the_job(run_job: RunJob) -> None:
    finished = run_job(
        """
        rpc.init_rpc()
        for function, kind in ((fail, ValueError), (sys.exit, rpc.RemoteError)):
            for get in (
                lambda: rpc.rpc_sync(1 - rank, function),
                lambda: rpc.rpc_async(1 - rank, function).wait(),
                lambda: rpc.remote(1 - rank, function).to_here(),
            ):
                try:
                    get()
                except kind:
                    continue
                raise AssertionError("not raised")
        rpc.rpc_async(1 - rank, fail)
        rpc.rpc_async(1 - rank, here).add_done_callback(lambda f: sys.exit(5))
        assert rpc.rpc_sync(1 - rank, here) == 1 - rank
        rpc.shutdown()
        end_well()
        """
    )
    check_ended_well(finished, 2)


def test_exception_on_a_thread_of_the_user_does_not_end_the_job(run_job: RunJob) -> None:
    # As in any Python program.
    finished = run_job(
        """
        rpc.init_rpc()
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        rpc.shutdown()
        end_well()
        """
    )
    check_ended_well(finished, 2)


ALONE = """
rpc.init_rpc()
assert rpc.get_world_size() == 1
assert rpc.rpc_sync("worker0", here) == 0
assert rpc.remote(0, here).to_here() == 0
rpc.shutdown()
end_well()
"""


def test_program_without_a_launcher_is_a_world_of_one(run_job: RunJob) -> None:
    finished = run_job(ALONE, size=0)
    check_ended_well(finished, 1)


def test_exception_in_a_world_of_one_is_an_ordinary_one(run_job: RunJob) -> None:
    finished = run_job('rpc.init_rpc()\nraise KeyError("of this rank")\n', size=0)
    assert finished.status == 1, finished.output
    check_ended_by(finished, "KeyError: 'of this rank'")


@pytest.mark.parametrize("variable", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_launcher_of_another_mpi_is_explained(run_job: RunJob, variable: str) -> None:
    finished = run_job(ALONE, size=0, **{variable: "2"})
    check_ended_by(finished, "MPI4PY_LIBMPI=/path/to/libmpi.so")
    assert "the launcher started 2 processes, but MPI sees a world of 1" in finished.output
    assert "ended well" not in finished.output


def test_importing_starts_no_mpi(run_job: RunJob) -> None:
    finished = run_job(
        """
        import tensorplay.nn, tensorplay.optim, tensorplay.distributed
        assert "mpi4py.MPI" not in sys.modules
        end_well()
        """,
        size=0,
    )
    check_ended_well(finished, 1)


@pytest.mark.parametrize("status", ["3", "'no data here'"])
@pytest.mark.parametrize("start_mpi", [False, True])
def test_exit_with_a_failure_before_init(run_job: RunJob, status: str, start_mpi: bool) -> None:
    finished = run_job(
        f"""
        if {start_mpi}:
            from mpi4py import MPI
        if rank == 1:
            sys.exit({status})
        rpc.init_rpc()
        rpc.shutdown()
        """
    )
    check_ended(finished, "before rpc.init_rpc()")


def test_exit_status_is_that_of_the_job(run_job: RunJob) -> None:
    finished = run_job(
        """
        rpc.init_rpc()
        if rank == 1:
            sys.exit(7)
        rpc.shutdown()
        """
    )
    check_ended(finished, "left without calling rpc.shutdown()")
    assert finished.status == 7


def test_exit_that_the_program_gets_over_is_none(run_job: RunJob) -> None:
    finished = run_job(
        """
        try:
            sys.exit(5)
        except SystemExit as error:
            assert error.code == 5
        rpc.init_rpc()
        rpc.rpc_sync(1 - rank, here)
        rpc.shutdown()
        end_well()
        """
    )
    check_ended_well(finished, 2)
