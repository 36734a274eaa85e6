"""Searching sorted values, finding different ones, counting.  None of this has a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.ops.recording import as_operand
from tensorplay.ops.reduction import axis_of
from tensorplay.tensor import Tensor, wrap


def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values would be inserted into sorted sequences so that these stay sorted.

    Args:
        sorted_sequence: A vector; or sequences along the last dimension, one for each row of
            values.
        input: The values: a number, or a tensor of any shape for a vector, otherwise of the same
            shape as the sequences but along the last dimension.
        out_int32: Give int32 in place of int64.
        right: Insert behind elements that are equal, rather than before; ``side="right"`` is
            another way to say so.
        sorter: The indices that would sort the sequences, if they are not sorted.

    >>> import tensorplay as tp
    >>> tp.searchsorted(tp.tensor([1.0, 3.0, 5.0]), tp.tensor([3.0, 4.0]))
    tensor([1, 2])
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("searchsorted(): side and right can't be set to opposites")
    behind = right or side == "right"
    sequence = as_operand(sorted_sequence, "sorted_sequence")._array
    if sorter is not None:
        sequence = np.take_along_axis(sequence, sorter._array, -1)
    values = input._array if isinstance(input, Tensor) else np.asarray(input)
    if sequence.ndim == 1:
        found = np.asarray(np.searchsorted(sequence, values, "right" if behind else "left"))
    else:
        if values.shape[:-1] != sequence.shape[:-1] or not values.ndim:
            raise RuntimeError(
                "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                "dimensions of boundaries tensor and input value tensor must match, but got "
                f"boundaries tensor {list(sequence.shape)} and input value tensor "
                f"{list(values.shape)}"
            )
        found = _search_rows(sequence, values, behind)
    return wrap(found.astype(np.int32 if out_int32 else np.int64, copy=False))


def _search_rows(sequence: Any, values: Any, behind: bool) -> Any:
    """A binary search in all rows at once."""
    size = sequence.shape[-1]
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, size, np.int64)
    before = np.less_equal if behind else np.less
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        at = np.take_along_axis(sequence, np.minimum(middle, size - 1), -1)
        further = before(at, values) & (low < high)
        low = np.where(further, middle + 1, low)
        high = np.where(further, high, middle)
    return low


def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """For each value, in which of the intervals between sorted boundaries it lies.

    Args:
        right: An interval includes its left boundary, and not its right one.
    """
    if as_operand(boundaries, "boundaries")._array.ndim != 1:
        raise RuntimeError("bucketize(): boundaries tensor must be 1 dimension")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, or slices along a dimension, in ascending order.

    Args:
        return_inverse: Give also, for each element of the input, which of the result it is.
        return_counts: Give also how often each appears.

    >>> import tensorplay as tp
    >>> tp.unique(tp.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    axis = None if dim is None else axis_of(dim, input._array.ndim)
    values, inverse, counts = np.unique(
        input._array, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
    )
    inverse = inverse.reshape(input._array.shape if axis is None else -1)
    return _results(values, inverse if return_inverse else None, counts if return_counts else None)


def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The elements, or slices along a dimension, without those equal to the one before.

    Arguments as for `unique`.
    """
    x = input._array
    if dim is None:
        rows, axis = x.reshape(-1), 0
    else:
        axis = axis_of(dim, x.ndim)
        rows = np.moveaxis(x, axis, 0)
    new = np.ones(len(rows), np.bool_)
    if len(rows):
        new[1:] = (rows[1:] != rows[:-1]).reshape(len(rows) - 1, -1).any(1)
    starts = np.flatnonzero(new)
    values = np.moveaxis(rows[starts], 0, axis)
    inverse = np.cumsum(new) - 1
    if dim is None:
        inverse = inverse.reshape(x.shape)
    counts = np.diff(starts, append=len(rows))
    return _results(values, inverse if return_inverse else None, counts if return_counts else None)


def _results(values: Any, *others: Any) -> Any:
    """One tensor, or several if more was asked for."""
    found = [wrap(one) for one in (values, *others) if one is not None]
    return found[0] if len(found) == 1 else tuple(found)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number appears in a vector of whole numbers, none of them negative.

    Args:
        weights: For each number what to count it for, in place of 1.
        minlength: The least number of counts to give.
    """
    x = input._array
    if x.ndim != 1 or x.dtype.kind not in "iu" or (x.size and x.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        return wrap(np.bincount(x, minlength=minlength).astype(np.int64, copy=False))
    if weights._array.shape != x.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    counts = np.bincount(x, weights._array, minlength)
    return wrap(counts.astype(np.float32 if weights._array.dtype == dtypes.float32 else np.float64))


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of `bins` equal intervals from `min` to `max`.

    Args:
        min: The lower end.  If both ends are equal, the range of the elements is taken.
        max: The upper end, which belongs to the last interval.
    """
    x = input._array
    if x.dtype.kind != "f":
        raise RuntimeError(f"histc(): expected floating-point elements, got {x.dtype}")
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    if max < min:
        raise RuntimeError("max must be larger than min")
    low, high = float(min), float(max)
    if low == high and x.size:
        low, high = float(x.min()), float(x.max())
    if low == high:
        low, high = low - 1, high + 1
    if not np.isfinite([low, high]).all():
        raise RuntimeError(f"range of [{low}, {high}] is not finite")
    counts, _ = np.histogram(x, bins, (low, high))
    return wrap(counts.astype(x.dtype))
