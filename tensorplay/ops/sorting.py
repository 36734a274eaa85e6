"""Orders: sorting, the greatest few, running extrema."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops.extrema import ValuesAndIndices
from tensorplay.ops.gathering import GatherBackward0, index_along
from tensorplay.ops.indexing import scatter
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.tensor import Tensor, wrap


class SortBackward0(Node):
    """Elements picked along a dimension, each at most once."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (scatter(grad, index, shape, repeated=False),)


def _picked(input: Tensor, axis: int, order: Any, node_class: Any = SortBackward0) -> Any:
    index = index_along(order, axis)
    indices = wrap(order)
    node = None
    if wanted(input):
        node = node_class((edge_of(input),), (index, input._array.shape), (indices._version,))
    return ValuesAndIndices(wrap(input._array[index], node), indices)


def _order(x: np.ndarray[Any, Any], axis: int, descending: bool) -> Any:
    """The indices that sort along an axis; equal elements stay in their order; NaN is greatest."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesAndIndices:
    """The elements in ascending order along a dimension, and where each of them was.

    Args:
        stable: Equal elements stay in their order; they always do.

    >>> import tensorplay as tp
    >>> tp.sort(tp.tensor([3, 1, 2])).indices
    tensor([1, 2, 0])
    """
    x = input._array
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return ValuesAndIndices(input.clone(), wrap(np.zeros((), np.int64)))
    return _picked(input, axis, _order(x, axis, descending))  # type: ignore[no-any-return]


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort along a dimension; arguments as for `sort`."""
    x = input._array
    axis = axis_of(dim, x.ndim)
    return wrap(_order(x, axis, descending) if x.ndim else np.zeros((), np.int64))


def msort(input: Tensor) -> Tensor:
    """The elements in ascending order along dimension 0."""
    return sort(input, 0).values


def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesAndIndices:
    """The `k` greatest elements along a dimension, the greatest first, and where they were.

    Args:
        largest: If False, the least elements, the least first.
        sorted: They always are.

    >>> import tensorplay as tp
    >>> tp.topk(tp.tensor([3, 1, 2]), 2).values
    tensor([3, 2])
    """
    x = input._array
    axis = axis_of(dim, x.ndim)
    size = x.shape[axis] if x.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: {k} of {size}")
    if not x.ndim:
        return sort(input)
    if not 0 < k < size:
        order = _order(x, axis, largest)
    else:
        bound = size - k if largest else k - 1
        near = np.argpartition(x, bound, axis)
        front = (slice(None),) * axis
        near = near[(*front, slice(bound, None) if largest else slice(k))]
        near.sort(axis)
        order = np.take_along_axis(
            near, _order(np.take_along_axis(x, near, axis), axis, largest), axis
        )
    return _picked(input, axis, order[(*(slice(None),) * axis, slice(k))])  # type: ignore[no-any-return]


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The `k`-th least element along a dimension, counted from 1, and where it was."""
    x = input._array
    axis = axis_of(dim, x.ndim)
    size = x.shape[axis] if x.ndim else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    if not x.ndim:
        return sort(input)
    front = (slice(None),) * axis
    order = np.argpartition(x, k - 1, axis)[(*front, slice(k - 1, k))]
    values, indices = _picked(input, axis, order)
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(values.squeeze(axis), indices.squeeze(axis))


def _running(ufunc: Any, input: Tensor, dim: int) -> ValuesAndIndices:
    x = input._array
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return ValuesAndIndices(input.clone(), wrap(np.zeros((), np.int64)))
    reached = x == ufunc.accumulate(x, axis)
    if x.dtype.kind == "f":
        reached |= np.isnan(x)
    positions = np.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    last = np.maximum.accumulate(np.where(reached, positions, 0), axis)
    return _picked(input, axis, last, GatherBackward0)  # type: ignore[no-any-return]


def cummax(input: Tensor, dim: int) -> ValuesAndIndices:
    """At each place the greatest element so far along a dimension, and where it was.

    >>> import tensorplay as tp
    >>> tp.cummax(tp.tensor([1, 3, 2]), 0).values
    tensor([1, 3, 3])
    """
    return _running(np.maximum, input, dim)


def cummin(input: Tensor, dim: int) -> ValuesAndIndices:
    """At each place the least element so far along a dimension, and where it was."""
    return _running(np.minimum, input, dim)
