"""In-place forms of operations, made from them: the result is written into the first tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorplay.ops import (
    arithmetic,
    bits,
    combining,
    elementary,
    error_function,
    pointwise,
    products,
    rounding,
    selection,
)
from tensorplay.ops.aliasing import is_recorded
from tensorplay.ops.inplace import check_fits, write_through
from tensorplay.tensor import Tensor


def in_place(out_of_place: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The in-place form of an operation whose first argument is a tensor.

    Its result must have the tensor's shape, and a type that converts to the tensor's.
    """

    def operation(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        sources = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        if is_recorded(self, *sources):
            return write_through(self, lambda before: out_of_place(before, *args, **kwargs))
        result = out_of_place(self.detach(), *args, **kwargs)
        check_fits(self, result)
        self._array[...] = result._array
        self._version[0] += 1
        return self

    operation.__doc__ = f"`{name}`, written into the tensor."
    return operation


#: What is written into a tensor here; the most used ones have their own in `inplace`.
_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "abs": pointwise.abs,
    "acos": elementary.acos,
    "acosh": elementary.acosh,
    "addcdiv": combining.addcdiv,
    "addcmul": combining.addcmul,
    "asin": elementary.asin,
    "asinh": elementary.asinh,
    "atan": elementary.atan,
    "atan2": combining.atan2,
    "atanh": elementary.atanh,
    "bitwise_and": bits.bitwise_and,
    "bitwise_left_shift": bits.bitwise_left_shift,
    "bitwise_not": bits.bitwise_not,
    "bitwise_or": bits.bitwise_or,
    "bitwise_right_shift": bits.bitwise_right_shift,
    "bitwise_xor": bits.bitwise_xor,
    "ceil": rounding.ceil,
    "clamp_max": selection.clamp_max,
    "clamp_min": selection.clamp_min,
    "cos": pointwise.cos,
    "cosh": elementary.cosh,
    "cumprod": products.cumprod,
    "cumsum": products.cumsum,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "exp2": elementary.exp2,
    "expm1": elementary.expm1,
    "floor": rounding.floor,
    "floor_divide": rounding.floor_divide,
    "fmod": rounding.fmod,
    "frac": rounding.frac,
    "hypot": combining.hypot,
    "lerp": combining.lerp,
    "log": pointwise.log,
    "log10": elementary.log10,
    "log1p": elementary.log1p,
    "log2": elementary.log2,
    "logical_and": bits.logical_and,
    "logical_not": bits.logical_not,
    "logical_or": bits.logical_or,
    "logical_xor": bits.logical_xor,
    "logit": elementary.logit,
    "nan_to_num": combining.nan_to_num,
    "reciprocal": pointwise.reciprocal,
    "remainder": rounding.remainder,
    "round": rounding.round,
    "rsqrt": elementary.rsqrt,
    "sign": pointwise.sign,
    "sin": pointwise.sin,
    "sinc": elementary.sinc,
    "sinh": elementary.sinh,
    "square": pointwise.square,
    "tan": elementary.tan,
    "trunc": rounding.trunc,
}

METHODS = {f"{name}_": in_place(function, name) for name, function in _OPERATIONS.items()}

_rounded_div = in_place(arithmetic.div, "div")


def div_(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """`div`, written into the tensor."""
    if rounding_mode is None:
        input /= other
        return input
    return _rounded_div(input, other, rounding_mode=rounding_mode)


def _operator(name: str) -> Callable[[Tensor, Any], Any]:
    function = METHODS[name]

    def operator(self: Tensor, other: Any) -> Any:
        return function(self, other)

    return operator


OPERATORS = {
    "__iand__": _operator("bitwise_and_"),
    "__ifloordiv__": _operator("floor_divide_"),
    "__ilshift__": _operator("bitwise_left_shift_"),
    "__imod__": _operator("remainder_"),
    "__ior__": _operator("bitwise_or_"),
    "__irshift__": _operator("bitwise_right_shift_"),
    "__ixor__": _operator("bitwise_xor_"),
}


def __getattr__(name: str) -> Any:
    """The forms, as attributes of the module."""
    try:
        return OPERATORS[name] if name in OPERATORS else METHODS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
