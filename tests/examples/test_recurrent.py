"""The example of a recurrent net over two ranks: it learns, and neither rank's memory grows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from harness.launcher import run_ranks

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "recurrent.py"

pytestmark = pytest.mark.timeout(150)


def run(folder: Path, ranks: int, *arguments: str, limit: float = 120) -> str:
    command = [sys.executable, str(SCRIPT), *arguments]
    finished = run_ranks(ranks, command, limit=limit, cwd=folder)
    assert finished.status == 0, finished.output
    return finished.output


def perplexities(output: str) -> dict[str, float]:
    found = re.findall(r"^ +(counted pairs|the model(?:, at first)?) +(\S+)$", output, re.M)
    return {name: float(value) for name, value in found}


def test_learns_on_two_ranks(tmp_path: Path) -> None:
    output = run(tmp_path, 2, "--short")
    found = perplexities(output)
    assert found["the model"] < 9 < found["counted pairs"] < found["the model, at first"]
    kept = re.findall(r"^ +rank (\d) +\S+ +\S+ +(\S+)$", output, re.M)
    assert [rank for rank, _ in kept] == ["0", "1"]
    assert all(float(objects) < 20 for _, objects in kept)
    pytest.importorskip("matplotlib")
    assert (tmp_path / "recurrent.png").read_bytes().startswith(b"\x89PNG")


def test_memory_that_grows_is_noticed(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--short", "--bound", "9", "--growth", "-1000"]
    finished = run_ranks(1, [*command, "--steps", "160"], limit=120, cwd=tmp_path)
    assert finished.status not in (0, None)
    assert "memory of rank 0 has grown by" in finished.output


def test_two_ranks_and_one_find_the_same(tmp_path: Path) -> None:
    arguments = ("--short", "--steps", "40", "--bound", "30")
    found = [perplexities(run(tmp_path, ranks, *arguments)) for ranks in (1, 2)]
    assert found[0] == pytest.approx(found[1], abs=0.011)


def test_missing_the_bound_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--short", "--steps", "5", "--bound", "2"]
    finished = run_ranks(2, command, limit=120, cwd=tmp_path)
    assert finished.status not in (0, None)
    assert "is not below 2.00" in finished.output


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_whole_run_with_flat_memory(tmp_path: Path) -> None:
    found = perplexities(run(tmp_path, 2, limit=380))
    assert found["the model"] < 5
