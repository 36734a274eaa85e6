"""The calls that a program makes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from tensorplay.distributed.autograd.container import KeptGradients, thread
from tensorplay.distributed.autograd.session import current_session, session_or_none
from tensorplay.distributed.autograd.statistics import Statistics
from tensorplay.distributed.rpc.messages import register_backward
from tensorplay.distributed.transport.wire import NO_CONTEXT
from tensorplay.tensor import Tensor, wrap


class _Entered(threading.local):
    """What is kept of the context that this thread has left last, until it enters the next."""

    kept: KeptGradients | None = None


_entered = _Entered()


def is_available() -> bool:
    """Whether distributed autograd can be imported: always."""
    return True


def is_initialized() -> bool:
    """Whether RPC is up on this worker, so that contexts can be opened."""
    return session_or_none() is not None


class context:
    """A block whose calls are recorded together, over all workers that they reach.

    Entering gives the context's id, which `backward` and `get_gradients` take.  Leaving releases
    the context on all workers, after waiting for calls of this worker under it that have not been
    answered.

    Raises:
        RuntimeError: RPC has not been initialised, or this thread is in a context already.

    ::

        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", forward, args=(x,)).sum()
            dist_autograd.backward(context_id, [loss])
            grads = dist_autograd.get_gradients(context_id)
    """

    def __enter__(self) -> int:
        session = current_session()
        if thread.context != NO_CONTEXT:
            raise RuntimeError(
                "Already have an autograd context id for this thread: "
                f"{thread.context}. Contexts cannot be nested."
            )
        _entered.kept = None
        self._session = session
        self._context = session.container.new()
        thread.context = self._context.id
        return self._context.id

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        container, exchange = self._session
        context = self._context
        thread.context = NO_CONTEXT
        try:
            if kind is None:
                exchange.wait_for_calls(context.id)
        finally:
            _entered.kept = container.keep_gradients(context)
            exchange.release(context.id)


def backward(
    context_id: int,
    roots: Tensor | Sequence[Tensor],
    retain_graph: bool = False,
    *,
    create_graph: bool = False,
    timeout: float | None = None,
) -> None:
    """Differentiate `roots` through all workers that took part in the context.

    Gradients of leaves are added up in the context, on the worker where each leaf lives;
    `get_gradients` reads them there.  `.grad` is not touched.  Returns when all workers have
    finished.

    Args:
        context_id: The context's id, as `context` gave it.
        roots: A tensor with a single element that requires grad, or several.
        retain_graph: Keep the graph on all workers, so that it can be differentiated again.
        create_graph: Record the pass itself on all workers, so that gradients can be differentiated
            again in this context: those of `get_gradients` then require grad.  Retains the graph.
        timeout: Seconds for the whole pass; no limit by default.

    Raises:
        TypeError: `roots` is not a tensor or a sequence of tensors.
        RuntimeError: The context is not known here or has been released; there are no roots; a root
            does not require grad, is not a real scalar or is a leaf; or the graph has been used up.
        RpcTimeoutError: It took longer than `timeout`.
        Exception: What a backward rule raised, on whichever worker.

    After an error the pass has ended on all workers, and the context can be used again.
    """
    if isinstance(context_id, bool) or not isinstance(context_id, int):
        raise TypeError(f"context_id must be an int, got {type(context_id).__name__}")
    session = current_session()
    context = session.container.retrieve(context_id)
    seeds = [_seed(root, create_graph) for root in _as_list(roots)]
    session.exchange.backward(context, seeds, retain_graph, timeout, create_graph)


def _as_list(roots: Tensor | Sequence[Tensor]) -> list[Tensor]:
    tensors = [roots] if isinstance(roots, Tensor) else roots
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError("roots must be a Tensor or a list or tuple of Tensors")
    if not tensors:
        raise RuntimeError("No tensors provided for gradient computation.")
    return list(tensors)


def _seed(root: Tensor, create_graph: bool) -> tuple[Any, Any]:
    if not root._requires_grad:
        raise RuntimeError("requires_grad not set on root")
    if root._array.size != 1:
        raise RuntimeError(
            f"root of shape {root._array.shape} is not a scalar, all roots need to be scalar"
        )
    if root._array.dtype.kind == "c":
        raise RuntimeError(f"root is complex ({root._array.dtype}), all roots need to be real")
    if root._node is None:
        raise RuntimeError("root is a leaf and does not have a valid gradient function.")
    grad = np.ones(root._array.shape, root._array.dtype)
    return root._node, wrap(grad) if create_graph else grad


def get_gradients(context_id: int | None = None) -> dict[Tensor, Tensor]:
    """The gradients of this worker's leaves that the context's backward passes have reached.

    Args:
        context_id: The context's id; within its block it may be left out.  After the block, the
            gradients can still be read by the worker that opened it, until the thread that did
            opens another or ends.

    Returns:
        A new dict from leaf to gradient.  The gradients are the context's own: what is written to
        them, an optimizer sees.

    Raises:
        RuntimeError: The context is not known here, or has been released.
    """
    if context_id is None:
        context_id = thread.context
        if context_id == NO_CONTEXT:
            raise RuntimeError(
                "Current thread doesn't have a valid autograd context: pass the context's id, or "
                "call get_gradients within `with dist_autograd.context():`"
            )
    return current_session().container.gradients(context_id)


def statistics() -> Statistics:
    """This worker's counters of what backward passes have sent.  Local; any thread.

    Those of a pass are final on all workers when `backward` returns.

    Raises:
        RuntimeError: RPC has not been initialised.
    """
    return current_session().exchange.counters.read()


register_backward(backward)
