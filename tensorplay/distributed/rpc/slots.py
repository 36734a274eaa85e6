"""A bound on how many requests run at once, for programs that ask for one."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

Task = Callable[[], None]


class _Thread(threading.local):
    holds = False


class Slots:
    """`limit` slots for requests that run.

    A request that waits in the library, for another call or for a value, gives its slot up
    meanwhile, and goes on afterwards whether or not one is free.  So requests that call each other
    cannot starve, however small the limit.

    Args:
        limit: How many may run at once.
        submit: Has a serving thread execute a task.
    """

    def __init__(self, limit: int, submit: Callable[[Task], None]) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._free = limit
        self._held_up: deque[Task] = deque()
        self._thread = _Thread()

    def __len__(self) -> int:
        return len(self._held_up)

    def admit(self, task: Task) -> Task | None:
        """`task`, to be executed now; None if it has to wait for its turn."""
        with self._lock:
            if self._free <= 0:
                self._held_up.append(task)
                return None
            self._free -= 1
        return partial(self._run, task)

    def _run(self, task: Task) -> None:
        self._thread.holds = True
        try:
            task()
        finally:
            self._thread.holds = False
            self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            self._free += 1
            if self._free <= 0 or not self._held_up:
                return
            self._free -= 1
            task = self._held_up.popleft()
        self._submit(partial(self._run, task))

    @contextlib.contextmanager
    def given_up(self) -> Iterator[None]:
        """Let others have this thread's slot, if it has one."""
        if not self._thread.holds:
            yield
            return
        self._give_back()
        try:
            yield
        finally:
            with self._lock:
                self._free -= 1
