"""Determinants and pseudo-inverses of (stacks of) matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.decompositions import svd
from tensorplay.ops.linalg import matmul
from tensorplay.ops.matrices import LinAlgError, computed, matrices
from tensorplay.ops.pointwise import log
from tensorplay.ops.recording import cast, edge_of, wanted
from tensorplay.ops.solving import inv
from tensorplay.tensor import Tensor, wrap

_T = dual.swap_last


class SignAndLogarithm(NamedTuple):
    """A determinant: its sign, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class LinalgDetBackward0(Node):
    """The determinant: its derivative is the matrix of cofactors."""

    __slots__ = ()
    lift = (0, OUTPUT)

    def rule(self, grad: Any, a: Any, out: Any) -> tuple[Any, ...]:
        if (dual.array(out) == 0).any():
            cofactors = dual.on_tensors(_cofactors, a)
        else:
            try:
                cofactors = dual.on_tensors(lambda x, d: _T(inv(x) * _wide(d)).conj(), a, out)
            except LinAlgError:
                cofactors = dual.on_tensors(_cofactors, a)
        return (_wide(grad) * cofactors,)


class LinalgSlogdetBackward0(Node):
    """The logarithm of the absolute value of the determinant."""

    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, a: Any) -> tuple[Any, ...]:
        return (_wide(grad) * _T(dual.on_tensors(inv, a)),)


class LinalgPinvBackward0(Node):
    """The pseudo-inverse of a matrix whose rank stays the same."""

    __slots__ = ()
    lift = (0, OUTPUT)

    def rule(self, grad: Any, a: Any, out: Any) -> tuple[Any, ...]:
        back, across = _T(out), _T(grad)
        left = across @ out @ back
        right = back @ out @ across
        return (left - a @ (out @ left) + right - (right @ out) @ a - back @ grad @ back,)


def _wide(value: Any) -> Any:
    """One number for each matrix, as matrices of one element."""
    return value.reshape((*value.shape, 1, 1))


def det(A: Tensor) -> Tensor:  # noqa: N803  # PyTorch's name
    """The determinants of square matrices.

    Args:
        A: float32 or float64, of shape (..., n, n).

    The gradient is right for singular matrices too; its own gradient is, as far as the singular
    values are distinct.

    >>> import tensorplay as tp
    >>> tp.det(tp.tensor([[2.0, 1.0], [1.0, 3.0]]))
    tensor(5.)
    """
    x = matrices(A, "linalg.det", square=True, complex_too=True)
    out = wrap(np.linalg.det(x))
    if wanted(A):
        versions = (A._version, out._version)
        out._node = LinalgDetBackward0((edge_of(A),), (x, out._array), versions)
        out._requires_grad = True
    return out


def _cofactors(a: Tensor) -> Tensor:
    """The derivative of the determinant, also where that is zero."""
    u, s, vh = svd(a)
    sign = np.linalg.det(u._array) * np.linalg.det(vh._array)
    n = s._array.shape[-1]
    # For each singular value the product of all others.
    others = s.unsqueeze(-2).expand(*s.shape[:-1], n, n)
    others = others.where(wrap(~np.eye(n, dtype=np.bool_)), 1.0)
    product = others.select(-1, 0)
    for i in range(1, n):
        product = product * others.select(-1, i)
    weighted: Tensor = u * (product * wrap(np.sign(sign)[..., None])).unsqueeze(-2)
    return matmul(cast(weighted, a._array.dtype), vh)


def slogdet(A: Tensor) -> SignAndLogarithm:  # noqa: N803  # PyTorch's name
    """For each determinant its sign, and the logarithm of its absolute value."""
    x = matrices(A, "linalg.slogdet", square=True)
    sign, logarithm = np.linalg.slogdet(x)
    node = LinalgSlogdetBackward0((edge_of(A),), (x,), (A._version,)) if wanted(A) else None
    return SignAndLogarithm(wrap(sign), wrap(logarithm, node))


def det_of_input(input: Tensor) -> Tensor:
    """`det`, whose argument has this name outside of ``linalg``."""
    return det(input)


def slogdet_of_input(input: Tensor) -> SignAndLogarithm:
    """`slogdet`, whose argument has this name outside of ``linalg``."""
    return slogdet(input)


def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants: NaN for a negative one, minus infinity for zero."""
    sign, logarithm = slogdet(input)
    with np.errstate(invalid="ignore"):
        # The logarithm of the sign is zero, or NaN.
        return logarithm + log(sign) if (sign._array < 0).any() else logarithm


def pinv(
    A: Tensor,  # noqa: N803  # PyTorch's name
    *,
    atol: Any = None,
    rtol: Any = None,
    hermitian: bool = False,
) -> Tensor:
    """The pseudo-inverses of matrices.

    Args:
        A: float32 or float64, of shape (..., m, n).
        atol: Singular values up to this count as zero...
        rtol: ... and so do those up to this times the greatest.  If neither is given, `rtol` is
            the greater of m and n times the spacing of numbers at 1.
        hermitian: Whether the matrices are symmetric.
    """
    x = matrices(A, "linalg.pinv", square=hermitian)
    u, s, vh = computed("linalg.pinv", np.linalg.svd, x, full_matrices=False)
    if rtol is None:
        none_given = atol is None or np.all(_number(atol) == 0)
        rtol = max(x.shape[-2:]) * np.finfo(x.dtype).eps if none_given else 0.0
    greatest = s.max(-1, initial=0.0)
    limit = np.maximum(_number(0.0 if atol is None else atol), _number(rtol) * greatest)
    kept = s > limit[..., None]
    s = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(x.dtype)
    out = wrap(np.matmul(np.swapaxes(vh, -1, -2) * s[..., None, :], np.swapaxes(u, -1, -2)))
    if wanted(A):
        versions = (A._version, out._version)
        out._node = LinalgPinvBackward0((edge_of(A),), (x, out._array), versions)
        out._requires_grad = True
    return out


def _number(value: Any) -> Any:
    return value._array if isinstance(value, Tensor) else np.asarray(value)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverses of matrices: `tensorplay.linalg.pinv` with ``rtol=rcond``."""
    return pinv(input, rtol=rcond)
