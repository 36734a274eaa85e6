"""Contexts by hand, and a look at what there is: the private names that programs and tests use.

`context` is how a program opens one; these serve those that cannot use a ``with`` block.
"""

from __future__ import annotations

from tensorplay.distributed.autograd.container import thread
from tensorplay.distributed.autograd.context import RANK_SHIFT, DistAutogradContext
from tensorplay.distributed.autograd.session import counts, current_session
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.transport.wire import NO_CONTEXT


def _new_context() -> DistAutogradContext:
    """Open a context for this thread, until `_release_context`.  Local.

    Raises:
        RuntimeError: This thread is in a context already.
    """
    session = current_session()
    if thread.context != NO_CONTEXT:
        raise RuntimeError(
            f"Already have an autograd context id for this thread: {thread.context}. Contexts "
            "cannot be nested."
        )
    context = session.container.new()
    thread.context = context.id
    return context


def _release_context(context_id: int) -> None:
    """Forget a context on all workers that it has reached; this thread leaves it if it is in it.

    Raises:
        RuntimeError: The context is not known here, or has been released.
    """
    container, exchange = current_session()
    if thread.context == context_id:
        # Also if another thread has released it.
        thread.context = NO_CONTEXT
    container.retrieve(context_id)
    exchange.release(context_id)


def _current_context() -> DistAutogradContext:
    """The context that this thread is in: one that it opened, or its caller's.  Local.

    Raises:
        RuntimeError: It is in none.
    """
    if thread.context == NO_CONTEXT:
        raise RuntimeError(
            "Current thread doesn't have a valid autograd context. Please wrap your code using: "
            "`with tensorplay.distributed.autograd.context() as context_id`"
        )
    return current_session().container.retrieve(thread.context)


def _retrieve_context(context_id: int) -> DistAutogradContext:
    """This worker's part of a context.  Local.

    Raises:
        RuntimeError: The context is not known here, or has been released.
    """
    return current_session().container.retrieve(context_id)


def _is_valid_context(context_id: int) -> None:
    """Raise RuntimeError unless the context is known here.  Local."""
    current_session().container.retrieve(context_id)


def _get_max_id() -> int:
    """The largest context id, and autograd message id, that this worker can give.  Local."""
    return (current_agent().rank << RANK_SHIFT) + (1 << RANK_SHIFT) - 1


def _init(worker_id: int) -> None:
    """Does nothing: `rpc.init_rpc` has initialised distributed autograd.

    Raises:
        ValueError: `worker_id` is not this worker's rank.
    """
    rank = current_agent().rank
    if worker_id != rank:
        raise ValueError(f"_init({worker_id}) on worker {rank}: init_rpc has given it its rank")


def _get_debug_info() -> dict[str, int]:
    """How many contexts and backward passes this worker has now.  Local."""
    return counts(current_agent())
