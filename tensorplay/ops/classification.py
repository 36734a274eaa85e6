"""Negative log-likelihood and cross entropy.

The core functions work on rows: ``(samples, classes)``.  Other layouts are brought to it and back
by differentiable operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.indexing import scatter
from tensorplay.ops.losses import check_reduction, reduced
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.shape import permute, reshape
from tensorplay.ops.softmax import log_softmax, softmax
from tensorplay.tensor import Tensor, wrap


class NllLossBackward0(Node):
    """The picked elements, weighted.  The weights contain what the reduction divides by."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, weights: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (scatter(grad * weights, index, shape, repeated=False),)


class CrossEntropyLossBackward0(Node):
    """``-sum(goal * log_softmax(x))`` for each row; a reduction to the mean is in the goal.

    The goal of a row is ``weights`` at the row's class, plus a `spread` row that is the same for
    all rows but for the factor that the row has in `share` (label smoothing); None where there is
    none.
    """

    __slots__ = ()
    lift = (0, None, None, None, None, None)

    def rule(
        self, grad: Any, x: Any, p: Any, index: Any, weights: Any, spread: Any, share: Any
    ) -> tuple[Any, ...]:
        if isinstance(x, Tensor):
            p = softmax(x, 1)
        if isinstance(grad, Tensor) or grad.ndim:
            factor = grad.reshape(-1, 1)
        else:
            factor = grad
        total = weights.reshape(-1, 1)
        if spread is not None:
            total = total + share.reshape(-1, 1) * spread.sum()
        slope = p * total
        if isinstance(slope, Tensor):
            goal = np.zeros(x.shape, total.dtype)
            goal[index] = weights
            slope = slope - goal
        else:
            slope[index] -= weights
        if spread is not None:
            slope = slope - share.reshape(-1, 1) * spread
        return (slope * factor,)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers (int64) as rows of zeros with a one at the class.

    Args:
        num_classes: Length of the rows; by default the greatest class number plus one.

    >>> import tensorplay as tp
    >>> tp.nn.functional.one_hot(tp.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    classes = tensor._array
    if classes.dtype.kind not in "iu":
        raise RuntimeError(f"one_hot is only applicable to index tensors, not {classes.dtype}")
    count = int(classes.max(initial=-1)) + 1 if num_classes < 0 else num_classes
    if classes.size and not 0 <= classes.min() <= classes.max() < count:
        raise RuntimeError(f"class values must lie between 0 and {count - 1}")
    return wrap((classes[..., None] == np.arange(count)).astype(np.int64))


def _as_rows(input: Tensor) -> Tensor:
    """``(N, C, d1, ...)`` or ``(C,)`` as ``(samples, C)``."""
    ndim = input._array.ndim
    if ndim == 2:
        return input
    if ndim < 2:
        return reshape(input, 1, -1)
    last = permute(input, (0, *range(2, ndim), 1))
    return reshape(last, -1, input._array.shape[1])


def _sample_shape(input: Tensor) -> tuple[int, ...]:
    """The shape of a loss that is not reduced."""
    shape = input._array.shape
    return shape[:1] + shape[2:] if len(shape) > 1 else ()


def _checked_classes(input: Tensor, target: Tensor, ignore_index: int) -> Any:
    """The class of each row, and the rows that count."""
    if not input._array.ndim:
        raise RuntimeError("the input must have a dimension of classes")
    if target._array.shape != _sample_shape(input):
        raise RuntimeError(
            f"an input of shape {input._array.shape} needs a target of shape "
            f"{_sample_shape(input)}, not {target._array.shape}"
        )
    if target._array.dtype.kind not in "iu":
        raise RuntimeError(f"expected class numbers (int64) as target, not {target._array.dtype}")
    classes = target._array.reshape(-1)
    counts = classes != ignore_index
    known = classes[counts]
    size = input._array.shape[min(1, input._array.ndim - 1)]
    if known.size and not 0 <= known.min() <= known.max() < size:
        bad = known[(known < 0) | (known >= size)][0]
        raise IndexError(f"Target {bad} is out of bounds.")
    return np.where(counts, classes, 0), counts


def _class_weights(
    classes: Any, counts: Any, weight: Tensor | None, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """The weight of each row: that of its class, or zero for one that does not count."""
    chosen: np.ndarray[Any, Any] = counts.astype(dtype)
    if weight is not None:
        chosen *= weight._array[classes]
    return chosen


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of the right class.

    Args:
        input: Log-probabilities: ``(N, C)``, ``(C,)`` or ``(N, C, d1, ...)``.
        target: Class numbers, of the input's shape without `C`.
        weight: ``(C,)``: a factor for each class.
        ignore_index: Samples with this target do not count.
        reduction: ``"mean"`` (weighted by `weight`), ``"sum"`` or ``"none"``.
    """
    check_reduction(reduction)
    classes, counts = _checked_classes(input, target, ignore_index)
    rows = _as_rows(input)
    x = rows._array
    weights = _class_weights(classes, counts, weight, x.dtype)
    if reduction == "mean":
        with np.errstate(invalid="ignore", divide="ignore"):
            weights = weights / weights.sum()
    index = (np.arange(len(classes)), classes)
    out = -weights * x[index]
    node: Node | None = None
    if reduction != "none":
        out = out.sum()
    if wanted(rows):
        node = NllLossBackward0((edge_of(rows),), (index, -weights, x.shape))
    loss = wrap(out, node)
    return reshape(loss, _sample_shape(input)) if reduction == "none" else loss


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`nll_loss` of `log_softmax`, in one numerically stable operation.

    Args:
        input: Scores, not normalised: ``(N, C)``, ``(C,)`` or ``(N, C, d1, ...)``.
        target: Class numbers, of the input's shape without `C`; or, of the input's own shape,
            probabilities of the classes.
        weight: ``(C,)``: a factor for each class.
        ignore_index: Samples with this class number do not count.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Between 0 and 1: this share of the goal is spread over all classes.

    Raises:
        RuntimeError: The shapes or types do not fit.
        IndexError: A class number is out of bounds.

    >>> import tensorplay as tp
    >>> scores = tp.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> tp.nn.functional.cross_entropy(scores, tp.tensor([0, 1]))
    tensor(0.1269)
    """
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target._array.dtype.kind == "f":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    classes, counts = _checked_classes(input, target, ignore_index)
    rows = _as_rows(input)
    x = rows._array
    weights = _class_weights(classes, counts, weight, x.dtype)
    share = counts.astype(x.dtype)
    if reduction == "mean":
        with np.errstate(invalid="ignore", divide="ignore"):
            total = weights.sum()
            weights = weights / total
            share = share / total
    index = (np.arange(len(classes)), classes)
    shifted = x - np.maximum.reduce(x, axis=1, keepdims=True, initial=-np.inf)
    p = np.exp(shifted)
    sums = dual.add_up(p, axis=1, keepdims=True)
    log_sums = np.log(sums)
    weights = weights * (1 - label_smoothing) if label_smoothing else weights
    out = weights * (log_sums[:, 0] - shifted[index])
    spread = None
    if label_smoothing:
        spread = np.full(x.shape[1], label_smoothing / x.shape[1], x.dtype)
        if weight is not None:
            spread *= weight._array
        out += share * ((log_sums - shifted) @ spread)
    if reduction != "none":
        out = out.sum()
    node: Node | None = None
    if wanted(rows):
        p /= sums
        saved = (x, p, index, weights, spread, share if label_smoothing else None)
        node = CrossEntropyLossBackward0((edge_of(rows),), saved, (rows._version,))
    loss = wrap(out, node)
    return reshape(loss, _sample_shape(input)) if reduction == "none" else loss


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    """Cross entropy with probabilities as target, from simpler operations."""
    if target._array.shape != input._array.shape:
        raise RuntimeError(
            f"probabilities as target must have the input's shape {input._array.shape}, not "
            f"{target._array.shape}"
        )
    axis = min(1, input._array.ndim - 1)
    size = input._array.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / size
    terms = log_softmax(input, axis) * target
    if weight is not None:
        terms = terms * reshape(weight, (-1,) + (1,) * (input._array.ndim - 1 - axis))
    loss = -terms.sum(axis)
    return reduced(loss, reduction)
