"""Element types: NumPy's, under the names that a tensor program uses.

A dtype here *is* a `numpy.dtype`, so ``tensor.dtype`` can be handed to NumPy and compared with
``np.float32`` as it stands.  What differs from NumPy is promotion, which `result_type` gives as
PyTorch defines it: only the category of a Python number or of a 0-dimensional tensor counts, and
mixing integers with floating-point numbers never widens the latter.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

dtype: TypeAlias = np.dtype[Any]
# Some names of types here are those of builtins.
Bool: TypeAlias = bool

float16 = half = np.dtype(np.float16)
float32 = float = np.dtype(np.float32)
float64 = double = np.dtype(np.float64)
int8 = np.dtype(np.int8)
int16 = short = np.dtype(np.int16)
int32 = int = np.dtype(np.int32)
int64 = long = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
bool = np.dtype(np.bool_)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)

_default = float32

# For each kind and size the one object that stands for it here.  NumPy may use several (`long` and
# `long long`, or a type that was unpickled); operations compare types by identity, which is quick.
_CANONICAL: dict[Any, np.dtype[Any]] = {
    (d.kind, d.itemsize): d for d in map(np.dtype, "efdFD?bhiqlBHIQL")
}

#: Order of the categories in promotion; anything else (strings, objects, dates) has none.
CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def get_default_dtype() -> dtype:
    """The type of new floating-point tensors: float32 unless `set_default_dtype` changed it."""
    return _default


def set_default_dtype(d: Any) -> None:
    """Set the type of new floating-point tensors, for the whole process.

    Raises:
        TypeError: `d` is not a floating-point type.
    """
    global _default
    d = np.dtype(d)
    if d.kind != "f":
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    _default = d


def as_dtype(d: Any) -> dtype:
    """The dtype that `d` names: a dtype, a NumPy scalar type, a string, or Python's own types.

    Python's ``float`` means float64, ``complex`` complex128 and ``int`` int64, as in PyTorch,
    whatever the default type is.
    """
    if d.__class__ is type and d.__name__ == "int" and d.__module__ == "builtins":
        # On some systems NumPy's is of another size.
        return int64
    return canonical(np.dtype(d))


def canonical(d: dtype) -> dtype:
    """The object that stands for a type here; of native byte order.

    Raises:
        TypeError: Tensors cannot hold elements of that type.
    """
    if d.kind not in CATEGORY or (d.kind, d.itemsize) not in _CANONICAL:
        raise TypeError(f"tensors cannot hold elements of type {d}")
    return _CANONICAL[d.kind, d.itemsize]


def normalised(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with its canonical type: itself or a view if possible, else a copy.

    To be used on arrays from outside, such as unpickled ones.
    """
    own = array.dtype
    target = canonical(own)
    if own is target:
        return array
    return array.view(target) if own == target else array.astype(target)


def parts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Complex numbers as pairs of real ones along a new last axis, on the same memory."""
    return array[..., None].view(array.real.dtype)


def complex_like(d: dtype) -> dtype:
    """The complex type whose parts have the floating-point type `d`."""
    return complex128 if d.itemsize >= 8 else complex64


def result_type(
    dimensioned: list[dtype], zero_dimensional: list[dtype], numbers: list[dtype]
) -> dtype:
    """The common type of an operation's operands.

    Args:
        dimensioned: Types of the tensors with at least one dimension.
        zero_dimensional: Types of the tensors without dimensions.
        numbers: Types of the Python numbers among the operands (their default types).

    Operands of a lower priority (in this order) count only if their category (bool, integer,
    floating-point, complex) is above that of all operands of higher priority.
    """
    result: dtype | None = None
    for group in (dimensioned, zero_dimensional, numbers):
        if not group:
            continue
        own = group[0]
        for other in group[1:]:
            own = promote_types(own, other)
        if result is None:
            result = own
        elif CATEGORY[own.kind] > CATEGORY[result.kind]:
            # A complex number beside float32 values gives complex64, whatever its own precision.
            result = complex_like(result) if own.kind == "c" and result.kind == "f" else own
    if result is None:
        raise ValueError("no operands")
    return canonical(result)


def promote_types(a: Any, b: Any) -> dtype:
    """The smallest type that both convert to; integers never widen a floating-point type."""
    a, b = as_dtype(a), as_dtype(b)
    first, second = CATEGORY[a.kind], CATEGORY[b.kind]
    if first != second and max(first, second) >= 2:
        wide: dtype
        narrow: dtype
        wide, narrow = (a, b) if first > second else (b, a)
        if wide.kind == "c" and narrow == float64:
            return complex128
        return wide
    return canonical(np.promote_types(a, b))


def can_cast(from_: Any, to: Any) -> Bool:
    """Whether one type converts to the other without a loss of category, as from float to int.

    >>> can_cast(float32, int64)
    False
    """
    return CATEGORY[as_dtype(from_).kind] <= CATEGORY[as_dtype(to).kind]
