"""A pytest plugin: which tests run in a world of this size, and how a failure ends it.

`@pytest.mark.mpi(min_size=2)` asks for at least two ranks, `@pytest.mark.ranks(2, 4)` for worlds
of just these sizes. Elsewhere the test is deselected: it counts neither as passed nor as skipped.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.outcomes import Recorder

if TYPE_CHECKING:
    from mpi4py import MPI


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("worlds of ranks")
    group.addoption("--world-size", type=int, help="fail unless the world has this many ranks")
    group.addoption("--outcomes", type=Path, metavar="DIR", help="write DIR/rank<k>.jsonl")


def pytest_configure(config: pytest.Config) -> None:
    comm = _world(config)
    rank, size = (comm.Get_rank(), comm.Get_size()) if comm else (0, 1)
    expected = config.getoption("--world-size")
    if expected is not None and size != expected:
        pytest.exit(
            f"launched as one of {expected} ranks, but MPI.COMM_WORLD has {size}: mpiexec and the "
            "library that mpi4py loaded belong to different MPIs",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )
    folder = config.getoption("--outcomes")
    recorder = Recorder(folder, rank, size) if folder else None
    if recorder:
        config.pluginmanager.register(recorder)
    if comm:
        config.pluginmanager.register(WorldSize(size, recorder))
    if comm and size > 1:
        config.pluginmanager.register(SameTests(comm))
        config.pluginmanager.register(AbortOnFailure(config, comm))


def _world(config: pytest.Config) -> MPI.Comm | None:
    """Return COMM_WORLD under --with-mpi; else None, and MPI is not started."""
    if not config.getoption("--with-mpi"):
        return None
    with warnings.catch_warnings():
        # mpi4py guesses at a foreign launcher from variables; --world-size settles it.
        warnings.filterwarnings("ignore", message="suspicious MPI execution environment")
        from mpi4py import MPI

    return MPI.COMM_WORLD


class WorldSize:
    """Deselects the tests that do not run at this size."""

    def __init__(self, size: int, recorder: Recorder | None) -> None:
        self._size = size
        self._recorder = recorder

    # Last: what -m and -k leave out is gone by then, and not noted as running elsewhere.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        elsewhere = [item for item in items if not self._runs(item)]
        if elsewhere:
            config.hook.pytest_deselected(items=elsewhere)
            items[:] = [item for item in items if self._runs(item)]
        if self._recorder:
            for item in elsewhere:
                self._recorder.elsewhere(item.nodeid)

    def _runs(self, item: pytest.Item) -> bool:
        smallest = [mark.kwargs.get("min_size", 1) for mark in item.iter_markers("mpi")]
        named = [mark.args for mark in item.iter_markers("ranks")]
        return self._size >= max(smallest, default=1) and all(self._size in n for n in named)


class SameTests:
    """Refuses to start when the ranks hold different tests, which would wait for each other."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        lists = self._comm.allgather([item.nodeid for item in session.items])
        for rank, names in enumerate(lists):
            if names != lists[0]:
                differing = sorted(set(names) ^ set(lists[0])) or ["the order"]
                pytest.exit(
                    f"ranks 0 and {rank} collected different tests: {', '.join(differing)}",
                    returncode=pytest.ExitCode.USAGE_ERROR,
                )


class AbortOnFailure:
    """Ends the whole world on a failure: the other ranks may wait for this one for ever."""

    def __init__(self, config: pytest.Config, comm: MPI.Comm) -> None:
        self._config = config
        self._comm = comm
        self._status: int = pytest.ExitCode.OK

    # Last: the failure is on record by then. Before clean-up, which may hold a collective call.
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        writer = self._config.get_terminal_writer()
        writer.line()
        writer.sep("=", f"rank {self._comm.Get_rank()} failed in {report.when}: {report.nodeid}")
        report.toterminal(writer)
        for title, text in report.sections:
            writer.sep("-", title)
            writer.line(text)
        self._abort()

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._status = exitstatus

    # The summary is printed by now. An exit without Abort would wait in MPI_Finalize.
    def pytest_unconfigure(self) -> None:
        if self._status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            self._abort()

    def _abort(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(1)
