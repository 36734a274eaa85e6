"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.aliasing import is_recorded, view
from tensorplay.ops.inplace import setitem, write_through
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.reduction import sum as sum_of
from tensorplay.tensor import Tensor, wrap

Shape = tuple[int, ...]


class DiagonalBackward0(Node):
    """A diagonal, read."""

    __slots__ = ()

    def rule(self, grad: Any, shape: Shape, offset: int, dims: tuple[int, int]) -> tuple[Any, ...]:
        return (dual.on_tensors(lambda one: _on_diagonal(one, shape, offset, dims), grad),)


class DiagEmbedBackward0(Node):
    """A diagonal, written into zeros."""

    __slots__ = ()

    def rule(self, grad: Any, offset: int, dims: tuple[int, int]) -> tuple[Any, ...]:
        return (dual.on_tensors(lambda one: diagonal(one, offset, *dims), grad),)


class TrilBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, diagonal: int) -> tuple[Any, ...]:
        return (dual.on_tensors(lambda one: tril(one, diagonal), grad),)


class TriuBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, diagonal: int) -> tuple[Any, ...]:
        return (dual.on_tensors(lambda one: triu(one, diagonal), grad),)


def _plane(dim1: int, dim2: int, ndim: int, what: str) -> tuple[int, int]:
    first, second = axis_of(dim1, ndim), axis_of(dim2, ndim)
    if first == second or ndim < 2:
        raise RuntimeError(f"{what}: diagonal dimensions cannot be identical {dim1}, {dim2}")
    return first, second


def _diagonal_of(x: np.ndarray[Any, Any], offset: int, first: int, second: int) -> Any:
    out = x.diagonal(offset, first, second)
    if x.flags.writeable:
        # NumPy makes it read-only, by default.
        out.flags.writeable = True
    return out


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal between two dimensions, as the last dimension of the result.

    Args:
        offset: Which diagonal: above the main one if positive, below if negative.

    >>> import tensorplay as tp
    >>> tp.diagonal(tp.tensor([[1, 2], [3, 4]]))
    tensor([1, 4])
    """
    x = input._array
    dims = _plane(dim1, dim2, x.ndim, "diagonal()")
    out = _diagonal_of(x, offset, *dims)
    node = DiagonalBackward0((edge_of(input),), (x.shape, offset, dims)) if wanted(input) else None
    return view(input, out, node, lambda base: diagonal(base, offset, *dims))


def _on_diagonal(input: Tensor, shape: Shape, offset: int, dims: tuple[int, int]) -> Tensor:
    """Zeros of `shape` with the values of `input` on a diagonal; the adjoint of `diagonal`."""
    out = np.zeros(shape, input._array.dtype)
    _diagonal_of(out, offset, *dims)[...] = input._array
    if not wanted(input):
        return wrap(out)
    return wrap(out, DiagEmbedBackward0((edge_of(input),), (offset, dims)))


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices whose diagonals are the vectors along the last dimension, zero elsewhere.

    Args:
        offset: Which diagonal.
        dim1: The first dimension of the matrices in the result.
        dim2: The second.
    """
    own = input._array.shape
    if not own:
        raise RuntimeError("diag_embed(): input must have at least one dimension")
    dims = _plane(dim1, dim2, len(own) + 1, "diag_embed()")
    size = own[-1] + abs(offset)
    shape = list(own[:-1])
    for axis in sorted(dims):
        shape.insert(axis, size)
    return _on_diagonal(input, tuple(shape), offset, dims)


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, copied; or for a vector, the matrix with that diagonal."""
    ndim = input._array.ndim
    if ndim == 1:
        return diag_embed(input, diagonal)
    if ndim == 2:
        return _diagonal(input, diagonal).clone()
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")


# `diag` has an argument of that name.
_diagonal = diagonal


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix whose diagonal has all elements of the tensor, in their order."""
    return diag_embed(input.reshape(-1), offset)


def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if input._array.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input._array.ndim}")
    return sum_of(diagonal(input))


def _triangle(function: Any, node_class: type[Node], input: Tensor, diagonal: int) -> Tensor:
    x = input._array
    if x.ndim < 2:
        raise RuntimeError("tril and triu need a tensor with at least 2 dimensions")
    node = node_class((edge_of(input),), (diagonal,)) if wanted(input) else None
    return wrap(function(x, diagonal), node)


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices with zeros above a diagonal.

    >>> import tensorplay as tp
    >>> tp.tril(tp.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _triangle(np.tril, TrilBackward0, input, diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices with zeros below a diagonal."""
    return _triangle(np.triu, TriuBackward0, input, diagonal)


def _triangle_in_place(out_of_place: Any, input: Tensor, diagonal: int) -> Tensor:
    if is_recorded(input):
        return write_through(input, out_of_place, diagonal)
    input._array[...] = out_of_place(input.detach(), diagonal)._array
    input._version[0] += 1
    return input


def tril_(input: Tensor, diagonal: int = 0) -> Tensor:
    """`tril`, written into the tensor."""
    return _triangle_in_place(tril, input, diagonal)


def triu_(input: Tensor, diagonal: int = 0) -> Tensor:
    """`triu`, written into the tensor."""
    return _triangle_in_place(triu, input, diagonal)


def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write one number into the main diagonal of the tensor.

    Args:
        input: At least two dimensions; if more, all of the same size.
        wrap: Begin again below the diagonal of a matrix that has many more rows than columns.
    """
    shape = input._array.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise RuntimeError(
            "fill_diagonal_(): the tensor must have at least 2 dimensions, and all of equal size "
            f"if it has more, but its shape is {list(shape)}"
        )
    if wrap and len(shape) == 2:
        rows, columns = np.divmod(np.arange(0, shape[0] * shape[1], shape[1] + 1), shape[1])
        setitem(input, (rows, columns), fill_value)
    else:
        setitem(input, (np.arange(min(shape)),) * len(shape), fill_value)
    return input


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.int64) -> Tensor:
    """The rows and columns of the lower triangle of a matrix: two rows of indices."""
    found = np.stack(np.tril_indices(row, offset, col))
    return wrap(found.astype(dtypes.as_dtype(dtype)))


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = dtypes.int64) -> Tensor:
    """The rows and columns of the upper triangle of a matrix: two rows of indices."""
    found = np.stack(np.triu_indices(row, offset, col))
    return wrap(found.astype(dtypes.as_dtype(dtype)))
