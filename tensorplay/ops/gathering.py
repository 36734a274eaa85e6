"""Picking and summing elements along a dimension, by tensors of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops.indexing import IndexBackward0, scatter
from tensorplay.ops.recording import recorded
from tensorplay.ops.reduction import axis_of
from tensorplay.tensor import Tensor

_least: Any = np.minimum.reduce
_greatest: Any = np.maximum.reduce


class GatherBackward0(Node):
    """Picked elements; one may have been picked several times."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (scatter(grad, index, shape, repeated=True),)


def index_along(indices: np.ndarray[Any, Any], axis: int) -> tuple[Any, ...]:
    """The NumPy index that takes, at each place, the element that `indices` names along `axis`."""
    ndim = indices.ndim
    grid: list[Any] = [
        np.arange(size).reshape((size,) + (1,) * (ndim - 1 - i))
        for i, size in enumerate(indices.shape)
    ]
    grid[axis] = indices
    return tuple(grid)


def in_bounds(indices: np.ndarray[Any, Any], size: int, what: str) -> None:
    """Raise IndexError unless all indices into a dimension lie within it; none may be negative."""
    if not indices.size:
        return
    least, greatest = _least(indices, None), _greatest(indices, None)
    if least < 0 or greatest >= size:
        bad = least if least < 0 else greatest
        raise IndexError(f"{what}: index {bad} is out of bounds for dimension with size {size}")


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """At each place of `index` the element of `input` that it names along `dim`.

    Args:
        index: Integers; as many dimensions as `input`, and no larger than it but along `dim`.

    >>> import tensorplay as tp
    >>> tp.gather(tp.tensor([[1, 2], [3, 4]]), 1, tp.tensor([[0], [1]]))
    tensor([[1],
            [4]])
    """
    x, picked = input._array, index._array
    if picked.ndim != x.ndim:
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    if picked.dtype.kind not in "iu":
        raise RuntimeError(f"gather(): expected integers as index, not {picked.dtype}")
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        in_bounds(picked, 1, "gather()")
        return input.clone()
    in_bounds(picked, x.shape[axis], "gather()")
    for i, size in enumerate(picked.shape):
        if i != axis and size > x.shape[i]:
            raise RuntimeError(
                f"gather(): Expected index {list(picked.shape)} to be no larger than self "
                f"{list(x.shape)} apart from dimension {axis}"
            )
    place = index_along(picked, axis)
    return recorded(x[place], GatherBackward0, input, (place, x.shape), index._version)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` along `dim` that a vector of indices names."""
    x, picked = input._array, index._array
    axis = axis_of(dim, x.ndim)
    if picked.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if picked.dtype.kind not in "iu":
        raise RuntimeError(f"index_select(): expected integers as index, not {picked.dtype}")
    in_bounds(picked, x.shape[axis] if x.ndim else 1, "index_select()")
    if not x.ndim:
        if picked.size != 1:
            raise IndexError("index_select(): a tensor without dimensions takes one index")
        return input.clone()
    place: Any = (*(slice(None),) * axis, picked.reshape(-1))
    return recorded(x[place], IndexBackward0, input, (place, x.shape), index._version)
