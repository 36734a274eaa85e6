"""A worker's contexts, and the recording of what crosses its border."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tensorplay.autograd.grad_mode import grad_mode
from tensorplay.distributed.autograd.context import RANK_SHIFT, DistAutogradContext
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.distributed.rpc.messages import FIRST_FREE_KIND
from tensorplay.distributed.transport.wire import NO_CONTEXT, Message
from tensorplay.tensor import Tensor

if TYPE_CHECKING:
    from tensorplay.distributed.autograd.exchange import Exchange

#: Ids of released contexts that are remembered, so that a late message does not revive them.
_REMEMBERED = 16384


class _Thread(threading.local):
    context = NO_CONTEXT
    #: Context and pass whose backward rules the thread runs.
    rules_of: tuple[int, int] | None = None


#: Which context each thread is in.  Ids are unique, so all agents of a process can share it.
thread = _Thread()


class KeptGradients:
    """The gradients of a context that has been left."""

    def __init__(self, grads: dict[Tensor, Tensor]) -> None:
        self.grads = grads


class Container:
    """All contexts of one worker.  Implements `rpc.messages.Recorder`."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        first = rank << RANK_SHIFT
        self._context_ids = itertools.count(first)
        # An autograd message id is never 0, which says that a message has none.
        self._message_ids = itertools.count(first + 1)
        self._lock = threading.Lock()
        self._contexts: dict[int, DistAutogradContext] = {}
        self._released: OrderedDict[int, None] = OrderedDict()
        #: Gradients of contexts that their threads have left; these hold them.
        self._left: WeakValueDictionary[int, KeptGradients] = WeakValueDictionary()
        self.exchange: Exchange | None = None

    def __len__(self) -> int:
        return len(self._contexts)

    @property
    def passes_running(self) -> int:
        """How many backward passes this worker takes part in now."""
        running = 0
        for context in self._contexts.copy().values():
            with context.lock:
                running += sum(runner is not None for _, runner in context.passes.values())
        return running

    # -- contexts --------------------------------------------------------------------------------

    def new(self) -> DistAutogradContext:
        """A new context, created by this worker."""
        context = DistAutogradContext(next(self._context_ids))
        with self._lock:
            self._contexts[context.id] = context
        return context

    def retrieve(self, context_id: int) -> DistAutogradContext:
        """The context of that id.

        Raises:
            RuntimeError: There is none on this worker.
        """
        context = self._contexts.get(context_id)
        if context is None:
            raise RuntimeError(self._no_context(context_id))
        return context

    def here(self, context_id: int) -> DistAutogradContext | None:
        """Like `retrieve`, but None if no message of the context has reached this worker."""
        if context_id not in self._contexts and context_id not in self._released:
            return None
        return self.retrieve(context_id)

    def _no_context(self, context_id: int) -> str:
        state = "it has been released" if context_id in self._released else "it is not known here"
        return f"Could not find autograd context with id: {context_id} ({state})"

    def get(self, context_id: int) -> DistAutogradContext | None:
        """The context of that id, made on first sight; None if it has been released."""
        context = self._contexts.get(context_id)
        if context is None:
            with self._lock:
                if context_id in self._released:
                    return None
                context = self._contexts.get(context_id)
                if context is None:
                    context = self._contexts[context_id] = DistAutogradContext(context_id)
        return context

    def release(self, context_id: int) -> DistAutogradContext | None:
        """Forget a context; None if it was not here."""
        with self._lock:
            self._released[context_id] = None
            while len(self._released) > _REMEMBERED:
                self._released.popitem(last=False)
            context = self._contexts.pop(context_id, None)
        if context is not None:
            with context.lock:
                context.released = True
        return context

    def keep_gradients(self, context: DistAutogradContext) -> KeptGradients:
        """Let the gradients of a context that is being left be read while its thread holds this."""
        context.settle_finished(self._rank)
        kept = KeptGradients(context.gradients.settled)
        with self._lock:
            self._left[context.id] = kept
        return kept

    def gradients(self, context_id: int) -> dict[Tensor, Tensor]:
        """A copy of the gradient map of a context that is open, or was left last by its thread."""
        with self._lock:
            left = self._left.get(context_id)
        if left is not None:
            return dict(left.grads)
        context = self.retrieve(context_id)
        with context.lock:
            context.settle_finished(self._rank)
            return dict(context.gradients.settled)

    def gradients_here(self, context_id: int) -> dict[Tensor, Tensor]:
        """Like `gradients`, but empty if no call of the context has reached this worker.

        Raises:
            RuntimeError: The context has been released.
        """
        if context_id not in self._contexts and context_id not in self._released:
            return {}
        return self.gradients(context_id)

    # -- Recorder --------------------------------------------------------------------------------

    def current(self) -> int:
        return thread.context if grad_mode.enabled else NO_CONTEXT

    def enter(self, context: int) -> int:
        before = thread.context
        thread.context = context
        return before

    def leave(self, before: int) -> None:
        thread.context = before

    def record_send(self, message: Message, tensors: Sequence[Tensor]) -> None:
        context = self.retrieve(message.context)
        with context.lock:
            if context.released:
                raise RuntimeError(self._no_context(context.id))
            context.known.add(message.peer)
            if tensors:
                message_id = next(self._message_ids)
                context.sends[message_id] = SendRpcBackward(message_id, message.peer, tensors)
                message.grad_id = message_id

    def retract_send(self, message: Message) -> None:
        context = self._contexts.get(message.context)
        if context is None or not message.grad_id:
            return
        if self.exchange is not None:
            self.exchange.retract(context, message.grad_id)

    def announce(self, message: Message) -> None:
        if message.kind >= FIRST_FREE_KIND and not message.grad_id:
            return  # a message of passes; those of passes that are recorded have pairs
        context = self.get(message.context)
        if context is None:
            return
        with context.lock:
            context.known.add(message.peer)
            if message.grad_id:
                context.recvs[message.grad_id] = RecvRpcBackward(
                    message.grad_id, message.peer, context.id, message.grad_count
                )
                passes = [pass_id for pass_id, _ in context.passes.values()]
            else:
                return
        if passes and self.exchange is not None:
            self.exchange.answer_late(context, message.peer, message.grad_id, passes)

    def check(self, message: Message) -> None:
        self.retrieve(message.context)

    def attach(self, message: Message, tensors: Sequence[Tensor]) -> None:
        context = self._contexts.get(message.context)
        if context is None:
            return  # released: the tensors stay leaves
        recv = context.recvs.get(message.grad_id)
        if recv is not None:
            recv.hang(tensors)

    def lose(self, worker: int) -> None:
        if self.exchange is not None:
            for context in self._contexts.copy().values():
                self.exchange.lose(context, worker)

    def report(self) -> list[str]:
        lines = [line for context in self._contexts.copy().values() for line in context.report()]
        return lines + (self.exchange.report() if self.exchange is not None else [])

    def close(self) -> None:
        with self._lock:
            self._contexts.clear()
            for left in self._left.values():
                left.grads = {}
            self._left.clear()
        thread.context = NO_CONTEXT
