"""Loss functions that compare two tensors element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.pointwise import abs
from tensorplay.ops.recording import (
    applied,
    common_tensors,
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
