"""The main example: however the network is cut, the losses are the same, and it learns."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from harness.launcher import Finished, run_bounded, run_ranks

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "train_digits.py"
SHORT = ("--epochs", "2", "--dtype", "float64", "--batch-size", "96")

pytestmark = pytest.mark.timeout(150)


#: Ranks of one host talk over its network too, not through shared memory: MPICH, Open MPI.
OVER_NETWORK = {"MPIR_CVAR_NOLOCAL": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp"}


def run(folder: Path, *arguments: str, ranks: int | None = None, network: bool = False) -> Finished:
    """Run the example in `folder`, on ranks of its own or, without a number, with no launcher."""
    command = [sys.executable, str(SCRIPT), *arguments]
    if ranks is None:
        finished = run_bounded(command, limit=120, cwd=folder)
    else:
        variables = OVER_NETWORK if network else {}
        finished = run_ranks(ranks, command, limit=120, cwd=folder, variables=variables)
    assert finished.status == 0, finished.output
    return finished


@cache
def local_losses() -> list[float]:
    """The losses of the single-process version, which makes no remote call."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), *SHORT, "--local", "--losses", "losses.json")
        losses: list[float] = json.loads((Path(folder) / "losses.json").read_text())
    return losses


@pytest.mark.parametrize(
    ("ranks", "network"),
    [(None, False), (1, False), (2, False), (3, False), (4, False), (4, True)],
)
def test_losses_equal_those_of_one_process(
    tmp_path: Path, ranks: int | None, network: bool
) -> None:
    run(tmp_path, *SHORT, "--losses", "losses.json", ranks=ranks, network=network)
    losses = json.loads((tmp_path / "losses.json").read_text())
    assert len(losses) == 2 * 15
    assert losses == pytest.approx(local_losses(), rel=1e-12, abs=0)


def test_losses_of_one_process_are_those_of_plain_numpy() -> None:
    """The truth that all the others are held against, computed without any of the library."""
    import numpy as np
    from sklearn.datasets import load_digits

    import tensorplay as tp
    from tensorplay import nn

    widths = (64, 128, 96, 64, 10)
    weights, biases = [], []
    for index in range(4):
        tp.manual_seed(7 + index)
        layer = nn.Linear(widths[index], widths[index + 1])
        weights.append(layer.weight.detach().numpy().astype(np.float64))
        biases.append(layer.bias.detach().numpy().astype(np.float64))
    data = load_digits()
    order = np.random.default_rng(7).permutation(len(data.target))
    train = order[len(order) // 5 :]
    images, labels = (data.data / 16.0)[train], data.target[train]
    parameters = weights + biases
    first = [np.zeros_like(p) for p in parameters]
    second = [np.zeros_like(p) for p in parameters]
    losses = []
    for epoch in range(2):
        shuffled = np.random.default_rng(7 + epoch).permutation(len(labels))
        for start in range(0, len(shuffled), 96):
            part = shuffled[start : start + 96]
            loss, grads = loss_and_gradients(images[part], labels[part], weights, biases)
            losses.append(loss)
            step = len(losses)
            for p, g, m, v in zip(parameters, grads, first, second, strict=True):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                scale = np.sqrt(v / (1 - 0.999**step)) + 1e-8
                p -= 2e-3 / (1 - 0.9**step) * m / scale
    assert local_losses() == pytest.approx(losses, rel=1e-9)


def loss_and_gradients(x, y, weights, biases):
    """Mean cross entropy of a multilayer perceptron with ReLU, and its gradients, by hand."""
    import numpy as np

    inputs = []
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        inputs.append(x)
        x = x @ weight.T + bias
        if index < len(weights) - 1:
            x = np.maximum(x, 0)
    shifted = x - x.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(y))
    loss = -log_p[rows, y].mean()
    g = np.exp(log_p)
    g[rows, y] -= 1
    g /= len(y)
    of_weights, of_biases = [], []
    for index in reversed(range(len(weights))):
        of_weights.insert(0, g.T @ inputs[index])
        of_biases.insert(0, g.sum(axis=0))
        g = (g @ weights[index]) * (inputs[index] > 0)
    return loss, of_weights + of_biases


def test_reaches_97_percent_on_four_ranks(tmp_path: Path) -> None:
    output = run(tmp_path, ranks=4).output
    table = re.search(r"accuracy +seconds +steps\s+(\S+) +(\S+)% +(\S+) +(\d+)", output)
    assert table is not None, output
    assert float(table[2]) >= 97
    for worker in range(4):
        assert re.search(rf"worker{worker} +\d+ +[\d,]+", output), output
    lines = re.findall(r"epoch +\d+ +loss", output)
    assert len(lines) == 10  # not a terminal: plain lines
    pytest.importorskip("matplotlib")
    assert (tmp_path / "train_digits.png").read_bytes().startswith(b"\x89PNG")
