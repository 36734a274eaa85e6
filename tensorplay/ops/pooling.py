"""Maxima and means of windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops.recording import as_operand, edge_of, wanted
from tensorplay.ops.shape import unsqueeze
from tensorplay.ops.windows import (
    Geometry,
    check_images,
    dropped,
    output_size,
    padded,
    pair,
    samples_first,
    samples_last,
    single,
    unpadded,
)
from tensorplay.tensor import Tensor, wrap


class MaxPool2DBackward0(Node):
    """One element of each window was chosen."""

    __slots__ = ()

    def rule(self, grad: Any, chosen: Any, geometry: Geometry) -> tuple[Any, ...]:
        return (_given_back(grad, chosen, geometry),)


class MaxPoolGradBackward0(Node):
    """The gradient of a choice, recorded."""

    __slots__ = ()

    def rule(self, grad: Any, chosen: Any, geometry: Geometry) -> tuple[Any, ...]:
        return (_picked(grad, chosen, geometry),)


class AvgPool2DBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, geometry: Geometry, divisor: Any) -> tuple[Any, ...]:
        return (_shared_out(grad, geometry, divisor),)


class AvgPoolGradBackward0(Node):
    """The gradient of means, recorded."""

    __slots__ = ()

    def rule(self, grad: Any, geometry: Geometry, divisor: Any) -> tuple[Any, ...]:
        return (_averaged(grad, geometry, divisor),)


def _find(x: Any, geometry: Geometry, with_place: bool) -> tuple[Any, Any]:
    """The maximum of each window and, if wanted, the number of its element in the window.

    Both as ``(C, oh, ow, N)``; the first of equal elements is taken.
    """
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    source = padded(x, geometry, lowest)
    taps = [source[:, rows, cols] for rows, cols in geometry.taps()]
    best = taps[0].copy()
    if not with_place:
        for tap in taps[1:]:
            np.maximum(best, tap, out=best)
        return best, None
    chosen = np.empty(best.shape, np.min_scalar_type(len(taps)))
    chosen[...] = _first_inside(geometry)
    for number, tap in enumerate(taps[1:], 1):
        greater = tap > best
        np.maximum(best, tap, out=best)
        np.maximum(chosen, np.multiply(greater, number, dtype=chosen.dtype), out=chosen)
    return best, chosen


def _first_inside(geometry: Geometry) -> Any:
    """The number of each window's first element that is not padding: ``(oh, ow, 1)``."""
    down, across = [
        -(np.minimum(np.arange(count) * stride - before, 0) // step)
        for count, stride, step, (before, _) in zip(
            geometry.output, geometry.stride, geometry.dilation, geometry.padding, strict=True
        )
    ]
    return (down[:, None] * geometry.kernel[1] + across)[:, :, None]


def _pick(x: Any, chosen: Any, geometry: Geometry) -> Any:
    """The chosen element of each window."""
    source = padded(x, geometry)
    out = np.zeros(chosen.shape, x.dtype)
    for number, (rows, cols) in enumerate(geometry.taps()):
        np.copyto(out, source[:, rows, cols], where=chosen == number)
    return samples_first(out)


def _give_back(grad: Any, chosen: Any, geometry: Geometry) -> Any:
    """The adjoint of `_pick`."""
    grad = np.ascontiguousarray(samples_last(grad))
    channels, _, _, samples = grad.shape
    out = np.zeros((channels, *geometry.padded, samples), grad.dtype)
    apart = geometry.apart()
    # As integers of the same size, "and" with all bits or none: several times as fast as a choice.
    code = f"i{grad.itemsize}"
    bits, places = grad.view(code), out.view(code)
    for number, (rows, cols) in enumerate(geometry.taps()):
        mask = np.negative((chosen == number).view(np.int8))
        if apart:
            np.bitwise_and(bits, mask, out=places[:, rows, cols])
        else:
            out[:, rows, cols] += np.bitwise_and(bits, mask).view(grad.dtype)
    return unpadded(out, geometry)


def _average(x: Any, geometry: Geometry, divisor: Any) -> Any:
    """The sum of each window, divided unless the divisor is None."""
    source = padded(x, geometry)
    taps = [source[:, rows, cols] for rows, cols in geometry.taps()]
    out = taps[0].copy()
    for tap in taps[1:]:
        out += tap
    if divisor is not None:
        out /= divisor
    return samples_first(out)


def _share_out(grad: Any, geometry: Geometry, divisor: Any) -> Any:
    """The adjoint of `_average`."""
    share = np.ascontiguousarray(samples_last(grad))
    if divisor is not None:
        share = share / divisor
    channels, _, _, samples = share.shape
    out = np.zeros((channels, *geometry.padded, samples), share.dtype)
    for rows, cols in geometry.taps():
        out[:, rows, cols] += share
    return unpadded(out, geometry)


def _operation(compute: Any, node_class: type[Node]) -> Any:
    """A linear operation, as a function of an array or a tensor."""

    def operation(value: Any, *constants: Any) -> Any:
        if not isinstance(value, Tensor):
            return compute(value, *constants)
        node = node_class((edge_of(value),), constants) if wanted(value) else None
        return wrap(compute(value._array, *constants), node)

    return operation


_picked = _operation(_pick, MaxPool2DBackward0)
_given_back = _operation(_give_back, MaxPoolGradBackward0)
_averaged = _operation(_average, AvgPool2DBackward0)
_shared_out = _operation(_share_out, AvgPoolGradBackward0)


def spread_over_windows(input: Tensor, geometry: Geometry) -> Tensor:
    """Each element of ``(N, C, oh, ow)`` at all places of its window: the adjoint of sums."""
    result: Tensor = _shared_out(input, geometry, None)
    return result


def _geometry(
    name: str,
    x: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Geometry:
    kernel = pair(kernel_size, "kernel_size")
    # An empty stride means the same as None: PyTorch's own default looks like that.
    strides = kernel if stride is None or stride == () else pair(stride, "stride")
    down, across = pair(padding, "padding")
    steps = pair(dilation, "dilation")
    if down > kernel[0] // 2 or across > kernel[1] // 2:
        raise RuntimeError(
            f"{name}(): pad should be at most half of effective kernel size, but got "
            f"padding={(down, across)} and kernel_size={kernel}"
        )
    size = x._array.shape[2:]
    pads = ((down, down), (across, across))
    counts = output_size(name, size, kernel, strides, pads, steps, ceil_mode)
    # The last window may reach over the padding's end.
    grown = [
        max(after, (counts[i] - 1) * strides[i] + steps[i] * (kernel[i] - 1) + 1 - size[i] - before)
        for i, (before, after) in enumerate(pads)
    ]
    return Geometry(size, kernel, strides, ((down, grown[0]), (across, grown[1])), steps, counts)


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest element of each window.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)`` for one image.
        kernel_size: Size of a window: one number, or one for each direction.
        stride: From one window to the next; by default the size of a window.
        padding: How far windows reach over the edge; at most half their size.
        dilation: From one element of a window to the next.
        ceil_mode: Take a last window too that lies only partly in the image.
        return_indices: Return ``(maxima, indices)``, where an index counts the pixels of an image
            row by row.

    Raises:
        RuntimeError: The shapes do not fit, or an argument is out of range.

    >>> import tensorplay as tp
    >>> tp.nn.functional.max_pool2d(tp.arange(16.0).reshape(1, 4, 4), 2)
    tensor([[[ 5.,  7.],
             [13., 15.]]])
    """
    x = check_images(as_operand(input, "input"), "max_pool2d", 2)
    if x._array.dtype.kind not in "fiu":
        raise RuntimeError(f"max_pool2d(): expected real numbers, not {x._array.dtype}")
    geometry = _geometry("max_pool2d", x, kernel_size, stride, padding, dilation, ceil_mode)
    recorded = wanted(x)
    best, chosen = _find(x._array, geometry, recorded or return_indices)
    node = MaxPool2DBackward0((edge_of(x),), (chosen, geometry)) if recorded else None
    out = wrap(samples_first(best), node)
    out = out if x is input else dropped(out, 0)
    if not return_indices:
        return out
    found = wrap(samples_first(_pixels(chosen, geometry)))
    return out, found if x is input else dropped(found, 0)


def _pixels(chosen: Any, geometry: Geometry) -> Any:
    """The number of the chosen pixel in its image, row by row."""
    down, across = np.divmod(chosen.astype(np.int64), geometry.kernel[1])
    starts = [
        np.arange(count) * stride - before
        for count, stride, (before, _) in zip(
            geometry.output, geometry.stride, geometry.padding, strict=True
        )
    ]
    row = down * geometry.dilation[0] + starts[0][:, None, None]
    column = across * geometry.dilation[1] + starts[1][:, None]
    return row * geometry.size[1] + column


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As `max_pool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""
    x = check_images(as_operand(input, "input"), "max_pool1d", 1)
    out = max_pool2d(
        unsqueeze(x, 2),
        (1, single(kernel_size, "kernel_size")),
        None if stride is None or stride == () else (1, single(stride, "stride")),
        (0, single(padding, "padding")),
        (1, single(dilation, "dilation")),
        ceil_mode,
        return_indices,
    )
    added = (2,) if x is input else (0, 2)
    parts = [dropped(one, *added) for one in (out if return_indices else (out,))]
    return tuple(parts) if return_indices else parts[0]


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window; arguments as for `max_pool2d`.

    Args:
        count_include_pad: Count the zeros of the padding as elements.
        divisor_override: Divide the sums by this instead.

    Raises:
        RuntimeError: The shapes do not fit, or an argument is out of range.

    >>> import tensorplay as tp
    >>> tp.nn.functional.avg_pool2d(tp.arange(16.0).reshape(1, 4, 4), 2)
    tensor([[[ 2.5000,  4.5000],
             [10.5000, 12.5000]]])
    """
    x = check_images(as_operand(input, "input"), "avg_pool2d", 2)
    if x._array.dtype.kind != "f":
        raise RuntimeError(f"avg_pool2d(): expected floating-point numbers, not {x._array.dtype}")
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    geometry = _geometry("avg_pool2d", x, kernel_size, stride, padding, 1, ceil_mode)
    divisor: Any = divisor_override
    if divisor is None:
        divisor = _divisor(geometry, pair(padding, "padding"), count_include_pad)
        divisor = divisor.astype(x._array.dtype)
    out = _averaged(x, geometry, divisor)
    return out if x is input else dropped(out, 0)


def _divisor(geometry: Geometry, padding: Any, count_padding: bool) -> Any:
    """How many elements each window has: ``(oh, ow, 1)``."""
    counts = []
    for i in range(2):
        starts = np.arange(geometry.output[i]) * geometry.stride[i] - padding[i]
        extra = padding[i] if count_padding else 0
        ends = np.minimum(starts + geometry.kernel[i], geometry.size[i] + extra)
        counts.append(ends - np.maximum(starts, -extra))
    return np.outer(*counts)[:, :, None]


def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """As `avg_pool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""
    x = check_images(as_operand(input, "input"), "avg_pool1d", 1)
    out = avg_pool2d(
        unsqueeze(x, 2),
        (1, single(kernel_size, "kernel_size")),
        None if stride is None or stride == () else (1, single(stride, "stride")),
        (0, single(padding, "padding")),
        ceil_mode,
        count_include_pad,
    )
    return dropped(out, *((2,) if x is input else (0, 2)))
