"""How a thread sleeps until something is done, or somebody wakes it.

Each thread has a *parking lock* of its own, which it holds.  To sleep it tries to acquire the lock
once more; to wake it, another thread releases the lock.  A wake-up that comes while the thread is
awake makes its next sleep end at once, which does no harm: whoever sleeps looks again afterwards.
"""

from __future__ import annotations

import threading
from typing import Any

#: A parked thread looks for itself after so long (seconds), whether or not it has been woken.
PARK_LIMIT = 0.25

# Re-entrant: a finaliser that waits may run in between.
_first_to_park = threading.RLock()


class Completion:
    """Something that will be done, once, by any thread; what a waiting thread waits for.

    Attributes:
        is_done: Whether it is.
    """

    # Defaults stand on the class: one is made for every call.
    is_done: bool = False
    #: Parking locks of the threads that sleep until it is done.
    _parked: list[Any] | None = None

    def complete(self) -> None:
        """Mark it done and wake the threads parked on it."""
        self.is_done = True
        # Whoever parks enters its lock before it looks at `is_done`: it is seen here, or it sees.
        if self._parked is not None:
            for lock in tuple(self._parked):
                wake(lock)

    def park(self, lock: Any, seconds: float) -> None:
        """Sleep on this thread's own `lock` until done, woken otherwise, or `seconds` are over."""
        if self._parked is None:
            with _first_to_park:
                if self._parked is None:
                    self._parked = []
        parked = self._parked
        parked.append(lock)
        try:
            if not self.is_done:
                lock.acquire(timeout=seconds)
        finally:
            parked.remove(lock)


def wake(lock: Any) -> None:
    """Wake the thread that sleeps on its parking lock."""
    # A parking lock is held by its thread except while a wake-up is pending.  Two wakers may race.
    try:
        lock.release()
    except RuntimeError:
        return


class _ThreadLock(threading.local):
    """Each thread's parking lock, held; releasing it wakes the thread."""

    lock: Any

    # At first use.  Not in `__init__`: a finaliser that waits may run in the middle of that.
    def __getattr__(self, name: str) -> Any:
        if name != "lock":
            raise AttributeError(name)
        lock = threading.Lock()
        lock.acquire()
        return self.__dict__.setdefault("lock", lock)


#: This thread's parking lock is `own.lock`.
own = _ThreadLock()
