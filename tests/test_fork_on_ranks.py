"""Forked children of workers: they may compute and leave as they like, and RPC is not theirs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from harness.launcher import Finished
from harness.programs import RunProgram, program_runner

# Each starts a job of its own.
pytestmark = pytest.mark.timeout(90)

HEADER = """
import atexit, multiprocessing, signal

def status_of_child(work, *arguments):
    # As a script would: the child leaves by the end of the program, or by an exception.
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    work(*arguments)
    sys.exit()

def fail():
    raise KeyError("of the child")

def square(x):
    return x * x

"""


@pytest.fixture
def run(tmp_path: Path) -> RunProgram:
    runner = program_runner(tmp_path)

    def run(body: str, *, size: int = 2, **variables: str) -> Finished:
        return runner(HEADER + textwrap.dedent(body), size=size, **variables)

    return run


def check_ended_well(finished: Finished, tracebacks: int = 0) -> None:
    assert finished.status == 0, finished.output
    assert finished.output.count("Traceback (most") == tracebacks, finished.output
    assert finished.output.count("says ended well") == 2, finished.output


@pytest.mark.parametrize("when", ["before MPI", "before RPC", "during RPC", "after RPC"])
def test_child_leaves_without_ending_the_job(run: RunProgram, when: str) -> None:
    finished = run(
        f"""
        when = {when!r}
        def children():
            assert status_of_child(square, 3) == 0
            assert status_of_child(sys.exit, 3) == 3
            assert status_of_child(sys.exit, "a message") == 1
            assert status_of_child(os._exit, 4) == 4
            assert status_of_child(fail) == 1

        if when == "before MPI":
            children()
        from mpi4py import MPI
        if when == "before RPC":
            children()
        rpc.init_rpc()
        if when == "during RPC":
            children()
        assert rpc.rpc_sync(1 - rank, here) == 1 - rank
        rpc.shutdown()
        if when == "after RPC":
            children()
        MPI.COMM_WORLD.Barrier()
        say("ended well")
        """
    )
    check_ended_well(finished, tracebacks=2)
    assert finished.output.count("KeyError: 'of the child'") == 2


def test_child_that_uses_rpc_is_told_why_it_cannot(run: RunProgram) -> None:
    finished = run(
        """
        from tensorplay.distributed import autograd

        def enter_context():
            with autograd.context():
                pass

        def try_all():
            for use in (
                lambda: rpc.rpc_sync(1 - rank, here),
                lambda: rpc.rpc_async(1 - rank, here),
                lambda: rpc.remote(1 - rank, here),
                lambda: rpc.RRef(1),
                lambda: remote.to_here(),
                lambda: own.to_here(),
                lambda: own.local_value(),
                lambda: waiting.wait(),
                lambda: rpc.get_worker_info(),
                lambda: rpc.statistics(),
                lambda: rpc.init_rpc(),
                lambda: rpc.shutdown(),
                enter_context,
            ):
                try:
                    use()
                except RuntimeError as error:
                    assert "RPC belongs to the parent process" in str(error), error
                    assert "spawn" in str(error)
                else:
                    raise AssertionError("not raised")

        rpc.init_rpc()
        remote, own = rpc.remote(1 - rank, here), rpc.RRef(2)
        waiting = rpc.rpc_async(1 - rank, time.sleep, args=(1,))
        assert status_of_child(try_all) == 0
        waiting.wait()
        assert remote.to_here() == 1 - rank and own.local_value() == 2
        rpc.shutdown()
        say("ended well")
        """
    )
    check_ended_well(finished)


def test_references_and_callbacks_stay_the_parents(run: RunProgram) -> None:
    finished = run(
        """
        called = []
        rpc.init_rpc()
        remote = rpc.remote(1 - rank, here)
        remote.to_here()
        waiting = rpc.rpc_async(1 - rank, time.sleep, args=(1,))
        waiting.add_done_callback(lambda future: called.append(os.getpid()))

        def drop():
            global remote, waiting
            del remote, waiting
            assert not called

        assert status_of_child(drop) == 0
        assert remote.to_here() == 1 - rank
        waiting.wait()
        rpc.shutdown()
        assert called == [os.getpid()]
        say("ended well")
        """
    )
    check_ended_well(finished)


def test_child_runs_the_functions_that_it_registers_for_the_exit(run: RunProgram) -> None:
    finished = run(
        """
        me = os.getpid()
        atexit.register(lambda: say("the parent's") if os.getpid() != me else None)
        rpc.init_rpc()

        def register():
            atexit.register(say, "the child's")

        assert status_of_child(register) == 0
        rpc.shutdown()
        say("ended well")
        """
    )
    check_ended_well(finished)
    assert "the parent's" not in finished.output
    assert finished.output.count("the child's") == 2


def test_multiprocessing_with_fork(run: RunProgram) -> None:
    finished = run(
        """
        rpc.init_rpc()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
            assert rpc.rpc_sync(1 - rank, here) == 1 - rank
        rpc.shutdown()
        say("ended well")
        """
    )
    check_ended_well(finished)


@pytest.mark.parametrize(
    ("work", "status", "tracebacks"), [("sys.exit, 5", 5, 0), ("fail", 1, 2), ("square, 2", 0, 0)]
)
def test_child_of_a_served_function(
    run: RunProgram, work: str, status: int, tracebacks: int
) -> None:
    finished = run(
        f"""
        def serve():
            return status_of_child({work})

        rpc.init_rpc()
        assert rpc.rpc_sync(1 - rank, serve) == {status}
        rpc.shutdown()
        say("ended well")
        """
    )
    check_ended_well(finished, tracebacks)


def test_locks_held_by_other_threads_do_not_hold_up_the_child(run: RunProgram) -> None:
    # Serving threads take the locks of futures all the time.
    finished = run(
        """
        def use_futures():
            for _ in range(100):
                future = rpc.Future()
                future.then(lambda f: f.wait())
                future.set_result(1)
                assert future.wait() == 1

        rpc.init_rpc()
        for _ in range(20):
            calls = [rpc.rpc_async(1 - rank, here) for _ in range(50)]
            assert status_of_child(use_futures) == 0
            assert [call.wait() for call in calls] == [1 - rank] * 50
        rpc.shutdown()
        say("ended well")
        """
    )
    check_ended_well(finished)


@pytest.mark.parametrize("when", ["before RPC", "during RPC"])
def test_program_started_by_a_rank_is_no_rank(run: RunProgram, when: str) -> None:
    finished = run(
        f"""
        import subprocess
        program = "import sys; from tensorplay.distributed import rpc; sys.exit(3)"
        if {when!r} == "before RPC":
            assert subprocess.run([sys.executable, "-c", program]).returncode == 3
        rpc.init_rpc()
        assert subprocess.run([sys.executable, "-c", program]).returncode == 3
        rpc.shutdown()
        say("ended well")
        """
    )
    check_ended_well(finished)


def test_program_started_by_a_rank_may_be_the_rank(run: RunProgram) -> None:
    # The launcher started the parent, which has nothing to do with MPI itself.
    finished = run(
        """
        import subprocess
        if "--rank" not in sys.argv:
            program = [sys.executable, __file__, "--rank"]
            # MPICH's launcher speaks to its processes by a descriptor that they inherit.
            sys.exit(subprocess.run(program, close_fds=False).returncode)
        rpc.init_rpc()
        if rank == 1:
            raise KeyError("of this rank")
        rpc.shutdown()
        """
    )
    assert finished.status not in (None, 0), finished.output
    assert "KeyError: 'of this rank'" in finished.output
    assert finished.seconds < 20, finished.output
