"""Windows that slide over images: where they lie, and how their elements are copied out and back.

Inside, images lie in memory with the sample as the *last* dimension, ``(channels, height, width,
samples)``; the tensors that users see are views of that with the dimensions in PyTorch's order.  So
neighbours in memory are the same pixel of all samples, whatever a window does, and NumPy copies,
adds and compares in long runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tensorplay.ops.shape import squeeze, unsqueeze
from tensorplay.tensor import Tensor

Pair = tuple[int, int]


class Geometry(NamedTuple):
    """Windows over an image; each pair is ``(vertical, horizontal)``.

    Attributes:
        size: Of the image.
        kernel: Size of a window.
        stride: From one window to the next.
        padding: For each direction what is added before and after the image.
        dilation: From one element of a window to the next.
        output: How many windows there are.
    """

    size: Pair
    kernel: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    output: Pair

    @property
    def padded(self) -> Pair:
        """Size of the image with its padding."""
        (top, bottom), (left, right) = self.padding
        return self.size[0] + top + bottom, self.size[1] + left + right

    def taps(self) -> Iterator[tuple[slice, slice]]:
        """For each element of a window: where it lies, in the padded image, for all windows."""
        rows, columns = [
            [_tap(i * step, stride, count) for i in range(size)]
            for size, step, stride, count in zip(
                self.kernel, self.dilation, self.stride, self.output, strict=True
            )
        ]
        return ((row, column) for row in rows for column in columns)

    def apart(self) -> bool:
        """Whether no element is in two windows."""
        return all(
            count == 1 or stride >= step * (size - 1) + 1
            for size, step, stride, count in zip(
                self.kernel, self.dilation, self.stride, self.output, strict=True
            )
        )


def _tap(start: int, stride: int, count: int) -> slice:
    return slice(start, start + (count - 1) * stride + 1, stride)


def pair(value: Any, what: str) -> Pair:
    """One number for both directions, or one for each.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        numbers = tuple([one.__index__() for one in value])
        if len(numbers) == 1:
            return numbers[0], numbers[0]
        if len(numbers) == 2:
            return numbers
    elif hasattr(value, "__index__"):
        number = value.__index__()
        return number, number
    raise TypeError(f"{what} must be an integer or a pair of integers, not {value!r}")


def single(value: Any, what: str) -> int:
    """One number, or a sequence of one.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        value = value[0]
    if not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be an integer or a tuple of one integer, not {value!r}")
    number: int = value.__index__()
    return number


def check_images(input: Tensor, name: str, dims: int) -> Tensor:
    """The input with a dimension of samples, which is added where it is missing.

    Args:
        dims: 1 for signals, 2 for images.

    Raises:
        RuntimeError: It has neither of the two numbers of dimensions.
    """
    ndim = input._array.ndim
    if ndim == dims + 2:
        return input
    if ndim == dims + 1:
        return unsqueeze(input, 0)
    raise RuntimeError(
        f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got "
        f"input of size: {list(input._array.shape)}"
    )


def output_size(
    name: str,
    size: Pair,
    kernel: Pair,
    stride: Pair,
    padding: tuple[Pair, Pair],
    dilation: Pair,
    ceil_mode: bool = False,
) -> Pair:
    """How many windows there are.

    Args:
        ceil_mode: Count a last window that only begins inside the image.

    Raises:
        RuntimeError: An argument is out of range, or the image is smaller than a window.
    """
    if min(stride) < 1 or min(dilation) < 1 or min(kernel) < 1 or min(map(min, padding)) < 0:
        raise RuntimeError(
            f"{name}(): kernel size, stride and dilation must be positive and padding not negative"
        )
    counts = []
    for i in range(2):
        before, after = padding[i]
        room = size[i] + before + after - dilation[i] * (kernel[i] - 1) - 1
        count = (room + (stride[i] - 1 if ceil_mode else 0)) // stride[i] + 1
        if ceil_mode and (count - 1) * stride[i] >= size[i] + before:
            count -= 1
        if count < 1 or (room < 0 and not ceil_mode):
            raise RuntimeError(
                f"{name}(): Kernel size can't be greater than actual input size: an image of size "
                f"{size} with padding {padding} holds no window of size {kernel} and dilation "
                f"{dilation}"
            )
        counts.append(count)
    return counts[0], counts[1]


def samples_last(images: Any) -> Any:
    """``(N, C, H, W)`` as ``(C, H, W, N)``."""
    return images.transpose(1, 2, 3, 0)


def dense(images: Any) -> Any:
    """Images ``(N, C, H, W)`` with the sample as the last dimension in memory, without gaps."""
    return samples_first(np.ascontiguousarray(samples_last(images)))


def dropped(result: Tensor, *dims: int) -> Tensor:
    """The result without dimensions that were added to the input.

    Nobody sees the tensor that it is a view of, so it counts as none.
    """
    for dim in sorted(dims, reverse=True):
        result = squeeze(result, dim)
    result._alias = None
    return result


def samples_first(images: Any) -> Any:
    """``(C, H, W, N)`` as ``(N, C, H, W)``."""
    return images.transpose(3, 0, 1, 2)


def padded(images: Any, geometry: Geometry, value: Any = 0) -> Any:
    """Images ``(N, C, H, W)`` as ``(C, H, W, N)``, in that order in memory, with their padding."""
    images = samples_last(images)
    if geometry.padded == geometry.size:
        return np.ascontiguousarray(images)
    (top, _), (left, _) = geometry.padding
    channels, height, width, samples = images.shape
    out = np.full((channels, *geometry.padded, samples), value, images.dtype)
    out[:, top : top + height, left : left + width] = images
    return out


def unpadded(images: Any, geometry: Geometry) -> Any:
    """Undo `padded`: a view."""
    if geometry.padded != geometry.size:
        (top, _), (left, _) = geometry.padding
        height, width = geometry.size
        images = images[:, top : top + height, left : left + width]
    return samples_first(images)


def columns(images: Any, geometry: Geometry) -> Any:
    """The elements of all windows.

    Args:
        images: ``(N, C, H, W)``.

    Returns:
        ``(C, kernel[0], kernel[1], output[0], output[1], N)``, to be read only: where windows do
        not overlap it may be a view.
    """
    source = padded(images, geometry)
    plane, row, column, sample = source.strides
    (down, across), (step_down, step_across) = geometry.stride, geometry.dilation
    return as_strided(
        source,
        (source.shape[0], *geometry.kernel, *geometry.output, source.shape[3]),
        (
            plane,
            step_down * row,
            step_across * column,
            down * row,
            across * column,
            sample,
        ),
        writeable=False,
    )


def added_back(values: Any, geometry: Geometry) -> Any:
    """The adjoint of `columns`: images that hold at each place the sum of what lies there."""
    channels, samples = values.shape[0], values.shape[-1]
    elements = geometry.kernel[0] * geometry.kernel[1]
    flat = values.reshape(channels, elements, *geometry.output, samples)
    out = np.zeros((channels, *geometry.padded, samples), values.dtype)
    for number, (rows, cols) in enumerate(geometry.taps()):
        out[:, rows, cols] += flat[:, number]
    return unpadded(out, geometry)
