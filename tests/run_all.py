"""Run the whole suite: plain tests in one process, then mpi tests in worlds of 1, 2, ... ranks.

    python tests/run_all.py [--sizes 1,2,3,4] [--plain-only | --worlds-only] [arguments of pytest]

The last line is `N passed, N failed`, with `, N skipped` if there were any. A test counts once in
each world that it runs in, as failed if it fails on any rank. The exit status is 0 only if
nothing failed, every world had its size, and each ran at least one test (a choice of tests by
arguments may leave single worlds empty, but not all).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from harness.launcher import Finished, launcher, run_bounded, run_ranks
from harness.outcomes import Record, read_records
from harness.rank_main import OUTPUT_OF_RANK

TESTS = Path(__file__).resolve().parent
DEFAULT_SIZES = (1, 2, 3, 4)
TAIL_LINES = 60  # a stack beneath pytest takes some forty
NO_TESTS = 5  # pytest's exit status


@dataclass
class Verdict:
    """The outcome of one part of the suite."""

    name: str
    size: int = 0  # of the world; 0 for tests outside any
    passed: int = 0
    skipped: int = 0
    failed: set[str] = field(default_factory=set)
    first_failing_rank: int = 0
    elsewhere: set[str] = field(default_factory=set)


def judge(
    name: str, size: int, finished: Finished, records: list[Record], may_be_empty: bool
) -> Verdict:
    """Put together what the ranks recorded and how the launcher ended."""
    verdict = Verdict(name, size)
    for record in records:
        verdict.failed |= record.tests("failed")
    verdict.passed = len(records[0].tests("passed") - verdict.failed)
    verdict.skipped = len(records[0].tests("skipped") - verdict.failed)
    verdict.elsewhere = records[0].elsewhere
    failures = [(r.first_failure, r.rank) for r in records if r.first_failure is not None]
    if failures:
        verdict.first_failing_rank = min(failures)[1]
    elif problem := find_problem(finished, records, may_be_empty):
        # Ended without a failing test: by a crash, a hang, or before the first one.
        stuck = next((record for record in records if record.unfinished), records[0])
        verdict.first_failing_rank = stuck.rank
        verdict.failed.add(f"{stuck.unfinished or name}: {problem}")
    return verdict


def find_problem(finished: Finished, records: list[Record], may_be_empty: bool) -> str | None:
    """Say what is wrong with a run in which no test failed, if anything is."""
    if finished.status is None:
        return f"no end after {finished.seconds:.0f} s"
    if any(record.size != len(records) for record in records):
        return f"ended before its first test (exit status {finished.status})"
    if not any(record.outcomes for record in records):
        return None if may_be_empty and finished.status == NO_TESTS else "ran no tests"
    if finished.status != 0:
        return f"ended without a result (exit status {finished.status})"
    if not all(record.ended for record in records):
        return "a rank left before its last test"
    return None


class Suite:
    """Runs the parts of the suite one by one and reports on each."""

    def __init__(self, options: argparse.Namespace, pytest_arguments: list[str]) -> None:
        self._options = options
        self._arguments = pytest_arguments
        self._may_be_empty = bool(pytest_arguments) or options.marks is not None
        self._marks = options.marks or "not soak"
        self._folder = Path(tempfile.mkdtemp(prefix="tensorplay-tests-"))
        self.verdicts: list[Verdict] = []

    def run_plain(self) -> None:
        """Run everything that is not marked mpi, in one process, with its output shown."""
        name = "plain tests"
        print(f"== {name}", flush=True)
        folder = self._folder / "plain"
        folder.mkdir()
        finished = run_bounded(
            [sys.executable, "-m", "pytest", *self._common(folder, "not mpi")],
            limit=self._options.limit,
            cwd=TESTS.parent,
            variables=self._variables(),
            show=True,
        )
        verdict = judge(name, 0, finished, read_records(folder, 1), self._may_be_empty)
        self._conclude(verdict, finished)

    def run_world(self, size: int) -> None:
        """Run the tests marked mpi on `size` ranks."""
        name = f"world of {size}"
        print(f"== {name}", flush=True)
        folder = self._folder / f"world{size}"
        folder.mkdir()
        pytest_command = [
            *(sys.executable, "-m", "harness.rank_main", str(folder)),
            *("--with-mpi", "--world-size", str(size), "-v"),
            *self._common(folder, "mpi"),
        ]
        finished = run_ranks(
            size,
            pytest_command,
            limit=self._options.limit,
            cwd=TESTS.parent,
            # The stacks of ranks that have to be ended come by the signal of the hang dump.
            variables={**self._variables(), "TENSORPLAY_DUMP_SIGNAL": "none"},
            rank_pids=lambda: [record.pid for record in read_records(folder, size) if record.pid],
        )
        verdict = judge(name, size, finished, read_records(folder, size), self._may_be_empty)
        if verdict.failed:
            self._show_outputs(folder, size, verdict.first_failing_rank, finished.output)
        elif verdict.skipped:
            reasons = [line for line in read_output(folder, 0) if line.startswith("SKIPPED")]
            print("\n".join(reasons))
        self._conclude(verdict, finished)

    def _common(self, folder: Path, part: str) -> list[str]:
        marks = f"({self._marks}) and {part}"
        return [
            *("-c", str(TESTS.parent / "pyproject.toml"), "-p", "harness.world"),
            *("--outcomes", str(folder), *self._arguments, "-m", marks),
        ]

    def _variables(self) -> dict[str, str]:
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(paths)}

    def _show_outputs(self, folder: Path, size: int, first: int, launcher_output: str) -> None:
        for rank in sorted(range(size), key=lambda rank: rank != first):
            lines = read_output(folder, rank)
            shown = lines if rank == first else lines[-TAIL_LINES:]
            print(f"---- rank {rank}" + (f", last {TAIL_LINES} lines" if shown != lines else ""))
            print("\n".join(shown))
        print(f"---- launcher\n{launcher_output.strip()}")

    def _conclude(self, verdict: Verdict, finished: Finished) -> None:
        for test in sorted(verdict.failed):
            print(f"FAILED in {verdict.name}: {test}")
        counts = closing_line(verdict.passed, len(verdict.failed), verdict.skipped)
        print(f"== {verdict.name}: {counts} in {finished.seconds:.1f} s", flush=True)
        self.verdicts.append(verdict)

    def check_all_ran(self) -> None:
        """Fail if a test asks for sizes that none of the worlds had."""
        worlds = [verdict.elsewhere for verdict in self.verdicts if verdict.size]
        if never := set.intersection(*worlds):
            failed = {f"{test}: no world of its size" for test in never}
            self._conclude(Verdict("all worlds", failed=failed), Finished(0, "", 0.0))

    def close(self) -> int:
        """Print the closing line; return the exit status."""
        passed = sum(verdict.passed for verdict in self.verdicts)
        failed = sum(len(verdict.failed) for verdict in self.verdicts)
        skipped = sum(verdict.skipped for verdict in self.verdicts)
        if passed + failed + skipped == 0:
            print("no tests match")
            failed = 1
        if failed:
            print(f"all output: {self._folder}")
        else:
            shutil.rmtree(self._folder)
        print(closing_line(passed, failed, skipped), flush=True)
        return 1 if failed else 0


def read_output(folder: Path, rank: int) -> list[str]:
    """Read a rank's output by lines; Open MPI's version string brings NULs into it."""
    path = folder / OUTPUT_OF_RANK.format(rank)
    if not path.exists():
        return []
    return path.read_text(errors="replace").replace("\0", "").splitlines()


def closing_line(passed: int, failed: int, skipped: int) -> str:
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--sizes", type=parse_sizes, default=DEFAULT_SIZES, help="of the worlds")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--plain-only", action="store_true", help="leave out the worlds")
    parts.add_argument("--worlds-only", action="store_true", help="leave out the plain tests")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each part")
    parser.add_argument("-m", dest="marks", metavar="EXPRESSION", help="as for pytest")
    options, pytest_arguments = parser.parse_known_args()
    if shutil.which(launcher()[0]) is None:
        parser.error(f"no {launcher()[0]} on PATH: activate an environment with an MPI")
    # Like Ctrl-C: the ranks in flight are ended before this process is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    suite = Suite(options, pytest_arguments)
    if not options.worlds_only:
        suite.run_plain()
    sizes = () if options.plain_only else options.sizes
    for size in sizes:
        suite.run_world(size)
    if set(sizes) >= set(DEFAULT_SIZES):
        suite.check_all_ran()
    return suite.close()


if __name__ == "__main__":
    sys.exit(main())
