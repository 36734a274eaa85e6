"""One optimizer over parameters that live on many workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.rpc import RRef, remote
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT
from tensorplay.optim import Optimizer


class DistributedOptimizer:
    """Takes the gradients of an autograd context and applies them, on each parameter's owner.

    Each owner has a local optimizer for its parameters.  It moves only those that have a gradient
    in the context.  Steps of several trainers on one owner follow one another; the values that a
    trainer's forward pass has used stay as they were for its backward pass.

    Args:
        optimizer_class: A local optimizer, as in `tensorplay.optim.SGD`.
        params_rref: References to the parameters.
        args, kwargs: Further arguments of `optimizer_class`.

    Attributes:
        remote_optimizers: Reference to each owner's optimizer.

    Raises:
        AttributeError: An element of `params_rref` is not a reference.
        Exception: What making an owner's optimizer raised.
    """

    def __init__(
        self,
        optimizer_class: Callable[..., Optimizer],
        params_rref: Sequence[RRef[Any]],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        by_owner: dict[int, list[RRef[Any]]] = {}
        for rref in params_rref:
            by_owner.setdefault(rref.owner().id, []).append(rref)
        self.remote_optimizers = [
            remote(owner, _OwnerOptimizer, (optimizer_class, rrefs, args, kwargs))
            for owner, rrefs in by_owner.items()
        ]
        for rref in self.remote_optimizers:
            rref._wait_for_creation()

    def step(self, context_id: int) -> None:
        """Apply the gradients of a context; waits until all owners have done so.

        Args:
            context_id: Id of a context that is open on this worker.

        Raises:
            RuntimeError: There is no such context here.
            Exception: What an owner's optimizer raised.
        """
        current_session().container.retrieve(context_id)
        agent = current_agent()
        steps = [
            agent.call_on_value(
                rref, _OwnerOptimizer.step, (context_id,), None, UNSET_RPC_TIMEOUT, waits=False
            )
            for rref in self.remote_optimizers
        ]
        errors: list[Exception] = []
        for step in steps:
            try:
                step.wait()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[-1]


class _OwnerOptimizer:
    """The optimizer of one owner's parameters."""

    def __init__(
        self,
        optimizer_class: Callable[..., Optimizer],
        rrefs: Sequence[RRef[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._optimizer = optimizer_class([rref.local_value() for rref in rrefs], *args, **kwargs)
        # Trainers step at the same time; one optimizer's state takes one step at a time.
        self._lock = threading.Lock()

    def step(self, context_id: int) -> None:
        """Apply the context's gradients on this worker; it may have none here."""
        grads = current_session().container.gradients_here(context_id)
        with self._lock:
            self._optimizer.step_with(grads)
