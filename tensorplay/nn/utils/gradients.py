"""Keeping gradients within bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tensorplay.tensor import Tensor, wrap


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of the tensors, as if their elements were those of one vector.

    Args:
        tensors: One tensor or several.
        norm_type: Which `p`-norm; ``float("inf")`` for the greatest absolute value.
        error_if_nonfinite: Raise if the norm is infinite or NaN.
        foreach: Accepted for PyTorch's sake; it changes nothing here.

    Returns:
        A tensor without dimensions.

    Raises:
        RuntimeError: The norm is infinite or NaN and `error_if_nonfinite` is set.
    """
    arrays = [one._array for one in ([tensors] if isinstance(tensors, Tensor) else tensors)]
    if not arrays:
        return wrap(np.zeros((), np.float32))
    dtype = arrays[0].real.dtype
    norms = np.array([np.linalg.norm(array.reshape(-1), norm_type) for array in arrays], dtype)
    total = np.linalg.norm(norms, norm_type)
    if error_if_nonfinite and not np.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To clip it anyway, leave error_if_nonfinite out."
        )
    return wrap(np.asarray(total, dtype))


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale the gradients down by what a norm, already known, is above `max_norm`.

    Args:
        parameters: One tensor or several; those without a gradient do not count.
        max_norm: The greatest norm allowed.
        total_norm: The norm, as `get_total_norm` gives it.
        foreach: Accepted for PyTorch's sake; it changes nothing here.
    """
    factor = float(max_norm / (float(total_norm) + 1e-6))
    # Not so if it is NaN: gradients of an unknown size must not be taken for small ones.
    if factor >= 1.0:
        return
    for array, version in _gradients(parameters):
        np.multiply(array, factor, out=array)
        version[0] += 1


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients down, if need be, so that their norm as one vector is `max_norm`.

    Args:
        parameters: One tensor or several; those without a gradient do not count.
        max_norm: The greatest norm allowed.
        norm_type: Which `p`-norm; ``float("inf")`` for the greatest absolute value.
        error_if_nonfinite: Raise if the norm is infinite or NaN.
        foreach: Accepted for PyTorch's sake; it changes nothing here.

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
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(owners, max_norm, total)
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Move each element of the gradients into the range from ``-clip_value`` to `clip_value`.

    Raises:
        NotImplementedError: A gradient is complex.
    """
    for array, version in _gradients(parameters):
        if array.dtype.kind == "c":
            raise NotImplementedError(
                "clip_grad_value_() is not implemented for complex gradients, which have no "
                "order: use clip_grad_norm_()"
            )
        np.clip(array, -clip_value, clip_value, out=array)
        version[0] += 1


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[tuple[Any, list[int]]]:
    """The arrays of the gradients that are there, with their version counters."""
    owners = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = [owner._grad for owner in owners]
    return [(grad._array, grad._version) for grad in grads if grad is not None]
