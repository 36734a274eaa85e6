"""One rank that fails must not leave the others waiting.

On every MPI, a rank that leaves by an exception or `sys.exit` makes the others wait for ever: in
``MPI_Finalize``, in a collective, or for its answer.  So once RPC is imported in a job of several
ranks, an uncaught exception in the main thread ends the whole job, that rank's traceback last; and
so do leaving without `shutdown` while RPC is up, and `sys.exit` with a failure before `init_rpc`.

Before MPI is up there is nothing to abort, and some launchers take no notice of a process that ends
without having spoken to them, whatever its exit code.  All of them notice one that dies by a
signal.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import stat
import struct
import sys
import termios
import threading
import time
import traceback
from types import TracebackType
from typing import NoReturn

from tensorplay.distributed.rpc.current import agent_or_none, why_forbidden
from tensorplay.distributed.transport import mpi

_FAILED = 1
#: How long the launcher gets to read what this rank has printed (seconds).
_READ_PATIENCE = 2.0
_installed = threading.Event()
_has_served = threading.Event()
#: The variable by which the programs that a rank starts know that they are not ranks themselves.
_RANK = "_TENSORPLAY_RANK_PID"
#: The process that is watched: children that it forks are not.
_watched = [0]


def watch(*, joins: bool = False) -> None:
    """End the whole job if this rank fails.  Does nothing the second time, or in a world of one.

    A program that a rank has started, with subprocess for example, sees the launcher's variables
    too, and is no rank, unless it `joins` by `init_rpc`.
    """
    if mpi.launched_size() <= 1:
        return
    me = str(os.getpid())
    if os.environ.setdefault(_RANK, me) != me:
        if not joins:
            return
        os.environ[_RANK] = me
    _watched[0] = os.getpid()
    if _installed.is_set():
        return
    _installed.set()
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        before(kind, error, trace)
        if _is_watched():
            end_job(None)

    sys.excepthook = excepthook
    sys.exit = _exit
    atexit.register(_leave)


def _is_watched() -> bool:
    return os.getpid() == _watched[0]


class _Exit(SystemExit):
    """What `sys.exit` raises, so that the status with which this rank leaves is known.

    The interpreter tells nobody about it.  But it drops the exception when no frame is left, and
    before the functions registered with `atexit` run; one that the program catches and gets over is
    dropped within a frame.
    """

    def __del__(self) -> None:
        if sys._getframe().f_back is None and threading.current_thread() is threading.main_thread():
            _status.append(self.code)


# Tracebacks and remote errors show it as what it stands for.
_Exit.__name__ = _Exit.__qualname__ = SystemExit.__name__
_Exit.__module__ = SystemExit.__module__

#: The argument of the `sys.exit` by which this rank leaves.
_status: list[object] = []


def _exit(status: object = None, /) -> NoReturn:
    """As `sys.exit`."""
    raise _Exit(status)


def _code() -> int:
    """The exit status with which this rank leaves; 0 if it is not known to be another."""
    status = _status[-1] if _status else None
    if status is None:
        return 0
    # A message counts as 1.  Beyond 8 bits a status would be cut, perhaps to 0.
    return min(abs(status), 255) if isinstance(status, int) else _FAILED


def crashed(error: BaseException) -> None:
    """The library itself has failed on one of its threads: end the job."""
    try:
        traceback.print_exception(type(error), error, error.__traceback__)
    finally:
        # Even if it cannot be shown.
        end_job("tensorplay: serving calls failed on this worker")


def _leave() -> None:
    if not _is_watched():
        return
    agent = agent_or_none()
    code = _code()
    if agent is not None:
        end_job(
            f"tensorplay: worker {agent.name!r} (rank {agent.rank}) left without calling "
            "rpc.shutdown(): ending the job, since other workers may wait for it",
            code or _FAILED,
        )
    elif code and not _has_served.is_set():
        end_job(
            f"tensorplay: a rank left with exit status {code} before rpc.init_rpc(): ending the "
            "job, since other ranks may wait for it",
            code,
        )


def serving() -> None:
    """This rank has become a worker.  Once it has shut down it may leave as it likes."""
    _has_served.set()


def watch_child() -> None:
    """In a forked child of a worker: see to it that it ends before it finalises MPI.

    mpi4py finalises MPI at the very end of Python, in a forked child too.  There it would speak to
    the launcher in the parent's name, and the parent's own `MPI_Finalize` would fail.

    Functions that the parent has registered with `atexit` are its own, as in multiprocessing.
    """
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        before(kind, error, trace)
        _status.append(_FAILED)

    sys.excepthook = excepthook
    sys.exit = _exit
    atexit._clear()
    # The first to be registered, so the last to run.
    atexit.register(_leave_child)


def end_if_forked(error: BaseException) -> None:
    """A served function has ended with `error`: if this is a child that it has forked, leave.

    The answer is the parent's to give.
    """
    if why_forbidden() is None:
        return
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        _status.append(error.code)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()


def _leave_child() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(_code())


def _let_be_read(descriptor: int) -> None:
    # A launcher that is told to end the job leaves unread what is still in the ranks' pipes: one
    # traceback in eight was lost.
    deadline = time.monotonic() + _READ_PATIENCE
    while stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.monotonic() < deadline:
        (unread,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
        if not unread:
            return
        time.sleep(1e-3)


def end_job(reason: str | None, code: int = _FAILED) -> None:
    """End every process of the job, with a non-zero status.  Does not return."""
    if reason is not None:
        print(reason, file=sys.stderr)
    if why_forbidden() is not None:
        # A forked child: the job goes on without it.
        os._exit(code)
    try:
        for stream in (sys.stdout, sys.stderr):
            # A program may have put anything in their place.
            with contextlib.suppress(Exception):
                stream.flush()
                _let_be_read(stream.fileno())
    finally:
        # With MPICH this may return before the launcher has ended this process.
        mpi.abort_if_running(code)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGABRT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGABRT)
        # Handlers can only be changed on the main thread; this signal has none.
        os.kill(os.getpid(), signal.SIGKILL)
