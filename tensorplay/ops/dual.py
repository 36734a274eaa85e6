"""Helpers that backward rules use on arrays and on tensors alike.

A rule is written once; the engine calls it with NumPy arrays, or with tensors when the pass is to
be recorded.  Operators and the methods that both types share need no help.  What NumPy has only as
a function, or calls by another name, is here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.tensor import Tensor, wrap

#: NumPy's own ``sum`` method costs twice as much.
add_up: Any = np.add.reduce
#: A view of a single value costs several microseconds in NumPy; up to so many elements, writing it
#: out is cheaper.
_SPREAD_BY_VIEW = 1024


def sum_over(value: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    """The sum over some axes."""
    if isinstance(value, Tensor):
        return value.sum(axes, keepdims)
    return add_up(value, axes, None, None, keepdims)


def sum_to(value: Any, shape: tuple[int, ...]) -> Any:
    """Undo broadcasting: sum `value` over the axes along which `shape` was stretched."""
    have = value.shape
    if have == shape:
        return value
    extra = len(have) - len(shape)
    if extra == 1 and have[1:] == shape:
        return value.sum(0) if isinstance(value, Tensor) else add_up(value, 0)
    axes = tuple(range(extra)) + tuple(
        i + extra for i, size in enumerate(shape) if size == 1 and have[i + extra] != 1
    )
    total = sum_over(value, axes, True)
    return total.reshape(shape) if extra else total


def spread(value: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast to `shape`."""
    if isinstance(value, Tensor):
        return value.broadcast_to(shape)
    if math.prod(shape) > _SPREAD_BY_VIEW:
        return np.broadcast_to(value, shape)
    spread_out = np.empty(shape, value.dtype)
    spread_out[...] = value
    return spread_out


def cast(value: Any, dtype: np.dtype[Any]) -> Any:
    """The value with another element type; of complex numbers as real ones, the real parts."""
    if dtype.kind == "f" and value.dtype.kind == "c":
        value = value.real
    if isinstance(value, Tensor):
        return value.to(dtype)
    return value.astype(dtype, copy=False)


def scaled(grad: Any, factor: Any) -> Any:
    """A gradient times a constant array of its shape and type, which is used up."""
    if isinstance(grad, Tensor):
        return grad * factor
    factor *= grad
    return factor


def product(a: Any, b: Any) -> Any:
    """The product of two matrices, or of one and a vector."""
    # For arrays `dot` is faster than `@`: see `tensorplay.ops.linalg`.
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a @ b
    return a.dot(b)


def swap_last(value: Any) -> Any:
    """The transpose of a matrix, or of a stack of matrices."""
    return value.swapaxes(-1, -2)


def permuted(value: Any, axes: tuple[int, ...]) -> Any:
    """The value with its axes in another order."""
    if isinstance(value, Tensor):
        return value.permute(axes)
    return value.transpose(axes)


def exp(value: Any) -> Any:
    """The exponential."""
    return value.exp() if isinstance(value, Tensor) else np.exp(value)


def log(value: Any) -> Any:
    """The natural logarithm."""
    return value.log() if isinstance(value, Tensor) else np.log(value)


def sin(value: Any) -> Any:
    """The sine."""
    return value.sin() if isinstance(value, Tensor) else np.sin(value)


def cos(value: Any) -> Any:
    """The cosine."""
    return value.cos() if isinstance(value, Tensor) else np.cos(value)


def absolute(value: Any) -> Any:
    """The absolute value."""
    return value.abs() if isinstance(value, Tensor) else np.absolute(value)


def direction(value: Any) -> Any:
    """Complex numbers divided by their absolute values; zero where they are zero."""
    zero = array(value) == 0
    return where(zero, 0, value / where(zero, 1, absolute(value)))


def apply(on_tensor: Any, on_array: Any, value: Any) -> Any:
    """A function of one value, of which there is one form for tensors and one for arrays."""
    return on_tensor(value) if isinstance(value, Tensor) else on_array(value)


def array(value: Any) -> Any:
    """The values themselves, outside any graph."""
    return value._array if isinstance(value, Tensor) else value


def where(condition: Any, value: Any, other: Any = 0) -> Any:
    """`value` where `condition` (always an array) holds, `other` elsewhere."""
    if isinstance(value, Tensor):
        return value.where(wrap(condition), other)
    if isinstance(other, Tensor):
        return other.where(wrap(~condition), value)
    return np.where(condition, value, other)


def zeros_like(value: Any) -> Any:
    """Zeros of the value's shape and type; never part of a graph."""
    array = value._array if isinstance(value, Tensor) else value
    zeros = np.zeros(array.shape, array.dtype)
    return wrap(zeros) if isinstance(value, Tensor) else zeros


def on_tensors(function: Any, *values: Any) -> Any:
    """``function(*values)``, for a function of tensors: of arrays, an array."""
    if any(isinstance(value, Tensor) for value in values):
        return function(*[one if isinstance(one, Tensor) else wrap(one) for one in values])
    return function(*[wrap(value) for value in values])._array
