"""Comparisons and tests.  Their results are booleans, which have no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.ops.recording import applied, common, common_tensors, refuse_complex
from tensorplay.ops.reduction import Dim, axes_of
from tensorplay.tensor import Tensor, wrap

_all: Any = np.logical_and.reduce
_any: Any = np.logical_or.reduce


def _comparison(ufunc: Any, name: str, doc: str, *, ordered: bool = True) -> Any:
    def compare(input: Tensor, other: Any) -> Any:
        x = input._array
        if ordered and x.dtype.kind == "c":
            refuse_complex(x, name)
        if other.__class__ is float or other.__class__ is int:
            return wrap(ufunc(x, other))
        if isinstance(other, Tensor) and other._array.dtype is x.dtype:
            return wrap(applied(ufunc, x, other._array))
        pair = common(input, other)
        if pair is None:
            return NotImplemented
        a, b = pair
        if ordered:
            refuse_complex(a._array, name)
        return wrap(applied(ufunc, a._array, b._array if isinstance(b, Tensor) else b))

    compare.__name__ = compare.__qualname__ = name
    compare.__doc__ = doc
    return compare


eq = _comparison(np.equal, "eq", "Whether the elements are equal, one by one.", ordered=False)
ne = _comparison(np.not_equal, "ne", "Whether the elements differ, one by one.", ordered=False)
lt = _comparison(np.less, "lt", "Whether each element is less than the other's.")
le = _comparison(np.less_equal, "le", "Whether each element is at most the other's.")
gt = _comparison(np.greater, "gt", "Whether each element is greater than the other's.")
ge = _comparison(np.greater_equal, "ge", "Whether each element is at least the other's.")


def all(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are nonzero, in the whole or along dimensions."""
    x = input._array
    return wrap(_all(x, axis=axes_of(dim, x.ndim), keepdims=keepdim))


def any(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether any element is nonzero, in the whole or along dimensions."""
    x = input._array
    return wrap(_any(x, axis=axes_of(dim, x.ndim), keepdims=keepdim))


def isnan(input: Tensor) -> Tensor:
    """Whether each element is NaN."""
    return wrap(np.isnan(input._array))


def isinf(input: Tensor) -> Tensor:
    """Whether each element is infinite."""
    return wrap(np.isinf(input._array))


def isfinite(input: Tensor) -> Tensor:
    """Whether each element is neither infinite nor NaN."""
    return wrap(np.isfinite(input._array))


def isposinf(input: Tensor) -> Tensor:
    """Whether each element is infinite and positive."""
    return wrap(np.isposinf(input._array))


def isneginf(input: Tensor) -> Tensor:
    """Whether each element is infinite and negative."""
    return wrap(np.isneginf(input._array))


def isreal(input: Tensor) -> Tensor:
    """Whether each element has no imaginary part."""
    return wrap(np.isreal(input._array))


def signbit(input: Tensor) -> Tensor:
    """Whether each element is negative, -0.0 included."""
    x = input._array
    return wrap(np.signbit(x) if x.dtype.kind == "f" else x < 0)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are the same."""
    return bool(np.array_equal(input._array, other._array))


def isclose(
    input: Tensor, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether ``|input - other| <= atol + rtol * |other|``, one by one."""
    a, b = common_tensors(input, other, "other")
    return wrap(np.isclose(a._array, b._array, rtol=rtol, atol=atol, equal_nan=equal_nan))


def allclose(
    input: Tensor, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether `isclose` holds for all elements.

    >>> import tensorplay as tp
    >>> tp.allclose(tp.tensor([1.0]), tp.tensor([1.0 + 1e-7]))
    True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


def nonzero(input: Tensor, as_tuple: bool = False) -> Any:
    """Where the elements that are not zero stand: one row of indices for each.

    With `as_tuple`, one tensor of indices for each dimension instead.
    """
    found = np.nonzero(np.atleast_1d(input._array))
    if as_tuple:
        return tuple([wrap(indices) for indices in found])
    return wrap(np.stack(found, axis=1)[:, : input._array.ndim])
