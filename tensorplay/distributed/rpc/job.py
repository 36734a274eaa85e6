"""One rank that fails must not leave the others waiting.

On every MPI, a rank that leaves by an exception or `sys.exit` makes the others wait for ever: in
``MPI_Finalize``, in a collective, or for its answer.  So once RPC is imported in a job of several
ranks, an uncaught exception in the main thread ends the whole job, that rank's traceback last; and
so does leaving without `shutdown` while RPC is up.

Before MPI is up there is nothing to abort, and some launchers take no notice of a process that ends
without having spoken to them, whatever its exit code.  All of them notice one that dies by a
signal.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from types import TracebackType

from tensorplay.distributed.rpc.current import agent_or_none
from tensorplay.distributed.transport import mpi

_FAILED = 1
_installed = threading.Event()


def watch() -> None:
    """End the whole job if this rank fails.  Does nothing the second time, or in a world of one."""
    if _installed.is_set() or mpi.launched_size() <= 1:
        return
    _installed.set()
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        before(kind, error, trace)
        end_job(None)

    sys.excepthook = excepthook
    atexit.register(_leave)


def crashed(error: BaseException) -> None:
    """The library itself has failed on one of its threads: end the job."""
    traceback.print_exception(type(error), error, error.__traceback__)
    end_job("tensorplay: serving calls failed on this worker")


def _leave() -> None:
    agent = agent_or_none()
    if agent is not None:
        end_job(
            f"tensorplay: worker {agent.name!r} (rank {agent.rank}) left without calling "
            "rpc.shutdown(): ending the job, since other workers may wait for it"
        )


def end_job(reason: str | None) -> None:
    """End every process of the job, with a non-zero status.  Does not return."""
    if reason is not None:
        print(reason, file=sys.stderr)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        mpi.abort_if_running(_FAILED)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGABRT)
