"""Normalisation as modules."""

from __future__ import annotations

from typing import Any

from tensorplay.nn import functional, init
from tensorplay.nn.arguments import check_integers, check_numbers
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.ops.creation import ones, zeros
from tensorplay.ops.shape import sizes, squeeze, unsqueeze
from tensorplay.tensor import Tensor


class _Affine(Module):
    """Has a weight and a bias, or neither, or the weight alone."""

    weight: Parameter | None
    bias: Parameter | None

    def _make(self, shape: Any, affine: bool, bias: bool, device: Any, dtype: Any) -> None:
        options = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(shape, **options)) if affine else None)
        added = Parameter(zeros(shape, **options)) if affine and bias else None
        self.register_parameter("bias", added)

    def reset_parameters(self) -> None:
        """Ones for the weight, zeros for the bias."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _Tracking(_Affine):
    """Keeps running averages of means and variances.

    Buffers:
        running_mean, running_var: ``(num_features,)``.
        num_batches_tracked: How many batches went into them.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    #: What `_check` takes.
    _ndims: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        check_integers(num_features=num_features)
        check_numbers(eps=eps, **({} if momentum is None else {"momentum": momentum}))
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._make(num_features, affine, bias, device, dtype)
        options = {"device": device, "dtype": dtype}
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, **options))
            self.register_buffer("running_var", ones(num_features, **options))
            self.register_buffer("num_batches_tracked", zeros((), dtype="int64"))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)

    def reset_running_stats(self) -> None:
        """Forget the running averages."""
        for buffer, write in (
            (self.running_mean, init.zeros_),
            (self.running_var, init.ones_),
            (self.num_batches_tracked, init.zeros_),
        ):
            if buffer is not None:
                write(buffer)

    def reset_parameters(self) -> None:
        """Ones for the weight, zeros for the bias; forget the running averages."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check(self, input: Tensor) -> None:
        if input.ndim not in self._ndims:
            expected = " or ".join([f"{ndim}D" for ndim in self._ndims])
            raise ValueError(f"expected {expected} input (got {input.ndim}D input)")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm2d(_Tracking):
    """Each channel with mean 0 and variance 1 over the batch, times a weight, plus a bias.

    Args:
        num_features: Number of channels.
        eps: Added to the variance.
        momentum: The share of a batch in the running averages; None for that of an average over
            all batches.
        affine: Whether to have a weight (ones at first) and a bias (zeros).
        track_running_stats: Keep running averages, and use them out of training.
        dtype: Element type of parameters and averages.
        bias: With `affine`: whether to have the bias.

    >>> import tensorplay as tp
    >>> sorted(tp.nn.BatchNorm2d(3).state_dict())
    ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight']
    """

    _ndims: tuple[int, ...] = (4,)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def _share(self) -> float:
        """The share of this batch in the running averages; counts it in training."""
        if self.training and self.num_batches_tracked is not None:
            init.constant_(self.num_batches_tracked, self.num_batches_tracked.item() + 1)
            if self.momentum is None:
                return 1.0 / float(self.num_batches_tracked.item())
        return 0.0 if self.momentum is None else self.momentum

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input.

        Raises:
            ValueError: It has the wrong number of dimensions, or, in training, one value a channel.
        """
        self._check(input)
        share = self._share()
        from_batch = self.training or (self.running_mean is None and self.running_var is None)
        tracked = not self.training or self.track_running_stats
        return functional.batch_norm(
            input,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            from_batch,
            share,
            self.eps,
        )


class BatchNorm1d(BatchNorm2d):
    """As `BatchNorm2d`, for ``(N, C)`` and ``(N, C, L)``."""

    _ndims = (2, 3)


class InstanceNorm2d(_Tracking):
    """As `BatchNorm2d`, but each channel of each sample by itself: ``(N, C, H, W)``, ``(C, H, W)``.

    Without weight, bias and running averages unless these are asked for.
    """

    _ndims: tuple[int, ...] = (3, 4)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input.

        Raises:
            ValueError: It has the wrong number of dimensions, or one value a channel.
        """
        self._check(input)
        batch = input if input.ndim == self._ndims[-1] else unsqueeze(input, 0)
        out = functional.instance_norm(
            batch,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum or 0.0,
            self.eps,
        )
        return out if batch is input else squeeze(out, 0)


class InstanceNorm1d(InstanceNorm2d):
    """As `InstanceNorm2d`, for ``(N, C, L)`` and ``(C, L)``."""

    _ndims = (2, 3)


class LayerNorm(_Affine):
    """The last dimensions of each sample with mean 0 and variance 1, times a weight, plus a bias.

    Args:
        normalized_shape: The sizes of these dimensions; a number for the last one alone.
        eps: Added to the variance.
        elementwise_affine: Whether to have a weight (ones at first) and a bias (zeros).
        bias: With `elementwise_affine`: whether to have the bias.
        dtype: Element type of the parameters.

    >>> import tensorplay as tp
    >>> tp.nn.LayerNorm(2)(tp.tensor([[1.0, 3.0]])).detach()
    tensor([[-1.0000,  1.0000]])
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)):
            check_integers(normalized_shape=normalized_shape)
        check_numbers(eps=eps)
        self.normalized_shape = sizes((normalized_shape,))
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._make(self.normalized_shape, elementwise_affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised input."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class GroupNorm(_Affine):
    """Each group of channels of each sample with mean 0 and variance 1, then weight and bias.

    Args:
        num_groups: Into how many groups of the same size the channels are divided.
        num_channels: Number of channels.
        eps: Added to the variance.
        affine: Whether to have a weight (ones at first) and a bias (zeros) for each channel.
        dtype: Element type of the parameters.
        bias: With `affine`: whether to have the bias.

    Raises:
        ValueError: The groups cannot be of the same size.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        check_integers(num_groups=num_groups, num_channels=num_channels)
        check_numbers(eps=eps)
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._make(num_channels, affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """The normalised ``(N, C, ...)``."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
