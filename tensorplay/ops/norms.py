"""Norms of vectors and matrices, in the forms of `tensorplay.linalg`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.ops.decompositions import svdvals
from tensorplay.ops.extrema import amax, amin
from tensorplay.ops.linalg import norm as norm_of
from tensorplay.ops.matrices import computed, matrices
from tensorplay.ops.movement import movedim
from tensorplay.ops.pointwise import abs
from tensorplay.ops.recording import cast
from tensorplay.ops.reduction import axes_of
from tensorplay.ops.reduction import sum as sum_of
from tensorplay.ops.shape import reshape, unsqueeze
from tensorplay.tensor import Tensor, wrap

_INFINITY = float("inf")


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of vectors: of all elements as one, or along dimensions.

    Args:
        ord: The exponent; infinity, minus infinity or 0 (the number of elements that are not
            zero) too.

    >>> import tensorplay as tp
    >>> tp.linalg.vector_norm(tp.tensor([3.0, -4.0]), ord=1)
    tensor(7.)
    """
    if isinstance(ord, str):
        raise TypeError(f"linalg.vector_norm: ord must be a number, not {ord!r}")
    return norm_of(x, ord, dim, keepdim, dtype=dtype)


def matrix_norm(
    A: Tensor,  # noqa: N803  # PyTorch's name
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of matrices.

    Args:
        ord: ``"fro"``; ``"nuc"``, the sum of the singular values; 2 or -2, the greatest or least of
            them; 1 or -1, the greatest or least sum of absolute values in a column; infinity or
            minus infinity, in a row.
        dim: The two dimensions of the matrices.

    >>> import tensorplay as tp
    >>> tp.linalg.matrix_norm(tp.tensor([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    tensor(6.)
    """
    if dtype is not None:
        A = cast(A, dtypes.as_dtype(dtype))  # noqa: N806
    ndim = A._array.ndim
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}")
    rows, columns = axes_of(dim, ndim)
    if ord == "fro":
        return norm_of(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = svdvals(movedim(A, (rows, columns), (-2, -1)))
        if ord == "nuc":
            result = sum_of(values, -1)
        else:
            result = amax(values, -1) if ord == 2 else amin(values, -1)
        if keepdim:
            for axis in sorted((rows, columns)):
                result = unsqueeze(result, axis)
        return result
    if ord not in (1, -1, _INFINITY, -_INFINITY):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    along, across = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums = sum_of(abs(A), along, keepdim=True)
    result = amax(sums, across, keepdim=True) if ord > 0 else amin(sums, across, keepdim=True)
    if keepdim:
        return result
    return reshape(
        result, [size for i, size in enumerate(A._array.shape) if i not in (rows, columns)]
    )


def norm(
    A: Tensor,  # noqa: N803  # PyTorch's name
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of a vector or of matrices.

    Args:
        ord: As for `matrix_norm` if there are two dimensions, for `vector_norm` if there is one;
            if not given, the 2-norm of all elements.
        dim: One dimension, two, or None for all.
    """
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None:
        if A._array.ndim not in (1, 2):
            raise RuntimeError(
                "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                f"{A._array.ndim}D."
            )
        dim = tuple(range(A._array.ndim))
    if isinstance(dim, (tuple, list)) and len(dim) == 2:
        return matrix_norm(A, ord, dim, keepdim, dtype=dtype)
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


def matrix_rank(
    A: Tensor,  # noqa: N803  # PyTorch's name
    *,
    atol: Any = None,
    rtol: Any = None,
    hermitian: bool = False,
) -> Tensor:
    """The numerical rank of matrices: how many singular values are above a limit.

    Args:
        atol: The limit...
        rtol: ... or the limit as a part of the greatest; the greater of the two counts.  Without
            either, the greater size of the matrices times the spacing of numbers at 1.
        hermitian: Whether the matrices are symmetric.
    """
    x = matrices(A, "linalg.matrix_rank", square=hermitian)
    values = computed("linalg.matrix_rank", np.linalg.svd, x, compute_uv=False)
    if rtol is None:
        rtol = max(x.shape[-2:]) * np.finfo(x.dtype).eps if atol is None else 0.0
    limit = np.maximum(0.0 if atol is None else atol, rtol * values.max(-1, initial=0.0))
    return wrap(np.count_nonzero(values > limit[..., None], axis=-1))
