"""Products of matrices and vectors in other forms than `matmul`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.aliasing import is_recorded
from tensorplay.ops.inplace import copy_, write_through
from tensorplay.ops.linalg import bmm, dot, matmul, mm, outer
from tensorplay.ops.recording import (
    as_operand,
    common_tensors,
    shape_error,
    stretched_edges,
    wanted,
)
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.reduction import sum as sum_of
from tensorplay.ops.shape import reshape
from tensorplay.tensor import Tensor, wrap


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    if input._array.ndim != 2 or as_operand(vec, "vec")._array.ndim != 1:
        raise RuntimeError(
            "mv(): the arguments must be a matrix and a vector, but they are "
            f"{input._array.ndim}D and {vec._array.ndim}D"
        )
    return matmul(input, vec)


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The inner product of two vectors, of real numbers."""
    if input._array.dtype.kind == "c":
        raise RuntimeError("vdot(): complex numbers are not supported: use dot(x.conj(), y)")
    return dot(input, other)


def _combined(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """``beta * input + alpha * product``, in the shape of the product."""
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        # Also where the input is infinite or NaN.
        return product
    own, shape = input._array.shape, product._array.shape
    if own != shape and _common_shape(own, shape) != shape:
        raise RuntimeError(
            f"The expanded size of the tensor {shape} must match the existing size {own}"
        )
    total: Tensor = (input if beta == 1 else input * beta) + product
    return total


def _common_shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(x, y)
    except ValueError:
        return None


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)`` for matrices.

    Args:
        input: Broadcasts to the shape of the product.  Ignored if `beta` is zero.

    >>> import tensorplay as tp
    >>> tp.addmm(tp.ones(2), tp.ones(1, 3), tp.ones(3, 2))
    tensor([[4., 4.]])
    """
    return _combined(input, mm(mat1, mat2), beta, alpha)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * (mat @ vec)`` for a matrix and a vector."""
    return _combined(input, mv(mat, vec), beta, alpha)


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)`` for vectors."""
    return _combined(input, outer(vec1, vec2), beta, alpha)


def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2)`` for stacks of matrices."""
    return _combined(input, bmm(batch1, batch2), beta, alpha)


def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """As `baddbmm`, but the products are summed."""
    return _combined(input, sum_of(bmm(batch1, batch2), 0), beta, alpha)


def _written(
    input: Tensor, out_of_place: Any, a: Tensor, b: Tensor, beta: Any, alpha: Any
) -> Tensor:
    def combined(before: Tensor) -> Tensor:
        result: Tensor = out_of_place(before, a, b, beta=beta, alpha=alpha)
        return result

    if is_recorded(input, a, b):
        return write_through(input, combined)
    return copy_(input, combined(input))


def addmm_(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addmm`, written into the tensor."""
    return _written(input, addmm, mat1, mat2, beta, alpha)


def addmv_(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addmv`, written into the tensor."""
    return _written(input, addmv, mat, vec, beta, alpha)


def addr_(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addr`, written into the tensor."""
    return _written(input, addr, vec1, vec2, beta, alpha)


def baddbmm_(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """`baddbmm`, written into the tensor."""
    return _written(input, baddbmm, batch1, batch2, beta, alpha)


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of `input` times the whole of `other`, as one tensor.

    >>> import tensorplay as tp
    >>> tp.kron(tp.tensor([1, 10]), tp.tensor([1, 2]))
    tensor([ 1,  2, 10, 20])
    """
    x, y = input._array.shape, as_operand(other, "other")._array.shape
    ndim = max(len(x), len(y))
    x, y = (1,) * (ndim - len(x)) + x, (1,) * (ndim - len(y)) + y
    left = reshape(input, [part for size in x for part in (size, 1)])
    right = reshape(other, [part for size in y for part in (1, size)])
    return reshape(left * right, [a * b for a, b in zip(x, y, strict=True)])


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of vectors of three elements along a dimension; the others broadcast.

    Args:
        dim: Where the vectors lie; if not given, the first dimension of size 3.

    >>> import tensorplay as tp
    >>> tp.cross(tp.tensor([1, 0, 0]), tp.tensor([0, 1, 0]), dim=0)
    tensor([0, 0, 1])
    """
    x, y = input._array.shape, as_operand(other, "other")._array.shape
    if len(x) != len(y):
        raise RuntimeError(
            "linalg.cross: inputs must have the same number of dimensions, but got "
            f"{len(x)} and {len(y)}"
        )
    if dim is None:
        if 3 not in x:
            raise RuntimeError("no dimension of size 3 in input")
        dim = x.index(3)
    axis = axis_of(dim, len(x))
    if x[axis] != 3 or y[axis] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {x[axis]} and {y[axis]}"
        )
    input, other = common_tensors(input, other, "other")
    return _cross(input, other, axis)


class LinalgCrossBackward0(Node):
    __slots__ = ()
    lift = (0, 1, None)

    def rule(self, grad: Any, a: Any, b: Any, axis: int) -> tuple[Any, ...]:
        def crossed(x: Any, y: Any) -> Any:
            return dual.on_tensors(lambda p, q: _cross(p, q, axis), x, y)

        return (crossed(b.conj(), grad), crossed(grad, a.conj()))


def _cross(input: Tensor, other: Tensor, axis: int) -> Tensor:
    x, y = input._array, other._array
    shape = _common_shape(x.shape, y.shape)
    if shape is None:
        raise shape_error(x, y)
    out = np.empty(shape, x.dtype)
    front: tuple[Any, ...] = (slice(None),) * axis
    first, second = ([one[(*front, i)] for i in range(3)] for one in (x, y))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        part = out[(*front, i, ...)]
        np.multiply(first[j], second[k], out=part)
        part -= first[k] * second[j]
    if not wanted(input, other):
        return wrap(out)
    versions = (input._version, other._version)
    edges = stretched_edges(shape, input, other)
    return wrap(out, LinalgCrossBackward0(edges, (x, y, axis), versions))
