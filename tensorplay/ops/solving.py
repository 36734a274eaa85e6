"""Inverses, linear systems, powers and products of (stacks of) matrices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.diagonals import tril, triu
from tensorplay.ops.linalg import matmul
from tensorplay.ops.matrices import LinAlgError, matrices
from tensorplay.ops.recording import as_operand, edge_of, wanted
from tensorplay.ops.shape import broadcast_to, clone, matrix_transpose, reshape
from tensorplay.tensor import Tensor, wrap


def _adjoint(value: Any) -> Any:
    return dual.swap_last(value.conj())


class LinalgInvExBackward0(Node):
    """The inverse."""

    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        back = _adjoint(out)
        return (-(back @ grad @ back),)


class LinalgSolveExBackward0(Node):
    """The solution of a linear system."""

    __slots__ = ()
    lift = (0, OUTPUT)

    def rule(self, grad: Any, a: Any, out: Any) -> tuple[Any, ...]:
        right = dual.on_tensors(_solve, _adjoint(a), grad)
        return (None if self.edges[0] is None else -(right @ _adjoint(out)), right)


def inv(A: Tensor) -> Tensor:  # noqa: N803  # PyTorch's name
    """The inverses of square matrices.

    Args:
        A: float32 or float64, of shape (..., n, n).

    Raises:
        LinAlgError: A matrix is singular.

    >>> import tensorplay as tp
    >>> tp.linalg.inv(tp.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    x = matrices(A, "linalg.inv", square=True, complex_too=True)
    try:
        out = wrap(np.linalg.inv(x))
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.inv: The inversion could not be completed because the input matrix is singular."
        ) from None
    if wanted(A):
        out._node = LinalgInvExBackward0((edge_of(A),), (out._array,), (out._version,))
        out._requires_grad = True
    return out


def inverse(input: Tensor) -> Tensor:
    """The inverses of square matrices: `tensorplay.linalg.inv`."""
    return inv(input)


def _solve(a: Tensor, b: Tensor) -> Tensor:
    """The solution for matrices with the same batch dimensions."""
    x, y = a._array, b._array
    try:
        out = wrap(np.linalg.solve(x, y))
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.solve: The solver failed because the input matrix is singular."
        ) from None
    if wanted(a, b):
        versions = (a._version, out._version)
        out._node = LinalgSolveExBackward0((edge_of(a), edge_of(b)), (x, out._array), versions)
        out._requires_grad = True
    return out


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803  # PyTorch's names
    """The solution ``X`` of ``A @ X = B``; with ``left=False``, of ``X @ A = B``.

    Args:
        A: float32 or float64, of shape (..., n, n).
        B: Of the same type: of shape (..., n, k), or, for one right-hand side each, the shape of
            `A` without its last dimension, or (n,).  The dimensions in front broadcast.

    Raises:
        LinAlgError: A matrix is singular.

    >>> import tensorplay as tp
    >>> tp.linalg.solve(tp.tensor([[2.0, 0.0], [0.0, 4.0]]), tp.tensor([1.0, 1.0]))
    tensor([0.5000, 0.2500])
    """
    x = matrices(A, "linalg.solve", square=True, complex_too=True)
    y = as_operand(B, "linalg.solve: B")._array
    if x.dtype != y.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but got {x.dtype} and "
            f"{y.dtype}"
        )
    vector = y.ndim == 1 or (y.ndim == x.ndim - 1 and y.shape == x.shape[:-1])
    if vector:
        if not left:
            raise RuntimeError("linalg.solve: B must be matrices when left is False")
        B = reshape(B, (*y.shape, 1))  # noqa: N806
    elif not left:
        return matrix_transpose(solve(matrix_transpose(A), matrix_transpose(B)))
    rows = B._array.shape[-2]
    if rows != x.shape[-1]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B: "
            f"{list(x.shape)} and {list(y.shape)}"
        )
    try:
        batch = np.broadcast_shapes(x.shape[:-2], B._array.shape[:-2])
    except ValueError:
        raise RuntimeError(
            f"linalg.solve: the batch dimensions of {list(x.shape)} and {list(y.shape)} do not "
            "broadcast"
        ) from None
    result = _solve(
        _batched(A, batch),
        _batched(B, batch),
    )
    return reshape(result, result._array.shape[:-1]) if vector else result


def _batched(value: Tensor, batch: tuple[int, ...]) -> Tensor:
    shape = value._array.shape
    return value if shape[:-2] == batch else broadcast_to(value, (*batch, *shape[-2:]))


def solve_triangular(
    A: Tensor,  # noqa: N803  # PyTorch's names
    B: Tensor,  # noqa: N803
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """As `solve`, for a triangular matrix: the other triangle is not looked at.

    Args:
        upper: Whether the upper triangle is the matrix, or the lower one.
        unitriangular: Take the diagonal for ones.
    """
    matrices(A, "linalg.solve_triangular", square=True, complex_too=True)
    triangle = triu(A, int(unitriangular)) if upper else tril(A, -int(unitriangular))
    if unitriangular:
        triangle = triangle + wrap(np.eye(A._array.shape[-1], dtype=A._array.dtype))
    return solve(triangle, B, left=left)


def matrix_power(input: Tensor, n: int) -> Tensor:
    """The `n`-th powers of square matrices; of their inverses if `n` is negative.

    >>> import tensorplay as tp
    >>> tp.matrix_power(tp.tensor([[1.0, 1.0], [0.0, 1.0]]), 5)
    tensor([[1., 5.],
            [0., 1.]])
    """
    x = matrices(input, "linalg.matrix_power", square=True, complex_too=True)
    if n < 0:
        input, n = inv(input), -n
    if n == 0:
        return wrap(np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape).copy())
    result: Tensor | None = None
    while n:
        if n & 1:
            result = input if result is None else matmul(result, input)
        n >>= 1
        if n:
            input = matmul(input, input)
    assert result is not None
    return clone(result) if result._node is None else result


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order of multiplication that is the least work.

    Args:
        tensors: At least two; the first and the last may be vectors.
    """
    parts = [as_operand(one, "each element") for one in tensors]
    if len(parts) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors")
    dims = [one._array.ndim for one in parts]
    if any(n != 2 for n in dims[1:-1]) or not {dims[0], dims[-1]} <= {1, 2}:
        raise RuntimeError(
            f"multi_dot(): the tensors must be matrices, the first and last may be vectors, but "
            f"they have {dims} dimensions"
        )
    row, column = dims[0] == 1, dims[-1] == 1
    if row:
        parts[0] = reshape(parts[0], 1, -1)
    if column:
        parts[-1] = reshape(parts[-1], -1, 1)
    for a, b in itertools.pairwise(parts):
        if a._array.shape[1] != b._array.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors of shapes {list(a._array.shape)} and "
                f"{list(b._array.shape)} cannot be multiplied"
            )
    sizes = [one._array.shape[0] for one in parts] + [parts[-1]._array.shape[1]]
    product = _multiplied(parts, _cuts(sizes), 0, len(parts) - 1)
    shape = product._array.shape
    kept = (() if row else shape[:1]) + (() if column else shape[1:])
    return reshape(product, kept) if row or column else product


def _cuts(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each run of matrices, so that the products cost the least."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            best = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
            cost[i, j], cuts[i, j] = best
    return cuts


def _multiplied(parts: list[Tensor], cuts: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return parts[i]
    cut = cuts[i, j]
    return matmul(_multiplied(parts, cuts, i, cut), _multiplied(parts, cuts, cut + 1, j))
