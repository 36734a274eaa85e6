"""How a worker leaves: together with all others, or alone.

Carries out what `termination` decides; tells the others when this worker *departs* without waiting
for them, and sees to it that nobody waits for a worker that has departed.
"""

from __future__ import annotations

import pickle
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.errors import RpcTimeoutError, WorkerLeftError
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.termination import Counts, Outgoing, Termination
from tensorplay.distributed.transport import Completion, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorplay.distributed.rpc.agent import Agent

#: Seconds that the leader gets to say who has not come to a shutdown.
_ASK_PATIENCE = 1.0


class Leaving:
    """The part of an agent that leaves, and watches others leave.

    Args:
        agent: The agent.
        counts: As for `Termination`.

    Attributes:
        departed: Workers that have left without waiting for the others.
    """

    def __init__(self, agent: Agent, counts: Callable[[int], Counts]) -> None:
        self._agent = agent
        self.departed: set[int] = set()
        self._termination = Termination(agent.rank, len(agent.workers), counts)
        self._lock = threading.Lock()
        self._stopped = Future()
        self._told_who_is_missing = Completion()
        agent.handle(messages.TERMINATION, self._on_termination)
        agent.handle(messages.PARTING, self._on_parting)

    def tick(self, now: float) -> None:
        """Time has passed (monotonic seconds)."""
        with self._lock:
            outgoing = self._termination.tick(now)
        self._send(outgoing)

    def report(self) -> list[str]:
        """How far shutdown has got, for people; a line each."""
        return self._termination.report()

    def has_left(self, worker: int) -> WorkerLeftError:
        """What to raise for a call to a worker that has departed."""
        name = self._agent.workers[worker].name
        return WorkerLeftError(
            f"worker {name!r} has left: it has shut down without waiting for the others"
        )

    def _send(self, outgoing: list[Outgoing]) -> None:
        for rank, payload in outgoing:
            if rank not in self.departed:
                body = pickle.dumps(payload, 5)
                self._agent.transport.send(Message(messages.TERMINATION, rank, body))
        if self._termination.stopped:
            self._stopped.finish()
        if self._termination.missing is not None:
            self._told_who_is_missing.complete()

    def _on_termination(self, message: Message) -> None:
        payload = pickle.loads(message.body)
        with self._lock:
            outgoing = self._termination.receive(message.peer, payload)
        self._send(outgoing)

    def _on_parting(self, message: Message) -> None:
        peer = message.peer
        agent = self._agent
        self.departed.add(peer)
        # After this nothing is sent to it; what was sent before may never arrive.
        agent.transport.lose(peer)
        agent.calls.fail_all(partial(self.has_left, peer), peer)
        agent.recorder.lose(peer)
        with self._lock:
            outgoing = self._termination.depart(peer)
        self._send(outgoing)

    def depart(self, patience: float) -> None:
        """Tell the others that this worker leaves, and let what it has sent reach them.

        Waits for that up to `patience` seconds.
        """
        agent = self._agent
        for worker in agent.workers:
            if worker.id != agent.rank and worker.id not in self.departed:
                agent.transport.send(Message(messages.PARTING, worker.id))
        self.let_out(patience)

    def let_out(self, patience: float) -> None:
        """Wait until what this worker has sent has left it, up to `patience` seconds."""
        deadline = time.monotonic() + patience
        while self._agent.transport.busy and time.monotonic() < deadline:
            time.sleep(1e-4)

    def join(self, timeout: float) -> None:
        """Serve until no worker has anything outstanding.  Collective over all that remain.

        Args:
            timeout: Seconds; 0 for no limit.

        Raises:
            RpcTimeoutError: It took longer.
        """
        with self._lock:
            outgoing = self._termination.join()
        self._send(outgoing)
        deadline = time.monotonic() + timeout if timeout else None
        if not self._agent.progress.rest(self._stopped, deadline):
            reason = self._who_holds_up()
            raise RpcTimeoutError(f"shutdown took longer than {timeout:g} s; {reason}")

    def _who_holds_up(self) -> str:
        if self._termination.missing is None:
            with self._lock:
                outgoing = self._termination.ask()
            self._send(outgoing)
            until = time.monotonic() + _ASK_PATIENCE
            self._agent.progress.rest(self._told_who_is_missing, until)
        missing = self._termination.missing
        workers = self._agent.workers
        if missing is None:
            return f"{workers[self._termination.leader].name} does not answer"
        names = ", ".join(workers[rank].name for rank in missing)
        return f"not there yet: {names}" if names else "others still work"
