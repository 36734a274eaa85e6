"""Pooling, and windows as columns, as modules."""

from __future__ import annotations

from typing import Any

from tensorplay.nn import functional
from tensorplay.nn.module import Module
from tensorplay.ops.windows import single
from tensorplay.tensor import Tensor


class MaxPool2d(Module):
    """The greatest element of each window: `tensorplay.nn.functional.max_pool2d`.

    Args:
        kernel_size: Size of a window: one number, or one for each direction.
        stride: From one window to the next; by default the size of a window.
        padding: How far windows reach over the edge; at most half their size.
        dilation: From one element of a window to the next.
        return_indices: Return ``(maxima, indices)``.
        ceil_mode: Take a last window too that lies only partly in the image.

    >>> import tensorplay as tp
    >>> tp.nn.MaxPool2d(2)(tp.ones(1, 3, 6, 8)).shape
    (1, 3, 3, 4)
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """The maxima of ``(N, C, H, W)`` or ``(C, H, W)``."""
        return self._pool(functional.max_pool2d, input)

    def _pool(self, pool: Any, input: Tensor) -> Any:
        return pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(MaxPool2d):
    """As `MaxPool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""

    def forward(self, input: Tensor) -> Any:
        """The maxima of ``(N, C, L)`` or ``(C, L)``."""
        return self._pool(functional.max_pool1d, input)


class AvgPool2d(Module):
    """The mean of each window: `tensorplay.nn.functional.avg_pool2d`.

    Args:
        kernel_size: Size of a window: one number, or one for each direction.
        stride: From one window to the next; by default the size of a window.
        padding: How far windows reach over the edge; at most half their size.
        ceil_mode: Take a last window too that lies only partly in the image.
        count_include_pad: Count the zeros of the padding as elements.
        divisor_override: Divide the sums by this instead.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """The means of ``(N, C, H, W)`` or ``(C, H, W)``."""
        return functional.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Module):
    """As `AvgPool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = (single(kernel_size, "kernel_size"),)
        self.stride = self.kernel_size if stride is None else (single(stride, "stride"),)
        self.padding = (single(padding, "padding"),)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """The means of ``(N, C, L)`` or ``(C, L)``."""
        return functional.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means of windows that cover the image evenly.

    Args:
        output_size: Number of windows: one for both directions, or one for each; None keeps the
            image's size.
    """

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """The means of ``(N, C, H, W)`` or ``(C, H, W)``."""
        return functional.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """As `AdaptiveAvgPool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""

    def forward(self, input: Tensor) -> Tensor:
        """The means of ``(N, C, L)`` or ``(C, L)``."""
        return functional.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveMaxPool2d(Module):
    """Maxima of windows that cover the image evenly.

    Args:
        output_size: As for `AdaptiveAvgPool2d`.
        return_indices: Return ``(maxima, indices)``.
    """

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """The maxima of ``(N, C, H, W)`` or ``(C, H, W)``."""
        return functional.adaptive_max_pool2d(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
    """As `AdaptiveMaxPool2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""

    def forward(self, input: Tensor) -> Any:
        """The maxima of ``(N, C, L)`` or ``(C, L)``."""
        return functional.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class Unfold(Module):
    """The elements of each window as a column: `tensorplay.nn.functional.unfold`."""

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The columns of ``(N, C, H, W)`` or ``(C, H, W)``."""
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Unfold):
    """Columns added up at the places of their windows: `tensorplay.nn.functional.fold`."""

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """The images of ``(N, C * elements of a window, windows)``, or that without `N`."""
        return functional.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
