"""Random zeros, drawn from the default generator."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tensorplay.ops.recording import as_operand
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor, wrap


def _check(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropped(input: Tensor, p: float, shape: tuple[int, ...]) -> Tensor:
    """The input times factors of `shape`: 0 with probability `p`, else ``1 / (1 - p)``."""
    if p == 1.0:
        return input * 0
    drawn = default_generator.draw("random", shape, dtype=np.float32)
    kept = np.multiply(drawn >= p, 1 / (1 - p), dtype=input._array.dtype)
    result: Tensor = input * wrap(kept)
    return result


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability `p`, and scale the others by ``1 / (1 - p)``.

    Args:
        training: If False, the input is returned as it is.
        inplace: Write the result into the input.

    Raises:
        ValueError: `p` is not between 0 and 1.
    """
    _check(p)
    if not training or p == 0.0:
        return input
    return _placed(input, _dropped(input, p, input._array.shape), inplace)


def _placed(input: Tensor, out: Tensor, inplace: bool) -> Tensor:
    return input.copy_(out) if inplace else out


def _channels_dropped(
    input: Tensor, p: float, training: bool, inplace: bool, name: str, dims: int
) -> Tensor:
    _check(p)
    shape = as_operand(input, "input")._array.shape
    if len(shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"{name}: Expected {dims + 1}D or {dims + 2}D input, but received a {len(shape)}D "
            "input."
        )
    if not training or p == 0.0:
        return input
    return _placed(input, _dropped(input, p, shape[:-dims] + (1,) * dims), inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """As `dropout`, but whole channels: ``(N, C, L)`` or ``(C, L)``."""
    return _channels_dropped(input, p, training, inplace, "dropout1d", 1)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """As `dropout`, but whole channels: ``(N, C, H, W)``, or ``(N, C, L)`` as `dropout1d` has them.

    Without a dimension behind the channels, ``(N, C)``, it is `dropout`, and warns as PyTorch does.
    """
    if as_operand(input, "input")._array.ndim == 2:
        warnings.warn(
            "dropout2d: received a 2-D input, whose channels are single elements: use dropout",
            stacklevel=2,
        )
        return dropout(input, p, training, inplace)
    spatial = 1 if input._array.ndim == 3 else 2
    return _channels_dropped(input, p, training, inplace, "dropout2d", spatial)


#: What SELU tends to for very negative numbers: minus its scale times its alpha.
_SATURATION = -1.7580993408473766


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean 0 and variance 1, for use with SELU.

    Dropped elements become SELU's limit, and all are then scaled and shifted.

    Args:
        training: If False, the input is returned as it is.
    """
    _check(p)
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return _placed(input, input * 0, inplace)
    scale = 1 / math.sqrt((1 - p) * (1 + p * _SATURATION**2))
    kept: Any = default_generator.draw("random", input._array.shape, dtype=np.float32) >= p
    dtype = input._array.dtype
    factors = np.multiply(kept, scale, dtype=dtype)
    added = np.where(kept, 0, _SATURATION * scale) - _SATURATION * scale * p
    return _placed(input, input * wrap(factors) + wrap(added.astype(dtype)), inplace)
