"""Complex numbers and their parts.

The gradient of a real loss ``L`` with respect to a complex ``z`` is ``dL/dRe(z) + i dL/dIm(z)``,
as in PyTorch.  So the rule of a holomorphic function multiplies by the conjugate of its derivative,
and a real operand of a complex operation gets the real part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.aliasing import view
from tensorplay.ops.pointwise import cos, sin
from tensorplay.ops.recording import (
    applied,
    as_operand,
    edge_of,
    floating,
    stretched_edges,
    wanted,
)
from tensorplay.ops.shape import contiguous
from tensorplay.tensor import Tensor, wrap


class RealBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, dtype: np.dtype[Any]) -> tuple[Any, ...]:
        return (dual.cast(grad, dtype),)


class ImagBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        # Not times 1j: of an infinite gradient the real part would be nan.
        zero = dual.zeros_like(grad)
        return (complex(zero, grad) if isinstance(grad, Tensor) else _assembled(zero, grad),)


class ConjBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad.conj(),)


class ViewAsRealBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        if isinstance(grad, Tensor):
            return (_in_any_layout(grad),)
        return (_numbers(np.ascontiguousarray(grad)),)


class ViewAsComplexBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (view_as_real(grad) if isinstance(grad, Tensor) else dtypes.parts(np.asarray(grad)),)


class ComplexBackward0(Node):
    """Real and imaginary parts put together."""

    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad.real, grad.imag)


class AngleBackward0(Node):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        values = dual.array(x)
        if values.dtype.kind != "c":
            return (dual.zeros_like(grad),)
        zero = values == 0
        return (dual.where(zero, 0, grad * 1j / dual.where(zero, 1, x).conj()),)


def _numbers(array: Any) -> Any:
    """Pairs of real numbers along the last axis, which must lie side by side, as complex ones."""
    return array.view(dtypes.complex_like(array.dtype))[..., 0]


def _assembled(real: Any, imag: Any) -> Any:
    """Complex numbers of their parts, which have one shape."""
    out = np.empty(real.shape, dtypes.complex_like(real.dtype))
    out.real = real
    out.imag = imag
    return out


def is_complex(input: Tensor) -> bool:
    """Whether the elements are complex numbers."""
    return bool(input._array.dtype.kind == "c")


def real(input: Tensor) -> Tensor:
    """The real parts, as a view; a tensor of real numbers as it is.

    >>> import tensorplay as tp
    >>> tp.real(tp.tensor([1 + 2j, 3 - 4j]))
    tensor([1., 3.])
    """
    x = input._array
    if x.dtype.kind != "c":
        return input
    node = RealBackward0((edge_of(input),), (x.dtype,)) if wanted(input) else None
    return view(input, x.real, node, real)


def imag(input: Tensor) -> Tensor:
    """The imaginary parts, as a view.

    Raises:
        RuntimeError: The elements are not complex.
    """
    x = input._array
    if x.dtype.kind != "c":
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes, such as {x.dtype}."
        )
    node = ImagBackward0((edge_of(input),)) if wanted(input) else None
    return view(input, x.imag, node, imag)


def conj(input: Tensor) -> Tensor:
    """The conjugates, as a new tensor; a tensor of real numbers as it is."""
    x = input._array
    if x.dtype.kind != "c":
        return input
    return wrap(x.conj(), ConjBackward0((edge_of(input),)) if wanted(input) else None)


def view_as_real(input: Tensor) -> Tensor:
    """A view with a new last dimension of size 2: real and imaginary part.

    Raises:
        RuntimeError: The elements are not complex.

    >>> import tensorplay as tp
    >>> tp.view_as_real(tp.tensor([1 + 2j, 3 - 4j]))
    tensor([[ 1.,  2.],
            [ 3., -4.]])
    """
    x = input._array
    if x.dtype.kind != "c":
        raise RuntimeError(f"view_as_real is only supported for complex tensors, not for {x.dtype}")
    node = ViewAsRealBackward0((edge_of(input),)) if wanted(input) else None
    return view(input, dtypes.parts(x), node, view_as_real)


def view_as_complex(input: Tensor) -> Tensor:
    """A view without the last dimension, which holds real and imaginary part.

    Args:
        input: float32 or float64, with a last dimension of size 2 whose elements lie side by side.

    Raises:
        RuntimeError: The input is not such a tensor.
    """
    x = input._array
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            "view_as_complex is only supported for float and double tensors, but got a tensor of "
            f"type {x.dtype}"
        )
    if not x.ndim or x.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if not _side_by_side(x):
        raise RuntimeError(
            "Tensor must have a last dimension with stride 1: make it contiguous() first"
        )
    node = ViewAsComplexBackward0((edge_of(input),)) if wanted(input) else None
    return view(input, _numbers(x), node, _in_any_layout)


def _side_by_side(array: Any) -> bool:
    return array.strides[-1] == array.itemsize or not array.size


def _in_any_layout(pairs: Tensor) -> Tensor:
    """`view_as_complex` for gradients, which may lie in memory in any way: a copy if need be."""
    return view_as_complex(pairs if _side_by_side(pairs._array) else contiguous(pairs))


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers of real and imaginary parts, which broadcast.

    Args:
        real: float32 or float64.
        imag: Of the same type.

    Raises:
        RuntimeError: The types are others, or differ; or the shapes do not go together.

    >>> import tensorplay as tp
    >>> tp.complex(tp.tensor(1.0), tp.tensor(2.0)).item()
    (1+2j)
    """
    x, y = as_operand(real, "real")._array, as_operand(imag, "imag")._array
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"Expected both inputs to be Float or Double tensors but got {x.dtype}")
    if x.dtype != y.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {x.dtype} but got scalar type {y.dtype} for second "
            "argument"
        )
    out = _assembled(*applied(np.broadcast_arrays, x, y))
    if not wanted(real, imag):
        return wrap(out)
    return wrap(out, ComplexBackward0(stretched_edges(out.shape, real, imag)))


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers of absolute values and angles (in radians), which broadcast."""
    return complex(abs * cos(angle), abs * sin(angle))


def angle(input: Tensor) -> Tensor:
    """The angle of each element in radians, from -pi to pi; of real numbers 0 or pi.

    Its gradient at zero is zero.
    """
    input = floating(input)
    x = input._array
    if x.dtype.kind == "c":
        out = np.angle(x)
    else:
        out = np.where(np.isnan(x), x, (x < 0) * x.dtype.type(np.pi))
    if not wanted(input):
        return wrap(out)
    return wrap(out, AngleBackward0((edge_of(input),), (x,), (input._version,)))
