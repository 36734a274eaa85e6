"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorplay.distributions.distribution import Distribution, broadcast_all, drawn
from tensorplay.ops.pointwise import log, square
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Normal(Distribution):
    """Numbers around `loc`, mostly within `scale` of it.

    Args:
        loc: The mean; a tensor or a number.
        scale: The standard deviation; positive.

    Raises:
        ValueError: A `scale` is not positive.

    >>> import tensorplay as tp
    >>> Normal(tp.zeros(3), 1.0).sample((2,)).shape
    (2, 3)
    """

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc._array.shape, validate_args=validate_args)
        self._check(self.scale._array > 0, "scale must be positive")

    def _parameters(self) -> dict[str, Tensor]:
        return {"loc": self.loc, "scale": self.scale}

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.loc

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """The square of the standard deviation."""
        return square(self.scale)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values drawn at random; gradients flow to the parameters."""
        values = default_generator.draw("standard_normal", self._extended(sample_shape))
        result: Tensor = self.loc + drawn(values, self.loc) * self.scale
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density at `value`."""
        result: Tensor = (
            -square((value - self.loc) / self.scale) / 2 - log(self.scale) - _LOG_SQRT_2_PI
        )
        return result

    def entropy(self) -> Tensor:
        """How uncertain a value is, in nats."""
        return log(self.scale) + (0.5 + _LOG_SQRT_2_PI)
