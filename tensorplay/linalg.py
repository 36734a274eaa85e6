"""Linear algebra on (stacks of) matrices, with the names of ``torch.linalg``.

Matrices are the last two dimensions of a tensor of float32 or float64.

>>> import tensorplay as tp
>>> A = tp.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
>>> tp.linalg.solve(A, tp.tensor([3.0, 4.0])).sum().backward()
>>> A.grad
tensor([[-0.4000, -0.4000],
        [-0.2000, -0.2000]])
"""

from typing import TYPE_CHECKING

from tensorplay.ops.decompositions import cholesky, eigh, eigvalsh, qr, svd, svdvals
from tensorplay.ops.determinants import det, pinv, slogdet
from tensorplay.ops.diagonals import diagonal as _diagonal
from tensorplay.ops.linalg import matmul
from tensorplay.ops.matrices import LinAlgError
from tensorplay.ops.matrix_products import cross as _cross
from tensorplay.ops.norms import matrix_norm, matrix_rank, norm, vector_norm
from tensorplay.ops.reduction import sum as _sum
from tensorplay.ops.solving import inv, matrix_power, multi_dot, solve, solve_triangular

if TYPE_CHECKING:
    from tensorplay.tensor import Tensor

__all__ = [
    "LinAlgError",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "vecdot",
    "vector_norm",
]


def cross(input: "Tensor", other: "Tensor", *, dim: int = -1) -> "Tensor":
    """The cross product of vectors of three elements along a dimension; the others broadcast."""
    return _cross(input, other, dim)


def diagonal(A: "Tensor", *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> "Tensor":  # noqa: N803
    """A view of the diagonals of matrices, as the last dimension of the result."""
    return _diagonal(A, offset, dim1, dim2)


def vecdot(x: "Tensor", y: "Tensor", *, dim: int = -1) -> "Tensor":
    """The inner products of vectors along a dimension; the others broadcast."""
    return _sum(x * y, dim)
