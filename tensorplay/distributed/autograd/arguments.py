"""Checks of what programs give to the functions of this package."""

from __future__ import annotations

import numbers

from tensorplay.distributed.rpc.options import LONGEST_TIMEOUT
from tensorplay.tensor import Tensor


def check_id(function: str, context_id: object) -> None:
    """Raise TypeError unless it is an integer."""
    if isinstance(context_id, bool) or not isinstance(context_id, int):
        raise TypeError(
            f"{function}: incompatible function arguments: context_id must be an int, got "
            f"{type(context_id).__name__}"
        )


def as_list(function: str, roots: object) -> list[Tensor]:
    """One root or several, as a new list.

    Raises:
        TypeError: They are no tensors.
    """
    tensors = [roots] if isinstance(roots, Tensor) else roots
    if not isinstance(tensors, (list, tuple)):
        wrong = type(roots).__name__
    elif strangers := [type(one).__name__ for one in tensors if not isinstance(one, Tensor)]:
        wrong = f"one with {strangers[0]}"
    else:
        return list(tensors)
    raise TypeError(
        f"{function}: incompatible function arguments: roots must be a Tensor or a list or tuple "
        f"of Tensors, got {wrong}"
    )


def as_seconds(function: str, timeout: object) -> float | None:
    """A timeout in seconds; None for no limit, which may be said by 0 as in calls.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative or not a number of seconds.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real):
        raise TypeError(f"{function}: timeout must be a number of seconds, got {timeout!r}")
    seconds = float(timeout)
    if not 0 <= seconds <= LONGEST_TIMEOUT:
        raise ValueError(
            f"{function}: timeout must be a number of seconds, 0 or None for no limit, got "
            f"{timeout!r}"
        )
    return seconds or None
