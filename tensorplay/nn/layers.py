"""Layers."""

from __future__ import annotations

import math
from typing import Any

from tensorplay.nn import functional, init
from tensorplay.nn.arguments import check_integers
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.ops.creation import empty
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.shape import flatten, reshape, sizes
from tensorplay.tensor import Tensor


class Linear(Module):
    """``x @ weight.T + bias`` on the last dimension of `x`.

    Args:
        in_features: Size of the input's last dimension.
        out_features: Size of the output's.
        bias: Whether to add a bias.
        dtype: Element type of the parameters.

    The parameters are drawn evenly from ``[-k, k)``, where ``k = 1 / sqrt(in_features)``.

    >>> import tensorplay as tp
    >>> tp.nn.Linear(3, 2)(tp.ones(5, 3)).shape
    (5, 2)
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_integers(in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features, dtype=dtype, device=device))
        if bias:
            self.bias = Parameter(empty(out_features, dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        if self.in_features:
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """The affine map."""
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Identity(Module):
    """Returns its input; takes any arguments when made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """The input."""
        return input


class Flatten(Module):
    """Dimensions `start_dim` to `end_dim` (inclusive) as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        check_integers(start_dim=start_dim, end_dim=end_dim)
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """The input, flattened."""
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several.

    Args:
        dim: Which.
        unflattened_size: The sizes of those that take its place; one of them may be -1.

    >>> import tensorplay as tp
    >>> tp.nn.Unflatten(1, (2, 3))(tp.ones(5, 6)).shape
    (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        check_integers(dim=dim)
        self.dim = dim
        self.unflattened_size = sizes((unflattened_size,))

    def forward(self, input: Tensor) -> Tensor:
        """The input in its new shape."""
        shape = input.shape
        axis = axis_of(self.dim, len(shape))
        return reshape(input, (*shape[:axis], *self.unflattened_size, *shape[axis + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class ZeroPad2d(Module):
    """Zeros around images.

    Args:
        padding: How many on all sides, or ``(left, right, top, bottom)``; negative ones cut.

    >>> import tensorplay as tp
    >>> tp.nn.ZeroPad2d((1, 0, 0, 1))(tp.ones(1, 1, 2))
    tensor([[[0., 1., 1.],
             [0., 0., 0.]]])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__()
        if not isinstance(padding, (tuple, list)):
            check_integers(padding=padding)
        self.padding = sizes((padding,)) if isinstance(padding, (tuple, list)) else (padding,) * 4
        if len(self.padding) != 4:
            raise ValueError(f"padding must be one number or four, not {padding!r}")

    def forward(self, input: Tensor) -> Tensor:
        """``(N, C, H, W)`` or ``(C, H, W)``, padded."""
        return functional.pad(input, self.padding)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class Upsample(Module):
    """Images or signals in another size: `tensorplay.nn.functional.interpolate`.

    Args:
        size: The new size: one number for all directions, or one for each.
        scale_factor: Instead of `size`: the ratio of new to old, likewise.
        mode: ``"nearest"``.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest") -> None:
        super().__init__()
        self.size = size
        if isinstance(scale_factor, (tuple, list)):
            scale_factor = tuple([float(one) for one in scale_factor])
        self.scale_factor = float(scale_factor) if isinstance(scale_factor, int) else scale_factor
        self.mode = mode

    def forward(self, input: Tensor) -> Tensor:
        """``(N, C, L)`` or ``(N, C, H, W)`` in the new size."""
        return functional.interpolate(input, self.size, self.scale_factor, self.mode)

    def extra_repr(self) -> str:
        given = f"size={self.size}"
        if self.scale_factor is not None:
            given = f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"
