"""Whole numbers near the elements, and division that rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.recording import (
    applied,
    common_tensors,
    edge_of,
    refuse_complex,
    stretched_edges,
    wanted,
)
from tensorplay.tensor import Tensor, wrap


class _Flat(Node):
    """A function that is constant wherever it has a derivative."""

    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return tuple([None if edge is None else dual.zeros_like(grad) for edge in self.edges])


class FloorBackward0(_Flat):
    __slots__ = ()


class CeilBackward0(_Flat):
    __slots__ = ()


class RoundBackward0(_Flat):
    __slots__ = ()


class TruncBackward0(_Flat):
    __slots__ = ()


class DivBackward1(_Flat):
    """A quotient that was rounded."""

    __slots__ = ()


class FracBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad,)


class _Remaining(Node):
    """``a - b * quotient``, with a quotient that was rounded: `round_quotient` finds it again."""

    __slots__ = ()
    lift = (0, 1)
    round_quotient: Any

    def rule(self, grad: Any, a: Any, b: Any) -> tuple[Any, ...]:
        quotient = None
        if self.edges[1] is not None:
            quotient = -grad * self.round_quotient(dual.array(a) / dual.array(b))
        return (grad, quotient)


class RemainderBackward0(_Remaining):
    __slots__ = ()
    round_quotient = np.floor


class FmodBackward0(_Remaining):
    __slots__ = ()
    round_quotient = np.trunc


def _rounding(ufunc: Any, node_class: type[Node], doc: str) -> Callable[[Tensor], Tensor]:
    def operation(input: Tensor) -> Tensor:
        x = input._array
        refuse_complex(x, operation.__name__)
        if x.dtype.kind == "b":
            raise NotImplementedError(f'"{operation.__name__}" not implemented for booleans')
        if x.dtype.kind in "ui":
            # Whole already.
            return wrap(x.copy())
        return wrap(ufunc(x), node_class((edge_of(input),)) if wanted(input) else None)

    operation.__doc__ = doc
    operation.__name__ = operation.__qualname__ = node_class.__name__.removesuffix(
        "Backward0"
    ).lower()
    return operation


floor = _rounding(np.floor, FloorBackward0, "The greatest whole number not above each element.")
ceil = _rounding(np.ceil, CeilBackward0, "The least whole number not below each element.")
trunc = _rounding(np.trunc, TruncBackward0, "Each element without the part behind the point.")


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest whole number; of two equally near the even one.

    Args:
        decimals: Round to so many decimal places; negative ones count to the left of the point.

    >>> import tensorplay as tp
    >>> tp.round(tp.tensor([0.5, 1.5, 2.25]))
    tensor([0., 2., 2.])
    """
    x = input._array
    refuse_complex(x, "round")
    out = x.copy() if x.dtype.kind in "bui" and decimals >= 0 else np.round(x, decimals)
    return wrap(out, RoundBackward0((edge_of(input),)) if wanted(input) else None)


def frac(input: Tensor) -> Tensor:
    """The part behind the point, with the sign of the element."""
    x = input._array
    if x.dtype.kind != "f":
        raise NotImplementedError(f'"frac" not implemented for {x.dtype}')
    return wrap(x - np.trunc(x), FracBackward0((edge_of(input),)) if wanted(input) else None)


def remainder(input: Any, other: Any) -> Tensor:
    """What is left of ``input / other`` rounded down: the sign is that of `other`, as of ``%``.

    Args:
        input: A tensor or a number; shapes broadcast.
        other: A tensor or a number.

    Raises:
        RuntimeError: A whole number is divided by zero.

    >>> import tensorplay as tp
    >>> tp.remainder(tp.tensor([-3.0, 3.0]), 2)
    tensor([1., 1.])
    """
    return _remaining(np.remainder, RemainderBackward0, input, other)


def fmod(input: Tensor, other: Any) -> Tensor:
    """What is left of ``input / other`` rounded towards zero: it has the sign of `input`."""
    return _remaining(np.fmod, FmodBackward0, input, other)


def floor_divide(input: Any, other: Any) -> Tensor:
    """``input / other`` rounded down, as Python's ``//``; it has no gradient."""
    a, b = _operands(input, other)
    out = _whole(np.floor_divide, a, b)
    return wrap(out)


def rounded_division(input: Any, other: Any, rounding_mode: str) -> Tensor:
    """`div` with a rounding mode; integers stay integers, and the gradient is zero.

    Raises:
        RuntimeError: The mode is neither ``"floor"`` nor ``"trunc"``.
    """
    if rounding_mode not in ("floor", "trunc"):
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"'{rounding_mode}'"
        )
    a, b = _operands(input, other)
    if rounding_mode == "floor":
        out = _whole(np.floor_divide, a, b)
    elif a._array.dtype.kind in "fc":
        out = np.trunc(_whole(np.divide, a, b))
    else:
        down = _whole(np.floor_divide, a, b)
        # One more where rounding down went away from zero.
        out = down + ((down < 0) & (down * b._array != a._array)).astype(down.dtype)
    return wrap(out, DivBackward1(stretched_edges(out.shape, a, b)) if wanted(a, b) else None)


def _operands(input: Any, other: Any) -> tuple[Tensor, Tensor]:
    if isinstance(input, Tensor):
        return common_tensors(input, other, "other")
    b, a = common_tensors(other, input, "input")
    return a, b


def _whole(ufunc: Any, a: Tensor, b: Tensor) -> Any:
    x, y = a._array, b._array
    refuse_complex(x, ufunc.__name__)
    if x.dtype.kind in "bui":
        if not np.all(y):
            raise RuntimeError("ZeroDivisionError")
        if x.dtype.kind == "b":
            raise NotImplementedError(f'"{ufunc.__name__}" not implemented for booleans')
    with np.errstate(divide="ignore", invalid="ignore"):
        return applied(ufunc, x, y)


def _remaining(ufunc: Any, node_class: type[Node], input: Any, other: Any) -> Tensor:
    a, b = _operands(input, other)
    out = _whole(ufunc, a, b)
    if not wanted(a, b):
        return wrap(out)
    saved = (a._array, b._array)
    return wrap(out, node_class(stretched_edges(out.shape, a, b), saved, (a._version, b._version)))


def _operator(function: Callable[..., Tensor], reflected: bool) -> Any:
    def operator(self: Tensor, other: Any) -> Any:
        if not isinstance(other, (Tensor, int, float, np.ndarray, np.generic)):
            return NotImplemented
        return function(other, self) if reflected else function(self, other)

    return operator


mod_operator = _operator(remainder, reflected=False)
reflected_mod = _operator(remainder, reflected=True)
floordiv_operator = _operator(floor_divide, reflected=False)
reflected_floordiv = _operator(floor_divide, reflected=True)
