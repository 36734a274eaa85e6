"""Results that are not here yet."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from tensorplay.distributed.rpc import bridges
from tensorplay.distributed.rpc.current import agent_or_none
from tensorplay.distributed.transport import Completion
from tensorplay.distributed.transport.parking import PARK_LIMIT

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.bridges import Handshake

_log = logging.getLogger("tensorplay")

# Guards the step from "not done" to "done" of all futures; held for a few instructions only.
# Re-entrant: a finaliser that makes calls may run in between.
_step = threading.RLock()


#: So many callbacks may complete futures within each other on one stack.
_DEEPEST = 40


class _Stack(threading.local):
    depth = 0


_stack = _Stack()


def run_inline(callback: Callable[[], None]) -> None:
    """Run a callback before this returns, however deep in callbacks of others.

    A long chain of `then` must not end in a RecursionError: its futures would never be done.
    """
    if _stack.depth >= _DEEPEST:
        thread = threading.Thread(target=callback, name="tensorplay callback", daemon=True)
        thread.start()
        thread.join()
        return
    _stack.depth += 1
    try:
        callback()
    finally:
        _stack.depth -= 1


class Future(Completion):
    """The result of a call, once it is there; or a value that the program completes it with.

    Also awaitable, and known to `concurrent.futures.wait` and `as_completed`.  Cannot be sent to
    other workers.  Local; all methods may be called by any thread.

    Args:
        devices: Must name no device but "cpu".

    Raises:
        ValueError: `devices` names another.

    >>> from tensorplay.distributed.rpc import Future
    >>> future = Future()
    >>> doubled = future.then(lambda f: 2 * f.wait())
    >>> future.set_result(21)
    >>> doubled.wait()
    42
    """

    # Defaults stand on the class: one is made for every call.
    _callbacks: list[Callable[[], None]] | None = None
    #: Makes the value of what has arrived; run once, by the first thread that asks.
    _decode: Callable[[], Any] | None = None
    _decoding: Any = None
    #: Makes what is to be raised, anew each time.
    _failure: Callable[[], BaseException] | None = None
    #: What is to be raised, and its traceback as it was when it came here.
    _error: BaseException | None = None
    _trace: TracebackType | None = None
    _value: Any = None
    #: Made by `bridges` when `concurrent.futures` first asks for it.
    _handshake: Handshake | None = None

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        if devices and any(str(device) != "cpu" for device in devices):
            raise ValueError(f"a Future's values are on the cpu: there is no device of {devices}")

    def done(self) -> bool:
        """Whether the result, or an exception, is there."""
        return self.is_done

    def wait(self) -> Any:
        """Block until the result is there, and return it or raise its exception; each time.

        Local.  A worker that waits goes on serving.  There is no limit but the call's timeout.

        Raises:
            Exception: What the call, or whoever completed the future, has raised.
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
            Exception: As `wait`.
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
        where it may wait for other calls, under the autograd context that this thread has now.
        (Where RPC is not up: on the thread that completes the future.)  If it returns a future,
        that one's result is the result; what it raises is the result's exception.

        Raises:
            TypeError: `callback` cannot be called.

        >>> from tensorplay.distributed import rpc
        >>> first = rpc.rpc_async("worker1", pow, args=(2, 3))
        >>> first.then(lambda f: rpc.rpc_async("worker1", pow, args=(f.wait(), 2))).wait()
        64
        """
        if not callable(callback):
            raise TypeError(f"then() needs a callable, got {type(callback).__name__}")
        result = Future()

        def run() -> None:
            try:
                value = callback(self)
            except BaseException as error:  # SystemExit too: no thread of the library may end by it
                result.finish(error=error)
            else:
                if isinstance(value, Future):
                    value._pass_on_to(result)
                else:
                    result.finish(value=value)

        self.when_done(run)
        return result

    def _pass_on_to(self, other: Future) -> None:
        """Complete `other` as this one is completed."""
        if other is self:
            self.finish(error=RuntimeError("a then() callback returned the future of its result"))
            return

        def run() -> None:
            error = self.exception()
            if error is None:
                other.finish(value=self.value())
            else:
                other.finish(error=error)

        self.when_done(run)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call ``callback(self)`` once this future is done; what it raises is logged.

        It runs where the callback of a `then` would.
        """
        if not callable(callback):
            raise TypeError(f"add_done_callback() needs a callable, got {type(callback).__name__}")

        def run() -> None:
            try:
                callback(self)
            except BaseException:
                _log.exception("a callback added by add_done_callback raised")

        self.when_done(run)

    def exception(self) -> BaseException | None:
        """The exception that is the result of a future that is done; None if it has a value.

        Raises:
            RuntimeError: The future is not done yet.
        """
        if not self.is_done:
            raise RuntimeError("exception() was called before the future was done: use wait()")
        # Not by raising it: the traceback would hold this frame, and that the future.
        if self._decode is not None:
            self._decode_once()
        if self._failure is not None:
            return self._failure()
        error = self._error
        return None if error is None else error.with_traceback(self._trace)

    def cancelled(self) -> bool:
        """False: a call cannot be taken back."""
        return False

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in a coroutine, without holding up the event loop."""
        return bridges.awaited(self)

    # `concurrent.futures.wait` and `as_completed` ask for these three.
    @property
    def _condition(self) -> threading.Condition:
        return bridges.condition_of(self)

    @property
    def _state(self) -> str:
        return bridges.handshake(self).state

    @property
    def _waiters(self) -> list[Any]:
        return bridges.handshake(self).waiters

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Can not pickle torch.futures.Future: the copy of a tensorplay Future would never be "
            "done. Send its value, or an RRef; a function that returns a future must be marked "
            "with rpc.functions.async_execution"
        )

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
            if decode is not None:
                self._decode = decode
            elif failure is not None:
                self._failure = failure
            elif error is not None:
                self._error = error
                self._trace = error.__traceback__
            else:
                self._value = value
            callbacks, self._callbacks = self._callbacks, None
            self.complete()
        if callbacks is not None:
            agent = agent_or_none()
            for callback in callbacks:
                if agent is None:
                    run_inline(callback)
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
            return agent.wait(self, deadline)
        lock = threading.Lock()
        lock.acquire()
        while not self.is_done:
            seconds = PARK_LIMIT if deadline is None else deadline - time.monotonic()
            if seconds <= 0:
                return False
            self.park(lock, min(seconds, PARK_LIMIT))
        return True

    def take(self) -> Any:
        """The result of a future that is done and that nobody else has: decoded without a lock."""
        decode = self._decode
        try:
            return self.result_now() if decode is None else decode()
        finally:
            del self  # see `result_now`

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
