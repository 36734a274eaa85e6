"""The example of hybrid training: replicas stay equal, and all of it is what one process does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from harness.launcher import run_ranks

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "hybrid.py"

pytestmark = pytest.mark.timeout(150)


def run(folder: Path, ranks: int, *arguments: str) -> str:
    finished = run_ranks(ranks, [sys.executable, str(SCRIPT), *arguments], limit=120, cwd=folder)
    assert finished.status == 0, finished.output
    return finished.output


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_replicas_are_equal_and_the_result_is_that_of_one_process(
    tmp_path: Path, ranks: int
) -> None:
    output = run(tmp_path, ranks, "--short")
    rows = re.findall(r"^ +rank (\d) +(\d+) +(\d+) +\d+%$", output, re.M)
    trainers = range(1, ranks) if ranks > 1 else [0]
    assert rows == [(str(rank), "90", "90") for rank in trainers]
    found = re.search(r"losses apart +parameters apart\n +(\S+) +(\S+)$", output, re.M)
    assert found is not None, output
    assert float(found[1]) < 1e-12
    assert float(found[2]) < 1e-12
    pytest.importorskip("matplotlib")
    assert (tmp_path / "hybrid.png").read_bytes().startswith(b"\x89PNG")


def test_missing_the_bound_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--epochs", "1", "--bound", "1.1"]
    finished = run_ranks(3, command, limit=120, cwd=tmp_path)
    assert finished.status not in (0, None)
    assert "is below 110%" in finished.output
