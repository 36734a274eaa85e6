"""More elements (or fewer) at the ends of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.indexing import getitem
from tensorplay.ops.joining import cat
from tensorplay.ops.movement import flip
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.shape import broadcast_to
from tensorplay.tensor import Tensor, wrap

#: For each dimension, how many elements more before and after; fewer if negative.
Amounts = tuple[tuple[int, int], ...]

MODES = ("constant", "reflect", "replicate", "circular")


class ConstantPadBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, amounts: Amounts) -> tuple[Any, ...]:
        back = tuple([(-before, -after) for before, after in amounts])
        return (dual.on_tensors(lambda one: _padded(one, back, 0), grad),)


def _padded(input: Tensor, amounts: Amounts, value: float) -> Tensor:
    x = input._array
    shape = tuple([n + a + b for n, (a, b) in zip(x.shape, amounts, strict=True)])
    if any(size < 0 for size in shape):
        raise RuntimeError(
            f"pad(): the input of shape {list(x.shape)} has not enough elements to take away: it "
            f"leaves nothing, the result would have shape {list(shape)}"
        )
    # Where the elements that stay are, in the input and in the result.
    old = [slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, amounts, strict=True)]
    new = [slice(max(0, a), n - max(0, b)) for n, (a, b) in zip(shape, amounts, strict=True)]
    node = ConstantPadBackward0((edge_of(input),), (amounts,)) if wanted(input) else None
    if all(a <= 0 and b <= 0 for a, b in amounts):
        return wrap(x[tuple(old)].copy(), node)
    out = np.full(shape, value, x.dtype) if value else np.zeros(shape, x.dtype)
    out[tuple(new)] = x[tuple(old)]
    return wrap(out, node)


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """More elements at the ends of dimensions.

    Args:
        pad: Pairs of numbers, how many before and how many after; the first pair is for the last
            dimension, the second for the one before it, and so on.  Negative numbers take
            elements away.
        mode: What the new elements are: ``"constant"``, `value`; ``"reflect"``, a mirror image
            without the element at the edge; ``"replicate"``, the element at the edge;
            ``"circular"``, what is at the other end.  All but the first leave at least the first
            dimension as it is.
        value: For ``"constant"``: zero if not given.

    Raises:
        RuntimeError: There are too many pairs, or more new elements than the mode can make.

    >>> import tensorplay as tp
    >>> tp.nn.functional.pad(tp.tensor([[1.0, 2.0]]), (1, 0, 0, 1), value=7.0)
    tensor([[7., 1., 2.],
            [7., 7., 7.]])
    """
    ndim = input._array.ndim
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise RuntimeError(
            f"Padding length must be even and at most twice the input dimension {ndim}, but the "
            f"padding length is {len(pad)}"
        )
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
    if mode == "constant":
        amounts = ((0, 0),) * (ndim - len(pairs)) + tuple(reversed(pairs))
        return _padded(input, amounts, value or 0)
    if mode not in MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}; known are {MODES}")
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if not 0 < len(pairs) < ndim or len(pairs) > 3:
        raise NotImplementedError(
            f"Padding mode {mode!r} pads the last 1 to 3 dimensions, and not the first of all: got "
            f"{len(pairs)} pairs for {ndim} dimensions"
        )
    extend = {"reflect": _reflected, "replicate": _replicated, "circular": _circled}[mode]
    for i, (before, after) in enumerate(pairs):
        if before or after:
            input = extend(input, ndim - 1 - i, before, after)
    return input


def _along(input: Tensor, axis: int, start: int | None, end: int | None) -> Tensor:
    return getitem(input, (*(slice(None),) * axis, slice(start, end)))


def _cropped(input: Tensor, axis: int, before: int, after: int) -> tuple[Tensor, int, int]:
    """Take away what negative numbers say."""
    size = input._array.shape[axis]
    if before < 0 or after < 0:
        input = _along(input, axis, max(0, -before), size - max(0, -after))
    return input, max(0, before), max(0, after)


def _joined(before: Tensor | None, input: Tensor, after: Tensor | None, axis: int) -> Tensor:
    return cat([one for one in (before, input, after) if one is not None], axis)


def _reflected(input: Tensor, axis: int, before: int, after: int) -> Tensor:
    size = input._array.shape[axis]
    if max(before, after) >= size:
        raise RuntimeError(
            "Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {axis} of input {list(input._array.shape)}"
        )
    wide = _joined(
        flip(_along(input, axis, 1, before + 1), axis) if before > 0 else None,
        input,
        flip(_along(input, axis, size - after - 1, size - 1), axis) if after > 0 else None,
        axis,
    )
    # What is taken away at one end has its mirror image at the other all the same.
    return _cropped(wide, axis, min(before, 0), min(after, 0))[0]


def _replicated(input: Tensor, axis: int, before: int, after: int) -> Tensor:
    input, before, after = _cropped(input, axis, before, after)
    shape = input._array.shape
    if not shape[axis]:
        raise RuntimeError(f"pad(): dimension {axis} has no element to replicate")

    def stretched(edge: Tensor, count: int) -> Tensor:
        return broadcast_to(edge, (*shape[:axis], count, *shape[axis + 1 :]))

    return _joined(
        stretched(_along(input, axis, 0, 1), before) if before else None,
        input,
        stretched(_along(input, axis, -1, None), after) if after else None,
        axis,
    )


def _circled(input: Tensor, axis: int, before: int, after: int) -> Tensor:
    size = input._array.shape[axis]
    if max(before, after) > size:
        raise RuntimeError(
            "Padding value causes wrapping around more than once: padding "
            f"({before}, {after}) at dimension {axis} of input {list(input._array.shape)}"
        )
    input, before, after = _cropped(input, axis, before, after)
    size = input._array.shape[axis]
    return _joined(
        _along(input, axis, size - before, size) if before else None,
        input,
        _along(input, axis, 0, after) if after else None,
        axis,
    )
