"""A clear error for a write into memory that must not be written to."""

from __future__ import annotations

import functools
from typing import Any

from tensorplay.tensor import Tensor


def refused_write(target: Tensor, error: ValueError) -> Exception:
    """What to raise for a write that NumPy refused; the error itself if that was for other reasons.

    Args:
        target: What was to be written.
        error: NumPy's.
    """
    array = target._array
    if array.flags.writeable:
        return error
    if array.size > 1 and 0 in array.strides:
        return RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )
    return RuntimeError(
        "the tensor is on read-only memory, that of a read-only array or of windows that overlap: "
        "clone() it first"
    )


def writing(function: Any) -> Any:
    """A method that writes into its tensor, with `refused_write` for NumPy's errors."""

    @functools.wraps(function)
    def write(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except ValueError as error:
            raise refused_write(self, error) from None

    return write
