"""The example of coupled solvers: its rules are right, each alone and coupled."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from harness.launcher import Finished, run_bounded, run_ranks
from tensorplay.autograd import gradcheck

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "coupled_solvers.py"


def rows(finished: Finished) -> list[tuple[str, int, float, float]]:
    """Parameter, rank, and its gradient by adjoints and by differences."""
    assert finished.status == 0, finished.output
    table = re.findall(
        r"^ +(conductivity\[\d\]|rate) +(\d) +(\S+) +(\S+) +\S+$", finished.output, re.M
    )
    return [(name, int(rank), float(exact), float(near)) for name, rank, exact, near in table]


def test_gradients_on_two_ranks_and_in_one_process(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--graph", str(tmp_path / "graph.dot")]
    together = rows(run_ranks(2, command, limit=50))
    assert [rank for _, rank, _, _ in together] == [0] * 9 + [1]
    for name, _, exact, near in together:
        assert exact == pytest.approx(near, rel=1e-6), name
    drawn = (tmp_path / "graph.dot").read_text()
    assert drawn.count("TemperatureBackward") == drawn.count("FireBackward") == 3
    assert drawn.count("style=dashed") == 6
    alone = rows(run_bounded(command[:2], limit=50))
    # Gradients that meet may be added in another order.
    found = [row[2] for row in alone]
    assert found == pytest.approx([row[2] for row in together], rel=0, abs=2e-10)


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def positive(*shape: int) -> tp.Tensor:
    values = np.random.default_rng(len(shape)).uniform(0.5, 1.5, size=shape)
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


def test_rule_of_the_linear_system(example: dict[str, Any]) -> None:
    points = example["POINTS"]
    assert gradcheck(example["Temperature"].apply, (positive(points + 1), positive(points)))


def test_rule_of_the_time_steps(example: dict[str, Any]) -> None:
    assert gradcheck(example["Fire"].apply, (positive(example["POINTS"]), positive()))
