"""Loss functions that compare two tensors element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.pointwise import abs
from tensorplay.ops.recording import (
    applied,
    common_tensors,
    in_single,
    refuse_complex,
    stretched_edges,
    wanted,
)
from tensorplay.tensor import Tensor, wrap

REDUCTIONS = ("none", "mean", "sum")


class MseLossBackward0(Node):
    __slots__ = ()
    lift = (0, 1, None)

    def rule(self, grad: Any, a: Any, b: Any, scale: float) -> tuple[Any, ...]:
        left, right = self.edges
        slope = (a - b) * (grad * scale)
        return (None if left is None else slope, None if right is None else -slope)


class HuberLossBackward0(Node):
    """Of huber_loss and, divided by `delta`, of smooth_l1_loss."""

    __slots__ = ()
    lift = (0, 1, None, None)

    def rule(self, grad: Any, a: Any, b: Any, delta: float, scale: float) -> tuple[Any, ...]:
        left, right = self.edges
        difference = a - b
        if isinstance(difference, Tensor):
            slope: Any = difference.clamp(-delta, delta) * (grad * scale)
        else:
            slope = np.clip(difference, -delta, delta)
            slope *= grad * scale
        return (None if left is None else slope, None if right is None else -slope)


def check_reduction(reduction: str) -> None:
    """Raise ValueError unless `reduction` is a known one."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction: {', '.join(REDUCTIONS)}")


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The losses as they are, their mean or their sum."""
    check_reduction(reduction)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The squared differences; their mean, their sum, or (``"none"``) one by one.

    >>> import tensorplay as tp
    >>> tp.nn.functional.mse_loss(tp.tensor([1.0, 2.0]), tp.tensor([1.0, 4.0]))
    tensor(2.)
    """
    check_reduction(reduction)
    a, b = common_tensors(input, target, "target")
    refuse_complex(a._array, "mse_loss")
    if a._array.dtype is dtypes.float16:
        halved: Tensor = in_single(mse_loss, a, b, reduction)
        return halved
    out = np.square(applied(np.subtract, a._array, b._array))
    shape = out.shape
    scale = 2.0
    if reduction != "none":
        count = out.size
        out = dual.add_up(out, axis=None)
        if reduction == "mean":
            scale /= max(count, 1)
            out = out / count if count else out * np.nan
    if not wanted(a, b):
        return wrap(out)
    edges = stretched_edges(shape, a, b)
    saved = (a._array, b._array, scale)
    return wrap(out, MseLossBackward0(edges, saved, (a._version, b._version)))


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The absolute differences; their mean, their sum, or (``"none"``) one by one."""
    return reduced(abs(input - target), reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Half the squared difference where it is below `delta`, linear in it from there.

    Raises:
        ValueError: `delta` is not positive.
    """
    if delta <= 0:
        raise ValueError("huber_loss does not support non-positive values for delta.")
    return _huber(input, target, reduction, delta, 1.0)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """The absolute difference less ``beta / 2``; below `beta` the square, divided by ``2 * beta``.

    Raises:
        ValueError: `beta` is negative.
    """
    if beta < 0:
        raise ValueError("smooth_l1_loss does not support negative values for beta")
    if beta == 0:
        return l1_loss(input, target, reduction)
    return _huber(input, target, reduction, beta, 1 / beta)


def _huber(input: Tensor, target: Tensor, reduction: str, delta: float, scale: float) -> Tensor:
    check_reduction(reduction)
    a, b = common_tensors(input, target, "target")
    if a._array.dtype is dtypes.float16:
        halved: Tensor = in_single(_huber, a, b, reduction, delta, scale)
        return halved
    size = np.abs(applied(np.subtract, a._array, b._array))
    near = np.minimum(size, delta)
    # Below delta this is half the square; above, delta * (size - delta / 2).
    out = near * (size - near * 0.5)
    shape = out.shape
    if reduction != "none":
        count = out.size
        out = dual.add_up(out, axis=None)
        if reduction == "mean":
            scale /= max(count, 1)
            out = out if count else out * np.nan
    out = out * scale
    if not wanted(a, b):
        return wrap(out)
    edges = stretched_edges(shape, a, b)
    saved = (a._array, b._array, delta, scale)
    return wrap(out, HuberLossBackward0(edges, saved, (a._version, b._version)))
