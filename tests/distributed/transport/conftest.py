"""Fixtures of the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from distributed.transport.fakes import LIMIT, Worker
from tensorplay.distributed.transport import progress as progress_module


@pytest.fixture(autouse=True)
def no_second_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that nobody wakes though somebody should, sleeps on: too long for its test."""
    monkeypatch.setattr(progress_module, "PARK_LIMIT", 10 * LIMIT)
    monkeypatch.setattr(progress_module, "_SPARE_PATIENCE", 10 * LIMIT)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.release_all()
    worker.progress.stop(LIMIT)
    assert worker.progress.thread_count == 0
    assert worker.crashes == []
    assert worker.transport.overlaps == 0


@pytest.fixture
def serving(worker: Worker) -> Worker:
    worker.progress.start()
    return worker


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the standby sleep until woken as soon as it may."""
    monkeypatch.setattr(progress_module, "_STANDBY_PATIENCE", 0.0)


@pytest.fixture
def fast_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
