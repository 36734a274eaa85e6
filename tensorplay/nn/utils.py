"""Helpers for training."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensorplay.tensor import Tensor, wrap


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale the gradients down, if need be, so that their norm as one vector is `max_norm`.

    Args:
        parameters: One tensor or several; those without a gradient do not count.
        max_norm: The greatest norm allowed.
        norm_type: Which `p`-norm; ``float("inf")`` for the greatest absolute value.

    Returns:
        The norm before scaling, a tensor without dimensions.

    Raises:
        RuntimeError: The norm is infinite or NaN and `error_if_nonfinite` is set.

    >>> import tensorplay as tp
    >>> x = tp.zeros(2, requires_grad=True)
    >>> x.grad = tp.tensor([3.0, 4.0])
    >>> tp.nn.utils.clip_grad_norm_(x, 1.0)
    tensor(5.)
    >>> x.grad
    tensor([0.6000, 0.8000])
    """
    owners = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [owner._grad for owner in owners if owner._grad is not None]
    if not grads:
        return wrap(np.zeros((), np.float32))
    norms = np.array(
        [np.linalg.norm(grad._array.reshape(-1), norm_type) for grad in grads],
        grads[0]._array.dtype,
    )
    total = np.linalg.norm(norms, norm_type)
    if error_if_nonfinite and not np.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients is non-finite, so it cannot be "
            "clipped."
        )
    factor = min(1.0, float(max_norm / (total + 1e-6)))
    if factor != 1.0:
        for grad in grads:
            np.multiply(grad._array, factor, out=grad._array)
            grad._version[0] += 1
    return wrap(total)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Move each element of the gradients into the range from ``-clip_value`` to `clip_value`."""
    owners = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for owner in owners:
        grad = owner._grad
        if grad is not None:
            if grad._array.dtype.kind == "c":
                raise NotImplementedError(
                    "clip_grad_value_() is not implemented for complex gradients, which have no "
                    "order: use clip_grad_norm_()"
                )
            np.clip(grad._array, -clip_value, clip_value, out=grad._array)
            grad._version[0] += 1


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters' elements, one after another, as one vector."""
    return wrap(np.concatenate([one._array.reshape(-1) for one in parameters]))
