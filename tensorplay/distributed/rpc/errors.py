"""What can go wrong with a call, and how an exception travels between workers."""

from __future__ import annotations

import pickle
import traceback
from typing import NamedTuple

from tensorplay.distributed.rpc.by_value import dumps


class RpcTimeoutError(RuntimeError, TimeoutError):
    """A call, a fetch, a backward pass or a shutdown took longer than its timeout.

    Of a call the text tells what the callee was doing shortly before, if it said so.
    """


class WorkerLeftError(RuntimeError, ConnectionError):
    """The other worker has left: it has shut down without waiting for this one.

    Nothing that is sent to it will be answered; `shutdown` does not wait for it.
    """


class FunctionNotFoundError(RuntimeError, AttributeError):
    """A function or class that was sent by its name does not exist on the worker it came to.

    Its module there is another, or another version.
    """


class MissingModuleError(RuntimeError, ModuleNotFoundError):
    """The module of a function or class that was sent by its name does not exist there.

    Install it for all workers, or see to it that all start in the same folder.
    """


class RemoteError(RuntimeError):
    """An exception on another worker that could not be rebuilt as what it was there.

    Its text names the worker, the original class and its message.  `SystemExit` and its kin arrive
    so too, as they would end the caller.

    >>> import sys
    >>> from tensorplay.distributed import rpc
    >>> rpc.rpc_sync("worker1", sys.exit, args=(3,))
    Traceback (most recent call last):
      ...
    tensorplay.distributed.rpc.errors.RemoteError: on worker 'worker1': SystemExit: 3
    """


class WorkerNameError(ValueError, RuntimeError):
    """A name that a worker cannot have."""


class RemoteTraceback(Exception):
    """The cause of a remote exception: the traceback as the other worker saw it.

    Attributes:
        text: The worker's name and the traceback.

    >>> from tensorplay.distributed import rpc
    >>> try:
    ...     rpc.rpc_sync("worker1", int, args=("twelve",))
    ... except ValueError as error:
    ...     print(error.__cause__.text.splitlines()[0])
    On worker 'worker1':
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class Failure(NamedTuple):
    """An exception as it travels.

    Attributes:
        worker: Name of the worker where it was raised.
        summary: Class and message.
        trace: The formatted traceback.
        pickled: The exception itself, or None if it cannot be pickled.
    """

    worker: str
    summary: str
    trace: str
    pickled: bytes | None


def describe(error: BaseException, worker: str) -> Failure:
    """The travelling form of an exception raised on `worker`."""
    try:
        summary = f"{type(error).__name__}: {error}"
    except BaseException:
        # The user's code may raise anything here, and the caller gets an answer all the same.
        summary = f"{type(error).__name__}: <its text cannot be shown>"
    try:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException:
        frames = "".join(traceback.format_tb(error.__traceback__))
        trace = f"Traceback (most recent call last):\n{frames}{summary}\n"
    pickled = None
    # SystemExit and its kin would end the caller; they arrive as RemoteError.
    if isinstance(error, Exception):
        try:
            pickled = dumps(error)
            pickle.loads(pickled)
        except BaseException:
            pickled = None
    return Failure(worker, summary, trace, pickled)


_set_cause = BaseException.__dict__["__cause__"].__set__


def rebuild(failure: Failure) -> Exception:
    """The exception to raise at the caller, with the remote traceback as its cause."""
    error: Exception | None = None
    if failure.pickled is not None:
        try:
            loaded = pickle.loads(failure.pickled)
        except (Exception, SystemExit):
            loaded = None
        if isinstance(loaded, Exception):
            error = loaded
    if error is None:
        error = RemoteError(f"on worker {failure.worker!r}: {failure.summary}")
    cause = RemoteTraceback(f"On worker {failure.worker!r}:\n{failure.trace}")
    # Past what the class may do when an attribute is set.
    _set_cause(error, cause)
    return error
