"""One worker's references: the values that it owns, and the drops that it owes."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque

from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.ownership import Owner, RRefId


class RRefTable:
    """The values this worker owns, each as a future, and references dropped here.

    Attributes:
        dropped: ``(owner, id, exponent)`` of references that are gone.  Finalisers append to it;
            `take_dropped` empties it.
        free: Values that nobody refers to any more.  Their own finalisers may do anything, so they
            end in `let_go`, which a thread calls that does not poll.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._ids = itertools.count()
        # Re-entrant: a finaliser that makes references may run while it is held.
        self._lock = threading.RLock()
        self._owner = Owner()
        self._values: dict[RRefId, Future] = {}
        self.dropped: deque[tuple[int, RRefId, int]] = deque()
        self.free: deque[Future] = deque()

    def __len__(self) -> int:
        # More than the values, if a reference has come before the call that makes its value.
        return len(self._owner)

    @property
    def unmade(self) -> int:
        """How many of the values are still to be made."""
        return sum(not value.done() for value in self._values.copy().values())

    def new_id(self) -> RRefId:
        """An id for a reference created here."""
        return RRefId(self._rank, next(self._ids))

    def new_fork(self, owner: int, rref_id: RRefId) -> int:
        """The local id of a reference held here: with a value of one's own, that of the value."""
        return rref_id.local_id if owner == self._rank else next(self._ids)

    def value_of(self, rref_id: RRefId) -> Future:
        """The future of an owned value; a new one, if the first news of it is a reference."""
        with self._lock:
            self._owner.know(rref_id)
            value = self._values.get(rref_id)
            if value is None:
                value = self._values[rref_id] = Future()
        return value

    def made(self, rref_id: RRefId) -> None:
        """An owned value has been made, or could not be; `let_go` is called if it is free already.

        Runs user code.
        """
        with self._lock:
            if self._owner.made(rref_id):
                self._set_free(rref_id)
        self.let_go()

    def give_back(self, rref_id: RRefId, exponent: int) -> None:
        """Weight has come home."""
        with self._lock:
            if self._owner.give_back(rref_id, exponent):
                self._set_free(rref_id)

    def _set_free(self, rref_id: RRefId) -> None:
        value = self._values.pop(rref_id, None)
        if value is not None:
            self.free.append(value)

    def let_go(self) -> None:
        """Let free values end."""
        while self.free:
            with contextlib.suppress(IndexError):
                self.free.popleft()

    def take_dropped(self) -> dict[int, list[tuple[RRefId, int]]]:
        """The references dropped here since the last call, by owner; own ones are settled."""
        by_owner: dict[int, list[tuple[RRefId, int]]] = {}
        while self.dropped:
            try:
                owner, rref_id, exponent = self.dropped.popleft()
            except IndexError:
                break
            if owner == self._rank:
                self.give_back(rref_id, exponent)
            else:
                by_owner.setdefault(owner, []).append((rref_id, exponent))
        return by_owner

    def clear(self) -> None:
        """RPC has shut down."""
        with self._lock:
            values, self._values = self._values, {}
            self._owner = Owner()
        # References that are still held owe nothing any more.
        self.dropped = deque(maxlen=0)
        values.clear()
        self.free.clear()
