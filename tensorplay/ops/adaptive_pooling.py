"""Pooling to a given number of windows, as even as they can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.ops.gathering import gather
from tensorplay.ops.linalg import matmul
from tensorplay.ops.pooling import avg_pool2d, max_pool2d
from tensorplay.ops.recording import as_operand
from tensorplay.ops.reduction import mean
from tensorplay.ops.shape import flatten, reshape, unsqueeze
from tensorplay.ops.windows import Pair, check_images, dropped, single
from tensorplay.tensor import Tensor, wrap


def _counts(output_size: Any, size: Pair, name: str) -> Pair:
    """How many windows there are; None keeps the image's size."""
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * 2
    if len(given) != 2:
        raise RuntimeError(f"{name}(): output_size must be one number or two, not {output_size!r}")
    try:
        counts = [have if one is None else one.__index__() for one, have in zip(given, size)]  # noqa: B905
    except AttributeError:
        raise TypeError(f"output_size must be integers or None, not {given!r}") from None
    if min(counts) < 1 or min(size) < 1:
        raise RuntimeError(
            f"{name}(): the sizes must be positive: the image's is {size}, output_size {counts}"
        )
    return counts[0], counts[1]


def _bounds(size: int, count: int) -> tuple[Any, Any]:
    """Where each window begins and ends along a dimension."""
    number = np.arange(count)
    return number * size // count, -((number + 1) * -size // count)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The means of windows that cover the image evenly.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)``.
        output_size: Number of windows: one for both directions, or one for each; None keeps the
            image's size.

    Raises:
        RuntimeError: A shape does not fit.

    >>> import tensorplay as tp
    >>> tp.nn.functional.adaptive_avg_pool2d(tp.arange(6.0).reshape(1, 2, 3), 1)
    tensor([[[2.5000]]])
    """
    name = "adaptive_avg_pool2d"
    x = check_images(as_operand(input, "input"), name, 2)
    size = x._array.shape[2:]
    counts = _counts(output_size, size, name)
    if counts == (1, 1):
        out = mean(x, (2, 3), keepdim=True)
    elif size[0] % counts[0] == 0 == size[1] % counts[1]:
        out = avg_pool2d(x, (size[0] // counts[0], size[1] // counts[1]))
    else:
        # Each direction is a product with a matrix whose rows hold the windows' shares.
        rows, columns = [
            wrap(_shares(have, count).astype(x._array.dtype))
            for have, count in zip(size, counts, strict=True)
        ]
        out = matmul(matmul(rows, x), columns.T)
    return out if x is input else dropped(out, 0)


def _shares(size: int, count: int) -> Any:
    """``(count, size)``: in each row equal shares for what lies in the window."""
    begin, end = [one[:, None] for one in _bounds(size, count)]
    place = np.arange(size)
    return ((begin <= place) & (place < end)) / (end - begin)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """As `adaptive_avg_pool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""
    x = check_images(as_operand(input, "input"), "adaptive_avg_pool1d", 1)
    out = adaptive_avg_pool2d(unsqueeze(x, 2), (1, single(output_size, "output_size")))
    return dropped(out, *((2,) if x is input else (0, 2)))


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The maxima of windows that cover the image evenly.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)``.
        output_size: As for `adaptive_avg_pool2d`.
        return_indices: Return ``(maxima, indices)``, as `max_pool2d` does.

    Raises:
        RuntimeError: A shape does not fit.

    >>> import tensorplay as tp
    >>> tp.nn.functional.adaptive_max_pool2d(tp.arange(6.0).reshape(1, 2, 3), 2)
    tensor([[[1., 2.],
             [4., 5.]]])
    """
    name = "adaptive_max_pool2d"
    x = check_images(as_operand(input, "input"), name, 2)
    size = x._array.shape[2:]
    counts = _counts(output_size, size, name)
    if size[0] % counts[0] == 0 == size[1] % counts[1]:
        kernel = (size[0] // counts[0], size[1] // counts[1])
        out, found = max_pool2d(x, kernel, return_indices=True)
    else:
        places = wrap(_places(x._array, counts))
        flat = gather(flatten(x, 2), 2, flatten(places, 2))
        out, found = reshape(flat, places._array.shape), places
    if x is not input:
        out, found = dropped(out, 0), dropped(found, 0)
    return (out, found) if return_indices else out


def _places(x: Any, counts: Pair) -> Any:
    """The number of the greatest pixel in each window, row by row of its image."""
    rows, columns = [_members(size, count) for size, count in zip(x.shape[2:], counts, strict=True)]
    # (N, C, windows down, elements down, windows across, elements across)
    values = x[:, :, rows[:, :, None, None], columns].swapaxes(3, 4)
    shape = values.shape[:4]
    best = np.argmax(values.reshape(*shape, -1), axis=-1)
    down, across = np.divmod(best, columns.shape[1])
    row = rows[np.arange(counts[0])[:, None], down]
    column = columns[np.arange(counts[1]), across]
    return row * x.shape[3] + column


def _members(size: int, count: int) -> Any:
    """``(count, longest window)``: what lies in each window; shorter ones repeat their last."""
    begin, end = [one[:, None] for one in _bounds(size, count)]
    return np.minimum(begin + np.arange((end - begin).max()), end - 1)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """As `adaptive_max_pool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""
    x = check_images(as_operand(input, "input"), "adaptive_max_pool1d", 1)
    size = (1, single(output_size, "output_size"))
    out, found = adaptive_max_pool2d(unsqueeze(x, 2), size, True)
    added = (2,) if x is input else (0, 2)
    out, found = dropped(out, *added), dropped(found, *added)
    return (out, found) if return_indices else out
