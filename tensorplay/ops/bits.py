"""Logic on truth values, and on the bits of whole numbers.  Nothing here has a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.ops.recording import applied, as_operand, common
from tensorplay.tensor import Tensor, wrap


def _bitwise(ufunc: Any, name: str, doc: str) -> Callable[..., Any]:
    def combine(input: Any, other: Any) -> Any:
        # A number may stand first.
        number_first = not isinstance(input, Tensor)
        pair = common(other, input) if number_first else common(input, other)
        if pair is None:
            return NotImplemented
        tensor, second = pair
        _check_whole(tensor, name)
        x = tensor._array
        y = second._array if isinstance(second, Tensor) else second
        return wrap(applied(ufunc, y, x) if number_first else applied(ufunc, x, y))

    combine.__name__ = combine.__qualname__ = name
    combine.__doc__ = doc
    return combine


def _check_whole(tensor: Tensor, name: str) -> None:
    if tensor._array.dtype.kind not in "bui":
        raise NotImplementedError(
            f'"{name}" not implemented for {tensor._array.dtype}: it takes booleans or integers'
        )


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self)

    return operator


bitwise_and = _bitwise(
    np.bitwise_and, "bitwise_and", "The bits that are set in both; of booleans, whether both hold."
)
bitwise_or = _bitwise(
    np.bitwise_or, "bitwise_or", "The bits that are set in either; of booleans, whether one holds."
)
bitwise_xor = _bitwise(
    np.bitwise_xor,
    "bitwise_xor",
    "The bits that are set in one only; of booleans, whether they differ.",
)
bitwise_left_shift = _bitwise(
    np.left_shift, "bitwise_left_shift", "The bits of each element moved up by `other` places."
)
bitwise_right_shift = _bitwise(
    np.right_shift,
    "bitwise_right_shift",
    "The bits of each element moved down by `other` places; the sign stays.",
)

reflected_and = _reflected(bitwise_and)
reflected_or = _reflected(bitwise_or)
reflected_xor = _reflected(bitwise_xor)
reflected_lshift = _reflected(bitwise_left_shift)
reflected_rshift = _reflected(bitwise_right_shift)


def bitwise_not(input: Tensor) -> Tensor:
    """The negation of booleans, the complement of integers."""
    _check_whole(input, "bitwise_not")
    return wrap(np.invert(input._array))


def _logical(ufunc: Any, name: str, doc: str) -> Callable[[Tensor, Tensor], Tensor]:
    def combine(input: Tensor, other: Tensor) -> Tensor:
        return wrap(applied(ufunc, input._array, as_operand(other, "other")._array))

    combine.__name__ = combine.__qualname__ = name
    combine.__doc__ = doc
    return combine


logical_and = _logical(np.logical_and, "logical_and", "Whether both elements are nonzero.")
logical_or = _logical(np.logical_or, "logical_or", "Whether one of the elements is nonzero.")
logical_xor = _logical(np.logical_xor, "logical_xor", "Whether only one element is nonzero.")


def logical_not(input: Tensor) -> Tensor:
    """Whether each element is zero."""
    return wrap(np.logical_not(input._array))
