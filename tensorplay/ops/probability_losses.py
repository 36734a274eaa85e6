"""Losses that compare probabilities, or the parameters of distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.activations import logistic, softplus, softplus_of
from tensorplay.ops.losses import REDUCTIONS, check_reduction, reduced
from tensorplay.ops.pointwise import exp, log, sigmoid, square
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.selection import clamp, where
from tensorplay.tensor import Tensor, wrap

#: The least logarithm that `binary_cross_entropy` works with.
_LEAST_LOG = -100.0
#: The least variance that the slope of `binary_cross_entropy` is divided by.
_LEAST_VARIANCE = 1e-12


class BinaryCrossEntropyBackward0(Node):
    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, p: Any, t: Any) -> tuple[Any, ...]:
        left, right = self.edges
        for_p = for_t = None
        if left is not None:
            variance = p * (1 - p)
            if isinstance(variance, Tensor):
                variance = clamp(variance, _LEAST_VARIANCE)
            else:
                variance = np.maximum(variance, _LEAST_VARIANCE)
            for_p = grad * (p - t) / variance
        if right is not None:
            for_t = grad * (_bounded_log(1 - p) - _bounded_log(p))
        return (for_p, for_t)


class BinaryCrossEntropyWithLogitsBackward0(Node):
    __slots__ = ()
    lift = (0, 1, None)

    def rule(self, grad: Any, x: Any, t: Any, scale: float) -> tuple[Any, ...]:
        left, right = self.edges
        share = grad * scale
        return (
            None if left is None else (dual.apply(sigmoid, logistic, x) - t) * share,
            None if right is None else -x * share,
        )


def _bounded_log(value: Any) -> Any:
    if isinstance(value, Tensor):
        return clamp(log(value), _LEAST_LOG)
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(value), _LEAST_LOG)


def _same_shape(input: Tensor, target: Tensor) -> None:
    if input._array.shape != target._array.shape:
        raise ValueError(
            f"the target's shape {target._array.shape} must be that of the input, "
            f"{input._array.shape}"
        )


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Minus the log-likelihood of yes-or-no answers.

    Args:
        input: Probabilities, between 0 and 1.
        target: Of the same shape, between 0 and 1: what the probabilities should be.
        weight: A factor for each element; broadcast.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Logarithms below -100 count as -100, so that the loss is finite.

    Raises:
        ValueError: The shapes differ.
        RuntimeError: A probability is not between 0 and 1, or the types differ.

    >>> import tensorplay as tp
    >>> tp.nn.functional.binary_cross_entropy(tp.tensor([0.5]), tp.tensor([1.0]))
    tensor(0.6931)
    """
    _same_shape(input, target)
    p, t = input._array, target._array
    if p.dtype != t.dtype:
        raise RuntimeError(f"Found dtype {t.dtype} but expected {p.dtype}")
    if p.size and not (p.min() >= 0 and p.max() <= 1):
        raise RuntimeError("all elements of input should be between 0 and 1")
    out = (t - 1) * _bounded_log(1 - p) - t * _bounded_log(p)
    node = None
    if wanted(input, target):
        versions = (input._version, target._version)
        node = BinaryCrossEntropyBackward0((edge_of(input), edge_of(target)), (p, t), versions)
    loss = wrap(out, node)
    return reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of the `sigmoid` of scores, computed without overflow.

    Args:
        input: Scores, of any size.
        target: Of the same shape, between 0 and 1.
        weight: A factor for each element; broadcast.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: A factor for the answers that should be yes; broadcast.
    """
    _same_shape(input, target)
    if pos_weight is not None or input._array.dtype != target._array.dtype:
        missed = softplus(-input, 1.0, math.inf)
        if pos_weight is not None:
            missed = missed * ((pos_weight - 1) * target + 1)
        loss: Tensor = input * (1 - target) + missed
        return reduced(loss if weight is None else loss * weight, reduction)
    if weight is not None:
        return reduced(_with_logits(input, target, "none") * weight, reduction)
    return _with_logits(input, target, reduction)


def _with_logits(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    """The plain case, as one operation."""
    check_reduction(reduction)
    x, t = input._array, target._array
    out = softplus_of(x)
    out -= x * t
    scale = 1.0
    if reduction != "none":
        if reduction == "mean":
            scale = 1 / out.size if out.size else math.nan
        out = dual.add_up(out, axis=None) * scale
    if not wanted(input, target):
        return wrap(out)
    edges, versions = (edge_of(input), edge_of(target)), (input._version, target._version)
    return wrap(out, BinaryCrossEntropyWithLogitsBackward0(edges, (x, t, scale), versions))


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """How far the distribution `target` is from `input`: the Kullback-Leibler divergence.

    Args:
        input: Logarithms of probabilities.
        target: Probabilities; or, if `log_target`, their logarithms.
        reduction: ``"batchmean"`` (the sum, divided by the size of the first dimension: the
            divergence as it is defined), ``"mean"`` over all elements, ``"sum"`` or ``"none"``.
    """
    if reduction not in (*REDUCTIONS, "batchmean"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if log_target:
        loss: Tensor = exp(target) * (target - input)
    else:
        positive = wrap(target._array > 0)
        # Zero times its logarithm counts as zero.
        own = where(positive, target * log(where(positive, target, 1.0)), 0.0)
        loss = own - target * input
    if reduction == "batchmean":
        total = loss.sum()
        return total / input._array.shape[0] if input._array.ndim else total
    return reduced(loss, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood of counts under Poisson distributions.

    Args:
        input: The logarithms of the expected counts; or, if not `log_input`, the counts.
        target: The counts.
        full: Add Stirling's approximation of the term that does not depend on the input.
        eps: Keeps the logarithm finite if not `log_input`.
    """
    loss: Tensor
    if log_input:
        loss = exp(input) - target * input
    else:
        loss = input - target * log(input + eps)
    if full:
        large = wrap(target._array > 1)
        count = where(large, target, 1.0)
        term = count * log(count) - count + log(count * (2 * math.pi)) * 0.5
        loss = loss + where(large, term, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-likelihood of values under normal distributions.

    Args:
        input: The expected values.
        target: The values.
        var: The variances: of the input's shape, or with 1 (or nothing) as its last size; or a
            number.
        full: Add the constant term.
        eps: The least variance; its gradient does not see the bound.

    Raises:
        ValueError: A variance is negative, or the shape does not fit.
    """
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = wrap(np.full(input._array.shape, var, input._array.dtype))
    shape = input._array.shape
    if var._array.shape != shape:
        if var._array.shape == shape[:-1]:
            var = var.unsqueeze(-1)
        elif var._array.shape != (*shape[:-1], 1):
            raise ValueError("var is of incorrect size")
    if var._array.size and var._array.min() < 0:
        raise ValueError("var has negative entry/entries")
    bounded = var + wrap(np.maximum(eps - var._array, 0).astype(var._array.dtype))
    loss: Tensor = (log(bounded) + square(input - target) / bounded) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)
