"""A signal to any rank has every rank print what it is doing, wherever its main thread sits."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from harness.launcher import Finished
from harness.programs import RunProgram, program_runner

# Each starts a job of its own.
pytestmark = pytest.mark.timeout(90)

HEADER = """
import os, signal
from tensorplay.distributed.rpc import dump_signal

printed = threading.Event()
write = dump_signal.write_to_stderr

def write_and_tell(text):
    write(text)
    printed.set()

dump_signal.write_to_stderr = write_and_tell

def wait_until_printed():
    assert printed.wait(30)

def some_thread_is_in(name):
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_name == name:
                return True
            frame = frame.f_back
    return False

def wait_until_in(rank, name):
    while not rpc.rpc_sync(rank, some_thread_is_in, args=(name,)):
        pass

def wait_until_all_have_printed():
    for worker in range(rpc.get_world_size()):
        rpc.rpc_sync(worker, wait_until_printed)

released = threading.Event()

def release():
    released.set()

def serve_slowly():
    released.wait()

"""


@pytest.fixture
def run(tmp_path: Path) -> RunProgram:
    runner = program_runner(tmp_path)

    def run(body: str, *, size: int = 2, **variables: str) -> Finished:
        return runner(HEADER + textwrap.dedent(body), size=size, **variables)

    return run


def check_ended_well(finished: Finished) -> None:
    assert finished.status == 0, finished.output
    assert "Traceback" not in finished.output, finished.output


def dump_of(finished: Finished, rank: int) -> str:
    """The lines of one rank's only dump, without the rank that each begins with."""
    lines = re.findall(rf"^\[rank {rank}\] (.*)$", finished.output, re.MULTILINE)
    text = "\n".join(lines)
    assert text.count("==== tensorplay") == 1, finished.output
    assert text.count("==== end") == 1, finished.output
    return text


@pytest.mark.parametrize(
    "wait",
    [
        "MPI.COMM_WORLD.Barrier()",
        "time.sleep(1000)",
        "threading.Event().wait()",
        "while True: pass",
        "LOCK.acquire(); LOCK.acquire()",
    ],
)
def test_rank_whose_main_thread_sits_somewhere(run: RunProgram, wait: str) -> None:
    # Rank 2 gets the signal, and rank 1 sits there. Only the end of all ends such a wait.
    finished = run(
        f"""
        from mpi4py import MPI
        LOCK = threading.Lock()

        def sit():
            {wait}

        rpc.init_rpc()
        if rank == 1:
            sit()
        if rank == 0:
            rpc.rpc_sync(1, serve_slowly)
        wait_until_in(1, "sit")
        wait_until_in(1, "serve_slowly")
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_until_all_have_printed()
        rpc.shutdown(graceful=False)
        sys.stdout.flush()
        MPI.COMM_WORLD.Abort(0)
        """,
        size=3,
    )
    dumps = [dump_of(finished, rank) for rank in range(3)]
    assert "==== tensorplay: worker2 (rank 2 of 3)" in dumps[2]
    assert "asked by a signal" in dumps[2]
    for rank in (0, 1):
        assert f"worker{rank} (rank {rank} of 3)" in dumps[rank]
        assert "asked by rank 2" in dumps[rank]
    assert "in sit\n" in dumps[1].split("thread 'MainThread'")[1]
    # Who waits for it, for what, for how long; and what it executes, for whom.
    assert re.search(
        r"call \d+ to worker1 \(rank 1\): __main__\.serve_slowly, for \d+\.\d s, "
        r"times out in \d+\.\d s",
        dumps[0],
    )
    assert re.search(
        r"CALL \d+ of worker0 \(rank 0\): __main__\.serve_slowly, for \d+\.\d s, on thread "
        r"'tensorplay worker1 serving \d+'",
        dumps[1],
    )
    assert re.search(
        r"thread 'tensorplay worker1 serving \d+' \(serving thread\), executes CALL \d+ of worker0",
        dumps[1],
    )
    assert "released.wait()" in dumps[1]


def test_shutdown_that_waits_for_a_rank(run: RunProgram) -> None:
    finished = run(
        """
        def watch():
            # The others have said that they are in shutdown, and sleep.
            wait_until_in(2, "rest")
            wait_until_in(0, "rest")
            os.kill(os.getpid(), signal.SIGUSR1)
            wait_until_all_have_printed()
            rpc.rpc_sync(1, release)

        rpc.init_rpc()
        if rank == 0:
            threading.Thread(target=watch).start()
        if rank == 1:
            released.wait()
        rpc.shutdown()
        """,
        size=3,
    )
    check_ended_well(finished)
    assert "shutdown has been called here" in dump_of(finished, 2)
    assert "shutdown has not been called here" in dump_of(finished, 1)
    assert "not in shutdown yet: ranks [1]" in dump_of(finished, 0)


def test_contexts_and_passes(run: RunProgram) -> None:
    finished = run(
        """
        import tensorplay
        from tensorplay.distributed import autograd
        from tensorplay.autograd import Function

        class Slow(Function):
            @staticmethod
            def forward(ctx, x):
                return 1 * x

            @staticmethod
            def backward(ctx, grad):
                serve_slowly()
                return grad

        def served(x):
            return Slow.apply(x)

        def signal_when_in_backward():
            wait_until_in(1, "serve_slowly")
            os.kill(os.getpid(), signal.SIGUSR1)
            wait_until_all_have_printed()
            rpc.rpc_sync(1, release)

        rpc.init_rpc()
        if rank == 0:
            with autograd.context() as context_id:
                x = tensorplay.tensor([1.0], requires_grad=True)
                loss = rpc.rpc_sync(1, served, args=(x,)).sum()
                watching = threading.Thread(target=signal_when_in_backward)
                watching.start()
                autograd.backward(context_id, [loss])
                watching.join()
                say(f"context {context_id}")
        rpc.shutdown()
        """
    )
    check_ended_well(finished)
    (context_id,) = re.findall(r"says context (\d+)", finished.output)
    here, there = dump_of(finished, 0), dump_of(finished, 1)
    for dump in (here, there):
        assert f"context {context_id}: 1 send and 1 recv functions" in dump
    assert re.search(r"pass \d+ started here \d+\.\d s ago, waits for worker1", here)
    assert re.search(rf"pass \d+ of rank 0 in context {context_id}: waits, 1 answers owed", here)
    assert re.search(rf"pass \d+ of rank 0 in context {context_id}: runs", there)


def test_signals_to_all_ranks_at_once_give_one_dump_each(run: RunProgram) -> None:
    # As launchers do that pass signals on.
    finished = run(
        """
        rpc.init_rpc()
        def kill():
            os.kill(os.getpid(), signal.SIGUSR1)
        if rank == 0:
            for other in range(3):
                rpc.rpc_sync(other, kill)
            wait_until_all_have_printed()
        rpc.shutdown()
        """,
        size=3,
    )
    check_ended_well(finished)
    for rank in range(3):
        dump_of(finished, rank)


def test_signal_can_be_chosen_and_belongs_to_the_program_after_shutdown(run: RunProgram) -> None:
    finished = run(
        """
        from tensorplay.distributed.rpc.signals import Owner, owner_of
        before = threading.active_count()
        rpc.init_rpc()
        assert owner_of(signal.SIGUSR2) is Owner.PROGRAM
        os.kill(os.getpid(), signal.SIGUSR2)
        wait_until_printed()
        rpc.shutdown()
        assert owner_of(signal.SIGUSR2) is Owner.NOBODY
        assert threading.active_count() == before
        say("ended well")
        """,
        size=1,
        TENSORPLAY_DUMP_SIGNAL="SIGUSR2",
    )
    check_ended_well(finished)
    assert "asked by a signal" in dump_of(finished, 0)
    assert "says ended well" in finished.output


def test_handler_of_the_program_is_left_alone_and_others_may_ask(run: RunProgram) -> None:
    finished = run(
        """
        got = threading.Event()
        if rank == 0:
            signal.signal(signal.SIGUSR1, lambda *arguments: got.set())
        rpc.init_rpc()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert got.wait(30) and not printed.is_set()
            rpc.rpc_sync(1, os.kill, args=(rpc.rpc_sync(1, os.getpid), signal.SIGUSR1))
            wait_until_printed()
        rpc.shutdown()
        """,
        TENSORPLAY_LOG="info",
    )
    check_ended_well(finished)
    assert finished.output.count("SIGUSR1 is handled by the program") == 1
    assert "asked by rank 1" in finished.output


def test_none_takes_no_signal(run: RunProgram) -> None:
    finished = run(
        """
        from tensorplay.distributed.rpc.signals import Owner, owner_of
        rpc.init_rpc()
        assert owner_of(signal.SIGUSR1) is not Owner.PROGRAM
        rpc.shutdown()
        say("ended well")
        """,
        size=1,
        TENSORPLAY_DUMP_SIGNAL="none",
    )
    check_ended_well(finished)


def test_signal_to_a_forked_child_is_harmless(run: RunProgram) -> None:
    finished = run(
        """
        rpc.init_rpc()
        child = os.fork()
        if not child:
            signal.pause()
        os.kill(child, signal.SIGUSR1)
        wait_until_printed()
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert rpc.rpc_sync(0, here) == 0
        rpc.shutdown()
        """,
        size=1,
    )
    check_ended_well(finished)
