"""Counting on several threads."""

from __future__ import annotations

import itertools


class Counter:
    """Counts calls of `add`, which costs less than a lock.

    >>> counter = Counter()
    >>> counter.add(), counter.add()
    (0, 1)
    >>> counter.value
    2
    """

    __slots__ = ("_next", "add")

    def __init__(self) -> None:
        self._next = itertools.count()
        #: Counts one more, in one step under the interpreter lock; returns the value before.
        self.add = self._next.__next__

    @property
    def value(self) -> int:
        """How often `add` has been called."""
        # The only way to look: ``repr(itertools.count(5))`` is ``count(5)``.
        return int(repr(self._next)[6:-1])
