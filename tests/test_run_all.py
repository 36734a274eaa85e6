"""The runner itself: what it counts, and that nothing that goes wrong in a world goes unseen."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.launcher import Finished, run_bounded

RUNNER = Path(__file__).with_name("run_all.py")

# Each starts a few worlds of its own.
pytestmark = pytest.mark.timeout(120)

RunSuite = Callable[..., Finished]


@pytest.fixture
def run_suite(tmp_path: Path) -> RunSuite:
    """Return a function that runs a suite of one file, of the given body."""

    def run(body: str, *arguments: str, sizes: str = "2", **variables: str) -> Finished:
        path = tmp_path / "test_inner.py"
        header = "import os, threading, pytest\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
        path.write_text(header + textwrap.dedent(body))
        options = ["--worlds-only", "--sizes", sizes, *arguments]
        command = [sys.executable, str(RUNNER), *options, str(path)]
        return run_bounded(command, limit=100, variables=variables)

    return run


def closing_line(finished: Finished) -> str:
    return finished.output.splitlines()[-1]


def test_each_test_runs_in_the_worlds_that_it_names(run_suite: RunSuite) -> None:
    finished = run_suite(
        """
        @pytest.mark.mpi
        def test_everywhere(): assert comm.allreduce(1) == comm.size

        @pytest.mark.mpi(min_size=2)
        def test_from_two_up(): assert comm.size in (2, 3)

        @pytest.mark.mpi
        @pytest.mark.ranks(1, 3)
        def test_named_sizes(): assert comm.size in (1, 3)

        @pytest.mark.mpi
        @pytest.mark.ranks(2)
        def test_skipped(): pytest.skip("on purpose")
        """,
        sizes="1,2,3",
    )
    assert closing_line(finished) == "7 passed, 0 failed, 1 skipped", finished.output
    assert finished.status == 0


def test_failure_on_one_rank_ends_the_world_and_shows_that_rank(run_suite: RunSuite) -> None:
    finished = run_suite(
        """
        @pytest.mark.mpi
        def test_rank_1_fails():
            print("printed by rank", comm.rank)
            assert comm.rank != 1
            comm.Barrier()
        """
    )
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.status == 1
    first_shown = finished.output.split("---- rank 0")[0]
    assert "---- rank 1" in first_shown
    assert "printed by rank 1" in first_shown


def test_failure_in_clean_up_on_one_rank_counts(run_suite: RunSuite) -> None:
    finished = run_suite(
        """
        @pytest.fixture
        def collective_clean_up():
            yield
            assert comm.rank != 1
            comm.Barrier()

        @pytest.mark.mpi
        def test_passes(collective_clean_up): pass
        """
    )
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.status == 1


def test_hanging_rank_is_ended_with_the_stacks_of_all(run_suite: RunSuite) -> None:
    finished = run_suite(
        """
        @pytest.mark.mpi
        def test_rank_1_hangs():
            if comm.rank == 1:
                threading.Event().wait()
            comm.Barrier()
        """,
        *("--timeout", "4", "-o", "faulthandler_timeout=2"),
    )
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.status == 1
    assert finished.output.count("in test_rank_1_hangs") >= 2


def test_world_over_its_time_is_ended_with_the_stacks_of_all(run_suite: RunSuite) -> None:
    finished = run_suite(
        """
        @pytest.mark.mpi
        def test_rank_1_hangs():
            if comm.rank == 1:
                threading.Event().wait()
            comm.Barrier()
        """,
        *("--limit", "10"),
    )
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.output.count("in test_rank_1_hangs") == 2
    assert "no end after" in finished.output


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_rank_that_disappears_fails_the_world(run_suite: RunSuite, end: str) -> None:
    finished = run_suite(
        f"""
        @pytest.mark.mpi
        def test_rank_1_leaves():
            if comm.rank == 1:
                {end}
            comm.Barrier()
        """
    )
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.status == 1


def test_ranks_that_collect_different_tests_are_told_so(run_suite: RunSuite) -> None:
    finished = run_suite(
        """
        @pytest.mark.mpi
        @pytest.mark.parametrize("rank", [comm.rank])
        def test_of_this_rank(rank): pass
        """
    )
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert "collected different tests" in finished.output


def test_n_worlds_of_one_rank_are_no_world_of_n(run_suite: RunSuite, tmp_path: Path) -> None:
    no_launcher = tmp_path / "mpiexec"
    no_launcher.write_text('#!/bin/sh\nn=$2; shift 2; for i in $(seq "$n"); do "$@"; done\n')
    no_launcher.chmod(0o755)
    finished = run_suite(
        """
        @pytest.mark.mpi
        def test_passes(): pass
        """,
        MPIEXEC=str(no_launcher),
    )
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.status == 1


def test_dead_launcher_fails(run_suite: RunSuite) -> None:
    finished = run_suite("def test_nothing(): pass", MPIEXEC="false")
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.status == 1


def test_size_that_no_world_has_fails(run_suite: RunSuite) -> None:
    finished = run_suite(
        """
        @pytest.mark.mpi
        def test_passes(): pass

        @pytest.mark.mpi
        @pytest.mark.ranks(64)
        def test_never_runs(): pass
        """,
        sizes="1,2,3,4",
    )
    assert closing_line(finished) == "4 passed, 1 failed", finished.output
    assert "test_never_runs: no world of its size" in finished.output


def test_choice_that_matches_nothing_fails(run_suite: RunSuite) -> None:
    finished = run_suite("def test_plain(): pass", "-k", "nonesuch", sizes="1")
    assert closing_line(finished) == "0 passed, 1 failed", finished.output
    assert finished.status == 1


def test_plain_tests_alone_and_files_that_skip_themselves(tmp_path: Path) -> None:
    files = {
        "runs": ["def test_a(): pass", "@pytest.mark.mpi", "def test_of_ranks(): assert False"],
        "misses": ["pytest.importorskip('nonesuch')", "def test_a(): pass", "def test_b(): pass"],
    }
    for name, lines in files.items():
        (tmp_path / f"test_{name}.py").write_text("\n".join(["import pytest", *lines]))
    finished = run_bounded(
        [sys.executable, str(RUNNER), "--plain-only", str(tmp_path)], limit=100, variables={}
    )
    assert closing_line(finished) == "1 passed, 0 failed, 1 skipped", finished.output
    assert finished.status == 0
