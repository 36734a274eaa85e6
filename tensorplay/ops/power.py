"""Powers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.recording import applied, common, recorded, stretched_edges, wanted
from tensorplay.tensor import Tensor, wrap


class PowBackward0(Node):
    """A constant exponent."""

    __slots__ = ()
    lift = (0, None)

    def rule(self, grad: Any, x: Any, exponent: Any) -> tuple[Any, ...]:
        if exponent == 0:
            return (dual.zeros_like(grad),)
        if exponent == 2:
            return (grad * (x * 2).conj(),)
        slope = x ** (exponent - 1) if isinstance(x, Tensor) else power_of(x, exponent - 1)
        return (grad * (slope * exponent).conj(),)


class PowBackward1(Node):
    """Base and exponent are both tensors."""

    __slots__ = ()
    lift = (0, 1, OUTPUT)

    def rule(self, grad: Any, a: Any, b: Any, out: Any) -> tuple[Any, ...]:
        left, right = self.edges
        x, y = dual.array(a), dual.array(b)
        for_base = for_exponent = None
        if left is not None:
            # x ** 0 is constant, also where its formula would divide by zero.
            constant = np.broadcast_to(y == 0, out.shape)
            exponent = dual.where(y == 0, 1, b - 1)
            for_base = grad * dual.where(constant, 0, b * a**exponent).conj()
        if right is not None:
            zero = x == 0
            flat = zero & ((y.real >= 0) & (y.imag == 0) if y.dtype.kind == "c" else y >= 0)
            slope = out * dual.log(dual.where(zero, 1, a))
            for_exponent = grad * dual.where(flat, 0, slope).conj()
        return (for_base, for_exponent)


def pow(input: Any, exponent: Any) -> Any:
    """Each element raised to a power; a number or tensor to the power of a number or tensor.

    Raises:
        RuntimeError: Integers are raised to a negative power.
    """
    if not isinstance(input, Tensor):
        return reflected_pow(exponent, input)
    x = input._array
    if x.dtype.kind == "f" and (exponent.__class__ is int or exponent.__class__ is float):
        return recorded(power_of(x, exponent), PowBackward0, input, (x, exponent), input._version)
    pair = common(input, exponent)
    if pair is None:
        return NotImplemented
    a, b = pair
    x = a._array
    if not isinstance(b, Tensor):
        return recorded(power_of(x, b), PowBackward0, a, (x, b), a._version)
    out = power_of(x, b._array)
    if not wanted(a, b):
        return wrap(out)
    result = wrap(out)
    saved = (x, b._array, result._array)
    versions = (a._version, b._version, result._version)
    result._node = PowBackward1(stretched_edges(out.shape, a, b), saved, versions)
    result._requires_grad = True
    return result


def reflected_pow(exponent: Tensor, base: Any) -> Any:
    """``base ** exponent`` for a base that is no tensor."""
    pair = common(exponent, base)
    if pair is None:
        return NotImplemented
    exponent, base = pair
    if not isinstance(base, Tensor):
        base = wrap(np.array(base, exponent._array.dtype))
    return pow(base, exponent)


def power_of(x: Any, y: Any) -> Any:
    """``x ** y`` of arrays or numbers, quick also where NumPy is slow: for negative elements.

    Raises:
        NotImplementedError: `x` holds booleans.
        RuntimeError: Integers are raised to a negative power, or the shapes do not go together.
    """
    if y.__class__ is int or y.__class__ is float:
        if x.dtype.kind == "f":
            if x.dtype.itemsize == 2 and y not in (2, 0.5):
                # Rounded once, at the end.
                return power_of(x.astype(np.float32), y).astype(x.dtype)
            return _real_power(x, y)
        if y == 2:
            return np.square(x)
    if x.dtype.kind == "b":
        raise NotImplementedError('"pow" not implemented for booleans')
    if x.dtype.kind in "iu" and np.any(np.less(y, 0)):
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return applied(np.power, x, y)


def _real_power(x: Any, y: int | float) -> Any:
    short = _SHORT.get(y)
    if short is not None:
        return short(x)
    if y != y // 1 or not _LEAST_BIG < y < _BIG:
        return np.power(x, y)
    # NumPy's power of negative numbers is many times slower than that of positive ones.
    out = np.power(np.absolute(x), y)
    return np.copysign(out, x) if y % 2 else out


def _cubed(x: Any) -> Any:
    return x * x * x


def _fourth(x: Any) -> Any:
    return np.square(np.square(x))


#: Exponents for which a few multiplications, roots and divisions do.
_SHORT: dict[int | float, Any] = {
    1: np.positive,
    2: np.square,
    3: _cubed,
    4: _fourth,
    0.5: np.sqrt,
    1.5: lambda x: x * np.sqrt(x),
    -0.5: lambda x: 1 / np.sqrt(x),
    -1: np.reciprocal,
    -1.5: lambda x: 1 / (x * np.sqrt(x)),
    -2: lambda x: 1 / np.square(x),
    -3: lambda x: _cubed(1 / x),
    -4: lambda x: _fourth(1 / x),
}

#: Whole numbers beyond these say nothing of odd and even.
_BIG = 2**24
_LEAST_BIG = -_BIG
