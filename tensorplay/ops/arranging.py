"""Several tensors beside each other: stacks, grids, common shapes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.ops.indexing import getitem
from tensorplay.ops.joining import cat, split, stack
from tensorplay.ops.recording import as_operand
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.shape import broadcast_to, reshape, transpose
from tensorplay.tensor import Tensor


def _listed(tensors: tuple[Any, ...]) -> list[Tensor]:
    """Tensors given as one sequence or one by one."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    return [as_operand(one, "each element") for one in tensors]


def _for_each(one: Any, tensors: tuple[Any, ...]) -> Any:
    """One result for a tensor, a tuple of them for several."""
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return one(tensors[0])
    return tuple([one(tensor) for tensor in _listed(tensors)])


def _at_least_1d(input: Tensor) -> Tensor:
    return input if input._array.ndim else reshape(input, 1)


def _at_least_2d(input: Tensor) -> Tensor:
    return input if input._array.ndim > 1 else reshape(input, 1, -1)


def _at_least_3d(input: Tensor) -> Tensor:
    ndim = input._array.ndim
    if ndim > 2:
        return input
    return reshape(input, (*input._array.shape, 1)) if ndim == 2 else reshape(input, 1, -1, 1)


def atleast_1d(*tensors: Any) -> Any:
    """Views with at least one dimension."""
    return _for_each(_at_least_1d, tensors)


def atleast_2d(*tensors: Any) -> Any:
    """Views with at least two dimensions; a vector becomes a row."""
    return _for_each(_at_least_2d, tensors)


def atleast_3d(*tensors: Any) -> Any:
    """Views with at least three dimensions; a vector becomes the middle one."""
    return _for_each(_at_least_3d, tensors)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors one after another along dimension 1; vectors along their only one.

    >>> import tensorplay as tp
    >>> tp.hstack([tp.ones(2), tp.zeros(1)])
    tensor([1., 1., 0.])
    """
    parts = [_at_least_1d(one) for one in tensors]
    return cat(parts, 0 if not parts or parts[0]._array.ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors one below another along dimension 0; vectors as rows."""
    return cat([_at_least_2d(one) for one in tensors], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors one behind another along dimension 2."""
    return cat([_at_least_3d(one) for one in tensors], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side, vectors as columns."""
    return cat([one if one._array.ndim > 1 else reshape(one, -1, 1) for one in tensors], 1)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of pieces along a dimension.

    Args:
        indices_or_sections: The number of pieces, as equal as they can be, the larger ones first;
            or where to cut, as a sequence or tensor of indices.

    >>> import tensorplay as tp
    >>> tp.tensor_split(tp.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    if not input._array.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor")
    axis = axis_of(dim, input._array.ndim)
    length = input._array.shape[axis]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections._array.tolist()
    if not isinstance(indices_or_sections, (tuple, list)):
        count = int(indices_or_sections)
        if count <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {count}")
        size, larger = divmod(length, count)
        return split(input, [size + 1] * larger + [size] * (count - larger), axis)
    cuts = [slice(one).indices(length)[1] for one in indices_or_sections]
    bounds = list(itertools.pairwise([0, *cuts, length]))
    if all(start <= end for start, end in bounds):
        return split(input, [end - start for start, end in bounds], axis)
    # Pieces that overlap or are empty, as with slices.
    front = (slice(None),) * axis
    return tuple([getitem(input, (*front, slice(start, end))) for start, end in bounds])


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 1, of a vector along its only one."""
    return _even_split(input, indices_or_sections, 0 if input._array.ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 0."""
    return _even_split(input, indices_or_sections, 0)


def _even_split(input: Tensor, indices_or_sections: Any, dim: int) -> tuple[Tensor, ...]:
    length = input._array.shape[dim]
    if isinstance(indices_or_sections, int) and length % indices_or_sections:
        raise RuntimeError(
            f"the size of dimension {dim}, {length}, is not divisible by the split size "
            f"{indices_or_sections}"
        )
    return tensor_split(input, indices_or_sections, dim)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of all tensors, stretched to their common shape.

    Raises:
        RuntimeError: There is none.
    """
    parts = _listed(tensors)
    shapes = [one._array.shape for one in parts]
    try:
        common = np.broadcast_shapes(*shapes)
    except ValueError:
        raise RuntimeError(f"the shapes {shapes} do not broadcast") from None
    return tuple([broadcast_to(one, common) for one in parts])


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The common shape that several shapes broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise RuntimeError(f"the shapes {list(shapes)} do not broadcast") from None


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """For vectors, one grid each: the value that it has at each point of the grid.

    Args:
        tensors: Vectors, or single numbers.
        indexing: ``"ij"``: the first vector runs along dimension 0; ``"xy"``: along dimension 1.

    >>> import tensorplay as tp
    >>> tp.meshgrid(tp.arange(2), tp.arange(3), indexing="ij")[1]
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", not {indexing!r}')
    parts = _listed(tensors)
    if not parts:
        raise RuntimeError("meshgrid expects a non-empty list of tensors")
    if any(one._array.ndim > 1 for one in parts):
        raise RuntimeError("meshgrid: expected vectors or single numbers")
    shape = tuple([one._array.size for one in parts])
    grids = [
        broadcast_to(reshape(one, (-1,) + (1,) * (len(parts) - 1 - i)), shape)
        for i, one in enumerate(parts)
    ]
    if indexing == "xy" and len(grids) > 1:
        grids = [transpose(one, 0, 1) for one in grids]
    return tuple(grids)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of one element of each vector, one row for each."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(one, -1) for one in meshgrid(*tensors)], 1)
