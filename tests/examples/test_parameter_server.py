"""The example of a parameter server: trainers overtake one another, and nothing is lost."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from harness.launcher import run_ranks

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "parameter_server.py"

pytestmark = pytest.mark.timeout(150)


def run(folder: Path, ranks: int, *arguments: str) -> str:
    finished = run_ranks(ranks, [sys.executable, str(SCRIPT), *arguments], limit=120, cwd=folder)
    assert finished.status == 0, finished.output
    return finished.output


def test_three_trainers_at_once_with_exact_gradients(tmp_path: Path) -> None:
    output = run(tmp_path, 4, "--short")
    rows = re.findall(r"^ +(worker\d) +(\d+) +(\d+) +(\d+) +(\S+)$", output, re.M)
    assert [name for name, *_ in rows] == ["worker1", "worker2", "worker3"]
    for _, steps, overtaken, checked, apart in rows:
        assert int(steps) == 4 * 30
        assert 0 < int(overtaken) <= int(checked) <= int(steps)
        assert float(apart) < 1e-12
    found = re.search(r"accuracy +parameters off.*\n +(\S+)% +(\S+) +(\d+) ", output)
    assert found is not None, output
    assert float(found[1]) >= 85
    assert float(found[2]) < 1e-12
    assert int(found[3]) == 3 * 4 * 30
    pytest.importorskip("matplotlib")
    assert (tmp_path / "parameter_server.png").read_bytes().startswith(b"\x89PNG")


def test_reaches_96_percent(tmp_path: Path) -> None:
    output = run(tmp_path, 4, "--epochs", "15")
    found = re.search(r"accuracy +parameters off.*\n +(\S+)% ", output)
    assert found is not None, output
    assert float(found[1]) >= 96


def test_alone_nobody_is_overtaken(tmp_path: Path) -> None:
    output = run(tmp_path, 1, "--short", "--epochs", "2", "--bound", "0.5")
    assert re.search(r"^ +worker0 +180 +0 +180 ", output, re.M), output


def test_missing_the_bound_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--epochs", "1", "--bound", "1.1"]
    finished = run_ranks(2, command, limit=120, cwd=tmp_path)
    assert finished.status not in (0, None)
    assert "is below 110%" in finished.output
