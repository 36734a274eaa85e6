"""Products of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.comparison import ne
from tensorplay.ops.extrema import amax, amin
from tensorplay.ops.pointwise import abs
from tensorplay.ops.recording import as_operand, cast, edge_of, in_single, wanted
from tensorplay.ops.reduction import Dim, axes_of, kept_shape
from tensorplay.ops.shape import reshape
from tensorplay.tensor import Tensor, wrap


class MmBackward0(Node):
    """Matrix times matrix."""

    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, a: Any, b: Any) -> tuple[Any, ...]:
        return (
            None if b is None else dual.product(grad, b.conj().T),
            None if a is None else dual.product(a.conj().T, grad),
        )


class BmmBackward0(Node):
    """Stacks of matrices; each may be stretched along the stack."""

    __slots__ = ()
    lift = (0, 1, None, None)

    def rule(self, grad: Any, a: Any, b: Any, left: Any, right: Any) -> tuple[Any, ...]:
        return (
            None if b is None else dual.sum_to(grad @ dual.swap_last(b.conj()), left),
            None if a is None else dual.sum_to(dual.swap_last(a.conj()) @ grad, right),
        )


class MvBackward0(Node):
    """Matrix times vector."""

    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, a: Any, b: Any) -> tuple[Any, ...]:
        return (
            None if b is None else grad.reshape(-1, 1) * b.conj().reshape(1, -1),
            None if a is None else dual.product(a.conj().T, grad),
        )


class DotBackward0(Node):
    """Vector times vector."""

    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, a: Any, b: Any) -> tuple[Any, ...]:
        return (
            None if b is None else grad * b.conj(),
            None if a is None else grad * a.conj(),
        )


def _product(node_class: type[Node], a: Tensor, b: Tensor, *constants: Any) -> Tensor:
    x, y = a._array, b._array
    # `dot` is the same for these, and faster: by half a microsecond, and much more where `matmul`
    # does not go through BLAS.
    out = x.dot(y) if y.ndim < 3 and x.ndim < 3 else np.matmul(x, y)
    if not wanted(a, b):
        return wrap(out)
    # Each factor is saved only if the other's gradient is wanted.
    if not b._requires_grad:
        return wrap(out, node_class((edge_of(a), None), (None, y, *constants), (b._version,)))
    if not a._requires_grad:
        return wrap(out, node_class((None, edge_of(b)), (x, None, *constants), (a._version,)))
    versions = (a._version, b._version)
    return wrap(out, node_class((edge_of(a), edge_of(b)), (x, y, *constants), versions))


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, by NumPy's and PyTorch's common rules for one or more dimensions.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.

    >>> import tensorplay as tp
    >>> tp.matmul(tp.ones(2, 3), tp.ones(3))
    tensor([3., 3.])
    """
    x, y = input._array, as_operand(other, "other")._array
    if x.dtype is not y.dtype and x.dtype != y.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {x.dtype} != {y.dtype}"
        )
    dims = (x.ndim, y.ndim)
    try:
        if dims == (2, 2):
            return _product(MmBackward0, input, other)
        if dims == (2, 1):
            return _product(MvBackward0, input, other)
        if dims == (1, 1):
            return _product(DotBackward0, input, other)
        if 0 in dims:
            raise RuntimeError(
                "both arguments to matmul need to be at least 1D, but they are "
                f"{dims[0]}D and {dims[1]}D"
            )
        if dims[0] == 1:
            return matmul(input.reshape(1, -1), other).squeeze(-2)
        if dims[1] == 1:
            return matmul(input, other.reshape(-1, 1)).squeeze(-1)
        return _product(BmmBackward0, input, other, x.shape, y.shape)
    except ValueError:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({_by(x.shape)} and {_by(y.shape)})"
        ) from None


def _by(shape: tuple[int, ...]) -> str:
    return "x".join([str(size) for size in shape])


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    if input._array.ndim != 2 or mat2._array.ndim != 2:
        raise RuntimeError("mm(): both arguments must be matrices")
    return matmul(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two stacks of matrices, pair by pair."""
    if input._array.ndim != 3 or mat2._array.ndim != 3:
        raise RuntimeError("bmm(): both arguments must have three dimensions")
    return matmul(input, mat2)


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The inner product of two vectors."""
    if input._array.ndim != 1 or tensor._array.ndim != 1:
        raise RuntimeError(
            f"1D tensors expected, but got {input._array.ndim}D and {tensor._array.ndim}D tensors"
        )
    return matmul(input, tensor)


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The matrix of all products of the elements of two vectors."""
    if input._array.ndim != 1 or vec2._array.ndim != 1:
        raise RuntimeError("outer(): both arguments must be vectors")
    product: Tensor = reshape(input, -1, 1) * reshape(vec2, 1, -1)
    return product


def norm(
    input: Tensor, p: Any = 2, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The `p`-norm of the elements, taken as one vector or along dimensions.

    Args:
        p: A number, ``float("inf")``, ``-float("inf")``, or ``"fro"`` (the same as 2).

    The norm of complex numbers is real.  The gradient at zero is zero.
    """
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    if input._array.dtype.kind not in "fc":
        raise RuntimeError(
            f"norm(): expected floating-point or complex elements, got {input._array.dtype}"
        )
    if input._array.dtype is dtypes.float16:
        halved: Tensor = in_single(norm, input, p, dim, keepdim)
        return halved
    if p == 2 or p == "fro" or p is None:
        return _norm2(input, dim, keepdim)
    if isinstance(p, str):
        raise ValueError(f"norm(): p={p!r} is not known here: see tensorplay.linalg.matrix_norm")
    size = abs(input)
    if p == float("inf"):
        return amax(size, dim, keepdim)
    if p == -float("inf"):
        return amin(size, dim, keepdim)
    if p == 0:
        return cast(ne(input, 0), size._array.dtype).sum(dim, keepdim)
    if p == 1:
        return size.sum(dim, keepdim)
    return _norm_p(input, float(p), dim, keepdim)


class NormBackward0(Node):
    """The 2-norm."""

    __slots__ = ()
    lift = (0, OUTPUT, None)

    def rule(self, grad: Any, x: Any, out: Any, kept: tuple[int, ...]) -> tuple[Any, ...]:
        out = out.reshape(kept)
        zero = dual.array(out) == 0
        return (x * (dual.where(zero, 0, grad.reshape(kept) / dual.where(zero, 1, out))),)


def _norm2(input: Tensor, dim: Dim, keepdim: bool) -> Tensor:
    x = input._array
    axes = axes_of(dim, x.ndim) if x.ndim else ()
    squares = x * x if x.dtype.kind == "f" else np.square(x.real) + np.square(x.imag)
    out = wrap(np.sqrt(dual.add_up(squares, axis=axes, keepdims=keepdim)))
    if wanted(input):
        saved = (x, out._array, kept_shape(x.shape, axes))
        out._node = NormBackward0((edge_of(input),), saved, (input._version, out._version))
        out._requires_grad = True
    return out


class LinalgVectorNormBackward0(Node):
    """The norm with any other exponent; zero elements have no gradient."""

    __slots__ = ()
    lift = (0, OUTPUT, None, None)

    def rule(self, grad: Any, x: Any, out: Any, kept: tuple[int, ...], p: float) -> tuple[Any, ...]:
        out = out.reshape(kept)
        none = dual.array(out) == 0
        ratio = dual.absolute(x) / dual.where(none, 1, out)
        # Ones in the place of zeros, whose powers may be infinite.
        ratio = dual.where((dual.array(x) == 0) | none, 1, ratio)
        return (dual.direction(x) * (ratio ** (p - 1) * grad.reshape(kept)),)


def _norm_p(input: Tensor, p: float, dim: Dim, keepdim: bool) -> Tensor:
    x = input._array
    axes = axes_of(dim, x.ndim) if x.ndim else ()
    with np.errstate(divide="ignore"):
        # A negative exponent makes infinity of a zero, and zero of that.
        total = dual.add_up(np.absolute(x) ** p, axis=axes, keepdims=keepdim)
        out = wrap(total ** (1.0 / p))
    if wanted(input):
        saved = (x, out._array, kept_shape(x.shape, axes), p)
        versions = (input._version, out._version)
        out._node = LinalgVectorNormBackward0((edge_of(input),), saved, versions)
        out._requires_grad = True
    return out
