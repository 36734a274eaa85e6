"""Windows of images as columns, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops.recording import as_operand, edge_of, wanted
from tensorplay.ops.shape import unsqueeze
from tensorplay.ops.windows import (
    Geometry,
    added_back,
    check_images,
    columns,
    dense,
    dropped,
    output_size,
    pair,
)
from tensorplay.tensor import Tensor, wrap


class Im2ColBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, geometry: Geometry) -> tuple[Any, ...]:
        return (_folded(grad, geometry),)


class Col2ImBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, geometry: Geometry) -> tuple[Any, ...]:
        return (_unfolded(grad, geometry),)


def _unfold(x: Any, geometry: Geometry) -> Any:
    windows = np.moveaxis(columns(x, geometry), -1, 0)
    shape = windows.shape
    return windows.reshape(shape[0], shape[1] * shape[2] * shape[3], shape[4] * shape[5])


def _fold(x: Any, geometry: Geometry) -> Any:
    samples, rows, _ = x.shape
    height, width = geometry.kernel
    shape = (samples, rows // (height * width), height, width, *geometry.output)
    return added_back(np.ascontiguousarray(np.moveaxis(x.reshape(shape), 0, -1)), geometry)


def _unfolded(x: Any, geometry: Geometry) -> Any:
    if not isinstance(x, Tensor):
        return _unfold(x, geometry)
    node = Im2ColBackward0((edge_of(x),), (geometry,)) if wanted(x) else None
    return wrap(_unfold(x._array, geometry), node)


def _folded(x: Any, geometry: Geometry) -> Any:
    if not isinstance(x, Tensor):
        return _fold(x, geometry)
    node = Col2ImBackward0((edge_of(x),), (geometry,)) if wanted(x) else None
    return wrap(dense(_fold(x._array, geometry)), node)


def _geometry(
    name: str, size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Geometry:
    kernel, steps = pair(kernel_size, "kernel_size"), pair(dilation, "dilation")
    (down, across), strides = pair(padding, "padding"), pair(stride, "stride")
    pads = ((down, down), (across, across))
    counts = output_size(name, size, kernel, strides, pads, steps)
    return Geometry(size, kernel, strides, pads, steps, counts)


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """The elements of each window of an image, as a column.

    Args:
        input: ``(N, C, H, W)``, or ``(C, H, W)``.

    Returns:
        ``(N, C * kernel height * kernel width, windows)``, or that without `N`.

    >>> import tensorplay as tp
    >>> tp.nn.functional.unfold(tp.arange(6.0).reshape(1, 2, 3), (2, 2))
    tensor([[0., 1.],
            [1., 2.],
            [3., 4.],
            [4., 5.]])
    """
    x = check_images(as_operand(input, "input"), "unfold", 2)
    geometry = _geometry("unfold", x._array.shape[2:], kernel_size, dilation, padding, stride)
    out: Tensor = _unfolded(x, geometry)
    return out if x is input else dropped(out, 0)


def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Images in which columns are added up at the places of their windows: the adjoint of `unfold`.

    Args:
        input: ``(N, C * kernel height * kernel width, windows)``, or that without `N`.
        output_size: Size of the images.

    Raises:
        RuntimeError: The shapes do not fit.
    """
    x = as_operand(input, "input")
    if x._array.ndim == 2:
        x = unsqueeze(x, 0)
    size = pair(output_size, "output_size")
    geometry = _geometry("fold", size, kernel_size, dilation, padding, stride)
    count, elements = np.prod(geometry.output), np.prod(geometry.kernel)
    shape = x._array.shape
    if len(shape) != 3 or shape[1] % elements or shape[2] != count:
        raise RuntimeError(
            f"fold(): expected an input of shape (N, C * {elements}, {count}), or that without N, "
            f"not {list(input._array.shape)}"
        )
    out: Tensor = _folded(x, geometry)
    return out if x is input else dropped(out, 0)
