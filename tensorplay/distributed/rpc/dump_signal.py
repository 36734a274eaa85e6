"""A signal to any rank has every rank print what it is doing.

Python runs its signal handlers on the main thread between two bytecodes: never, while that thread
sits in C, in an MPI barrier for example.  So the signal is taken by `faulthandler`, whose handler
is in C and runs at once.  It writes into a pipe; what it writes does not matter.  A thread that
sleeps in a read of the pipe wakes up, prints, and asks the other ranks to print too.  Their agents
write into their own pipes.

All that holds as long as the C code has let go of the interpreter lock, as MPI and NumPy do.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.current import set_thread_agent
from tensorplay.distributed.rpc.dump import text_of
from tensorplay.distributed.rpc.dump_state import state_of
from tensorplay.distributed.rpc.log import logger
from tensorplay.distributed.rpc.signals import Owner, current_action, owner_of, restore_action
from tensorplay.distributed.transport import Message

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent

#: Launchers pass signals on to all ranks, so one wish comes many times; what comes so soon after a
#: dump (seconds) belongs to it.
_SAME_WISH = 1.0
#: How long the thread gets to end at shutdown (seconds).
_STOP_PATIENCE = 5.0
# What a peer's message, and the end, write into the pipe: no text of faulthandler has such bytes.
_PEER = b"\0"
_END = b"\1"


class DumpOnSignal:
    """Prints what this worker is doing when a signal, or another worker, asks for it.

    Args:
        agent: The worker's agent.
        number: The signal; None for none.  Other workers may ask all the same.
        write: Puts the text out.
    """

    def __init__(
        self, agent: Agent, number: int | None, write: Callable[[str], None] | None = None
    ) -> None:
        self._agent = agent
        self._write = write or write_to_stderr
        self._reading, self._writing = os.pipe()
        # The handler must not block, were nobody to read.
        flags = fcntl.fcntl(self._writing, fcntl.F_GETFL)
        fcntl.fcntl(self._writing, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        self._asked_by = 0
        self._number: int | None = None
        self._before: Any = None
        if number is not None:
            self._register(number)
        # Imports what reading source takes: a thread that is stuck in an import would hold that up.
        linecache.getline(__file__, 1)
        agent.handle(messages.DUMP, self._on_message)
        self._thread = threading.Thread(target=self._run, name="tensorplay dump", daemon=True)
        self._thread.start()

    def _register(self, number: int) -> None:
        name = signal.Signals(number).name
        owner = owner_of(number)
        if owner is Owner.PROGRAM:
            logger.info(
                "%s is handled by the program: on this rank it will not print what ranks do; "
                "TENSORPLAY_DUMP_SIGNAL chooses another signal",
                name,
            )
            return
        # Only the thread that takes the signal: frames of threads that run meanwhile may change
        # while they are read.
        self._before = current_action(number)
        faulthandler.register(
            number, file=self._writing, all_threads=False, chain=owner is Owner.LIBRARY
        )
        self._number = number

    def close(self) -> None:
        """Give the signal back and end the thread."""
        if self._number is not None:
            self._give_back(self._number)
        self._poke(_END)
        self._thread.join(_STOP_PATIENCE)
        if not self._thread.is_alive():
            os.close(self._reading)
            os.close(self._writing)

    def _give_back(self, number: int) -> None:
        since = signal.getsignal(number)
        faulthandler.unregister(number)
        if self._before is not None:
            # A library's handler may stand on one that the program had set with `faulthandler`
            # before; then that has put back what was there before the library came.
            restore_action(number, self._before)
        if since != signal.SIG_DFL and threading.current_thread() is threading.main_thread():
            # The program has set it since; `faulthandler` has put back what was there before.
            signal.signal(number, since)

    def _on_message(self, message: Message) -> None:
        self._asked_by = message.peer
        self._poke(_PEER)

    def _poke(self, what: bytes) -> None:
        # A full pipe wakes the thread just as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writing, what)

    def _run(self) -> None:
        set_thread_agent(self._agent)
        last = float("-inf")
        while True:
            wishes = os.read(self._reading, 65536)
            if _END in wishes:
                return
            if time.monotonic() - last < _SAME_WISH:
                continue
            try:
                by_signal = wishes.strip(_PEER) != b""
                if by_signal:
                    self._ask_others()
                    asked_by = "a signal"
                else:
                    asked_by = f"rank {self._asked_by}"
                self._write(text_of(state_of(self._agent, asked_by)))
            except Exception:
                # The worker itself is well.
                logger.exception("what this rank is doing could not be printed")
            last = time.monotonic()

    def _ask_others(self) -> None:
        agent = self._agent
        for worker in agent.workers:
            if worker.id != agent.rank and not agent.closed:
                # Not counted: the workers may be about to agree that nothing is under way.
                agent.transport.send(Message(messages.DUMP, worker.id))


def write_to_stderr(text: str) -> None:
    """Write to standard error, past `sys.stderr`, whose lock a thread that is stuck may hold."""
    descriptor = 2
    with contextlib.suppress(Exception):
        descriptor = sys.stderr.fileno()
    rest = memoryview(text.encode(errors="backslashreplace"))
    while rest:
        rest = rest[os.write(descriptor, rest) :]
