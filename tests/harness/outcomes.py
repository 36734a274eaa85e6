"""What one process saw of a test run, as a file of JSON lines that survives its sudden end."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE_OF_RANK = "rank{}.jsonl"


class Recorder:
    """A pytest plugin that appends a line for each event, so that an abort loses nothing."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        path = folder / FILE_OF_RANK.format(rank)
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._write("begin", size=size, pid=os.getpid())

    def _write(self, event: str, **details: object) -> None:
        self._file.write(json.dumps({"event": event, **details}) + "\n")

    def elsewhere(self, nodeid: str) -> None:
        """Note a test that runs only in worlds of other sizes."""
        self._write("elsewhere", test=nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        # A file that skips itself, for want of what it imports, counts as one.
        if not report.passed:
            test = report.nodeid or "collecting tests"
            self._write("outcome", test=test, outcome=report.outcome, time=time.time())

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("start", test=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._write("outcome", test=report.nodeid, outcome=report.outcome, time=time.time())

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write("end", status=int(exitstatus))


@dataclass
class Record:
    """The events of one rank, read back."""

    rank: int
    size: int = 0
    pid: int = 0
    started: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    first_failure: float | None = None
    ended: bool = False

    @property
    def unfinished(self) -> str | None:
        """The test during which this process ended, if any."""
        last = self.started[-1] if self.started else None
        return last if last is not None and last not in self.outcomes else None

    def tests(self, outcome: str) -> set[str]:
        return {test for test, found in self.outcomes.items() if found == outcome}

    def add(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "begin":
                self.size, self.pid = event["size"], event["pid"]
            case "start":
                self.started.append(event["test"])
            case "elsewhere":
                self.elsewhere.add(event["test"])
            case "outcome":
                # A failure in set-up or clean-up stands, whatever the other phases said.
                if self.outcomes.get(event["test"]) != "failed":
                    self.outcomes[event["test"]] = event["outcome"]
                if event["outcome"] == "failed" and self.first_failure is None:
                    self.first_failure = event["time"]
            case "end":
                self.ended = True


def read_records(folder: Path, size: int) -> list[Record]:
    """Read the files of ranks 0 to size-1; a rank that never got to write has an empty record."""
    records = []
    for rank in range(size):
        record = Record(rank)
        path = folder / FILE_OF_RANK.format(rank)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        for line in lines:
            # A process killed in the middle of a write leaves half a line.
            if line.endswith("\n"):
                record.add(json.loads(line))
        records.append(record)
    return records
