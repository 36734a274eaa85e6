"""The uniform distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay.distributions.distribution import Distribution, broadcast_all, drawn
from tensorplay.ops.pointwise import log, square
from tensorplay.ops.selection import clamp, where
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor, wrap


class Uniform(Distribution):
    """Numbers from `low` up to, not including, `high`, all equally likely.

    Raises:
        ValueError: `low` is not below `high`.
    """

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low._array.shape, validate_args=validate_args)
        self._check(self.low._array < self.high._array, "low must be below high")

    def _parameters(self) -> dict[str, Tensor]:
        return {"low": self.low, "high": self.high}

    @property
    def mean(self) -> Tensor:
        """The middle."""
        result: Tensor = (self.high + self.low) / 2
        return result

    @property
    def variance(self) -> Tensor:
        """A twelfth of the square of the width."""
        result: Tensor = square(self.high - self.low) / 12
        return result

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values drawn at random; gradients flow to the bounds."""
        values = default_generator.draw("random", self._extended(sample_shape))
        result: Tensor = self.low + drawn(values, self.low) * (self.high - self.low)
        return result

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density: minus infinity outside the bounds."""
        x = value._array
        inside = wrap((self.low._array <= x) & (x < self.high._array))
        result: Tensor = where(inside, -log(self.high - self.low), -np.inf)
        return result

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is not above `value`."""
        return clamp((value - self.low) / (self.high - self.low), 0.0, 1.0)

    def entropy(self) -> Tensor:
        """How uncertain a value is, in nats."""
        return log(self.high - self.low)
