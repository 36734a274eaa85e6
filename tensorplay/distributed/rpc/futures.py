"""Results that are not here yet."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tensorplay.distributed.rpc.current import agent_or_none
from tensorplay.distributed.transport import Completion
from tensorplay.distributed.transport.parking import PARK_LIMIT

_log = logging.getLogger("tensorplay")

# Guards the step from "not done" to "done" of all futures; held for a few instructions only.
# Re-entrant: a finaliser that makes calls may run in between.
_step = threading.RLock()


class Future(Completion):
    """The result of a call, once it is there.

    >>> from tensorplay.distributed.rpc import Future
    >>> future = Future()
    >>> doubled = future.then(lambda f: 2 * f.wait())
    >>> future.set_result(21)
    >>> doubled.wait()
    42
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_decode",
        "_decoding",
        "_error",
        "_failure",
        "_trace",
        "_value",
    )

    def __init__(self) -> None:
        # As Completion.__init__ does; written out, since every call makes one.
        self.is_done = False
        self._parked = []
        self._callbacks: list[Callable[[], None]] | None = None
        # Makes the value of what has arrived; run once, by the first thread that asks.
        self._decode: Callable[[], Any] | None = None
        self._decoding: Any = None
        # Makes what is to be raised, anew each time.
        self._failure: Callable[[], BaseException] | None = None
        # What is to be raised, and its traceback as it was when it came here.
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._value: Any = None

    def done(self) -> bool:
        """Whether the result, or an exception, is there."""
        return self.is_done

    def wait(self) -> Any:
        """Block until the result is there, and return it or raise its exception.

        Local.  A worker that waits goes on serving.
        """
        if not self.is_done:
            self.wait_until(None)
        try:
            return self.result_now()
        finally:
            del self  # see `result_now`

    def value(self) -> Any:
        """The result that is there already; raises its exception, if that is the result.

        Raises:
            RuntimeError: The future is not done yet.
        """
        if not self.is_done:
            raise RuntimeError("value() was called before the future was done: use wait()")
        try:
            return self.result_now()
        finally:
            del self  # see `result_now`

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future for ``callback(self)``, which is called once this one is done.

        The callback runs at once if this future is done; otherwise on a thread of the library,
        where it may wait for other calls.
        """
        if not callable(callback):
            raise TypeError(f"then() needs a callable, got {type(callback).__name__}")
        result = Future()

        def run() -> None:
            try:
                value = callback(self)
            except BaseException as error:  # SystemExit too: no thread of the library may end by it
                result.set_exception(error)
            else:
                result.set_result(value)

        self.when_done(run)
        return result

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call ``callback(self)`` once this future is done; what it raises is logged."""

        def run() -> None:
            try:
                callback(self)
            except BaseException:
                _log.exception("a callback added by add_done_callback raised")

        self.when_done(run)

    def set_result(self, result: Any) -> None:
        """Complete the future with a value.

        Raises:
            RuntimeError: It is complete already.
        """
        if not self.finish(value=result):
            raise RuntimeError("Future can only be marked completed once")

    def set_exception(self, error: BaseException) -> None:
        """Complete the future with an exception.

        Raises:
            RuntimeError: It is complete already.
        """
        if not isinstance(error, BaseException):
            raise AssertionError(f"{error!r} is of type {type(error)}, not an Exception.")
        if not self.finish(error=error):
            raise RuntimeError("Future can only be marked completed once")

    # -- for the layers of this package ----------------------------------------------------------

    def finish(
        self,
        value: Any = None,
        error: BaseException | None = None,
        decode: Callable[[], Any] | None = None,
        failure: Callable[[], BaseException] | None = None,
    ) -> bool:
        """Complete the future, if it is not yet; whether this call did.

        `decode` makes the value when somebody asks for it; `failure` makes what is to be raised,
        each time.  Any thread, also the polling one: callbacks are handed to a serving thread.
        """
        with _step:
            if self.is_done:
                return False
            self._value = value
            self._decode = decode
            self._failure = failure
            if error is not None:
                self._error = error
                self._trace = error.__traceback__
            callbacks, self._callbacks = self._callbacks, None
            self.complete()
        if callbacks is not None:
            agent = agent_or_none()
            for callback in callbacks:
                if agent is None:
                    callback()
                else:
                    agent.run_soon(callback)
        return True

    def fail_without_callbacks(self, failure: Callable[[], BaseException]) -> None:
        """Like `finish`, in a forked child: callbacks belong to the parent."""
        self._callbacks = None
        self.finish(failure=failure)

    def wait_until(self, deadline: float | None) -> bool:
        """Wait until done or `deadline` (monotonic seconds); whether it is done."""
        agent = agent_or_none()
        if agent is not None:
            return agent.progress.wait(self, deadline)
        lock = threading.Lock()
        lock.acquire()
        while not self.is_done:
            seconds = PARK_LIMIT if deadline is None else deadline - time.monotonic()
            if seconds <= 0:
                return False
            self.park(lock, min(seconds, PARK_LIMIT))
        return True

    def result_now(self) -> Any:
        """The result of a future that is done."""
        if self._decode is not None:
            self._decode_once()
        if self._failure is not None:
            raise self._failure()
        error = self._error
        if error is not None:
            try:
                # Raised time and again, the traceback would grow.
                raise error.with_traceback(self._trace)
            finally:
                # The traceback holds this frame: no cycle keeps what the caller's frames hold.
                del self, error
        return self._value

    def _decode_once(self) -> None:
        with _step:
            lock = self._decoding
            if lock is None:
                # Re-entrant: decoding runs user code, which may look at this future.
                lock = self._decoding = threading.RLock()
        with lock:
            decode = self._decode
            if decode is None:
                return
            try:
                self._value = decode()
            except Exception as error:
                self._error = error
                self._trace = error.__traceback__
            self._decode = None
            del self  # see `result_now`

    def when_done(self, run: Callable[[], None]) -> None:
        """Call `run` once done: now, or under this thread's context on a serving thread."""
        with _step:
            if not self.is_done:
                if self._callbacks is None:
                    self._callbacks = []
                agent = agent_or_none()
                self._callbacks.append(run if agent is None else agent.in_this_context(run))
                return
        run()


def _in_child() -> None:
    # A thread that does not exist in a forked child may have held it.
    global _step
    _step = threading.RLock()


os.register_at_fork(after_in_child=_in_child)
