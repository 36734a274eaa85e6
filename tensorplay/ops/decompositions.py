"""Decompositions of (stacks of) matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorplay.autograd.graph import OUTPUT, MultiOutputNode, Node
from tensorplay.ops import dual
from tensorplay.ops.diagonals import diag_embed, tril
from tensorplay.ops.indexing import getitem
from tensorplay.ops.joining import cat
from tensorplay.ops.linalg import matmul
from tensorplay.ops.matrices import LinAlgError, computed, matrices
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.shape import matrix_transpose
from tensorplay.ops.solving import inv, solve
from tensorplay.tensor import Tensor, wrap

_T = dual.swap_last


class SingularValues(NamedTuple):
    """``A = U @ diag(S) @ Vh``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class SingularValuesAndV(NamedTuple):
    """``A = U @ diag(S) @ V.mT``."""

    U: Tensor
    S: Tensor
    V: Tensor


class Eigenvalues(NamedTuple):
    """``A = eigenvectors @ diag(eigenvalues) @ eigenvectors.mT``."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class OrthogonalAndTriangular(NamedTuple):
    """``A = Q @ R``."""

    Q: Tensor
    R: Tensor


class LinalgCholeskyExBackward0(Node):
    """The gradient is symmetric, as if both triangles of the input were used."""

    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        inverse = dual.on_tensors(inv, out)
        middle = _halved(_T(out) @ grad)
        half = _T(inverse) @ middle @ inverse
        return ((half + _T(half)) * 0.5,)


def _halved(value: Any) -> Any:
    """The lower triangle, and half of the diagonal."""
    return dual.on_tensors(lambda one: (tril(one) + tril(one, -1)) * 0.5, value)


class LinalgQrBackward0(MultiOutputNode):
    """Of matrices that have at least as many rows as columns."""

    __slots__ = ()
    lift = (OUTPUT - 1, OUTPUT - 2)

    def rule(self, grads: Any, q: Any, r: Any) -> tuple[Any, ...]:
        for_q, for_r = grads
        m: Any = 0
        if for_r is not None:
            m = r @ _T(for_r)
        if for_q is not None:
            m = m - _T(for_q) @ q
        symmetric = dual.on_tensors(lambda one: tril(one) + matrix_transpose(tril(one, -1)), m)
        right = q @ symmetric
        if for_q is not None:
            right = right + for_q
        # Times the inverse of R, transposed, from the right.
        return (_T(dual.on_tensors(solve, r, _T(right))),)


class LinalgSvdBackward0(MultiOutputNode):
    """Of different singular values; nothing else in the result is determined otherwise."""

    __slots__ = ()
    lift = (OUTPUT - 1, OUTPUT - 2, OUTPUT - 3)

    def rule(self, grads: Any, u: Any, s: Any, vh: Any) -> tuple[Any, ...]:
        for_u, for_s, for_vh = grads
        rows, columns, k = u.shape[-2], vh.shape[-1], s.shape[-1]
        middle: Any = 0
        if for_s is not None:
            middle = dual.on_tensors(diag_embed, for_s)
        if for_u is None and for_vh is None:
            return (u @ middle @ vh,)
        line = s.reshape((*s.shape[:-1], 1, k))
        column = s.reshape((*s.shape[:-1], k, 1))
        # One on the diagonal, where the numerators are zero.
        gaps = (line - column) * (line + column) + np.eye(k, dtype=dual.array(s).dtype)
        if for_u is not None:
            middle = middle + _skew(_T(u) @ for_u) / gaps * line
        if for_vh is not None:
            middle = middle + column * (_skew(vh @ _T(for_vh)) / gaps)
        total = u @ middle @ vh
        if for_u is not None and rows > k:
            outside = for_u - u @ (_T(u) @ for_u)
            total = total + (outside / line) @ vh
        if for_vh is not None and columns > k:
            outside = for_vh - (for_vh @ _T(vh)) @ vh
            total = total + u @ (outside / column)
        return (total,)


def _skew(value: Any) -> Any:
    return value - _T(value)


class LinalgEighBackward0(MultiOutputNode):
    """Of different eigenvalues.  Symmetric, as if both triangles of the input were used."""

    __slots__ = ()
    lift = (OUTPUT - 1, OUTPUT - 2)

    def rule(self, grads: Any, values: Any, vectors: Any) -> tuple[Any, ...]:
        for_values, for_vectors = grads
        middle: Any = 0
        if for_values is not None:
            middle = dual.on_tensors(diag_embed, for_values)
        if for_vectors is not None:
            k = values.shape[-1]
            unit = np.eye(k, dtype=dual.array(values).dtype)
            line = values.reshape((*values.shape[:-1], 1, k))
            gaps = line - values.reshape((*values.shape[:-1], k, 1)) + unit
            middle = middle + (_T(vectors) @ for_vectors) * (1 - unit) / gaps
        total = vectors @ middle @ _T(vectors)
        return ((total + _T(total)) * 0.5,)


def cholesky_of_input(input: Tensor, upper: bool = False) -> Tensor:
    """`cholesky`, whose argument has this name outside of ``linalg``."""
    return cholesky(input, upper)


def cholesky(A: Tensor, upper: bool = False) -> Tensor:  # noqa: N803  # PyTorch's name
    """The Cholesky factors of symmetric positive-definite matrices.

    Args:
        A: float32 or float64, of shape (..., n, n); only one triangle is looked at.
        upper: Give ``U`` with ``A = U.mT @ U``, in place of ``L`` with ``A = L @ L.mT``.

    Raises:
        LinAlgError: A matrix is not positive-definite.

    >>> import tensorplay as tp
    >>> tp.linalg.cholesky(tp.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    x = matrices(A, "linalg.cholesky", square=True)
    if upper:
        return matrix_transpose(cholesky(matrix_transpose(A)))
    try:
        out = wrap(np.linalg.cholesky(x))
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.cholesky: The factorization could not be completed because the input is not "
            "positive-definite."
        ) from None
    if wanted(A):
        out._node = LinalgCholeskyExBackward0((edge_of(A),), (out._array,), (out._version,))
        out._requires_grad = True
    return out


def qr(A: Tensor, mode: str = "reduced") -> OrthogonalAndTriangular:  # noqa: N803
    """QR decompositions: ``A = Q @ R``, with orthonormal columns in ``Q``, and ``R`` triangular.

    Args:
        A: float32 or float64, of shape (..., m, n).
        mode: ``"reduced"``, ``"complete"`` (a square ``Q``), or ``"r"`` (an empty ``Q``).

    Only ``"reduced"`` can be differentiated, and ``"complete"`` if there are no more rows than
    columns.
    """
    x = matrices(A, "linalg.qr")
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', "
            "or 'complete'"
        )
    rows, columns = x.shape[-2:]
    record = wanted(A)
    lost = mode == "r" or (mode == "complete" and rows > columns)
    if record and rows < columns and not lost:
        # Of the first columns; the others follow from them.
        q, r = qr(getitem(A, (..., slice(rows))))
        others = matmul(matrix_transpose(q), getitem(A, (..., slice(rows, None))))
        return OrthogonalAndTriangular(q, cat([r, others], -1))
    if mode == "r":
        q, r = wrap(np.zeros(0, x.dtype)), wrap(computed("linalg.qr", np.linalg.qr, x, mode="r"))
    else:
        q, r = map(wrap, computed("linalg.qr", np.linalg.qr, x, mode=mode))
    if record and lost:
        _undetermined(A, f"linalg.qr with mode='{mode}' for {rows} by {columns} matrices", q, r)
    elif record:
        versions = (q._version, r._version)
        node = LinalgQrBackward0((edge_of(A),), (q._array, r._array), versions)
        _outputs(node, q, r)
    return OrthogonalAndTriangular(q, r)


def _outputs(node: MultiOutputNode, *tensors: Tensor) -> None:
    node.outputs = len(tensors)
    for i, tensor in enumerate(tensors):
        tensor._node = node.output(i)
        tensor._requires_grad = True


class _UndeterminedBackward0(Node):
    """What has no gradient, but depends on the input."""

    __slots__ = ()

    def rule(self, grad: Any, what: str) -> tuple[Any, ...]:
        raise RuntimeError(f"{what}: these are not uniquely defined, and not differentiable")


def _undetermined(source: Tensor, what: str, *results: Tensor) -> None:
    for one in results:
        one._node = _UndeterminedBackward0((edge_of(source),), (what,))
        one._requires_grad = True


def svd(A: Tensor, full_matrices: bool = True) -> SingularValues:  # noqa: N803
    """Singular value decompositions: ``A = U @ diag(S) @ Vh``, the greatest value first.

    Args:
        A: float32 or float64, of shape (..., m, n).
        full_matrices: Give square ``U`` and ``Vh``, in place of as many columns and rows as there
            are singular values.

    The signs of the vectors are not determined, and gradients through them are finite only where
    the singular values are different.  What `full_matrices` adds has no gradient.

    >>> import tensorplay as tp
    >>> tp.linalg.svd(tp.tensor([[3.0, 0.0], [0.0, 2.0]])).S
    tensor([3., 2.])
    """
    x = matrices(A, "linalg.svd")
    full = full_matrices and x.shape[-2] != x.shape[-1]
    u, s, vh = map(wrap, computed("linalg.svd", np.linalg.svd, x, full_matrices=full))
    if wanted(A):
        if full:
            _undetermined(A, "the singular vectors of linalg.svd with full_matrices=True", u, vh)
            return SingularValues(u, svd(A, full_matrices=False).S, vh)
        versions = (u._version, s._version, vh._version)
        node = LinalgSvdBackward0((edge_of(A),), (u._array, s._array, vh._array), versions)
        _outputs(node, u, s, vh)
    return SingularValues(u, s, vh)


def svdvals(A: Tensor) -> Tensor:  # noqa: N803  # PyTorch's name
    """The singular values of matrices, the greatest first."""
    if wanted(A):
        return svd(A, full_matrices=False).S
    x = matrices(A, "linalg.svdvals")
    return wrap(computed("linalg.svdvals", np.linalg.svd, x, compute_uv=False))


def svd_with_v(input: Tensor, some: bool = True, compute_uv: bool = True) -> SingularValuesAndV:
    """Singular value decompositions in PyTorch's older form: ``V``, not its transpose.

    Args:
        some: Not the square matrices that ``full_matrices`` of `tensorplay.linalg.svd` gives.
        compute_uv: If False, ``U`` and ``V`` are zero.
    """
    if not compute_uv:
        rows, columns = matrices(input, "svd").shape[-2:]
        batch, dtype = input._array.shape[:-2], input._array.dtype
        left = wrap(np.zeros((*batch, rows, rows), dtype))
        right = wrap(np.zeros((*batch, columns, columns), dtype))
        return SingularValuesAndV(left, svdvals(input), right)
    u, s, vh = svd(input, full_matrices=not some)
    return SingularValuesAndV(u, s, matrix_transpose(vh))


def eigh(A: Tensor, UPLO: str = "L") -> Eigenvalues:  # noqa: N803  # PyTorch's names
    """Eigenvalues, the least first, and eigenvectors (as columns) of symmetric matrices.

    Args:
        A: float32 or float64, of shape (..., n, n).
        UPLO: Which triangle is looked at: ``"L"``, the lower, or ``"U"``, the upper.

    The signs of the vectors are not determined, and gradients through them are finite only where
    the eigenvalues are different.
    """
    x = matrices(A, "linalg.eigh", square=True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    values, vectors = map(wrap, computed("linalg.eigh", np.linalg.eigh, x, UPLO=UPLO))
    if wanted(A):
        versions = (values._version, vectors._version)
        node = LinalgEighBackward0((edge_of(A),), (values._array, vectors._array), versions)
        _outputs(node, values, vectors)
    return Eigenvalues(values, vectors)


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803  # PyTorch's names
    """The eigenvalues of symmetric matrices, the least first; arguments as for `eigh`."""
    if wanted(A):
        return eigh(A, UPLO).eigenvalues
    x = matrices(A, "linalg.eigvalsh", square=True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return wrap(computed("linalg.eigvalsh", np.linalg.eigvalsh, x, UPLO=UPLO))
