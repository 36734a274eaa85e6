"""The example of a pipeline: overlapping micro-batches compute what one process computes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from harness.launcher import run_ranks

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pipeline.py"

pytestmark = pytest.mark.timeout(150)


def run(folder: Path, ranks: int, *arguments: str) -> str:
    finished = run_ranks(ranks, [sys.executable, str(SCRIPT), *arguments], limit=120, cwd=folder)
    assert finished.status == 0, finished.output
    return finished.output


def apart(output: str) -> tuple[float, float, int]:
    """Of losses and of parameters; per cent of the time in which several stages worked."""
    found = re.search(r"losses apart +parameters apart.*\n +(\S+) +(\S+) +(\d+)%", output)
    assert found is not None, output
    return float(found[1]), float(found[2]), int(found[3])


def test_four_ranks_compute_what_one_process_does(tmp_path: Path) -> None:
    output = run(tmp_path, 4, "--short")
    losses, parameters, _ = apart(output)
    assert losses < 1e-12
    assert parameters < 1e-10
    rows = re.findall(r"^ +(\d) +(\d) +(\d+) +\S+$", output, re.M)
    # Four micro-batches in each of 30 steps, and the held-out images.
    assert rows == [(str(k), str(k), "121") for k in range(4)]
    pytest.importorskip("matplotlib")
    assert (tmp_path / "pipeline.png").read_bytes().startswith(b"\x89PNG")


def test_one_rank_with_all_stages_and_uneven_micro_batches(tmp_path: Path) -> None:
    output = run(tmp_path, 1, "--short", "--micro-batches", "3", "--batch-size", "50")
    losses, parameters, _ = apart(output)
    assert losses < 1e-12
    assert parameters < 1e-10


def test_missing_the_bound_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--epochs", "1", "--bound", "1.1"]
    finished = run_ranks(2, command, limit=120, cwd=tmp_path)
    assert finished.status not in (0, None)
    assert "is below 110%" in finished.output
