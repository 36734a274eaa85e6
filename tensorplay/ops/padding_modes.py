"""Padding of images and signals with zeros, or with their own elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.ops.indexing import getitem, scatter
from tensorplay.ops.recording import as_operand
from tensorplay.ops.windows import Pair
from tensorplay.tensor import Tensor

#: What NumPy calls them.
PADDING_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded_from_itself(input: Tensor, pads: Sequence[Pair], mode: str) -> Tensor:
    """The last dimensions made longer, with elements of the input.

    Args:
        pads: For each of these dimensions what is added before and after it.
        mode: ``"reflect"``, ``"replicate"`` or ``"circular"``.

    Raises:
        RuntimeError: The input is too small for it.
    """
    shape = as_operand(input, "input")._array.shape
    sizes = shape[-len(pads) :]
    room = 0 if mode == "circular" else 1
    for size, pad in zip(sizes, pads, strict=True):
        if mode != "replicate" and max(pad) > size - room:
            raise RuntimeError(
                f"Padding size should be less than the corresponding input dimension, but got "
                f"padding {pad} for an input of shape {list(shape)}"
            )
    for axis, (size, pad) in enumerate(zip(sizes, pads, strict=True), len(shape) - len(pads)):
        if pad != (0, 0):
            index = np.pad(np.arange(size), pad, mode=PADDING_MODES[mode])
            input = getitem(input, (*(slice(None),) * axis, index))
    return input


def zero_padded(input: Tensor, pads: Sequence[Pair]) -> Tensor:
    """The last dimensions with zeros added, or, where a number is negative, cut.

    Args:
        pads: For each of these dimensions what is added before and after it.

    Raises:
        RuntimeError: Nothing would be left.
    """
    shape = as_operand(input, "input")._array.shape
    lead = len(shape) - len(pads)
    new = list(shape)
    cut, place = [], []
    for axis, (before, after) in enumerate(pads, lead):
        new[axis] += before + after
        if new[axis] < 0:
            raise RuntimeError(f"a padding of {list(pads)} leaves nothing of shape {list(shape)}")
        cut.append(slice(max(0, -before), shape[axis] - max(0, -after)))
        place.append(slice(max(0, before), new[axis] - max(0, after)))
    kept = getitem(input, (..., *cut))
    result: Tensor = scatter(kept, (..., *place), tuple(new), repeated=False)
    return result
