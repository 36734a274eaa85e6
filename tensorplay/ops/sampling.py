"""Random values: drawn from distributions that tensors describe, or written into tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.ops.creation import finished
from tensorplay.ops.inplace import copy_
from tensorplay.ops.recording import as_operand
from tensorplay.ops.shape import sizes
from tensorplay.random import Generator, default_generator, randn
from tensorplay.tensor import Tensor, wrap


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from normal distributions.

    Args:
        mean: A number or a tensor of means.
        std: A number or a tensor of standard deviations.
        size: The shape of the result, if both are numbers; else they broadcast.

    Raises:
        RuntimeError: A standard deviation is negative.
    """
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        means, deviations = (one._array if isinstance(one, Tensor) else one for one in (mean, std))
        shape = np.broadcast_shapes(np.shape(means), np.shape(deviations))
        if dtype is None:
            dtype = (mean if isinstance(mean, Tensor) else std)._array.dtype
    else:
        means, deviations, shape = mean, std, () if size is None else sizes((size,))
    if np.any(np.less(deviations, 0)):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    drawn = randn(shape, generator=generator, dtype=dtype)._array
    return finished(np.asarray(drawn * deviations + means, drawn.dtype), requires_grad, device)


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Ones with the given probabilities, zeros elsewhere; it has no gradient.

    Args:
        input: The probabilities, floating-point numbers.
        p: One probability for all elements instead; then the input gives only shape and type.

    Raises:
        RuntimeError: A probability is not between 0 and 1.
    """
    x = input._array
    chances = x if p is None else np.float64(p)
    if p is None and x.dtype.kind != "f":
        raise NotImplementedError(f'"bernoulli" not implemented for {x.dtype}')
    if not np.all((chances >= 0) & (chances <= 1)):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true: they are probabilities")
    drawn = (generator or default_generator).draw("random", x.shape)
    return wrap(np.asarray(drawn < chances, x.dtype))


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn with the given weights.

    Args:
        input: ``(categories,)`` or ``(rows, categories)``: weights, which need not add up to 1.
        num_samples: How many to draw for each row.
        replacement: Whether an index can be drawn again.

    Returns:
        ``(num_samples,)`` or ``(rows, num_samples)``, int64.

    Raises:
        RuntimeError: The weights are no distribution, or there are fewer categories than samples
            that must all differ.

    >>> import tensorplay as tp
    >>> tp.multinomial(tp.tensor([0.0, 3.0]), 2, replacement=True)
    tensor([1, 1])
    """
    x = as_operand(input, "input")._array
    if x.dtype.kind != "f":
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {x.dtype}"
        )
    if x.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    weights = np.atleast_2d(x).astype(np.float64)
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    possible = np.count_nonzero(weights, axis=1)
    if not np.all(possible):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    source = generator or default_generator
    if replacement:
        drawn = _drawn_again(weights, source.draw("random", (len(weights), num_samples)))
    else:
        if num_samples > weights.shape[1] or num_samples > possible.min():
            raise RuntimeError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement: so many "
                "categories with a weight above zero are needed"
            )
        # The order in which clocks that run at these rates go off.
        with np.errstate(divide="ignore"):
            times = source.draw("standard_exponential", weights.shape) / weights
        drawn = np.argsort(times, axis=1)[:, :num_samples]
    return wrap(np.ascontiguousarray(drawn.reshape((*x.shape[:-1], num_samples)), dtypes.int64))


def _drawn_again(weights: Any, drawn: Any) -> Any:
    """Indices by the inverse of each row's distribution function, of evenly drawn numbers."""
    rows, categories = weights.shape
    upto = np.cumsum(weights, axis=1)
    upto /= upto[:, -1:]
    # One search for all rows: each has its own unit interval.
    start = np.arange(rows)[:, None]
    found = np.searchsorted((upto + start).reshape(-1), (drawn + start).reshape(-1), side="right")
    found = found.reshape(drawn.shape) - start * categories
    # Rounding may lead beyond an end.
    least = np.argmax(weights > 0, axis=1)
    most = categories - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    return np.clip(found, least[:, None], most[:, None])


def uniform_(
    input: Tensor, low: float = 0.0, to: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Write numbers drawn evenly from ``[low, to)``."""
    if low > to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
        )
    shape = input._array.shape
    return _write(input, (generator or default_generator).draw("uniform", low, to, shape))


def normal_(
    input: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Write numbers from the normal distribution."""
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    shape = input._array.shape
    return _write(input, (generator or default_generator).draw("normal", mean, std, shape))


def exponential_(
    input: Tensor, lambd: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Write numbers from the exponential distribution with rate `lambd`."""
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    shape = input._array.shape
    return _write(input, (generator or default_generator).draw("exponential", 1 / lambd, shape))


def bernoulli_(input: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Write ones with the probability `p` (a number, or a tensor that broadcasts), else zeros."""
    chances = p._array if isinstance(p, Tensor) else np.float64(p)
    if not np.all((chances >= 0) & (chances <= 1)):
        raise RuntimeError("bernoulli_ expects p to be in [0, 1]")
    drawn = (generator or default_generator).draw("random", input._array.shape)
    return _write(input, drawn < chances)


def random_(
    input: Tensor,
    low: int = 0,
    to: int | None = None,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Write whole numbers from `low` up to, not including, `to`.

    With one number only, it is `to`.  With none, all are drawn that the type holds.
    """
    dtype = input._array.dtype
    if to is None and low:
        low, to = 0, low
    if to is None:
        to = 2 ** (np.finfo(dtype).nmant + 1) if dtype.kind == "f" else _top(dtype) + 1
    if low >= to:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got {low} and {to}")
    shape = input._array.shape
    drawn = (generator or default_generator).draw("integers", low, to - 1, shape, endpoint=True)
    return _write(input, drawn)


def _top(dtype: Any) -> int:
    return 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)


def _write(input: Tensor, values: Any) -> Tensor:
    return copy_(input, wrap(np.asarray(values, input._array.dtype)))
