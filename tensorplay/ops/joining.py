"""Joining tensors, and taking them apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import MultiOutputNode, Node, OutputOf
from tensorplay.ops import dual
from tensorplay.ops.aliasing import view
from tensorplay.ops.recording import as_operand, cast, edge_of, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.tensor import Tensor, wrap


class CatBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, axis: int, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        front = (slice(None),) * axis
        pieces = []
        start = 0
        for edge, size in zip(self.edges, sizes, strict=True):
            piece = (*front, slice(start, start + size))
            pieces.append(None if edge is None else grad[piece])
            start += size
        return tuple(pieces)


class StackBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, axis: int) -> tuple[Any, ...]:
        front = (slice(None),) * axis
        return tuple(
            [None if edge is None else grad[(*front, i)] for i, edge in enumerate(self.edges)]
        )


class SplitBackward0(MultiOutputNode):
    """Pieces along a dimension; those that got no gradient count as zero."""

    __slots__ = ()

    def rule(self, grads: Any, axis: int, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
        return (_joined(np.concatenate, cat, _without_gaps(grads, shapes), axis),)


class UnbindBackward0(MultiOutputNode):
    """Slices along a dimension; those that got no gradient count as zero."""

    __slots__ = ()

    def rule(self, grads: Any, axis: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
        shapes = (shape,) * len(grads)
        return (_joined(np.stack, stack, _without_gaps(grads, shapes), axis),)


def _without_gaps(grads: Any, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    like = next(grad for grad in grads if grad is not None)
    dtype = dual.array(like).dtype
    return [
        np.zeros(shape, dtype) if grad is None else grad
        for grad, shape in zip(grads, shapes, strict=True)
    ]


def _joined(of_arrays: Any, of_tensors: Any, parts: list[Any], axis: int) -> Any:
    if any(isinstance(part, Tensor) for part in parts):
        parts = [part if isinstance(part, Tensor) else wrap(part) for part in parts]
        return of_tensors(parts, axis)
    return of_arrays(parts, axis)


def _of_one_type(tensors: Sequence[Tensor]) -> list[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"argument 'tensors' (position 1) must be a list or tuple of Tensors, not "
            f"{type(tensors).__name__}"
        )
    if not tensors:
        raise RuntimeError("expected a non-empty list of Tensors")
    first = as_operand(tensors[0], "each element")._array.dtype
    for one in tensors:
        if as_operand(one, "each element")._array.dtype is not first:
            break
    else:
        return list(tensors)
    with_dims = [one._array.dtype for one in tensors if one._array.ndim]
    without = [one._array.dtype for one in tensors if not one._array.ndim]
    target = dtypes.result_type(with_dims, without, [])
    return [cast(one, target) for one in tensors]


def cat(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """The tensors one after another along an existing dimension.

    Raises:
        RuntimeError: There are none, one has no dimensions, or the other sizes differ.

    >>> import tensorplay as tp
    >>> tp.cat([tp.ones(2), tp.zeros(1)])
    tensor([1., 1., 0.])
    """
    parts = _of_one_type(tensors)
    # An empty vector goes with everything, as in PyTorch.
    parts = [one for one in parts if one._array.shape != (0,)] or parts[:1]
    ndim = parts[0]._array.ndim
    if not ndim:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    axis = axis_of(dim if axis is None else axis, ndim)
    try:
        out = np.concatenate([one._array for one in parts], axis)
    except ValueError as error:
        raise RuntimeError(
            f"cat(): sizes of tensors must match except in dim {axis}: {error}"
        ) from None
    if not wanted(*parts):
        return wrap(out)
    edges = tuple([edge_of(one) for one in parts])
    return wrap(out, CatBackward0(edges, (axis, tuple([one._array.shape[axis] for one in parts]))))


def stack(tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None) -> Tensor:
    """The tensors, all of one shape, one after another along a new dimension."""
    parts = _of_one_type(tensors)
    axis = axis_of(dim if axis is None else axis, parts[0]._array.ndim + 1)
    try:
        # NumPy's own stack does the same, and takes twice as long on small arrays.
        place = (*(slice(None),) * axis, None)
        out = np.concatenate([one._array[place] for one in parts], axis)
    except (ValueError, IndexError):
        shapes = [one._array.shape for one in parts]
        raise RuntimeError(
            f"stack expects each tensor to be equal size, but got {shapes}"
        ) from None
    if not wanted(*parts):
        return wrap(out)
    return wrap(out, StackBackward0(tuple([edge_of(one) for one in parts]), (axis,)))


def _views(
    input: Tensor,
    arrays: list[Any],
    node: MultiOutputNode | None,
    again: Callable[[Tensor], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """The views of `input` that an operation makes at once."""

    def piece(i: int) -> Callable[[Tensor], Tensor]:
        return lambda base: again(base)[i]

    return tuple(
        [
            view(input, array, None if node is None else OutputOf(node, i), piece(i))
            for i, array in enumerate(arrays)
        ]
    )


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive pieces along a dimension.

    Args:
        split_size_or_sections: The size of each piece (the last may be smaller), or a list of the
            sizes, which must add up to that of the dimension.
    """
    x = tensor._array
    axis = axis_of(dim, x.ndim)
    length = x.shape[axis]
    if isinstance(split_size_or_sections, (list, tuple)):
        sections = list(split_size_or_sections)
        if sum(sections) != length:
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {length}, but got "
                f"{sections}"
            )
    else:
        size = int(split_size_or_sections)
        if size <= 0 and length:
            raise RuntimeError(f"split expects a positive split_size, but got {size}")
        sections = [min(size, length - i) for i in range(0, length, size or 1)] or [0]
    bounds = list(itertools.accumulate(sections, initial=0))
    front = (slice(None),) * axis
    arrays = [x[(*front, slice(a, b))] for a, b in itertools.pairwise(bounds)]
    node = None
    if wanted(tensor):
        shapes = tuple([array.shape for array in arrays])
        node = SplitBackward0((edge_of(tensor),), (axis, shapes))
        node.outputs = len(arrays)
    return _views(tensor, arrays, node, lambda base: split(base, sections, axis))


def split_method(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split`, whose arguments are named so where it is a method."""
    return split(input, split_size, dim)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` pieces of equal size (the last may be smaller)."""
    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    length = input._array.shape[axis_of(dim, input._array.ndim)]
    return split(input, max(1, -(-length // chunks)), dim)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of all slices along a dimension, which they do not have any more."""
    x = input._array
    if not x.ndim:
        raise RuntimeError("Dimension specified as 0 but tensor has no dimensions")
    axis = axis_of(dim, x.ndim)
    front = (slice(None),) * axis
    places: list[Any] = [(*front, i, ...) for i in range(x.shape[axis])]
    arrays = [x[place] for place in places]
    node = None
    if arrays and wanted(input):
        node = UnbindBackward0((edge_of(input),), (axis, arrays[0].shape))
        node.outputs = len(arrays)
    return _views(input, arrays, node, lambda base: unbind(base, axis))
