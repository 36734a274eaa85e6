"""Tensors among arrays: NumPy's functions on them, and memory shared with other libraries."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.ops import (
    bits,
    combining,
    comparison,
    complex_numbers,
    elementary,
    pointwise,
    power,
    rounding,
    selection,
)
from tensorplay.ops.conversion import numpy
from tensorplay.ops.creation import tensor
from tensorplay.tensor import Tensor, wrap

#: What is an operation here, with a gradient where it has one: the same on tensors and numbers.
_SAME: dict[Any, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.matmul: operator.matmul,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.power: power.pow,
    np.remainder: rounding.remainder,
    np.fmod: rounding.fmod,
    np.floor_divide: rounding.floor_divide,
    np.bitwise_and: bits.bitwise_and,
    np.bitwise_or: bits.bitwise_or,
    np.bitwise_xor: bits.bitwise_xor,
    np.left_shift: bits.bitwise_left_shift,
    np.right_shift: bits.bitwise_right_shift,
    np.maximum: selection.maximum,
    np.minimum: selection.minimum,
    np.fmax: combining.fmax,
    np.fmin: combining.fmin,
    np.arctan2: combining.atan2,
    np.hypot: combining.hypot,
    np.logaddexp: combining.logaddexp,
    np.sign: pointwise.sign,
    np.negative: pointwise.neg,
    np.absolute: pointwise.abs,
    np.exp: pointwise.exp,
    np.log: pointwise.log,
    np.sqrt: pointwise.sqrt,
    np.square: pointwise.square,
    np.reciprocal: pointwise.reciprocal,
    np.sin: pointwise.sin,
    np.cos: pointwise.cos,
    np.tanh: pointwise.tanh,
    np.exp2: elementary.exp2,
    np.expm1: elementary.expm1,
    np.log1p: elementary.log1p,
    np.log2: elementary.log2,
    np.log10: elementary.log10,
    np.tan: elementary.tan,
    np.arcsin: elementary.asin,
    np.arccos: elementary.acos,
    np.arctan: elementary.atan,
    np.sinh: elementary.sinh,
    np.cosh: elementary.cosh,
    np.arcsinh: elementary.asinh,
    np.arccosh: elementary.acosh,
    np.arctanh: elementary.atanh,
    np.floor: rounding.floor,
    np.ceil: rounding.ceil,
    np.trunc: rounding.trunc,
    np.rint: rounding.round,
    np.positive: pointwise.positive,
    np.conjugate: complex_numbers.conj,
    np.invert: bits.bitwise_not,
    np.isnan: comparison.isnan,
    np.isinf: comparison.isinf,
    np.isfinite: comparison.isfinite,
    np.signbit: comparison.signbit,
    np.fabs: pointwise.abs,
    np.logical_and: bits.logical_and,
    np.logical_or: bits.logical_or,
    np.logical_xor: bits.logical_xor,
    np.logical_not: bits.logical_not,
}

#: Of these, the operands must be tensors, also where one is a number.
_OF_TENSORS = frozenset(
    {np.maximum, np.minimum, np.fmax, np.fmin, np.arctan2, np.hypot, np.logaddexp}
    | {np.logical_and, np.logical_or, np.logical_xor}
)


def array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """What NumPy's elementwise functions do when an operand is a tensor.

    Where the same operation exists here, it is that one, recorded as ever: ``np.sin(tensor)`` is
    ``tensor.sin()``, and ``array * tensor`` is ``tensor * array``.  All others, and all with
    options, are computed by NumPy, and give tensors outside any graph.

    Raises:
        RuntimeError: A tensor requires grad, and the function is none that is recorded.
    """
    function = _SAME.get(ufunc)
    if function is not None and method == "__call__" and not options:
        return function(*[_operand(one, ufunc in _OF_TENSORS) for one in inputs])
    outputs = options.get("out", ())
    for written in inputs[:1] if method == "at" else outputs:
        if isinstance(written, Tensor):
            written._version[0] += 1
    results = getattr(ufunc, method)(*_plain(inputs), **_plain(options))
    if outputs:
        return outputs if len(outputs) > 1 else outputs[0]
    if isinstance(results, tuple):
        return tuple([_result(one) for one in results])
    return _result(results)


def array_function(self: Tensor, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """What NumPy's other functions do with tensors: they take them as arrays, and give arrays.

    Raises:
        RuntimeError: A tensor requires grad.
    """
    return func(*_plain(args), **_plain(kwargs))


def _operand(value: Any, as_tensor: bool) -> Any:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float, complex)) and not as_tensor:
        return value
    if isinstance(value, np.ndarray):
        return wrap(dtypes.normalised(value))
    return tensor(value)


def _plain(value: Any) -> Any:
    """The value with arrays for tensors, also within lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        return numpy(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)([_plain(one) for one in value])
    if type(value) is dict:
        return {key: _plain(one) for key, one in value.items()}
    return value


def _result(value: Any) -> Any:
    numeric = isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in dtypes.CATEGORY
    return wrap(dtypes.normalised(np.asarray(value))) if numeric else value


def to_dlpack(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """The tensor's memory as a DLPack capsule, for another library's ``from_dlpack``.

    Args:
        stream: None, as main memory has none.
        max_version: The newest version of DLPack that the other side knows.
        dl_device: None or ``(1, 0)``: main memory.
        copy: Whether the memory must, or must not, be copied.

    Raises:
        BufferError: The tensor requires grad; detach it first.
    """
    if self._requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    # NumPy 2.0 knows only the first of them.
    return self._array.__dlpack__(**{name: one for name, one in given.items() if one is not None})


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """Where the memory is, as DLPack says it: always ``(1, 0)``, main memory."""
    return (1, 0)


class _Capsule:
    """A bare capsule, as old producers give it, with the protocol around it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor on the memory of another library's array, without a copy.

    Args:
        ext_tensor: An object with ``__dlpack__``, such as an array of NumPy, PyTorch, CuPy or JAX,
            or a capsule that such a method gave.  It must be in main memory.  Of a capsule of
            DLPack's first version, which cannot say whether that is allowed, the tensor cannot be
            written to.

    Raises:
        BufferError: The memory cannot be shared, or holds what tensors cannot hold.
        TypeError: It is neither.

    >>> import numpy as np
    >>> import tensorplay as tp
    >>> array = np.zeros(2)
    >>> tensor = tp.from_dlpack(array)
    >>> array[0] = 5.0
    >>> tensor
    tensor([5., 0.], dtype=float64)
    """
    if not hasattr(ext_tensor, "__dlpack__"):
        if type(ext_tensor).__name__ != "PyCapsule":
            raise TypeError(
                f"from_dlpack() takes an object with __dlpack__, not {type(ext_tensor).__name__}"
            )
        ext_tensor = _Capsule(ext_tensor)
    return wrap(dtypes.normalised(np.from_dlpack(ext_tensor)))
