"""One backward pass over a context, as one worker sees it.

*Join.*  A worker joins a pass when it starts it or first hears of it.  It then counts dependencies
from the roots (on the starting worker) and from all send functions it has recorded in the context;
each of these owes exactly one answer: gradients, or none.

*Answer.*  A recv function that the worker's part of the graph reaches answers its peer's send
function when it becomes ready; one that nothing reaches answers none at once.  Answers that become
ready together, for one worker, travel in one message.

*Tell.*  When nothing is ready for the first time, the worker tells those it knows in this context,
and has neither sent anything to nor heard from in this pass, that the pass has begun; but not those
that have an answer to get from it and owe it none: the answer will tell them.

*Done.*  The worker is done when all its send functions have been answered and all that was ready
has run.  It reports to the starting worker whom it knew when it joined.  The starting worker is
finished when all in the closure of these lists have reported.

Every counted edge is answered exactly once, and the graph has no cycle, so the pass ends; nothing
is ever assumed about which results were used, so it is exact.  ``docs/design.md`` has the proof.

Pure: no messages, no threads, no clock.  Events are method calls; instructions go to `emit`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorplay.autograd.engine import GraphTask
from tensorplay.autograd.grad_mode import set_grad_enabled
from tensorplay.autograd.hooks import run_post_hooks
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.tensor import Tensor

#: Gradients of the tensors of one message, aligned with them; None for "none at all".
Grads = Sequence[Any] | None
#: Autograd message id, and the answer for its send function.
Answer = tuple[int, Grads]


@dataclass(slots=True)
class SendAnswers:
    """Send these answers to a worker."""

    to: int
    answers: list[Answer]


@dataclass(slots=True)
class SendBegin:
    """Tell a worker that the pass has begun."""

    to: int


@dataclass(slots=True)
class SendReport:
    """Tell the starting worker that this one is done, and whom it knows.

    Before that, if the graph is not retained, forget the pairs that the pass has used: the next
    pass must not count them.  The last answers for the starting worker go with the report.
    """

    known: Set[int]
    used_sends: Sequence[int]
    used_recvs: Sequence[int]
    answers: Sequence[Answer] = ()


Instruction = SendAnswers | SendBegin | SendReport


class BackwardPass:
    """One worker's part in a pass.

    Args:
        rank: This worker.
        sends: The send functions that owe an answer, by message id.
        recvs: The recv functions recorded so far, by message id.
        known: Workers this one has exchanged messages with in the context.
        leaf: Called with each leaf and its whole gradient.
        emit: Called with each instruction, in order.
        starter: The worker that has started the pass, if this is another.
        gone: Recv functions that are no more, but whose peers may still count on an answer.
        retain_graph: Keep the graph for another pass.
        create_graph: Record the pass itself; gradients are then tensors rather than arrays.

    Attributes:
        done: Every edge here has been answered; the report has been emitted.
    """

    def __init__(
        self,
        rank: int,
        sends: Mapping[int, SendRpcBackward],
        recvs: Mapping[int, RecvRpcBackward],
        known: Iterable[int],
        leaf: Callable[[Tensor, Any], None],
        emit: Callable[[Instruction], None],
        *,
        starter: int | None = None,
        gone: Iterable[RecvRpcBackward] = (),
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        self._rank = rank
        self._sends = dict(sends)
        self._recvs = dict(recvs)
        self._gone = tuple(gone)
        self._known = set(known)
        self._known.discard(rank)
        self._leaf = leaf
        self._emit = emit
        self._starter = starter
        self._create_graph = create_graph
        self._task = GraphTask(
            self._sink, retain_graph=retain_graph or create_graph, create_graph=create_graph
        )
        # Send functions that have not been answered.
        self._owed = set(self._sends)
        # Answers ready for each worker, and the workers that know of the pass.
        self._ready: dict[int, list[Answer]] = {}
        self._told: set[int] = set()
        if starter is not None:
            self._told.add(starter)
        self._own_answers: deque[Answer] = deque()
        self._begun = False
        self._stopped = False
        self._used_sends: list[int] = []
        self._used_recvs: list[int] = []
        self.done = False

    def join(self, roots: Sequence[tuple[Any, Any]] = ()) -> None:
        """Count dependencies; `roots` are ``(graph node, gradient)`` on the starting worker."""
        task = self._task
        sends = self._sends.values()
        task.count([*[root for root, _ in roots], *sends])
        for send in sends:
            task.expect(send)
        for root, grad in roots:
            task.seed(root, grad)
        task.start()
        pending = task.pending
        for recv in self._recvs.values():
            if recv not in pending:
                self._answer(recv, None)
        for recv in self._gone:
            self._answer(recv, None)

    def heard_from(self, rank: int) -> None:
        """That worker has joined the pass: it need not be told."""
        self._told.add(rank)

    def answer(self, answers: Iterable[Answer]) -> None:
        """Answers have come for send functions of this worker."""
        for message_id, grads in answers:
            if message_id in self._owed:
                self._owed.discard(message_id)
                if grads is not None:
                    self._used_sends.append(message_id)
                self._task.deliver(self._sends[message_id], grads)
            elif grads is not None:
                # No gradient comes for what was sent after this worker joined, only none.
                raise RuntimeError(_second_time(message_id))

    @property
    def owed_by(self) -> Counter[int]:
        """How many answers each worker owes."""
        return Counter(self._sends[message_id].peer for message_id in self._owed.copy())

    def advance(self) -> None:
        """Run all that is ready, and emit what follows from it."""
        if self._create_graph:
            with set_grad_enabled(True):
                self._advance()
        else:
            self._advance()

    def _advance(self) -> None:
        task = self._task
        while task.ready or self._own_answers:
            if self._stopped:
                return
            while self._own_answers:
                self.answer([self._own_answers.popleft()])
            task.run()
            if task.pause and task.ready:
                self._send_early()
        if self._stopped:
            return
        task.pause = False
        ending = not self._owed and not self.done
        last = self._ready.pop(self._starter, ()) if ending and self._starter is not None else ()
        self._flush()
        if not self._begun:
            self._begun = True
            untold = self._known - self._told
            if untold:
                for rank in sorted(untold - self._told_later()):
                    self._emit(SendBegin(rank))
        if ending:
            self.done = True
            self._emit(SendReport(self._known, self._used_sends, self._used_recvs, last))

    def _told_later(self) -> set[int]:
        """Workers that an answer is still to go to, and that this one waits for in nothing."""
        waiting = self._task.pending.get
        due = {recv.peer for recv in self._recvs.values() if waiting(recv)}
        return due - {self._sends[message_id].peer for message_id in self._owed}

    def _sink(self, target: Any, grad: Any) -> None:
        if target.__class__ is not RecvRpcBackward:
            if grad is not None:
                self._leaf(target, grad)
                if target._hooks is not None:
                    run_post_hooks(target, grad)
        elif self._recvs.get(target.message_id) is not target:
            if grad is None:
                return  # its pair is gone, and nobody waits for it
            raise RuntimeError(_second_time(target.message_id))
        else:
            self._answer(target, grad)

    def _answer(self, recv: RecvRpcBackward, grads: Grads) -> None:
        if grads is not None:
            self._used_recvs.append(recv.message_id)
            if not self._create_graph:
                grads = [
                    grad if grad is None or grad.__class__ is np.ndarray else np.asarray(grad)
                    for grad in grads
                ]
        if recv.peer == self._rank:
            self._own_answers.append((recv.message_id, grads))
        else:
            self._ready.setdefault(recv.peer, []).append((recv.message_id, grads))
            if grads is not None:
                self._task.pause = True

    def stop(self) -> None:
        """The pass has ended elsewhere: run no further node, emit nothing more.  Any thread."""
        self._stopped = True
        self._task.pause = True

    def release(self) -> None:
        """Let go of the graph: this worker's part is over, and no thread runs it.

        Else the graph would be garbage in a cycle, which Python's collector finds some time later.
        """
        self._task = GraphTask(_nowhere)
        self._owed = set()
        self._sends, self._recvs, self._gone = {}, {}, ()

    def _send_early(self) -> None:
        """Gradients leave before the rest of the graph is run, so that their receivers can begin.

        What is ready together leaves together: first is run what ends the graph here.
        """
        ready = self._task.ready
        ending = [target for target in ready if target.special]
        if ending:
            ready[:] = [target for target in ready if not target.special] + ending
        else:
            self._task.pause = False
            self._flush()

    def _flush(self) -> None:
        for rank, answers in self._ready.items():
            self._told.add(rank)
            self._emit(SendAnswers(rank, answers))
        self._ready = {}


def _nowhere(target: Any, grad: Any) -> None:
    raise AssertionError("a backward pass that is over has run a node")


def _second_time(message_id: int) -> str:
    return (
        "Trying to backward through the graph a second time, or through one of another context: "
        f"autograd message {message_id} is not part of this pass. Use results in the context that "
        "made them, and pass retain_graph=True to all but the last backward over the same graph."
    )


class Closure:
    """On the starting worker: whose reports are still to come.

    `known` are workers that it will name in its own report.
    """

    def __init__(self, starter: int, known: Iterable[int] = ()) -> None:
        self._expected = {starter, *known}
        self._reported: set[int] = set()

    def report(self, rank: int, known: Iterable[int]) -> bool:
        """A worker is done and knows those; whether all are done now."""
        self._reported.add(rank)
        self._expected.add(rank)
        self._expected.update(known)
        return self._expected == self._reported

    @property
    def missing(self) -> frozenset[int]:
        """Workers that have not reported."""
        return frozenset(self._expected - self._reported)
