"""Sums of exponentials, and what is normalised by them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.recording import (
    cast,
    edge_of,
    floating,
    in_single,
    recorded,
    refuse_complex,
    wanted,
)
from tensorplay.ops.reduction import Dim, axes_of, axis_of, kept_shape
from tensorplay.tensor import Tensor, wrap

_max: Any = np.maximum.reduce


class LogsumexpBackward0(Node):
    __slots__ = ()
    lift = (0, OUTPUT, None)

    def rule(self, grad: Any, x: Any, out: Any, kept: tuple[int, ...]) -> tuple[Any, ...]:
        return (dual.exp(x - out.reshape(kept)).conj() * grad.reshape(kept),)


class SoftmaxBackward0(Node):
    __slots__ = ()
    lift = (OUTPUT, None)

    def rule(self, grad: Any, out: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
        weighted = grad * out
        return (weighted - out * dual.sum_over(weighted, axes, True),)


class LogSoftmaxBackward0(Node):
    __slots__ = ()
    lift = (OUTPUT, None)

    def rule(self, grad: Any, out: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
        return (grad - dual.exp(out) * dual.sum_over(grad, axes, True),)


def logsumexp(input: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    """``log(sum(exp(x)))`` over dimensions, computed without overflow."""
    input = floating(input)
    x = input._array
    if x.dtype is dtypes.float16:
        halved: Tensor = in_single(logsumexp, input, dim, keepdim)
        return halved
    axes = axes_of(dim, x.ndim) if x.ndim else ()
    kept = kept_shape(x.shape, axes)
    top = _max(x.real, axis=axes, keepdims=True, initial=-np.inf)
    # Where all elements are -inf (or one is inf) the result is the maximum itself.
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        total = np.log(dual.add_up(np.exp(x - top), axis=axes, keepdims=True)) + top
    shape = kept if keepdim else tuple([n for i, n in enumerate(x.shape) if i not in axes])
    out = wrap(total.reshape(shape))
    if wanted(input):
        saved = (x, out._array, kept)
        out._node = LogsumexpBackward0((edge_of(input),), saved, (input._version, out._version))
        out._requires_grad = True
    return out


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Exponentials divided by their sum along `dim`.

    >>> import tensorplay as tp
    >>> tp.softmax(tp.zeros(1, 4), dim=1)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    return _normalised(_softmax, SoftmaxBackward0, input, dim, dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`, computed without loss of precision."""
    return _normalised(log_softmax_array, LogSoftmaxBackward0, input, dim, dtype)


def _normalised(
    function: Any, node_class: type[Node], input: Tensor, dim: int, dtype: Any
) -> Tensor:
    input = floating(input) if dtype is None else cast(input, dtypes.as_dtype(dtype))
    x = input._array
    if x.dtype is dtypes.float16:
        wide = _normalised(function, node_class, input, dim, dtypes.float32)
        return cast(wide, dtypes.float16)
    if x.dtype.kind == "c":
        refuse_complex(x, "softmax")
    axis = axis_of(dim, x.ndim)
    if not x.size:
        array = x.copy()
    else:
        array = function(x, axis) if x.ndim else function(x.reshape(1), 0).reshape(())
    out = recorded(array, node_class, input, (array, (axis,) if x.ndim else ()))
    if out._node is not None:
        out._node.versions = (out._version,)
    return out


def _softmax(x: Any, axis: int) -> Any:
    out = np.subtract(x, _max(x, axis, None, None, True))
    np.exp(out, out)
    out /= dual.add_up(out, axis, None, None, True)
    return out


def log_softmax_array(x: Any, axis: int) -> Any:
    """The logarithm of the softmax of an array."""
    out = x - _max(x, axis, None, None, True)
    out -= np.log(dual.add_up(np.exp(out), axis, None, None, True))
    return out
