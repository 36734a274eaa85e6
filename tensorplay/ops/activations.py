"""Activation functions: what neural networks put between their layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual, pointwise
from tensorplay.ops.error_function import erf, erf_of
from tensorplay.ops.inplace import written_into
from tensorplay.ops.joining import split
from tensorplay.ops.pointwise import abs, sigmoid, tanh
from tensorplay.ops.recording import edge_of, floating, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.selection import where
from tensorplay.ops.shape import reshape
from tensorplay.ops.softmax import softmax
from tensorplay.tensor import Tensor, wrap

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
#: ``sqrt(2 / pi)``, of the approximation of `gelu`.
_GELU_SCALE = 0.79788456080286535588
_ROOT_HALF = math.sqrt(0.5)
#: Of the normal distribution, at zero.
_NORMAL_DENSITY = 1 / math.sqrt(2 * math.pi)


class _Bent(Node):
    """A function made of straight pieces: its slope at each element is a constant."""

    __slots__ = ()

    def rule(self, grad: Any, slope: Any) -> tuple[Any, ...]:
        return (grad * slope,)


class LeakyReluBackward0(_Bent):
    __slots__ = ()


class HardtanhBackward0(_Bent):
    __slots__ = ()


class EluBackward0(Node):
    """`scale` times the input above zero, `scale` times ``alpha * (exp(x) - 1)`` below."""

    __slots__ = ()
    lift = (0, None, None)

    def rule(self, grad: Any, x: Any, alpha: float, scale: float) -> tuple[Any, ...]:
        below = dual.array(x) <= 0
        # Where the exponential is not used, it must not overflow.
        slope = dual.exp(dual.where(below, x)) * (alpha * scale)
        return (grad * dual.where(below, slope, scale),)


class GeluBackward0(Node):
    """``x`` times the normal distribution's function at ``x``."""

    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        below = (dual.apply(erf, erf_of, x * _ROOT_HALF) + 1) * 0.5
        density = dual.exp(x * x * -0.5) * _NORMAL_DENSITY
        return (grad * (below + x * density),)


class SoftplusBackward0(Node):
    __slots__ = ()
    lift = (0, None, None)

    def rule(self, grad: Any, x: Any, beta: float, threshold: float) -> tuple[Any, ...]:
        curved = dual.array(x) * beta <= threshold
        if isinstance(x, Tensor):
            slope: Any = sigmoid(x * beta)
        else:
            slope = logistic(x * beta)
        return (grad * dual.where(curved, slope, 1.0),)


def logistic(x: Any) -> Any:
    """``1 / (1 + exp(-x))`` of an array."""
    out = np.asarray(x * 0.5)
    np.tanh(out, out=out)
    out *= 0.5
    out += 0.5
    return out


def softplus_of(x: Any) -> Any:
    """``log(1 + exp(x))`` of an array, computed without overflow."""
    out = np.log1p(np.exp(-np.abs(x)))
    out += np.maximum(x, 0)
    return out


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Each element, or zero where it is negative.

    This and other functions here have `inplace`: write the result into the input, which is
    returned.

    >>> import tensorplay as tp
    >>> x = tp.tensor([-1.0, 2.0])
    >>> tp.nn.functional.relu(x, inplace=True) is x
    True
    >>> x
    tensor([0., 2.])
    """
    result: Tensor = input.relu_() if inplace else pointwise.relu(input)
    return result


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Each element, times `negative_slope` where it is negative.

    >>> import tensorplay as tp
    >>> tp.nn.functional.leaky_relu(tp.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    if inplace:
        return written_into(input, lambda before: leaky_relu(before, negative_slope))
    x = input._array
    slope = np.where(x > 0, 1, negative_slope).astype(x.dtype)
    node = LeakyReluBackward0((edge_of(input),), (slope,)) if wanted(input) else None
    return wrap(x * slope, node)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Each element, moved into the range from `min_val` to `max_val`.

    The gradient passes strictly between the two.
    """
    if inplace:
        return written_into(input, lambda before: hardtanh(before, min_val, max_val))
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    x = input._array
    out = np.clip(x, min_val, max_val)
    if not wanted(input):
        return wrap(out)
    inside = (x > min_val) & (x < max_val)
    return wrap(out, HardtanhBackward0((edge_of(input),), (inside,)))


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Each element, moved into the range from 0 to 6."""
    if inplace:
        return written_into(input, relu6)
    return hardtanh(input, 0.0, 6.0)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Each element above zero; ``alpha * (exp(x) - 1)`` below."""
    if inplace:
        return written_into(input, lambda before: elu(before, alpha))
    return _elu(input, alpha, 1.0)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu`, scaled so that deep networks keep mean and variance (Klambauer et al., 2017)."""
    if inplace:
        return written_into(input, selu)
    return _elu(input, _SELU_ALPHA, _SELU_SCALE)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Each element above zero; ``alpha * (exp(x / alpha) - 1)`` below."""
    if inplace:
        return written_into(input, lambda before: celu(before, alpha))
    return _elu(input / alpha, 1.0, alpha)


def _elu(input: Tensor, alpha: float, scale: float) -> Tensor:
    input = floating(input)
    x = input._array
    out = np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
    if scale != 1:
        out *= scale
    if not wanted(input):
        return wrap(out)
    return wrap(out, EluBackward0((edge_of(input),), (x, alpha, scale), (input._version,)))


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, computed without overflow.

    Args:
        threshold: Where ``beta * x`` is above it, the element itself is the result.
    """
    input = floating(input)
    x = input._array
    scaled = x * beta
    out = softplus_of(scaled)
    if beta != 1:
        out /= beta
    if threshold != np.inf:
        out = np.where(scaled > threshold, x, out)
    if not wanted(input):
        return wrap(out)
    return wrap(out, SoftplusBackward0((edge_of(input),), (x, beta, threshold), (input._version,)))


def logsigmoid(input: Tensor) -> Tensor:
    """The logarithm of the `sigmoid`, computed without overflow."""
    return -softplus(-input, 1.0, np.inf)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Each element times its `sigmoid`."""
    if inplace:
        return written_into(input, silu)
    result: Tensor = input * sigmoid(input)
    return result


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Each element times the hyperbolic tangent of its `softplus`."""
    if inplace:
        return written_into(input, mish)
    result: Tensor = input * tanh(softplus(input))
    return result


def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    result: Tensor = input / (abs(input) + 1)
    return result


def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    result: Tensor = input - tanh(input)
    return result


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``x / 6 + 1 / 2``, moved into the range from 0 to 1."""
    if inplace:
        return written_into(input, hardsigmoid)
    result: Tensor = relu6(input + 3) / 6
    return result


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Each element times its `hardsigmoid`."""
    if inplace:
        return written_into(input, hardswish)
    result: Tensor = input * hardsigmoid(input)
    return result


def softmin(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The `softmax` of the negative elements."""
    return softmax(-input, dim, dtype=dtype)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim`, times the `sigmoid` of the second.

    Raises:
        RuntimeError: The dimension's size is odd.
    """
    size = input._array.shape[axis_of(dim, input._array.ndim)]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    first, second = split(input, size // 2, dim)
    result: Tensor = first * sigmoid(second)
    return result


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Each element, times a weight that is learnt where it is negative.

    Args:
        weight: ``(1,)``, or ``(C,)`` for an input with `C` channels in dimension 1.
    """
    count = weight._array.size
    ndim = input._array.ndim
    if count != 1:
        channels = input._array.shape[1] if ndim > 1 else 1
        if channels != count:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{count} and channel size = {channels}."
            )
        weight = reshape(weight, (-1,) + (1,) * max(0, ndim - 2))
    elif ndim == 0:
        weight = reshape(weight, ())
    result: Tensor = where(wrap(input._array > 0), input, input * weight)
    return result


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Each element times the probability that a normal variable is below it.

    Args:
        approximate: ``"none"``, or ``"tanh"`` for an approximation by the hyperbolic tangent.
    """
    if approximate == "tanh":
        inner = (input + input * input * input * 0.044715) * _GELU_SCALE
        result: Tensor = input * (tanh(inner) + 1) * 0.5
        return result
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    input = floating(input)
    x = input._array
    out = erf_of(x * _ROOT_HALF)
    out += 1
    out *= x
    out *= 0.5
    if not wanted(input):
        return wrap(out)
    return wrap(out, GeluBackward0((edge_of(input),), (x,), (input._version,)))
