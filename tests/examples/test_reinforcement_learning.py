"""The example of reinforcement learning: its mechanics, its batches, and that it learns."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.launcher import run_ranks

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "reinforcement_learning.py"

pytestmark = pytest.mark.timeout(250)


def run(folder: Path, ranks: int, *arguments: str) -> tuple[list[float], list[int], str]:
    """Scores; numbers of runs, steps, calls and batches; all that was printed."""
    command = [sys.executable, str(SCRIPT), "--values", "scores.json", *arguments]
    finished = run_ranks(ranks, command, limit=220, cwd=folder)
    assert finished.status == 0, finished.output
    row = re.search(r"average +runs.*\n +\S+ +(\S+) +(\S+) +(\S+) +(\S+) ", finished.output)
    assert row is not None, finished.output
    numbers = [int(number.replace(",", "")) for number in row.groups()]
    return json.loads((folder / "scores.json").read_text()), numbers, finished.output


def test_scores_do_not_depend_on_how_many_observers_share_the_carts(tmp_path: Path) -> None:
    alone, (runs, steps, calls, batches), _ = run(tmp_path, 1, "--short")
    assert runs == len(alone)
    assert steps == sum(alone)
    assert calls == batches
    shared, numbers, output = run(tmp_path, 3, "--short")
    assert shared == alone
    # The network runs as often, though more observers ask: they are answered together.
    assert numbers[:2] == [runs, steps]
    assert numbers[3] == batches
    assert 1.3 * batches < numbers[2] <= 2 * batches
    assert np.mean(shared[-100:]) >= 60 > 2 * np.mean(shared[:16])
    assert re.search(r"^lesson +\d+ +average", output, re.M)
    pytest.importorskip("matplotlib")
    assert (tmp_path / "reinforcement_learning.png").read_bytes().startswith(b"\x89PNG")


def test_reaches_the_score_of_the_shorter_task(tmp_path: Path) -> None:
    scores, _, _ = run(tmp_path, 3, "--bound", "195")
    assert np.mean(scores[-100:]) >= 195


def test_missing_the_bound_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--short", "--lessons", "2"]
    finished = run_ranks(2, command, limit=60, cwd=tmp_path)
    assert finished.status not in (0, None)
    assert "below 60" in finished.output


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("action", [0, 1])
def test_carts_obey_the_laws_of_motion(example: dict[str, Any], action: int) -> None:
    """Both of Lagrange's equations hold for the accelerations of a step."""
    carts = example["Carts"]([(1, 0, k) for k in range(50)])
    before = np.random.default_rng(3).uniform(-0.2, 0.2, (50, 4))
    carts.states = before.copy()
    carts.push(np.full(50, action))
    np.testing.assert_allclose(
        carts.states[:, [0, 2]], (before + 0.02 * before[:, [1, 1, 3, 3]])[:, [0, 2]]
    )
    faster, turning_faster = ((carts.states - before) / 0.02)[:, [1, 3]].T
    _, _, angle, turning = before.T
    force = 10.0 if action else -10.0
    moment = 0.1 * 0.5
    bending = turning_faster * np.cos(angle) - turning**2 * np.sin(angle)
    np.testing.assert_allclose(1.1 * faster + moment * bending, force, rtol=1e-9)
    swinging = 4 / 3 * 0.5 * turning_faster + faster * np.cos(angle)
    np.testing.assert_allclose(swinging, 9.8 * np.sin(angle), rtol=0, atol=1e-9)


def test_carts_that_leave_the_track_or_lose_their_poles_are_out(example: dict[str, Any]) -> None:
    carts = example["Carts"]([(1, 0, k) for k in range(3)])
    carts.states = np.array([[2.39, 1.0, 0.0, 0.0], [0.0, 0.0, 0.209, 1.0], [0.0, 0.0, 0.0, 0.0]])
    carts.push(np.ones(3, dtype=int))
    assert carts.up.tolist() == [False, False, True]
    fallen = carts.states[:2].copy()
    carts.push(np.ones(1, dtype=int))
    np.testing.assert_array_equal(carts.states[:2], fallen)
