"""What one worker keeps of one context: its slice of the graph, and its gradients."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.distributed.autograd.backward_pass import BackwardPass
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.distributed.transport.memory import is_sole_user
from tensorplay.tensor import Tensor, wrap

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
        grads: For each leaf that a pass has reached, its gradient.
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
        self.grads: dict[Tensor, Tensor] = {}
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

    def accumulate(self, leaf: Tensor, grad: Any) -> None:
        """Add a leaf's gradient from a pass: an array, or a tensor if the pass is recorded."""
        if isinstance(grad, Tensor):
            with self.lock:
                kept = self.grads.get(leaf)
                self.grads[leaf] = grad if kept is None else kept + grad
            return
        array = grad if type(grad) is np.ndarray else np.asarray(grad)
        del grad
        with self.lock:
            if leaf not in self.grads:
                # Taken over if only this frame and the caller's call hold it; else copied, since
                # its other holders may write to it, or be given it too.
                if (
                    sys.getrefcount(array) > _sole_references()
                    or not array.flags.writeable
                    or not is_sole_user(array)
                ):
                    array = array.copy()
                self.grads[leaf] = wrap(array)
                return
            alone = _holders(self.grads, leaf) == _ONLY_THE_MAP
            kept = self.grads[leaf]
            if kept._requires_grad:
                # The sum of what was recorded and what was not is not recorded.
                self.grads[leaf] = wrap(np.asarray(kept._array + array))
            elif alone and is_sole_user(kept._array) and kept._array.dtype == array.dtype:
                kept._array += array
            else:
                # Not in place: the user, or a message, holds the sum so far.
                kept._array = np.asarray(kept._array + array)

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
            f"{len(self.grads)} gradients, known ranks {sorted(self.known.copy())}"
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


def _holders(grads: Mapping[Any, Tensor], leaf: Any) -> tuple[int, int]:
    """How many refer to a gradient, and to its array."""
    kept = grads[leaf]
    return sys.getrefcount(kept), sys.getrefcount(kept._array)


# Measured, since it depends on how this Python passes arguments.
_ONLY_THE_MAP = _holders({0: wrap(np.zeros(1))}, 0)


@functools.cache
def _sole_references() -> int:
    """What `sys.getrefcount` says within `accumulate` of an array that only the pass holds.

    Measured, since it depends on how this Python passes arguments.
    """
    counts: list[int] = []

    def leaf(target: Tensor, grad: Any) -> None:
        array = grad if type(grad) is np.ndarray else np.asarray(grad)
        del grad
        counts.append(sys.getrefcount(array))

    target = wrap(np.zeros(1))
    target._requires_grad = True
    probe = BackwardPass(0, {}, {}, (), leaf, lambda instruction: None)
    node = _Probe((target,))
    probe.join([(node, np.ones(1))])
    probe.advance()
    return counts[0]


class _Probe(Node):
    """Gives its input a gradient that nobody else holds."""

    __slots__ = ()

    def rule(self, grad: Any, *saved: Any) -> tuple[Any, ...]:
        return (grad + 1,)
