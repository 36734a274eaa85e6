"""Clipping of gradients whose parameters live on many workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.optim.references import (
    by_owner,
    check_references,
    parameter_of,
    wait_for_all,
)
from tensorplay.distributed.rpc import RRef, rpc_async
from tensorplay.tensor import Tensor, wrap


class Norms(NamedTuple):
    """The norms of gradients, and the type of their elements (empty if there are none)."""

    values: list[float]
    dtype: str


def clip_grad_norm_(
    context_id: int,
    parameters: Iterable[RRef[Any]],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale gradients in a context down, if need be, to the norm `max_norm` as one vector.

    To be called after `backward` and before the optimizer's step, in the context's block.  Takes
    two rounds of calls to the owners at the same time.

    Args:
        context_id: Id of a context that is open on this worker.
        parameters: References to the parameters; those without a gradient in the context do not
            count, nor does a parameter that is referred to again.
        max_norm: The greatest norm allowed.
        norm_type: Which `p`-norm; ``float("inf")`` for the greatest absolute value.
        error_if_nonfinite: Raise if the norm is infinite or NaN.

    Returns:
        The norm before scaling, a tensor without dimensions.

    Raises:
        TypeError: An element of `parameters` is not a reference to a tensor.
        RuntimeError: There is no such context here, or the norm is not finite and
            `error_if_nonfinite` is set.

    Local: the owners serve.

    ::

        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [loss])
            clip_grad_norm_(context_id, module.remote_parameters(), 1.0)
            optimizer.step(context_id)
    """
    rrefs = check_references(parameters, "clip_grad_norm_")
    owners = by_owner(rrefs)

    def start(function: Callable[..., Any], *args: Any) -> Iterable[tuple[int, Any]]:
        return [
            (rank, rpc_async(rank, function, ([rrefs[i] for i in positions], *args)))
            for rank, positions in owners.items()
        ]

    return clip(
        context_id,
        lambda: start(_norms, context_id, float(norm_type)),
        lambda factor: start(_scale, context_id, factor),
        max_norm,
        float(norm_type),
        error_if_nonfinite,
    )


def clip(
    context_id: int,
    ask: Callable[[], Iterable[tuple[int, Any]]],
    scale: Callable[[float], Iterable[tuple[int, Any]]],
    max_norm: float,
    norm_type: float,
    error_if_nonfinite: bool,
) -> Tensor:
    """Find the norm of all gradients, and have them scaled.

    Args:
        context_id: The context.
        ask: Starts calls for the `Norms` of each owner.
        scale: Starts calls that multiply them with a factor.
        max_norm, norm_type, error_if_nonfinite: See `clip_grad_norm_`.
    """
    current_session().container.retrieve(context_id)
    replies: list[Norms] = wait_for_all(ask(), "clip_grad_norm_")
    values = [value for reply in replies for value in reply.values]
    if not values:
        return wrap(np.zeros((), np.float32))
    dtype = np.result_type(*[reply.dtype for reply in replies if reply.dtype])
    total = np.linalg.norm(np.array(values, dtype), norm_type)
    if error_if_nonfinite and not np.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients is non-finite, so it cannot be "
            "clipped."
        )
    factor = float(max_norm / (total + 1e-6))
    # Also if it is NaN: gradients of an unknown size must not be taken for small ones.
    if not factor >= 1.0:
        wait_for_all(scale(factor), "clip_grad_norm_")
    return wrap(np.asarray(total, dtype))


def _norms(rrefs: Sequence[RRef[Any]], context_id: int, norm_type: float) -> Norms:
    return norms_here(context_id, map(parameter_of, rrefs), norm_type)


def _scale(rrefs: Sequence[RRef[Any]], context_id: int, factor: float) -> None:
    scale_here(context_id, map(parameter_of, rrefs), factor)


def norms_here(context_id: int, params: Iterable[Tensor], norm_type: float) -> Norms:
    """The norms of gradients in a context on this worker, which may have none here."""
    grads = current_session().container.gradients_here(context_id)
    found = [grads[param]._array for param in dict.fromkeys(params) if param in grads]
    if not found:
        return Norms([], "")
    values = [float(np.linalg.norm(array.reshape(-1), norm_type)) for array in found]
    return Norms(values, np.result_type(*[array.real.dtype for array in found]).str)


def scale_here(context_id: int, params: Iterable[Tensor], factor: float) -> None:
    """Multiply gradients in a context on this worker with a factor.

    The context's gradients stay the same tensors and get new arrays: a message, or a graph, may
    hold the old ones.
    """
    context = current_session().container.here(context_id)
    if context is None:
        return
    grads = context.gradients.settled
    with context.lock:
        for param in dict.fromkeys(params):
            grad = grads.get(param)
            if grad is None:
                continue
            scaled = np.asarray(grad._array * factor)
            if grad._requires_grad:
                grads[param] = wrap(scaled)
            else:
                grad._array = scaled
                grad._version = [0]
