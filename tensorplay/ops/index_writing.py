"""Writing slices, and elements at tuples of indices, out of place and in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.ops.indexing import index_of, versions_of
from tensorplay.ops.placing import Place, checked, put, put_, put_add, put_add_
from tensorplay.ops.recording import as_operand
from tensorplay.ops.reduction import axis_of
from tensorplay.tensor import Tensor, wrap

_Target = tuple[Place, Any]


def _slices(input: Tensor, dim: int, index: Tensor, source: Any, what: str) -> _Target:
    """The place of the slices that a vector names, and the values for it."""
    shape = input._array.shape
    axis = axis_of(dim, len(shape))
    indices = checked(index, shape[axis] if shape else 1, what)
    if indices.ndim > 1:
        raise RuntimeError(f"{what}: Index is supposed to be a vector, got {indices.ndim}D")
    indices = indices.reshape(-1)
    if not shape:
        return Place(..., (), ()), source.reshape(()) if isinstance(source, Tensor) else source
    whole = (*shape[:axis], len(indices), *shape[axis + 1 :])
    if isinstance(source, Tensor) and source._array.ndim:
        if source._array.shape != whole:
            raise RuntimeError(
                f"{what}: source of shape {list(source._array.shape)} does not fit the slices, of "
                f"shape {list(whole)}"
            )
        if source._array.dtype != input._array.dtype:
            raise RuntimeError(
                f"{what}: self and source expected to have the same dtype, but got "
                f"{input._array.dtype} and {source._array.dtype}"
            )
    return Place((*(slice(None),) * axis, indices), whole, (index._version,)), source


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy of `input` with slices added where a vector of indices says.

    Args:
        index: For each slice of `source` along `dim`, to which of `input` it is added.
        source: The slices: the shape of `input` but along `dim`, where it is that of `index`.
        alpha: A factor for the source.

    >>> import tensorplay as tp
    >>> tp.index_add(tp.zeros(3), 0, tp.tensor([0, 0, 2]), tp.tensor([1.0, 2.0, 3.0]))
    tensor([3., 0., 3.])
    """
    scaled = as_operand(source, "source") * alpha if alpha != 1 else as_operand(source, "source")
    return put_add(input, *_slices(input, dim, index, scaled, "index_add()"))


def index_add_(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """`index_add`, written into the tensor."""
    scaled = as_operand(source, "source") * alpha if alpha != 1 else as_operand(source, "source")
    return put_add_(input, *_slices(input, dim, index, scaled, "index_add_()"))


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with other slices where a vector of indices says; as `index_add`."""
    return put(input, *_slices(input, dim, index, as_operand(source, "source"), "index_copy()"))


def index_copy_(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`index_copy`, written into the tensor."""
    return put_(input, *_slices(input, dim, index, as_operand(source, "source"), "index_copy_()"))


def _from_the_front(input: Tensor, dim: int, index: Tensor) -> Any:
    """Indices of which some may count from the end: only `index_fill` takes such, as PyTorch's."""
    shape = input._array.shape
    size = shape[axis_of(dim, len(shape))] if shape else 1
    return np.where(index._array < 0, index._array + size, index._array)


def _filled(input: Tensor, dim: int, index: Tensor, value: Any, what: str) -> _Target:
    if isinstance(value, Tensor) and value._array.ndim:
        raise RuntimeError(
            f"{what} only supports a 0-dimensional value tensor, but got tensor with "
            f"{value._array.ndim} dimension(s)."
        )
    given = as_operand(index, "index")._array
    if isinstance(value, Tensor):
        # Each slice once, so that its gradient counts once.
        index = wrap(np.unique(_from_the_front(input, dim, index)))
    elif given.size and given.min() < 0:
        index = wrap(_from_the_front(input, dim, index))
    return _slices(input, dim, index, value, what)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` with one value in the slices that a vector of indices names."""
    return put(input, *_filled(input, dim, index, value, "index_fill()"))


def index_fill_(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`index_fill`, written into the tensor."""
    return put_(input, *_filled(input, dim, index, value, "index_fill_()"))


def _tuple_place(input: Tensor, indices: Sequence[Tensor | None]) -> Place:
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            f"index_put(): indices must be a tuple of tensors, not {type(indices).__name__}"
        )
    index, _ = index_of(tuple([slice(None) if one is None else one for one in indices]))
    # The shape alone, without the elements.
    shape = np.broadcast_to(False, input._array.shape)[index].shape
    return Place(index, shape, versions_of(indices))


def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of `input` with other values at ``input[indices]``.

    Args:
        indices: A tuple of tensors of indices or masks, one for each dimension.
        values: Broadcast to the shape of ``input[indices]``; of the type of `input`.
        accumulate: Add to the old values; what falls on the same element is summed.
    """
    function = put_add if accumulate else put
    return function(input, _tuple_place(input, indices), as_operand(values, "values"))


def index_put_(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`index_put`, written into the tensor."""
    function = put_add_ if accumulate else put_
    return function(input, _tuple_place(input, indices), as_operand(values, "values"))
