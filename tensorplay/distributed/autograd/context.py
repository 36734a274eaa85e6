"""What one worker keeps of one context: its slice of the graph, and its gradients."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.distributed.autograd.gradients import Gradients
from tensorplay.tensor import Tensor

if TYPE_CHECKING:
    from tensorplay.distributed.autograd.runner import PassRunner


#: The worker's rank stands in the top bits of context, pass and autograd message ids.
RANK_SHIFT = 48


class DistAutogradContext:
    """One worker's part of an autograd context.  All that it tells is local.

    Programs get it from `_current_context`, `_retrieve_context` and `_new_context`; its methods
    may be called from any thread, and also after the release.

    >>> import operator
    >>> import tensorplay as tp
    >>> from tensorplay.distributed import autograd, rpc
    >>> x = tp.ones(2, requires_grad=True)
    >>> with autograd.context() as context_id:
    ...     y = rpc.rpc_sync("worker1", operator.neg, args=(x,))
    ...     context = autograd._current_context()
    >>> [send.next_functions[0][0].variable is x for send in context._send_functions().values()]
    [True]
    >>> [recv is y.grad_fn for recv in context._recv_functions().values()]
    [True]
    >>> context._known_worker_ids()
    {1}

    Attributes (internal, guarded by `lock`):
        sends, recvs: Send and recv functions by autograd message id, oldest first.
        known: Ranks of the workers that messages were exchanged with in this context.
        gradients: Those of the leaves that passes have reached.
        good: The latest pass that this worker has started and that came to a good end, or 0.
        passes: For each starting worker, its latest pass that this worker has heard of.  The
            passes that one worker starts in a context follow one another, so older ones are over.
        dropped: Recv functions that a pass has used up: pass id to functions.
        ended: Passes that have failed.
        early: Answers "none" for passes that this worker has not joined yet: pass id to messages.
        released: Nothing is recorded any more.
    """

    def __init__(self, context_id: int) -> None:
        self.id = context_id
        self.lock = threading.RLock()
        # Held by the thread of this worker that runs a pass: one at a time.
        self.starting = threading.Lock()
        self.sends: dict[int, SendRpcBackward] = {}
        self.recvs: dict[int, RecvRpcBackward] = {}
        self.known: set[int] = set()
        self.gradients = Gradients()
        self.good = 0
        self.passes: dict[int, tuple[int, PassRunner | None]] = {}
        self.dropped: dict[int, list[RecvRpcBackward]] = {}
        self.ended: set[int] = set()
        self.early: dict[int, list[int]] = {}
        self.released = False

    def _context_id(self) -> int:
        """The context's id."""
        return self.id

    def _send_functions(self) -> dict[int, SendRpcBackward]:
        """Send functions by autograd message id, oldest first, in a new dict.

        A pass that does not retain the graph takes those that it has used away.
        """
        with self.lock:
            return dict(self.sends)

    def _recv_functions(self) -> dict[int, RecvRpcBackward]:
        """Recv functions by autograd message id, oldest first, in a new dict.

        A pass that does not retain the graph takes those that it has used away.
        """
        with self.lock:
            return dict(self.recvs)

    def _known_worker_ids(self) -> set[int]:
        """Ranks of the workers that messages were exchanged with in this context, in a new set."""
        with self.lock:
            return set(self.known)

    def stage(self, pass_id: int, leaf: Tensor, grad: Any) -> None:
        """Take a leaf's whole gradient from a pass, which may still fail."""
        with self.lock:
            self.gradients.stage(pass_id, leaf, grad)

    def settle_before(self, pass_id: int, good: int) -> None:
        """A pass begins.  The latest one of the same worker that came to a good end was `good`.

        A worker that has staged gradients of a pass takes part in the next good one, so all that
        are staged here and older than `good` have been settled.
        """
        for other in tuple(self.gradients.staged):
            if other >> RANK_SHIFT == pass_id >> RANK_SHIFT and other < pass_id:
                self.gradients.settle(other, other == good)

    def settle_finished(self, rank: int) -> None:
        """Gradients are asked for: passes of workers other than `rank`, this one, count as ended.

        Except those that run here, and those that are known to have failed.  A pass runs no more
        once its report is on the way: who started it may ask before the runner has come to rest.
        """
        with self.lock:
            if self.gradients.staged:
                running = {
                    one
                    for one, runner in self.passes.values()
                    if runner is not None and not runner.reported
                }
                for pass_id in tuple(self.gradients.staged):
                    if pass_id >> RANK_SHIFT != rank and pass_id not in running:
                        self.gradients.settle(pass_id, pass_id not in self.ended)

    def drop_used(self, pass_id: int, sends: Iterable[int], recvs: Iterable[int]) -> None:
        """Forget pairs that a pass has used up."""
        with self.lock:
            if pass_id in self.ended:
                return  # it has failed meanwhile: see `restore_dropped`
            for message_id in sends:
                self.sends.pop(message_id, None)
            dropped = [self.recvs.pop(message_id, None) for message_id in recvs]
            self.dropped[pass_id] = [recv for recv in dropped if recv is not None]

    def dropped_by_others(self, starter: int) -> list[RecvRpcBackward]:
        """Dropped by passes of other workers: these may still run elsewhere, and count on them."""
        return [
            recv
            for pass_id, recvs in self.dropped.items()
            if pass_id >> RANK_SHIFT != starter
            for recv in recvs
        ]

    def restore_dropped(self, pass_id: int) -> list[RecvRpcBackward]:
        """A pass has failed: its peers may still count the send functions of pairs dropped here."""
        restored = self.dropped.pop(pass_id, [])
        for recv in restored:
            self.recvs[recv.message_id] = recv
        return restored

    def report(self) -> list[str]:
        """The context and the passes in it that run here, a line each.  Takes no lock."""
        lines = [
            f"context {self.id}: {len(self.sends)} send and {len(self.recvs)} recv functions, "
            f"{len(self.gradients.settled)} gradients, known ranks {sorted(self.known.copy())}"
        ]
        for starter, (pass_id, runner) in self.passes.copy().items():
            if runner is not None:
                lines.append(
                    f"pass {pass_id} of rank {starter} in context {self.id}: {runner.report()}"
                )
        return lines

    def __repr__(self) -> str:
        return (
            f"DistAutogradContext(id={self.id}, sends={len(self.sends)}, "
            f"recvs={len(self.recvs)}, known workers={sorted(self.known)})"
        )
