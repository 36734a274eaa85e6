"""Carries out one worker's part in a pass: events from any thread, rules on one at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from tensorplay.distributed.autograd.backward_pass import BackwardPass

Event = Callable[[BackwardPass], None]


class PassRunner:
    """Feeds a `BackwardPass` with events, one thread at a time.

    Invariant: while the mailbox is not empty, exactly one thread is running, or has been given,
    `task`.

    Args:
        backward_pass: The state machine; `failed` and `finished` are told how it ends.
        failed: Called with the exception if a rule raises; the pass is over then.
        finished: Called once this worker is done.
        within: Entered by the thread that runs rules, while it does.
    """

    def __init__(
        self,
        backward_pass: BackwardPass,
        failed: Callable[[BaseException], None],
        finished: Callable[[], None],
        within: AbstractContextManager[None],
    ) -> None:
        self._pass = backward_pass
        self._failed = failed
        self._finished = finished
        self._within = within
        self._mailbox: deque[Event] = deque()
        self._lock = threading.Lock()
        self._scheduled = False
        self._over = False
        #: What the thread given the work has to call; always the same object.
        self.task: Callable[[], None] = self._run

    @property
    def reported(self) -> bool:
        """Whether this worker has done its part; its report has left, or is about to."""
        return self._pass.done

    def post(self, event: Event) -> Callable[[], None] | None:
        """Add an event.  Returns `task` if the caller must see to it that it is run."""
        with self._lock:
            if self._over:
                return None
            self._mailbox.append(event)
            if self._scheduled:
                return None
            self._scheduled = True
            return self.task

    def stop(self) -> None:
        """The pass has ended elsewhere: take no more events."""
        with self._lock:
            self._over = True
            self._mailbox.clear()
            idle = not self._scheduled
        self._pass.stop()
        # References to itself: see `BackwardPass.release`.
        self.task = _nothing
        if idle:
            self._pass.release()

    def report(self) -> str:
        """How far the pass has got here, for people."""
        state = "runs" if self._scheduled else "waits"
        owed = self._pass.owed_by
        if not owed:
            return f"{state}, all answers are here"
        return f"{state}, {sum(owed.values())} answers owed by ranks {sorted(owed)}"

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._mailbox or self._over:
                    self._scheduled = False
                    over = self._over
                    break
                events, self._mailbox = self._mailbox, deque()
            try:
                # An event that is through lets go of the gradients that it has brought.
                with self._within:
                    while events:
                        events.popleft()(self._pass)
                    self._pass.advance()
            except BaseException as error:
                ended = self._over
                self.stop()
                if not ended:
                    self._failed(error)
                over = True
                break
            if self._pass.done:
                self.stop()
                self._finished()
                over = True
                break
        if over:
            self._pass.release()


def _nothing() -> None:
    """What remains to be called of a runner that is over."""
