"""Reading and writing where a mask says, and at positions in the flattened tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.ops.gathering import gather
from tensorplay.ops.indexing import getitem
from tensorplay.ops.placing import Place, put, put_
from tensorplay.ops.recording import as_operand, cast
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.selection import where
from tensorplay.ops.shape import broadcast_to, reshape
from tensorplay.tensor import Tensor, wrap


def _mask_of(mask: Any, what: str) -> np.ndarray[Any, Any]:
    array = as_operand(mask, "mask")._array
    if array.dtype.kind != "b":
        raise RuntimeError(f"{what} only supports boolean masks, but got mask with {array.dtype}")
    return array


def _place(mask: Tensor, test: np.ndarray[Any, Any], count: int) -> Place:
    return Place((test,), (count,), (mask._version,))


def _fill_value(input: Tensor, value: Any, what: str) -> Tensor:
    dtype = input._array.dtype
    if not isinstance(value, Tensor):
        return wrap(np.array(value, dtype))
    if value._array.ndim:
        raise RuntimeError(
            f"{what} only supports a 0-dimensional value tensor, but got tensor with "
            f"{value._array.ndim} dimension(s)."
        )
    return cast(value, dtype)


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value` where the mask holds, the elements of `input` elsewhere.

    Args:
        mask: Booleans; broadcasts with `input`.
        value: A number, or a tensor without dimensions.

    >>> import tensorplay as tp
    >>> tp.masked_fill(tp.ones(3), tp.tensor([True, False, True]), 0.0)
    tensor([0., 1., 0.])
    """
    _mask_of(mask, "masked_fill()")
    filled: Tensor = where(mask, _fill_value(input, value, "masked_fill()"), input)
    return filled


def masked_fill_(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`masked_fill`, written into the tensor; the mask broadcasts to its shape."""
    test = broadcast_to(wrap(_mask_of(mask, "masked_fill_()")), input._array.shape)._array
    value = _fill_value(input, value, "masked_fill_()")
    return put_(input, _place(mask, test, int(np.count_nonzero(test))), value)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds, as a vector; both broadcast."""
    test = _mask_of(mask, "masked_select()")
    shape = np.broadcast_shapes(test.shape, input._array.shape)
    return getitem(broadcast_to(input, shape), np.broadcast_to(test, shape))


def _masked_source(source: Tensor, dtype: Any, count: int, what: str) -> Tensor:
    flat = reshape(as_operand(source, "source"), -1)
    if flat._array.dtype != dtype:
        raise RuntimeError(
            f"{what}: expected self and source to have same dtypes but got {dtype} and "
            f"{flat._array.dtype}"
        )
    if flat._array.size < count:
        raise RuntimeError(
            f"{what}: expected self and source to have the same number of elements: the mask "
            f"holds {count} times, source has {flat._array.size} elements"
        )
    return flat if flat._array.size == count else getitem(flat, slice(count))


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the elements of `source`, in their order, where the mask holds."""
    test = _mask_of(mask, "masked_scatter()")
    shape = np.broadcast_shapes(test.shape, input._array.shape)
    test = np.broadcast_to(test, shape)
    count = int(np.count_nonzero(test))
    values = _masked_source(source, input._array.dtype, count, "masked_scatter()")
    return put(broadcast_to(input, shape), _place(mask, test, count), values)


def masked_scatter_(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter`, written into the tensor; the mask broadcasts to its shape."""
    test = broadcast_to(wrap(_mask_of(mask, "masked_scatter_()")), input._array.shape)._array
    count = int(np.count_nonzero(test))
    values = _masked_source(source, input._array.dtype, count, "masked_scatter_()")
    return put_(input, _place(mask, test, count), values)


def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at positions in the flattened tensor; the shape is that of `index`.

    >>> import tensorplay as tp
    >>> tp.take(tp.tensor([[1, 2], [3, 4]]), tp.tensor([0, 3]))
    tensor([1, 4])
    """
    if as_operand(index, "index")._array.dtype.kind not in "iu":
        raise RuntimeError(f"take(): Expected integers as index, not {index._array.dtype}")
    # As a vector, of which a copy comes, even where there is one index only.
    taken = getitem(reshape(input, -1), reshape(index, -1))
    return reshape(taken, index._array.shape)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, but the other dimensions broadcast; without `dim`, as `take`."""
    if dim is None:
        return gather(reshape(input, -1), 0, reshape(as_operand(indices, "indices"), -1))
    x, picked = input._array, as_operand(indices, "indices")._array
    if x.ndim != picked.ndim:
        raise RuntimeError(
            "take_along_dim(): input and indices should have the same number of dimensions, but "
            f"got {x.ndim} and {picked.ndim}"
        )
    axis = axis_of(dim, x.ndim)
    both = np.broadcast_shapes(
        (*x.shape[:axis], 1, *x.shape[axis + 1 :]),
        (*picked.shape[:axis], 1, *picked.shape[axis + 1 :]),
    )
    wide = broadcast_to(input, (*both[:axis], x.shape[axis], *both[axis + 1 :]))
    index = broadcast_to(indices, (*both[:axis], picked.shape[axis], *both[axis + 1 :]))
    if index._array.size and index._array.min() < 0:
        # Counted from the end, as in PyTorch; unlike in `gather`.
        counted = np.where(index._array < 0, index._array + x.shape[axis], index._array)
        index = wrap(counted)
    return gather(wide, axis, index)
