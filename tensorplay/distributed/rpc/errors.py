"""What can go wrong with a call, and how an exception travels between workers."""

from __future__ import annotations

import pickle
import traceback
from typing import NamedTuple

from tensorplay.distributed.rpc.by_value import dumps


class RpcTimeoutError(RuntimeError, TimeoutError):
    """A call, a fetch or a wait took longer than its timeout."""


class WorkerLeftError(RuntimeError, ConnectionError):
    """The other worker has left: it has shut down without waiting for this one."""


class FunctionNotFoundError(RuntimeError, AttributeError):
    """A function or class that was sent by its name does not exist on the worker it came to."""


class MissingModuleError(RuntimeError, ModuleNotFoundError):
    """The module of a function or class that was sent by its name does not exist there."""


class RemoteError(RuntimeError):
    """An exception on another worker that could not be rebuilt as what it was there.

    Its text names the worker, the original class and its message.
    """


class WorkerNameError(ValueError, RuntimeError):
    """A name that a worker cannot have."""


class RemoteTraceback(Exception):
    """The cause of a remote exception: the traceback as the other worker saw it."""

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
    except (
        BaseException
    ):  # a user's __str__ may raise anything, and the caller still gets an answer
        summary = f"{type(error).__name__}: <its text cannot be shown>"
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    pickled = None
    # SystemExit and its kin would end the caller; they arrive as RemoteError.
    if isinstance(error, Exception):
        try:
            pickled = dumps(error)
            pickle.loads(pickled)
        except BaseException:
            pickled = None
    return Failure(worker, summary, trace, pickled)


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
    error.__cause__ = RemoteTraceback(f"On worker {failure.worker!r}:\n{failure.trace}")
    return error
