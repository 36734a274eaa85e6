"""Convolution of images and signals, and its transpose.

Everything rests on one form that is linear in each of three arguments: an image `x`, a weight `w`
and an image `g` of the size of the result, ``<g, conv(x, w)>``.  Its derivatives by `g`, `x`, `w`
are the convolution, the transposed convolution, and the correlation that a weight's gradient is.
Each is an operation here, and the rule of each consists of the other two, so they can be
differentiated as often as one likes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import depthwise, dual
from tensorplay.ops.recording import as_operand, edge_of, wanted
from tensorplay.ops.shape import unsqueeze
from tensorplay.ops.windows import (
    Geometry,
    Pair,
    added_back,
    check_images,
    columns,
    dense,
    dropped,
    output_size,
    pair,
    samples_first,
    samples_last,
    single,
)
from tensorplay.tensor import Tensor, wrap

#: Elements of the copied windows that are multiplied at a time: they should stay in a core's cache.
_BLOCK = 1 << 17


class _Product(Node):
    """Either convolution: edges are the image, the weight and, if there is one, the bias."""

    __slots__ = ()
    lift = (0, 1, None, None)

    def _with_bias(self, grad: Any, for_image: Any, for_weight: Any) -> tuple[Any, ...]:
        if len(self.edges) == 2:
            return (for_image, for_weight)
        wanted = self.edges[2] is not None
        return (for_image, for_weight, dual.sum_over(grad, (0, 2, 3)) if wanted else None)


class ConvolutionBackward0(_Product):
    __slots__ = ()

    def rule(self, grad: Any, x: Any, w: Any, geometry: Geometry, groups: int) -> tuple[Any, ...]:
        for_image = for_weight = None
        if self.edges[0] is not None:
            for_image = _transposed(grad, w, geometry, groups)
        if self.edges[1] is not None:
            for_weight = _correlated(grad, x, geometry, groups)
        return self._with_bias(grad, for_image, for_weight)


class ConvTransposeBackward0(_Product):
    __slots__ = ()

    def rule(self, grad: Any, g: Any, w: Any, geometry: Geometry, groups: int) -> tuple[Any, ...]:
        for_image = for_weight = None
        if self.edges[0] is not None:
            for_image = _convolved(grad, w, geometry, groups)
        if self.edges[1] is not None:
            for_weight = _correlated(g, grad, geometry, groups)
        return self._with_bias(grad, for_image, for_weight)


class ConvWeightBackward0(Node):
    """The gradient of a weight, recorded."""

    __slots__ = ()
    lift = (0, 1, None, None)

    def rule(self, grad: Any, g: Any, x: Any, geometry: Geometry, groups: int) -> tuple[Any, ...]:
        return (
            None if self.edges[0] is None else _convolved(x, grad, geometry, groups),
            None if self.edges[1] is None else _transposed(g, grad, geometry, groups),
        )


def _convolve(x: Any, w: Any, geometry: Geometry, groups: int, bias: Any = None) -> Any:
    """``(N, C, H, W)`` and ``(O, C / groups, kh, kw)`` to ``(N, O, oh, ow)``."""
    if groups > 1 and groups == x.shape[1] == w.shape[0]:
        out = depthwise.convolve(x, w, geometry)
        return out if bias is None else out + bias.reshape(-1, 1, 1)
    samples, outer = x.shape[0], w.shape[0]
    height, width = geometry.output
    windows = columns(x, geometry)
    factor = w.reshape(groups, outer // groups, math.prod(w.shape[1:]))
    out = np.empty((groups, outer // groups, height * width * samples), np.result_type(x, w))
    if bias is not None:
        bias = bias.reshape(groups, -1, 1)
    for first, last in _blocks(windows):
        part = windows[:, :, :, first:last].reshape(groups, factor.shape[2], -1)
        place = out[:, :, first * width * samples : last * width * samples]
        np.matmul(factor, part, out=place)
        if bias is not None:
            place += bias
    return samples_first(out.reshape(outer, height, width, samples))


def _transpose(g: Any, w: Any, geometry: Geometry, groups: int, bias: Any = None) -> Any:
    """``(N, O, oh, ow)`` and ``(O, C / groups, kh, kw)`` to ``(N, C, H, W)``."""
    samples, outer = g.shape[0], w.shape[0]
    if groups > 1 and groups == outer and w.shape[1] == 1:
        out = depthwise.transpose(g, w, geometry)
    else:
        inner = math.prod(w.shape[1:])
        rows = _as_rows(g, groups)
        parts = np.matmul(w.reshape(groups, outer // groups, inner).swapaxes(1, 2), rows)
        shape = (w.shape[1] * groups, *geometry.kernel, *geometry.output, samples)
        out = added_back(parts.reshape(shape), geometry)
    if bias is not None:
        out += bias.reshape(-1, 1, 1)
    return out


def _correlate(g: Any, x: Any, geometry: Geometry, groups: int) -> Any:
    """``(N, O, oh, ow)`` and ``(N, C, H, W)`` to ``(O, C / groups, kh, kw)``."""
    if groups > 1 and groups == g.shape[1] == x.shape[1]:
        return depthwise.correlate(g, x, geometry)
    outer, inner = g.shape[1], x.shape[1] // groups
    width, samples = geometry.output[1], x.shape[0]
    rows = _as_rows(g, groups)
    windows = columns(x, geometry)
    # Transposed: so the long factor is read in its own order.
    out = np.zeros((groups, inner * math.prod(geometry.kernel), outer // groups), rows.dtype)
    for first, last in _blocks(windows):
        part = windows[:, :, :, first:last].reshape(groups, out.shape[1], -1)
        place = rows[:, :, first * width * samples : last * width * samples]
        out += np.matmul(part, place.swapaxes(1, 2))
    return out.swapaxes(1, 2).reshape(outer, inner, *geometry.kernel)


def _as_rows(g: Any, groups: int) -> Any:
    """``(N, O, oh, ow)`` as ``(groups, O / groups, oh * ow * N)``."""
    samples, outer, height, width = g.shape
    rows = np.ascontiguousarray(samples_last(g))
    return rows.reshape(groups, outer // groups, height * width * samples)


def _blocks(windows: Any) -> list[tuple[int, int]]:
    """Rows of windows, first and last, of which each block has about `_BLOCK` elements."""
    height = windows.shape[3]
    if not windows.size:
        return []
    step = max(1, _BLOCK * height // windows.size)
    return [(first, min(first + step, height)) for first in range(0, height, step)]


def _operation(compute: Any, node_class: type[Node]) -> Any:
    """An operation of two factors, as a function of arrays or of tensors."""

    def operation(a: Any, b: Any, geometry: Geometry, groups: int) -> Any:
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return compute(a, b, geometry, groups)
        a = a if isinstance(a, Tensor) else wrap(a)
        b = b if isinstance(b, Tensor) else wrap(b)
        out = compute(a._array, b._array, geometry, groups)
        if not wanted(a, b):
            return wrap(out)
        return wrap(out, _recorded(node_class, (a, b), geometry, groups))

    return operation


def _recorded(
    node_class: type[Node], operands: tuple[Tensor, ...], geometry: Geometry, groups: int
) -> Node:
    """The node; each factor is saved only if the other's gradient is wanted."""
    a, b = operands[:2]
    edges = tuple([edge_of(one) for one in operands])
    keep_a, keep_b = edges[1] is not None, edges[0] is not None
    versions = ((a._version,) if keep_a else ()) + ((b._version,) if keep_b else ())
    saved = (a._array if keep_a else None, b._array if keep_b else None, geometry, groups)
    return node_class(edges, saved, versions)


_convolved = _operation(_convolve, ConvolutionBackward0)
_transposed = _operation(_transpose, ConvTransposeBackward0)
_correlated = _operation(_correlate, ConvWeightBackward0)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Each window of the images times the weight.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` for one image.
        weight: ``(out_channels, C / groups, kernel height, kernel width)``.
        bias: ``(out_channels,)``, or None.
        stride: From one window to the next: one number, or one for each direction.
        padding: Zeros around the image: likewise, or ``"valid"`` (none) or ``"same"`` (as many
            as keep the size; for stride 1).
        dilation: From one element of a window to the next.
        groups: So many convolutions side by side, each of its share of the channels.

    Returns:
        ``(N, out_channels, H', W')``, or that without `N`.  In memory the sample is the last
        dimension.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.
        ValueError: `padding` is an unknown word.

    >>> import tensorplay as tp
    >>> tp.nn.functional.conv2d(tp.ones(1, 1, 3, 3), tp.ones(1, 1, 2, 2))
    tensor([[[[4., 4.],
              [4., 4.]]]])
    """
    name = "conv2d"
    x = _batched(input, weight, name, 2)
    _check_factors(name, x, weight, bias, groups)
    _check_channels(x, weight, x._array.shape[1], weight._array.shape[1] * groups, groups)
    kernel = weight._array.shape[2:]
    strides, steps = pair(stride, "stride"), pair(dilation, "dilation")
    around = padding if isinstance(padding, str) else pair(padding, "padding")
    down, across = paddings(around, kernel, strides, steps)
    size = x._array.shape[2:]
    output = output_size(name, size, kernel, strides, (down, across), steps)
    geometry = Geometry(size, kernel, strides, (down, across), steps, output)
    out = _product(_convolve, ConvolutionBackward0, x, weight, bias, geometry, groups)
    return out if x is input else dropped(out, 0)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """As `conv2d`, for signals.

    Args:
        input: ``(N, C, L)``, or ``(C, L)`` for one signal.
        weight: ``(out_channels, C / groups, kernel size)``.
        bias: ``(out_channels,)``, or None.

    >>> import tensorplay as tp
    >>> tp.nn.functional.conv1d(tp.ones(1, 1, 4), tp.ones(1, 1, 2), stride=2)
    tensor([[[2., 2.]]])
    """
    x = _batched(input, weight, "conv1d", 1)
    out = conv2d(
        unsqueeze(x, 2),
        unsqueeze(weight, 2),
        bias,
        (1, single(stride, "stride")),
        padding if isinstance(padding, str) else (0, single(padding, "padding")),
        (1, single(dilation, "dilation")),
        groups,
    )
    return dropped(out, *((2,) if x is input else (0, 2)))


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv2d`: each element of the input spreads the weight over a window.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)``.
        weight: ``(C, out_channels / groups, kernel height, kernel width)``.
        bias: ``(out_channels,)``, or None.
        padding: What is cut off around the result.
        output_padding: Rows and columns added behind; less than the stride or the dilation.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.

    >>> import tensorplay as tp
    >>> x, w = tp.ones(1, 1, 1, 2), tp.ones(1, 1, 1, 2)
    >>> tp.nn.functional.conv_transpose2d(x, w)
    tensor([[[[1., 2., 1.]]]])
    """
    name = "conv_transpose2d"
    x = _batched(input, weight, name, 2)
    channels = weight._array.shape[1] * groups
    _check_factors(name, x, weight, bias, groups, channels)
    _check_channels(x, weight, x._array.shape[1], weight._array.shape[0], groups)
    kernel = weight._array.shape[2:]
    strides, steps = pair(stride, "stride"), pair(dilation, "dilation")
    cut, extra = pair(padding, "padding"), pair(output_padding, "output_padding")
    for added, step, spread in zip(extra, strides, steps, strict=True):
        if not 0 <= added < max(step, spread):
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"output_padding {extra}, stride {strides}, dilation {steps}"
            )
    if min(strides) < 1 or min(steps) < 1 or min(cut) < 0:
        raise RuntimeError(
            f"{name}(): stride and dilation must be positive and padding not negative"
        )
    windows = x._array.shape[2:]
    height, width = [
        (windows[i] - 1) * strides[i] - 2 * cut[i] + steps[i] * (kernel[i] - 1) + extra[i] + 1
        for i in range(2)
    ]
    if height < 1 or width < 1:
        raise RuntimeError(f"{name}(): the output size {height} x {width} is too small")
    pads = ((cut[0], cut[0]), (cut[1], cut[1]))
    geometry = Geometry((height, width), kernel, strides, pads, steps, windows)
    out = _product(_transpose, ConvTransposeBackward0, x, weight, bias, geometry, groups)
    return out if x is input else dropped(out, 0)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """As `conv_transpose2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""
    x = _batched(input, weight, "conv_transpose1d", 1)
    out = conv_transpose2d(
        unsqueeze(x, 2),
        unsqueeze(weight, 2),
        bias,
        (1, single(stride, "stride")),
        (0, single(padding, "padding")),
        (0, single(output_padding, "output_padding")),
        groups,
        (1, single(dilation, "dilation")),
    )
    return dropped(out, *((2,) if x is input else (0, 2)))


def _product(
    compute: Any,
    node_class: type[Node],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    groups: int,
) -> Tensor:
    added = None if bias is None else bias._array
    out = dense(compute(x._array, weight._array, geometry, groups, added))
    operands = (x, weight) if bias is None else (x, weight, bias)
    if not wanted(*operands):
        return wrap(out)
    return wrap(out, _recorded(node_class, operands, geometry, groups))


def _batched(input: Tensor, weight: Tensor, name: str, dims: int) -> Tensor:
    """The input with a dimension of samples."""
    input, weight = as_operand(input, "input"), as_operand(weight, "weight")
    if weight._array.ndim != dims + 2:
        raise RuntimeError(
            f"{name}(): expected a weight of {dims + 2} dimensions, not of shape "
            f"{list(weight._array.shape)}"
        )
    return check_images(input, name, dims)


def _check_factors(
    name: str, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, outer: int | None = None
) -> None:
    types = [one._array.dtype for one in (x, weight, bias) if one is not None]
    if types[0].kind == "c":
        raise RuntimeError(f"{name}(): complex numbers are not supported")
    if any(one != types[0] for one in types):
        raise RuntimeError(
            f"{name}(): input, weight and bias must have the same type, not "
            f"{', '.join([str(one) for one in types])}"
        )
    if groups < 1 or weight._array.shape[0] % groups:
        raise RuntimeError(
            f"{name}(): the weight's first size {weight._array.shape[0]} is not divisible by "
            f"groups={groups}"
        )
    outer = weight._array.shape[0] if outer is None else outer
    if bias is not None and bias._array.shape != (outer,):
        raise RuntimeError(
            f"{name}(): expected a bias of shape [{outer}], not {list(bias._array.shape)}"
        )


def _check_channels(x: Tensor, weight: Tensor, have: int, need: int, groups: int) -> None:
    if have != need:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight._array.shape)}, expected input"
            f"{list(x._array.shape)} to have {need} channels, but got {have} channels instead"
        )


def paddings(
    padding: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[Pair]:
    """What is added before and after an image in each direction.

    Args:
        padding: A size for each direction, or ``"same"``, or ``"valid"``.

    Raises:
        RuntimeError: ``"same"`` beside a stride other than 1.
        ValueError: `padding` is an unknown word.
    """
    if not isinstance(padding, str):
        return [(size, size) for size in padding]
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding != "same":
        raise ValueError(f"padding must be 'same', 'valid' or numbers, not {padding!r}")
    if any(step != 1 for step in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    return [(total // 2, total - total // 2) for total in totals]
