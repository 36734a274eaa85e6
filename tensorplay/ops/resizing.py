"""Images and signals in another size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.ops.indexing import getitem
from tensorplay.ops.pooling import spread_over_windows
from tensorplay.ops.recording import as_operand
from tensorplay.ops.shape import unsqueeze
from tensorplay.ops.windows import Geometry, dropped
from tensorplay.tensor import Tensor


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest"
) -> Tensor:
    """An image or a signal in another size: each new element is the nearest old one.

    Args:
        input: ``(N, C, L)`` or ``(N, C, H, W)``.
        size: The new size: one number for all directions, or one for each.
        scale_factor: Instead of `size`: the ratio of new to old, likewise.
        mode: ``"nearest"``; the others of PyTorch are not supported.

    Raises:
        NotImplementedError: Another mode.
        ValueError: Both or neither of `size` and `scale_factor` are given, or the input has another
            number of dimensions.

    >>> import tensorplay as tp
    >>> tp.nn.functional.interpolate(tp.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    shape = as_operand(input, "input")._array.shape
    dims = len(shape) - 2
    if mode != "nearest":
        raise NotImplementedError(f"interpolate(): mode {mode!r} is not supported, only 'nearest'")
    if dims not in (1, 2):
        raise ValueError(f"interpolate(): expected (N, C, L) or (N, C, H, W), not {list(shape)}")
    if (size is None) == (scale_factor is None):
        raise ValueError("only one of size or scale_factor should be defined")
    given = size if scale_factor is None else scale_factor
    given = tuple(given) if isinstance(given, (tuple, list)) else (given,) * dims
    if len(given) != dims:
        raise ValueError(f"interpolate(): expected one number or {dims}, not {given}")
    old = shape[2:]
    if scale_factor is None:
        try:
            new = tuple([one.__index__() for one in given])
        except AttributeError:
            raise TypeError(f"size must be integers, not {given!r}") from None
        steps = [have / goal if goal else 0.0 for have, goal in zip(old, new, strict=True)]
    else:
        new = tuple([math.floor(have * one) for have, one in zip(old, given, strict=True)])
        steps = [1.0 / one for one in given]
    if min(new) < 1 or min(old) < 1:
        raise ValueError(
            f"interpolate(): sizes must be positive: the old one is {list(old)}, the new {new}"
        )
    factors = [goal // have for have, goal in zip(old, new, strict=True)]
    if all(have * factor == goal for have, goal, factor in zip(old, new, factors, strict=True)):
        return _repeated(input, factors)
    for axis, (have, goal, step) in enumerate(zip(old, new, steps, strict=True), 2):
        places = np.floor(np.arange(goal) * np.float32(step)).astype(np.intp)
        index = np.minimum(places, have - 1)
        input = getitem(input, (*(slice(None),) * axis, index))
    return input


def _repeated(input: Tensor, factors: list[int]) -> Tensor:
    """Each element several times in a row: spread over a window of its own."""
    if len(factors) == 1:
        return dropped(_repeated(unsqueeze(input, 2), [1, *factors]), 2)
    old = input._array.shape[2:]
    kernel = (factors[0], factors[1])
    new = (old[0] * kernel[0], old[1] * kernel[1])
    none = ((0, 0), (0, 0))
    return spread_over_windows(input, Geometry(new, kernel, kernel, none, (1, 1), old))
