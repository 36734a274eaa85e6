"""Losses against plain formulas, and the corners that PyTorch defines."""

import math

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it
from tensorplay import nn

DRAWN = np.random.default_rng(0)
SCORES = DRAWN.standard_normal((6, 4))
CLASSES = np.array([0, 3, 1, -100, 2, 1])
WEIGHT = np.array([0.5, 1.0, 2.0, 0.25])


def naive(scores, goals, weight, counts, reduction, mean_over):
    """Cross entropy, written as its definition: `goals` holds a distribution for each row."""
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    losses = -(goals * weight * logs).sum(1) * counts
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / mean_over}[reduction]


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy_of_classes(reduction, weighted, smoothing):
    weight = WEIGHT if weighted else np.ones(4)
    counts = CLASSES != -100
    ones = np.eye(4)[np.where(counts, CLASSES, 0)]
    goals = ones * (1 - smoothing) + smoothing / 4
    mean_over = weight[CLASSES[counts]].sum() if weighted else counts.sum()
    found = F.cross_entropy(
        tp.tensor(SCORES),
        tp.tensor(CLASSES),
        tp.tensor(WEIGHT) if weighted else None,
        reduction=reduction,
        label_smoothing=smoothing,
    )
    expected = naive(SCORES, goals, weight, counts, reduction, mean_over)
    assert np.allclose(found.numpy(), expected)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy_of_probabilities(reduction):
    goals = DRAWN.dirichlet(np.ones(4), 6)
    found = F.cross_entropy(
        tp.tensor(SCORES), tp.tensor(goals), tp.tensor(WEIGHT), reduction=reduction
    )
    assert np.allclose(found.numpy(), naive(SCORES, goals, WEIGHT, np.ones(6), reduction, 6))


def test_cross_entropy_in_other_layouts():
    images = tp.tensor(SCORES.reshape(2, 3, 4).transpose(0, 2, 1))
    classes = tp.tensor(np.abs(CLASSES % 4).reshape(2, 3))
    rows = F.cross_entropy(tp.tensor(SCORES), classes.reshape(-1), reduction="none")
    assert np.allclose(
        F.cross_entropy(images, classes, reduction="none").numpy(), rows.numpy().reshape(2, 3)
    )
    single = F.cross_entropy(tp.tensor(SCORES[0]), tp.tensor(0), reduction="none")
    assert single.shape == ()
    assert single.item() == pytest.approx(rows[0].item())


def test_cross_entropy_is_nll_of_log_softmax():
    x, y = tp.tensor(SCORES, requires_grad=True), tp.tensor(CLASSES)
    direct = nn.CrossEntropyLoss(tp.tensor(WEIGHT))(x, y)
    (first,) = tp.autograd.grad(direct, x)
    composed = nn.NLLLoss(tp.tensor(WEIGHT))(nn.LogSoftmax(1)(x), y)
    (second,) = tp.autograd.grad(composed, x)
    assert direct.item() == pytest.approx(composed.item())
    assert tp.allclose(first, second)


def test_cross_entropy_is_stable():
    x = tp.tensor([[1000.0, 0.0], [0.0, -1000.0]], requires_grad=True)
    loss = F.cross_entropy(x, tp.tensor([1, 0]), reduction="none")
    assert loss.tolist() == [1000.0, 0.0]
    loss.sum().backward()
    assert x.grad.tolist() == [[1.0, -1.0], [0.0, 0.0]]


def test_a_mean_over_nothing_is_nan():
    x = tp.tensor(SCORES[:2], requires_grad=True)
    loss = F.cross_entropy(x, tp.tensor([-100, -100]))
    assert math.isnan(loss.item())
    assert F.cross_entropy(x, tp.tensor([7, 7]), ignore_index=7, reduction="sum").item() == 0.0


def test_targets_are_checked():
    x = tp.tensor(SCORES)
    with pytest.raises(IndexError, match="Target 4 is out of bounds"):
        F.cross_entropy(x, tp.tensor([0, 1, 2, 3, 4, 0]))
    with pytest.raises(RuntimeError, match="needs a target of shape"):
        F.cross_entropy(x, tp.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="must have the input's shape"):
        F.cross_entropy(x, tp.ones(6, 3))
    with pytest.raises(RuntimeError, match="expected class numbers"):
        F.nll_loss(x, tp.ones(6))
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        F.cross_entropy(x, tp.tensor(CLASSES), reduction="median")
    with pytest.raises(RuntimeError, match="label_smoothing must be between"):
        F.cross_entropy(x, tp.tensor(CLASSES), label_smoothing=2)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_differences(reduction):
    a, b = DRAWN.standard_normal((2, 3)), DRAWN.standard_normal((2, 3))
    reduce = {"none": lambda x: x, "sum": np.sum, "mean": np.mean}[reduction]
    x, y = tp.tensor(a), tp.tensor(b)
    assert np.allclose(nn.MSELoss(reduction)(x, y).numpy(), reduce((a - b) ** 2))
    assert np.allclose(nn.L1Loss(reduction)(x, y).numpy(), reduce(np.abs(a - b)))


def test_one_hot():
    assert F.one_hot(tp.tensor([[1], [0]]), 3).tolist() == [[[0, 1, 0]], [[1, 0, 0]]]
    assert F.one_hot(tp.tensor([2])).shape == (1, 3)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.one_hot(tp.tensor([2]), 2)
    with pytest.raises(RuntimeError, match="index tensors"):
        F.one_hot(tp.tensor([2.0]))
