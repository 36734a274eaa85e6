"""Further reductions: several results at once, medians, counts, and sums without NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.extrema import ValuesAndIndices
from tensorplay.ops.gathering import gather
from tensorplay.ops.recording import edge_of, in_single, refuse_complex, wanted
from tensorplay.ops.reduction import Dim, axes_of, axis_of, mean, std, sum, var
from tensorplay.ops.selection import where
from tensorplay.ops.shape import reshape, squeeze
from tensorplay.tensor import Tensor, wrap


class MedianBackward0(Node):
    """Of all elements: those that are equal to the median share its gradient evenly."""

    __slots__ = ()
    lift = (0, OUTPUT)

    def rule(self, grad: Any, x: Any, out: Any) -> tuple[Any, ...]:
        values, middle = dual.array(x), dual.array(out)
        chosen = np.isnan(values) if np.isnan(middle) else values == middle
        return (grad * np.divide(chosen, chosen.sum(), dtype=values.dtype),)


def var_mean(
    input: Tensor, dim: Dim = None, correction: Any = 1, keepdim: bool = False, **options: Any
) -> tuple[Tensor, Tensor]:
    """The variance and the mean; arguments as for `var`."""
    return var(input, dim, correction, keepdim, **options), _mean(input, dim, keepdim)


def std_mean(
    input: Tensor, dim: Dim = None, correction: Any = 1, keepdim: bool = False, **options: Any
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean; arguments as for `std`."""
    return std(input, dim, correction, keepdim, **options), _mean(input, dim, keepdim)


def _mean(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return mean(input, None if isinstance(dim, bool) else dim, keepdim)


def count_nonzero(input: Tensor, dim: Dim = None) -> Tensor:
    """How many elements are not zero, in the whole or along dimensions (int64)."""
    x = input._array
    return wrap(np.asarray(np.count_nonzero(x, axis=axes_of(dim, x.ndim)), np.int64))


def nansum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of the elements that are not NaN; arguments as for `sum`."""
    return sum(_without_nan(input), dim, keepdim, dtype=dtype)


def nanmean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of the elements that are not NaN; arguments as for `mean`."""
    if dtype is None and input._array.dtype is dtypes.float16:
        halved: Tensor = in_single(nanmean, input, dim, keepdim)
        return halved
    count = sum(wrap(~np.isnan(input._array)), dim, keepdim)
    result: Tensor = nansum(input, dim, keepdim, dtype=dtype) / count
    return result


def _without_nan(input: Tensor) -> Tensor:
    if input._array.dtype.kind not in "fc":
        return input
    kept: Tensor = where(wrap(~np.isnan(input._array)), input, 0)
    return kept


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle element; of an even number of elements the lower one of the two in the middle.

    Args:
        input: Any real type.  If an element is NaN, so is the result.
        dim: None for the median of all elements, else a dimension to get ``(values, indices)``
            along it.

    >>> import tensorplay as tp
    >>> tp.median(tp.tensor([[3.0, 1.0, 2.0]]), dim=1)
    ValuesAndIndices(values=tensor([2.]), indices=tensor([2]))
    """
    return _median(input, dim, keepdim, skip_nan=False)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median` of the elements that are not NaN."""
    return _median(input, dim, keepdim, skip_nan=True)


def _median(input: Tensor, dim: int | None, keepdim: bool, skip_nan: bool) -> Any:
    refuse_complex(input._array, "median")
    if dim is None:
        if not input._array.size:
            dtype = input._array.dtype
            return wrap(np.full((), np.nan if dtype.kind == "f" else np.iinfo(dtype).min, dtype))
        found = _median(reshape(input.detach(), -1), 0, False, skip_nan).values
        if wanted(input):
            saved = (input._array, found._array)
            versions = (input._version, found._version)
            found._node = MedianBackward0((edge_of(input),), saved, versions)
            found._requires_grad = True
        return found
    axis = axis_of(dim, input._array.ndim)
    if not input._array.ndim:
        return ValuesAndIndices(input.clone(), wrap(np.zeros((), np.int64)))
    x = input._array
    size = x.shape[axis]
    if not size:
        raise IndexError(f"median(): Expected reduction dim {axis} to have non-zero size.")
    order = np.argsort(x, axis=axis, kind="stable")
    missing = np.isnan(x).sum(axis, keepdims=True) if x.dtype.kind == "f" else np.int64(0)
    if skip_nan:
        place = np.maximum(size - missing - 1, 0) // 2
    else:
        # NaN sorts behind all numbers: the first of them, where there is one.
        place = np.where(missing > 0, size - missing, (size - 1) // 2)
    kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    indices = wrap(np.take_along_axis(order, np.broadcast_to(place, kept), axis))
    values = gather(input, axis, indices)
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(squeeze(values, axis), squeeze(indices, axis))
