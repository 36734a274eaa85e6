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
        RuntimeError: RPC has not been initialised, or this thread is in a context already.

    >>> context = _new_context()
    >>> _current_context() is context is _retrieve_context(context._context_id())
    True
    >>> _release_context(context._context_id())
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

    Local: any worker of the context may call it; the others learn of it soon after.  It waits for
    nothing: calls that are under way fail where they come too late, and passes with an error.

    Args:
        context_id: The context's id.

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

    Args:
        context_id: The context's id.

    Raises:
        RuntimeError: The context is not known here, or has been released.
    """
    return current_session().container.retrieve(context_id)


def _is_valid_context(context_id: int) -> None:
    """Return if the context is known here.  Local.

    Args:
        context_id: The context's id.

    Raises:
        RuntimeError: It is not, or has been released.
    """
    current_session().container.retrieve(context_id)


def _get_max_id() -> int:
    """The largest context id, and autograd message id, that this worker can give.  Local.

    The worker's id stands in the top 16 of 64 bits.

    Raises:
        RuntimeError: RPC has not been initialised.

    >>> _get_max_id() == 2**48 - 1  # on worker 0
    True
    """
    return (current_agent().rank << RANK_SHIFT) + (1 << RANK_SHIFT) - 1


def _init(worker_id: int) -> None:
    """Does nothing: `rpc.init_rpc` has initialised distributed autograd.  Local.

    Args:
        worker_id: This worker's rank.

    Raises:
        RuntimeError: RPC has not been initialised.
        ValueError: `worker_id` is not this worker's rank.
    """
    rank = current_agent().rank
    if worker_id != rank:
        raise ValueError(f"_init({worker_id}) on worker {rank}: init_rpc has given it its rank")


def _get_debug_info() -> dict[str, int]:
    """How many contexts and backward passes this worker has now, its own and others'.  Local.

    Raises:
        RuntimeError: RPC has not been initialised.

    >>> from tensorplay.distributed import autograd
    >>> with autograd.context():
    ...     sorted(_get_debug_info().items())
    [('num_autograd_contexts', 1), ('num_current_backward_passes', 0)]
    """
    return counts(current_agent())
