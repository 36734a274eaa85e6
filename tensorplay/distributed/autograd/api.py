"""The calls that a program makes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from tensorplay.distributed.autograd.arguments import as_list, as_seconds, check_id
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
    """Whether distributed autograd can be imported: always.  Local.

    >>> from tensorplay.distributed import autograd
    >>> autograd.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Whether RPC is up on this worker, so that contexts can be opened.  Local.

    >>> from tensorplay.distributed import autograd
    >>> autograd.is_initialized()  # between init_rpc and shutdown
    True
    """
    return session_or_none() is not None


class context:
    """A block whose calls are recorded together, over all workers that they reach.

    Entering gives the context's id, an int that is unique in the job and that `backward` and
    `get_gradients` take.  The context belongs to the thread that entered it: its calls, their
    callees, and callbacks that are added meanwhile are recorded, other threads' calls are not,
    nor are calls under `no_grad`.

    Leaving releases the context on all workers.  It first waits for calls that this worker has
    made under it and that have not been answered, no longer than these may take; after an
    exception it does not wait.

    Local: one worker opens a context, the others come to know it by the calls that reach them.

    Raises:
        RuntimeError: RPC has not been initialised; or this thread is in a context already, its own
            or its caller's.

    >>> import operator
    >>> import tensorplay as tp
    >>> from tensorplay.distributed import autograd, rpc
    >>> x = tp.tensor([1.0, 2.0], requires_grad=True)
    >>> with autograd.context() as context_id:
    ...     loss = rpc.rpc_sync("worker1", operator.mul, args=(x, x)).sum()
    ...     autograd.backward(context_id, [loss])
    ...     autograd.get_gradients(context_id)[x]
    tensor([2., 4.])
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

    Local: any worker that takes part in the context may call it, from any thread, also from a
    callee or a callback; the others take part while they serve.  Passes of one worker in one
    context run one after the other, others at once.  Rules and hooks run on any thread, one at a
    time on each worker, and in no context, unless the pass is recorded.

    Args:
        context_id: The context's id, as `context` gave it.
        roots: A tensor with a single element that requires grad, or a list or tuple of several; one
            that is there twice counts twice.
        retain_graph: Keep the graph on all workers, so that it can be differentiated again.
        create_graph: Record the pass itself on all workers, so that gradients can be differentiated
            again in this context: those of `get_gradients` then require grad.  Retains the graph.
        timeout: Seconds for the whole pass; None, the default, or 0 for no limit.

    Raises:
        TypeError: An argument is not of its type; this is looked at before all else.
        ValueError: `timeout` is negative or no number of seconds.
        RuntimeError: The context is not known here or has been released, or is released meanwhile;
            there are no roots; a root does not require grad, is not a real scalar or is a leaf;
            the graph has been used up; or a rule of a pass of this worker in the same context
            calls this.
        RpcTimeoutError: It took longer than `timeout`.
        WorkerLeftError: A worker that took part in the context has left.  If this one has exchanged
            messages with it in the context, nothing has been run or used up here.
        Exception: What a backward rule or hook raised, on whichever worker.

    After an error the pass has ended on all workers, and the context can be used again.  Gradients
    that leaves had been given by then stay in it.

    >>> import operator
    >>> import tensorplay as tp
    >>> from tensorplay.distributed import autograd, rpc
    >>> w = tp.tensor(3.0, requires_grad=True)
    >>> with autograd.context() as context_id:
    ...     loss = rpc.rpc_sync("worker1", operator.mul, args=(w, w))
    ...     autograd.backward(context_id, loss, retain_graph=True)
    ...     autograd.backward(context_id, [loss, w * 1])
    ...     autograd.get_gradients()[w]
    tensor(13.)
    >>> w.grad is None
    True
    """
    check_id("backward", context_id)
    tensors = as_list("backward", roots)
    seconds = as_seconds("backward", timeout)
    session = current_session()
    context = session.container.retrieve(context_id)
    if not tensors:
        raise RuntimeError("No tensors provided for gradient computation.")
    seeds = [_seed(root, create_graph) for root in tensors]
    session.exchange.backward(context, seeds, retain_graph, seconds, create_graph)


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
    """The gradients of this worker's leaves that passes in the context have reached.  Local.

    Args:
        context_id: The context's id; within its block it may be left out.  After the block, the
            gradients can still be read by the worker that opened it, until the thread that did
            opens another or ends.

    Returns:
        A new dict from leaf to gradient.  The gradients are the context's own: what is written to
        them, an optimizer sees, and later passes add to.  A leaf that no path from the roots
        reaches is not there.

    Raises:
        TypeError: `context_id` is not an int.
        RuntimeError: The context is not known here, or has been released; or the id was left out
            by a thread that is in no context.

    >>> import tensorplay as tp
    >>> from tensorplay.distributed import autograd
    >>> x, unused = tp.ones(2, requires_grad=True), tp.ones(2, requires_grad=True)
    >>> with autograd.context() as context_id:
    ...     autograd.backward(context_id, (x * 4).sum())
    ...     autograd.get_gradients(context_id)[x].mul_(0.5)  # halved for the optimizer as well
    tensor([2., 2.])
    >>> {leaf is x: grad for leaf, grad in autograd.get_gradients(context_id).items()}
    {True: tensor([2., 2.])}
    """
    if context_id is not None:
        check_id("get_gradients", context_id)
    else:
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

    >>> import operator
    >>> import tensorplay as tp
    >>> from tensorplay.distributed import autograd, rpc
    >>> x = tp.ones(2, requires_grad=True)
    >>> before = autograd.statistics().gradients_sent
    >>> with autograd.context() as context_id:
    ...     loss = rpc.rpc_sync("worker1", operator.neg, args=(x,)).sum()
    ...     autograd.backward(context_id, loss)
    >>> autograd.statistics().gradients_sent - before
    1
    """
    return current_session().exchange.counters.read()


register_backward(backward)
