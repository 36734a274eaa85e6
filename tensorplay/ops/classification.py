"""Negative log-likelihood and cross entropy.

The core functions work on rows: ``(samples, classes)``.  Other layouts are brought to it and back
by differentiable operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.indexing import scatter
from tensorplay.ops.losses import check_reduction, reduced
from tensorplay.ops.recording import edge_of, in_single, refuse_complex, wanted
from tensorplay.ops.shape import permute, reshape
from tensorplay.ops.softmax import log_softmax, softmax
from tensorplay.tensor import Tensor, wrap

_max: Any = np.maximum.reduce


class NllLossBackward0(Node):
    """The picked elements, times a factor (for each row, or one for all)."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, factor: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (scatter(grad * factor, index, shape, repeated=False),)


class CrossEntropyLossBackward0(Node):
    """Cross entropy of rows.

    A row's goal is `weights` (None for one) at the row's class, times `own`; and for smoothed
    labels, `spread` over the classes, times `share` (None for one) and `scale`.  `own` and `scale`
    contain what a reduction divides by.
    """

    __slots__ = ()
    lift = (0, *(None,) * 7)

    def rule(self, grad: Any, x: Any, *constants: Any) -> tuple[Any, ...]:
        p, index, weights, spread, share, own, scale = constants
        picked = grad * own
        if weights is not None:
            picked = picked * weights
        total = _column(picked)
        lent = None
        if spread is not None:
            lent = _column(grad * scale if share is None else grad * scale * share)
            total = total + lent * float(spread.sum())
        if isinstance(x, Tensor):
            chosen = np.zeros(x.shape, p.dtype)
            chosen[index] = 1
            slope = softmax(x, 1) * total - _column(picked) * chosen
        else:
            slope = p * total
            slope[index] -= picked
        return (slope if lent is None else slope - lent * spread,)


def _column(value: Any) -> Any:
    return value.reshape(-1, 1) if value.ndim else value


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


def _checked_classes(input: Tensor, target: Tensor, ignore_index: int) -> tuple[Any, Any]:
    """The class of each row, and which rows count (None for all)."""
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
    size = input._array.shape[min(1, input._array.ndim - 1)]
    counts = None
    # Seen as unsigned, negative numbers are the greatest: one look finds what is out of bounds.
    unsigned = classes.view(f"u{classes.itemsize}")
    if ignore_index < 0 and classes.size and _max(unsigned) < size:
        return classes, None
    if classes.size and (ignore_index >= 0 or classes.min() < 0):
        counts = classes != ignore_index
        classes = np.where(counts, classes, 0)
    if classes.size and not 0 <= classes.min() <= classes.max() < size:
        bad = classes[(classes < 0) | (classes >= size)][0]
        raise IndexError(f"Target {bad} is out of bounds.")
    return classes, counts


def _row_weights(classes: Any, counts: Any, weight: Tensor | None, dtype: np.dtype[Any]) -> Any:
    """The weight of each row: that of its class, or zero for one that does not count; or None."""
    if weight is None:
        return None if counts is None else counts.astype(dtype)
    chosen = weight._array[classes].astype(dtype, copy=False)
    return chosen if counts is None else chosen * counts


def _scale(reduction: str, weights: Any, rows: int) -> float:
    """What a sum of losses is multiplied by."""
    if reduction != "mean":
        return 1.0
    total = rows if weights is None else float(weights.sum())
    return 1.0 / total if total else float("nan")


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
    refuse_complex(input._array, "nll_loss")
    if input._array.dtype is dtypes.float16:
        halved: Tensor = in_single(nll_loss, input, target, weight, ignore_index, reduction)
        return halved
    classes, counts = _checked_classes(input, target, ignore_index)
    rows = _as_rows(input)
    x = rows._array
    weights = _row_weights(classes, counts, weight, x.dtype)
    factor: Any = -_scale(reduction, weights, len(classes))
    if weights is not None:
        factor = weights * factor
    index = (np.arange(len(classes)), classes)
    out = x[index] * factor
    if reduction != "none":
        # Of no rows the sum is zero, the mean is not a number.
        out = dual.add_up(out) if len(classes) or reduction == "sum" else x.dtype.type(np.nan)
    node = NllLossBackward0((edge_of(rows),), (index, factor, x.shape)) if wanted(rows) else None
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
    refuse_complex(input._array, "cross_entropy")
    if input._array.dtype is dtypes.float16:
        given = (input, target, weight, ignore_index, reduction, label_smoothing)
        halved: Tensor = in_single(cross_entropy, *given)
        return halved
    if target._array.dtype.kind == "f":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    classes, counts = _checked_classes(input, target, ignore_index)
    rows = _as_rows(input)
    x = rows._array
    weights = _row_weights(classes, counts, weight, x.dtype)
    scale = _scale(reduction, weights, len(classes))
    own = scale * (1 - label_smoothing)
    index = (np.arange(len(classes)), classes)
    shifted = x - _max(x, 1, None, None, True) if x.shape[1] else x
    p = np.exp(shifted)
    sums = dual.add_up(p, 1, None, None, True)
    log_sums = np.log(sums)
    losses = (log_sums[:, 0] - shifted[index]) * own
    if weights is not None:
        losses *= weights
    spread = share = None
    if label_smoothing:
        spread = np.full(x.shape[1], label_smoothing / x.shape[1], x.dtype)
        if weight is not None:
            spread *= weight._array
        even = ((log_sums - shifted) @ spread) * scale
        share = None if counts is None else counts.astype(x.dtype)
        losses += even if share is None else even * share
    node = None
    if wanted(rows):
        p /= sums
        saved = (x, p, index, weights, spread, share, own, scale)
        node = CrossEntropyLossBackward0((edge_of(rows),), saved, (rows._version,))
    if reduction != "none":
        if not len(classes) and reduction == "mean":
            return wrap(x.dtype.type(np.nan), node)
        return wrap(dual.add_up(losses, None), node)
    return reshape(wrap(losses, node), _sample_shape(input))


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
