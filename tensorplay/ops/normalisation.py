"""Normalisation by batch, by layer, by group, by instance, and to unit length."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.linalg import norm
from tensorplay.ops.recording import as_operand, cast, edge_of, in_single, wanted
from tensorplay.ops.reduction import sum as sum_of
from tensorplay.ops.selection import clamp
from tensorplay.ops.shape import reshape, sizes
from tensorplay.tensor import Tensor, wrap

Axes = tuple[int, ...]
#: For so few elements, an array of products costs less than doing without it.
_SMALL = 2048


class _Layout(NamedTuple):
    """Over which axes is normalised, and how the weight and the bias lie beside the input.

    Attributes:
        axes: Mean and variance are taken over these.
        own: The shape of the weight and the bias.
        spread: That shape with ones added, so that it broadcasts to the input's.
        stretched: The axes along which weight and bias stay the same.
        even: Whether all that is normalised together has the same weight.
    """

    axes: Axes
    own: tuple[int, ...]
    spread: tuple[int, ...]
    stretched: Axes
    even: bool


@lru_cache(maxsize=1024)
def _layout(axes: Axes, own: tuple[int, ...], spread: tuple[int, ...]) -> _Layout:
    stretched = tuple([i for i, size in enumerate(spread) if size == 1])
    return _Layout(axes, own, spread, stretched, all(spread[i] == 1 for i in axes))


class _Normalised(Node):
    """``(x - mean) / sqrt(variance + eps)`` over some axes, times a weight, plus a bias.

    Mean and inverse deviation are saved for the ordinary pass; one that is recorded computes them
    anew, so that they are part of the graph.
    """

    __slots__ = ()
    lift = (0, 1, None, None, None, None)

    def rule(
        self, grad: Any, x: Any, weight: Any, mean: Any, scale: Any, layout: _Layout, eps: float
    ) -> tuple[Any, ...]:
        axes = layout.axes
        if isinstance(x, Tensor):
            count = _count(x, axes)
            unit = x - dual.sum_over(x, axes, True) / count
            scale = (_dot(unit, unit, axes) / count + eps) ** -0.5
            unit = unit * scale
        else:
            unit = x - mean
            unit *= scale
        products = None if self.edges[1] is None else _dot(grad, unit, layout.stretched)
        sums = None if self.edges[2] is None else dual.sum_over(grad, layout.stretched, True)
        return (
            None if self.edges[0] is None else self._for_input(grad, unit, weight, scale, layout),
            None if products is None else products.reshape(layout.own),
            None if sums is None else sums.reshape(layout.own),
        )

    @staticmethod
    def _for_input(grad: Any, unit: Any, weight: Any, scale: Any, layout: _Layout) -> Any:
        """The gradient of the input; `unit` is used up if it is an array."""
        axes = layout.axes
        count = _count(unit, axes)
        if weight is not None:
            factor = weight.reshape(layout.spread)
            if layout.even:
                scale = scale * factor
            else:
                grad = grad * factor
        total = dual.sum_over(grad, axes, True) / count
        slope = _dot(grad, unit, axes) / count
        if isinstance(unit, Tensor):
            return (grad - total - unit * slope) * scale
        unit *= slope
        unit += total
        np.subtract(grad, unit, out=unit)
        unit *= scale
        return unit


def _count(value: Any, axes: Axes) -> int:
    """How many elements there are along some axes."""
    shape = value.shape
    count: int = 1
    for i in axes:
        count *= shape[i]
    return count


def _dot(a: Any, b: Any, axes: Axes) -> Any:
    """The sums of products over some axes, which keep size 1."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return dual.sum_over(a * b, axes, True)
    if a.size <= _SMALL:
        return dual.sum_over(a * b, axes, True)
    places = list(range(a.ndim))
    left = [i for i in places if i not in axes]
    # Without an array for the products.
    found = np.einsum(a, places, b, places, left)
    return np.asarray(found).reshape([size if i in left else 1 for i, size in enumerate(a.shape)])


class NativeBatchNormBackward0(_Normalised):
    __slots__ = ()


class NativeLayerNormBackward0(_Normalised):
    __slots__ = ()


class NativeGroupNormBackward0(_Normalised):
    __slots__ = ()


def _normalise(
    node_class: type[Node],
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    layout: _Layout,
    eps: float,
) -> tuple[Tensor, Any, Any]:
    """The normalised tensor, the means and the variances (these keep the axes, with size 1)."""
    x = input._array
    if x.dtype is dtypes.float16:
        wide = [None if one is None else cast(one, dtypes.float32) for one in (weight, bias)]
        single = cast(input, dtypes.float32)
        out, mean, variance = _normalise(node_class, single, wide[0], wide[1], layout, eps)
        return cast(out, dtypes.float16), mean, variance
    count = _count(x, layout.axes) or 1
    mean = dual.sum_over(x, layout.axes, True) / count
    out = x - mean
    variance = _dot(out, out, layout.axes) / count
    scale = 1 / np.sqrt(variance + eps)
    out *= scale
    if weight is not None:
        out *= weight._array.reshape(layout.spread)
    if bias is not None:
        out += bias._array.reshape(layout.spread)
    operands = [one for one in (input, weight, bias) if one is not None]
    if not wanted(*operands):
        return wrap(out), mean, variance
    edges = tuple([None if one is None else edge_of(one) for one in (input, weight, bias)])
    factor = None if weight is None or edges[0] is None else weight
    versions = (input._version,) if factor is None else (input._version, factor._version)
    saved = (x, None if factor is None else factor._array, mean, scale, layout, eps)
    return wrap(out, node_class(edges, saved, versions)), mean, variance


def _check(name: str, input: Tensor, shape: tuple[int, ...], **factors: Tensor | None) -> None:
    """Raise unless the input is floating-point, and each factor of its type and of `shape`."""
    x = as_operand(input, "input")._array
    if x.dtype.kind != "f":
        raise RuntimeError(f"{name}(): expected floating-point numbers, not {x.dtype}")
    for what, factor in factors.items():
        if factor is None:
            continue
        if factor._array.shape != shape:
            raise RuntimeError(
                f"{name}(): expected {what} of shape {list(shape)} for an input of shape "
                f"{list(x.shape)}, not {list(factor._array.shape)}"
            )
        if factor._array.dtype != x.dtype and not _is_half_in_single(x.dtype, factor._array.dtype):
            raise RuntimeError(
                f"{name}(): expected {what} of the input's type {x.dtype}, not "
                f"{factor._array.dtype}"
            )


def _is_half_in_single(own: Any, factor: Any) -> bool:
    """Whether a factor is of the type in which an input of half precision is worked on."""
    return bool(own == dtypes.float16 and factor == dtypes.float32)


def _in_single(input: Tensor, *factors: Tensor | None) -> Any:
    """The tensors; of an input of half precision as float32, since sums soon pass its range."""
    if input._array.dtype != dtypes.float16:
        return input, *factors
    return [None if one is None else cast(one, dtypes.float32) for one in (input, *factors)]


def _back(out: Tensor, input: Tensor) -> Tensor:
    """What was computed so, in the input's type."""
    return cast(out, dtypes.float16) if input._array.dtype == dtypes.float16 else out


def _channels(name: str, input: Tensor) -> int:
    shape = as_operand(input, "input")._array.shape
    if len(shape) < 2:
        raise RuntimeError(
            f"{name}(): expected an input of at least 2 dimensions, (N, C, ...), not {list(shape)}"
        )
    return int(shape[1])


def _track(running: Tensor | None, fresh: Any, momentum: float) -> None:
    """Move a running average towards a fresh value."""
    if running is not None:
        running._array[...] = (1 - momentum) * running._array + momentum * fresh
        running._version[0] += 1


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel with mean 0 and variance 1, times a weight, plus a bias.

    Args:
        input: ``(N, C, ...)``.
        running_mean: ``(C,)``: in training moved, in place, by the share `momentum` towards the
            batch's mean; otherwise taken for the mean.  None (in training only): not tracked.
        running_var: ``(C,)``: likewise, the unbiased variance.
        weight: ``(C,)``, or None.
        bias: ``(C,)``, or None.
        training: Take mean and variance from the batch.
        eps: Added to the variance.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.
        ValueError: In training, a channel has a single value.

    >>> import tensorplay as tp
    >>> tp.nn.functional.batch_norm(tp.tensor([[1.0], [3.0]]), None, None, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    name = "batch_norm"
    channels = _channels(name, input)
    own = (channels,)
    given = {"weight": weight, "bias": bias}
    _check(name, input, own, running_mean=running_mean, running_var=running_var, **given)
    shape = input._array.shape
    spread = (1, channels) + (1,) * (len(shape) - 2)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "Expected running_mean and running_var to be defined when training=False"
            )
        x, mean, var, weight, bias = _in_single(input, running_mean, running_var, weight, bias)
        scale = wrap(1 / np.sqrt(var._array + eps))
        scale = scale if weight is None else weight * scale
        shift = -(wrap(mean._array) * scale)
        shift = shift if bias is None else bias + shift
        return _back(x * reshape(scale, spread) + reshape(shift, spread), input)
    count = input._array.size // max(1, channels)
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )
    layout = _layout((0, *range(2, len(shape))), own, spread)
    x, weight, bias = _in_single(input, weight, bias)
    out, mean, variance = _normalise(NativeBatchNormBackward0, x, weight, bias, layout, eps)
    if count:
        _track(running_mean, mean.reshape(own), momentum)
        _track(running_var, variance.reshape(own) * (count / (count - 1)), momentum)
    return _back(out, input)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As `batch_norm`, for each channel of each sample by itself.

    Args:
        input: ``(N, C, ...)``, with at least one dimension more.
        use_input_stats: Take mean and variance from the input, rather than the running ones.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.
        ValueError: A channel of a sample has a single value.
    """
    name = "instance_norm"
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    channels = _channels(name, input)
    own = (channels,)
    given = {"weight": weight, "bias": bias}
    _check(name, input, own, running_mean=running_mean, running_var=running_var, **given)
    shape = input._array.shape
    count = math.prod(shape[2:])
    if count == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {list(shape)}"
        )
    axes = tuple(range(2, len(shape)))
    layout = _layout(axes, own, (1, channels) + (1,) * len(axes))
    x, weight, bias = _in_single(input, weight, bias)
    out, mean, variance = _normalise(NativeBatchNormBackward0, x, weight, bias, layout, eps)
    if input._array.size:
        _track(running_mean, mean.mean(0).reshape(own), momentum)
        _track(running_var, variance.mean(0).reshape(own) * (count / (count - 1)), momentum)
    return _back(out, input)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The last dimensions of each sample with mean 0 and variance 1, times a weight, plus a bias.

    Args:
        input: ``(*, *normalized_shape)``.
        normalized_shape: Sizes of the dimensions that are normalised together.
        weight: Of the shape `normalized_shape`, or None.
        bias: Likewise.
        eps: Added to the variance.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.

    >>> import tensorplay as tp
    >>> tp.nn.functional.layer_norm(tp.tensor([[1.0, 3.0], [5.0, 9.0]]), (2,))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """
    own = sizes((normalized_shape,))
    shape = as_operand(input, "input")._array.shape
    before = len(shape) - len(own)
    if not own or shape[max(before, 0) :] != own:
        raise RuntimeError(
            f"Given normalized_shape={list(own)}, expected input with shape "
            f"[*, {', '.join([str(size) for size in own])}], but got input of size{list(shape)}"
        )
    _check("layer_norm", input, own, weight=weight, bias=bias)
    layout = _layout(tuple(range(before, len(shape))), own, (1,) * before + own)
    x, weight, bias = _in_single(input, weight, bias)
    out = _normalise(NativeLayerNormBackward0, x, weight, bias, layout, eps)[0]
    return _back(out, input)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each group of channels of each sample with mean 0 and variance 1, then weight and bias.

    Args:
        input: ``(N, C, ...)``.
        num_groups: Into how many groups of the same size the channels are divided.
        weight: ``(C,)``, or None.
        bias: ``(C,)``, or None.
        eps: Added to the variance.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.
    """
    channels = _channels("group_norm", input)
    if num_groups < 1 or channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input._array.shape)} and num_groups={num_groups}"
        )
    own = (channels,)
    _check("group_norm", input, own, weight=weight, bias=bias)
    shape = input._array.shape
    grouped = (shape[0], num_groups, channels // num_groups, *shape[2:])
    axes = tuple(range(2, len(grouped)))
    layout = _layout(axes, own, (1, *grouped[1:3]) + (1,) * len(shape[2:]))
    x, weight, bias = _in_single(input, weight, bias)
    out = _normalise(NativeGroupNormBackward0, reshape(x, grouped), weight, bias, layout, eps)[0]
    return _back(reshape(out, shape), input)


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """Vectors along `dim` divided by their `p`-norm, or by `eps` where that is less.

    >>> import tensorplay as tp
    >>> tp.nn.functional.normalize(tp.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    if as_operand(input, "input")._array.dtype is dtypes.float16:
        halved: Tensor = in_single(normalize, input, p, dim, eps)
        return halved
    result: Tensor = input / clamp(norm(input, p, dim, True), eps)
    return result


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; shapes broadcast.

    Args:
        eps: The least length that is divided by.

    >>> import tensorplay as tp
    >>> tp.nn.functional.cosine_similarity(tp.tensor([[3.0, 4.0]]), tp.tensor([[6.0, 8.0]]))
    tensor([1.])
    """
    if as_operand(x1, "x1")._array.dtype is dtypes.float16:
        halved: Tensor = in_single(cosine_similarity, x1, x2, dim, eps)
        return halved
    product: Tensor = x1 * x2
    ndim = product._array.ndim
    first, second = [
        clamp(norm(reshape(one, (1,) * (ndim - one._array.ndim) + one.shape), 2, dim, True), eps)
        for one in (x1, x2)
    ]
    return sum_of(product / (first * second), dim)
