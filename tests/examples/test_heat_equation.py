"""The example of the heat equation: gradients through the exchange between ranks, what it finds."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from harness.launcher import run_ranks
from tensorplay.autograd import gradcheck, gradgradcheck

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "heat_equation.py"

pytestmark = pytest.mark.timeout(150)


def run(folder: Path, ranks: int, *arguments: str) -> tuple[dict[str, Any], str]:
    """The result of a short run, and what it has printed."""
    command = [sys.executable, str(SCRIPT), "--short", "--values", "values.json", *arguments]
    finished = run_ranks(ranks, command, limit=120, cwd=folder)
    assert finished.status == 0, finished.output
    return json.loads((folder / "values.json").read_text()), finished.output


def test_however_the_plate_is_cut_the_result_is_the_same(tmp_path: Path) -> None:
    whole, _ = run(tmp_path, 1)
    cut, output = run(tmp_path, 3)
    assert len(whole["misfits"]) == 60
    assert cut["misfits"] == pytest.approx(whole["misfits"], rel=1e-10)
    np.testing.assert_allclose(cut["heating"], whole["heating"], rtol=0, atol=1e-10)
    assert whole["misfits"][-1] < 0.1 * whole["misfits"][0]
    table = re.findall(r"^ +(\d+),\d+ +(\d) +(\S+) +(\S+) +\S+$", output, re.M)
    # The first and the last row of each strip, beside the cuts, and one between.
    assert [int(row) for row, *_ in table] == [0, 3, 5, 6, 9, 12, 13, 16, 19]
    assert [int(rank) for _, rank, *_ in table] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for row, _, exact, near in table:
        assert float(exact) == pytest.approx(float(near), rel=1e-6), row
    assert len(re.findall(r"^iteration +\d+ +misfit", output, re.M)) == 10
    pytest.importorskip("matplotlib")
    assert (tmp_path / "heat_equation.png").read_bytes().startswith(b"\x89PNG")


def test_missing_the_bound_fails(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--short", "--iterations", "2", "--bound", "0.01"]
    finished = run_ranks(2, command, limit=120, cwd=tmp_path)
    assert finished.status not in (0, None)
    assert "more than 1%" in finished.output


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        return runpy.run_path(str(SCRIPT))


class Plate:
    """A strip whose neighbours answer at once: each rim is the other side's neighbour."""

    def swap(self, upwards: np.ndarray, downwards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return downwards.copy(), upwards.copy()


@pytest.mark.parametrize("name", ["Halo", "HaloAdjoint"])
def test_rules_of_the_exchange(example: dict[str, Any], name: str) -> None:
    values = np.random.default_rng(1).normal(size=(5, 4))
    field = tp.tensor(values, dtype=tp.float64, requires_grad=True)
    exchange = example[name].apply
    assert gradcheck(lambda x: exchange(x, Plate()), (field,))
    assert gradgradcheck(lambda x: exchange(x * x, Plate()), (field,))


def test_neighbours_rows_surround_a_strip(example: dict[str, Any]) -> None:
    field = tp.from_numpy(np.random.default_rng(2).uniform(size=(6, 6)))
    padded = example["Halo"].apply(field, Plate()).numpy()
    np.testing.assert_array_equal(padded[1:-1, 1:-1], field.numpy())
    np.testing.assert_array_equal(padded[0, 1:-1], field[-1].numpy())
    np.testing.assert_array_equal(padded[-1, 1:-1], field[0].numpy())
    assert not padded[:, [0, -1]].any()
