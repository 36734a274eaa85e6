"""Convolutions as modules."""

from __future__ import annotations

import math
from typing import Any

from tensorplay.nn import functional, init
from tensorplay.nn.arguments import check_integers
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.ops.convolution import paddings
from tensorplay.ops.creation import empty
from tensorplay.ops.padding import MODES
from tensorplay.ops.windows import pair, single
from tensorplay.tensor import Tensor


class _Convolution(Module):
    """What all convolutions have: a weight, maybe a bias, and how the windows lie.

    The parameters are drawn evenly from ``[-k, k)``, where ``k`` is one divided by the square root
    of the number of weights that make one output.
    """

    weight: Parameter
    bias: Parameter | None
    transposed = False
    _dims = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        check_integers(in_channels=in_channels, out_channels=out_channels, groups=groups)
        if groups < 1:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        allowed = ("zeros",) if self.transposed else ("zeros", *MODES[1:])
        if padding_mode not in allowed:
            raise ValueError(f"padding_mode must be one of {allowed}, but got {padding_mode!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = self._sizes(kernel_size, "kernel_size")
        self.stride = self._sizes(stride, "stride")
        self.dilation = self._sizes(dilation, "dilation")
        self.padding: Any = self._checked_padding(padding)
        self.output_padding = self._sizes(output_padding, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        channels = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (channels[0], channels[1] // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        if bias:
            self.bias = Parameter(empty(out_channels, dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _sizes(self, value: Any, what: str) -> tuple[int, ...]:
        return (single(value, what),) if self._dims == 1 else pair(value, what)

    def _checked_padding(self, padding: Any) -> Any:
        if not isinstance(padding, str) or self.transposed:
            return self._sizes(padding, "padding")
        if padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of valid, same")
        if padding == "same" and any(step != 1 for step in self.stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        return padding

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        fan_in = math.prod(self.weight.shape[1:])
        if fan_in:
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(fan_in) if fan_in else 0
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def _with_padding(self, input: Tensor) -> tuple[Tensor, Any]:
        """The input, padded unless with zeros, and what is still to be padded with zeros."""
        if self.padding_mode == "zeros":
            return input, self.padding
        pads = paddings(self.padding, self.kernel_size, self.stride, self.dilation)
        # The last dimension comes first there.
        amounts = [amount for pair in reversed(pads) for amount in pair]
        return functional.pad(input, amounts, self.padding_mode), 0

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        if self.padding != (0,) * self._dims:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self._dims:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * self._dims:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class Conv2d(_Convolution):
    """Convolution of images: `tensorplay.nn.functional.conv2d` with parameters of its own.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of a window: one number, or one for each direction.
        stride: From one window to the next.
        padding: What is added around the image, or ``"same"``, or ``"valid"``.
        dilation: From one element of a window to the next.
        groups: So many convolutions side by side, each of its share of the channels.
        bias: Whether to add a bias.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        dtype: Element type of the parameters.

    Raises:
        ValueError: The arguments contradict one another.

    >>> import tensorplay as tp
    >>> tp.nn.Conv2d(3, 8, 3, padding=1)(tp.ones(2, 3, 5, 5)).shape
    (2, 8, 5, 5)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of ``(N, C, H, W)`` or ``(C, H, W)``."""
        input, padding = self._with_padding(input)
        return functional.conv2d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(Conv2d):
    """As `Conv2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""

    _dims = 1

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of ``(N, C, L)`` or ``(C, L)``."""
        input, padding = self._with_padding(input)
        return functional.conv1d(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class ConvTranspose2d(_Convolution):
    """The transpose of `Conv2d`: `tensorplay.nn.functional.conv_transpose2d` with parameters.

    Args:
        output_padding: Rows and columns added behind; less than the stride or the dilation.

    The others are those of `Conv2d`.

    >>> import tensorplay as tp
    >>> tp.nn.ConvTranspose2d(3, 8, 2, stride=2)(tp.ones(2, 3, 5, 5)).shape
    (2, 8, 10, 10)
    """

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """The transposed convolution; `output_size` chooses among the sizes that are possible.

        Raises:
            ValueError: `output_size` is none of them.
        """
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        apply = functional.conv_transpose1d if self._dims == 1 else functional.conv_transpose2d
        return apply(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _extra(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        wanted = tuple(output_size)[-self._dims :]
        least = [
            (size - 1) * self.stride[i]
            - 2 * self.padding[i]
            + self.dilation[i] * (self.kernel_size[i] - 1)
            + 1
            for i, size in enumerate(input.shape[-self._dims :])
        ]
        extra = [one - have for one, have in zip(wanted, least, strict=True)]
        if any(not 0 <= one < max(self.stride[i], 1) for i, one in enumerate(extra)):
            raise ValueError(
                f"requested an output size of {list(wanted)}, but valid sizes range from {least} "
                f"to {[have + self.stride[i] - 1 for i, have in enumerate(least)]}"
            )
        return tuple(extra)


class ConvTranspose1d(ConvTranspose2d):
    """As `ConvTranspose2d`, for signals: ``(N, C, L)`` or ``(C, L)``."""

    _dims = 1
