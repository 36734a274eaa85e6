"""The life of a remotely referenced value: weighted reference counting.

A value starts with the whole weight 1, held by the reference that created it.  Copying a reference
splits its weight in two halves, one for the copy.  Dropping a reference sends its weight home to
the owner.  When all of the weight is home, nobody can hold a reference any more, and the owner
frees the value, as soon as it has been made.

A weight is 2 to the power of minus its *exponent*, and splitting adds one to that: it never runs
out.  Copying sends no message to the owner, and no order in which drops, copies and the creation
arrive can free a value too early, or keep it: the weights out there and those at home always add
up to 1.

Pure: no messages, no threads.  The caller serialises access to an `Owner`.
"""

from __future__ import annotations

from typing import NamedTuple


class RRefId(NamedTuple):
    """Identifies a value: the worker that created the first reference, and its count there."""

    created_on: int
    local_id: int

    def __str__(self) -> str:
        return f"GloballyUniqueId(created_on={self.created_on}, local_id={self.local_id})"


class _Weight:
    """What has come home of one value: ``numerator`` times 2 to the power of minus ``exponent``.

    Attributes:
        made: The value has been made, or the call that was to make it has failed.
    """

    __slots__ = ("exponent", "made", "numerator")

    def __init__(self) -> None:
        self.numerator = 0
        self.exponent = 0
        self.made = False

    def add(self, exponent: int) -> None:
        if exponent > self.exponent:
            self.numerator <<= exponent - self.exponent
            self.exponent = exponent
        self.numerator += 1 << (self.exponent - exponent)
        # Kept in lowest terms, so that it stays short when copies come and go.
        zeros = (self.numerator & -self.numerator).bit_length() - 1
        if zeros:
            self.numerator >>= zeros
            self.exponent -= zeros

    @property
    def whole(self) -> bool:
        return self.numerator == 1 and self.exponent == 0


class Owner:
    """Which of the values on this worker are still referenced."""

    def __init__(self) -> None:
        self._home: dict[RRefId, _Weight] = {}

    def __len__(self) -> int:
        return len(self._home)

    def __contains__(self, rref_id: RRefId) -> bool:
        return rref_id in self._home

    def know(self, rref_id: RRefId) -> None:
        """A value, or the first news of one: its creation may arrive after its references."""
        if rref_id not in self._home:
            self._home[rref_id] = _Weight()

    def made(self, rref_id: RRefId) -> bool:
        """A value has been made; whether it is free already."""
        self.know(rref_id)
        self._home[rref_id].made = True
        return self._is_free(rref_id)

    def give_back(self, rref_id: RRefId, exponent: int) -> bool:
        """A reference has been dropped; whether the value is free now."""
        self.know(rref_id)
        self._home[rref_id].add(exponent)
        return self._is_free(rref_id)

    def _is_free(self, rref_id: RRefId) -> bool:
        home = self._home[rref_id]
        if home.made and home.whole:
            del self._home[rref_id]
            return True
        return False
