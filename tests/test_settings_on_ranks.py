"""Settings on real ranks: what they do, and errors that all ranks raise."""

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
import numpy as np
import tensorplay
from tensorplay.distributed import autograd
from tensorplay.distributed.rpc.current import current_agent

def double(x):
    return 2 * x

def call_back(n):
    # Mutually nested calls.
    return n if not n else rpc.rpc_sync(1 - here(), call_back, args=(n - 1,))

def expect_bulk(number):
    current_agent().transport._bulk_received[0] = number

def use_everything():
    other = 1 - rank
    assert rpc.rpc_sync(other, call_back, args=(6,)) == 0
    array = np.arange(1_000_000.0)
    for _ in range(5):
        assert (rpc.rpc_sync(other, double, args=(array,)) == 2 * array).all()
    calls = [rpc.rpc_async(other, double, args=(i,)) for i in range(300)]
    assert [call.wait() for call in calls] == [2 * i for i in range(300)]
    assert rpc.remote(other, double, args=(4,)).to_here() == 8
    with autograd.context() as context_id:
        x = tensorplay.tensor([1.0, 2.0], requires_grad=True)
        autograd.backward(context_id, [rpc.rpc_sync(other, double, args=(x,)).sum()])
        assert autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]

"""


@pytest.fixture
def run(tmp_path: Path) -> RunProgram:
    runner = program_runner(tmp_path)

    def run(body: str, *, size: int = 2, **variables: str) -> Finished:
        return runner(HEADER + textwrap.dedent(body), size=size, **variables)

    return run


def check_ended_well(finished: Finished, ranks: int = 2) -> None:
    assert finished.status == 0, finished.output
    assert finished.output.count("says ended well") == ranks, finished.output


@pytest.mark.parametrize("level", ["serialized", "multiple"])
@pytest.mark.parametrize("start", ["", "import mpi4py; mpi4py.rc.initialize = False"])
def test_thread_level(run: RunProgram, level: str, start: str) -> None:
    finished = run(
        f"""
        {start}
        for _ in range(2):
            rpc.init_rpc()
            from mpi4py import MPI
            assert MPI.Query_thread() == MPI.THREAD_{level.upper()}
            use_everything()
            rpc.shutdown()
        MPI.COMM_WORLD.Barrier()
        if {bool(start)}:
            MPI.Finalize()
        say("ended well")
        """,
        TENSORPLAY_THREAD_LEVEL=level,
    )
    check_ended_well(finished)


def test_thread_level_that_the_program_has_chosen_already(run: RunProgram) -> None:
    finished = run(
        """
        import mpi4py
        mpi4py.rc.thread_level = "serialized"
        from mpi4py import MPI
        rpc.init_rpc()
        use_everything()
        rpc.shutdown()
        say("ended well")
        """,
        TENSORPLAY_THREAD_LEVEL="serialized",
    )
    check_ended_well(finished)


@pytest.mark.parametrize(
    ("given", "asked"), [("multiple", "serialized"), ("serialized", "multiple")]
)
def test_thread_level_that_comes_too_late(run: RunProgram, given: str, asked: str) -> None:
    finished = run(
        f"""
        import mpi4py
        mpi4py.rc.thread_level = {given!r}
        from mpi4py import MPI
        try:
            rpc.init_rpc()
        except RuntimeError as error:
            assert "TENSORPLAY_THREAD_LEVEL={asked} cannot be honoured" in str(error)
            assert "before init_rpc" in str(error)
            say("ended well")
        """,
        TENSORPLAY_THREAD_LEVEL=asked,
    )
    check_ended_well(finished)


@pytest.mark.parametrize("limit", [32767, 524287])
def test_tag_limit(run: RunProgram, limit: int) -> None:
    finished = run(
        f"""
        from mpi4py import MPI
        rpc.init_rpc()
        assert current_agent().transport._tag_limit == {limit}
        # Beyond the highest tag they begin anew, on both sides.
        if rank == 0:
            current_agent().transport._bulk_sent[1] = {limit} - 2
            rpc.rpc_sync(1, expect_bulk, args=({limit} - 2,))
        MPI.COMM_WORLD.Barrier()
        use_everything()
        rpc.shutdown()
        say("ended well")
        """,
        TENSORPLAY_TAG_LIMIT=str(limit),
    )
    check_ended_well(finished)


def test_unknown_and_wrong_settings_are_errors_on_all_ranks(run: RunProgram) -> None:
    finished = run(
        """
        if rank == 1:
            os.environ["TENSORPLAY_LOG"] = "loud"
            os.environ["TENSORPLAY_TIMEOUT"] = "5"
        try:
            rpc.init_rpc()
        except ValueError as error:
            assert "rank 1: TENSORPLAY_LOG must be off, warning, info or debug" in str(error)
            assert "no setting TENSORPLAY_TIMEOUT" in str(error)
            assert "rank 0" not in str(error)
            say("ended well")
        """
    )
    check_ended_well(finished)


def test_settings_that_differ_are_an_error_on_all_ranks(run: RunProgram) -> None:
    finished = run(
        """
        if rank == 1:
            os.environ["TENSORPLAY_RPC_TIMEOUT"] = "5"
        for _ in range(2):
            try:
                rpc.init_rpc()
            except RuntimeError as error:
                assert "TENSORPLAY_RPC_TIMEOUT is 60.0 on rank 0 but 5.0 on rank 1" in str(error)
            else:
                raise AssertionError("not raised")
        os.environ["TENSORPLAY_RPC_TIMEOUT"] = "7"
        rpc.init_rpc()
        assert current_agent().options.rpc_timeout == 7
        rpc.shutdown()
        rpc.init_rpc(rpc_backend_options=rpc.MPIRpcBackendOptions(rpc_timeout=60))
        assert current_agent().options.rpc_timeout == 60
        rpc.shutdown()
        say("ended well")
        """
    )
    check_ended_well(finished)


def test_log_has_a_line_for_each_message(run: RunProgram) -> None:
    finished = run(
        """
        rpc.init_rpc()
        if rank == 0:
            rpc.rpc_sync(1, double, args=(1,))
            rpc.rpc_sync(1, double, args=(np.zeros(20_000),))
            with autograd.context() as context_id:
                x = tensorplay.tensor([1.0], requires_grad=True)
                rpc.rpc_sync(1, double, args=(x,))
                say(f"context {context_id}")
        rpc.shutdown()
        say("ended well")
        """,
        TENSORPLAY_LOG="debug",
    )
    check_ended_well(finished)
    (context,) = re.findall(r"says context (\d+)", finished.output)
    lines = re.findall(
        r"^\[rank (\d)\] tensorplay (to|from) rank (\d): (.*)$", finished.output, re.M
    )
    sent = [(here, there, what) for here, way, there, what in lines if way == "to"]
    came = [(there, here, what) for here, way, there, what in lines if way == "from"]
    assert sorted(sent) == sorted(came)
    calls = [what for here, there, what in sent if what.startswith("CALL")]
    assert [re.sub(r"\d+ bytes|grad \d+", "", call) for call in calls] == [
        "CALL, call 1, context -, grad -, ",
        "CALL, call 2, context -, grad -, ",
        f"CALL, call 3, context {context}, , ",
    ]
    assert int(re.findall(r"(\d+) bytes", calls[1])[0]) > 160_000
    assert sum(what.startswith("REPLY") for _, _, what in sent) == 3
    assert any(what.startswith("RELEASE") for _, _, what in sent)
