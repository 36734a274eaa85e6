"""Memory for long buffers that arrive, used again when nobody refers to it any more.

Fresh memory costs more than the transfer into it: the system hands it out page by page, cleared, as
it is first written to.  So a long buffer is received into memory that an earlier one has left, if
there is some of about its size.  Who is given the buffer may keep it, and parts of it, as long as
he likes: the memory returns when the last array that looks into it is gone.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections import deque
from typing import Any

import numpy as np

#: Shorter buffers are left to NumPy's allocation, which reuses them (bytes).
_SHORTEST = 256 * 1024
#: Left memory serves a buffer of at least this share of its length.
_FIT = 0.75
#: Longest memory that is kept for reuse in all (bytes).
_KEPT = 256 * 1024 * 1024

#: Memory that nobody uses, the latest to return last.  Finalisers append to it.
_left: deque[mmap.mmap] = deque()


class _Lease(np.ndarray[Any, Any]):
    """An array of all of a piece of memory; what refers to the memory refers to this.

    NumPy lets an array that looks into another's memory refer to the one that owns it, if that is
    an array of the same type.  The memory belongs to a map, so references end here.
    """

    #: The memory to be returned.  Views of this array are of its type, and return nothing.
    memory: mmap.mmap | None = None

    def __del__(self) -> None:
        # May run on any thread, at any moment.
        memory = self.memory
        if memory is not None and sum(map(len, tuple(_left))) + len(memory) <= _KEPT:
            _left.append(memory)


def take(length: int) -> np.ndarray[Any, Any]:
    """A writable array of `length` bytes, with anything in it.  Any thread."""
    if length < _SHORTEST:
        return np.empty(length, np.uint8)
    memory = _take_left(length)
    if memory is None:
        memory = mmap.mmap(-1, length)
    lease = _Lease(length, np.uint8, memory)
    lease.memory = memory
    return lease


def _take_left(length: int) -> mmap.mmap | None:
    for memory in reversed(tuple(_left)):
        if length <= len(memory) <= length / _FIT:
            # Another thread may have been quicker.
            with contextlib.suppress(ValueError):
                _left.remove(memory)
                return memory
    # What has not served for the longest makes room.
    while _left and sum(map(len, tuple(_left))) + length > _KEPT:
        with contextlib.suppress(IndexError):
            _left.popleft()
    return None


def is_sole_user(array: np.ndarray[Any, Any]) -> bool:
    """Whether nothing but `array`, and what it is a view of for its own sake, uses its memory."""
    user: Any = array
    while isinstance(user, np.ndarray):
        if user.flags.owndata or (type(user) is _Lease and user.memory is not None):
            return True
        if _references_to_base(user) > _SOLE_BASE:
            return False
        user = user.base
    return type(user) is bytearray


def _references_to_base(array: np.ndarray[Any, Any]) -> int:
    base = array.base
    return sys.getrefcount(base)


# Measured, since it depends on how this Python passes arguments.
_SOLE_BASE = _references_to_base(np.empty(2)[:1])
