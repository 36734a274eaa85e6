"""The Bernoulli distribution: yes or no."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tensorplay.distributions.distribution import Distribution, broadcast_all, drawn
from tensorplay.ops.pointwise import log, sigmoid
from tensorplay.ops.probability_losses import binary_cross_entropy_with_logits
from tensorplay.ops.selection import clamp
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor, wrap


class Bernoulli(Distribution):
    """1 with a given probability, else 0.

    Args:
        probs: The probability of 1.
        logits: Instead: its logarithm minus that of the probability of 0.

    Raises:
        ValueError: Not just one of the two is given, or a probability is not in [0, 1].
    """

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._by_logits = logits is not None
        (given,) = broadcast_all(logits if self._by_logits else probs)
        super().__init__(given._array.shape, validate_args=validate_args)
        if self._by_logits:
            self.__dict__["logits"] = given
        else:
            self._check((given._array >= 0) & (given._array <= 1), "probs must be between 0 and 1")
            self.__dict__["probs"] = given

    def _parameters(self) -> dict[str, Tensor]:
        return {"logits": self.logits} if self._by_logits else {"probs": self.probs}

    @cached_property
    def probs(self) -> Tensor:
        """The probability of 1."""
        return sigmoid(self.logits)

    @cached_property
    def logits(self) -> Tensor:
        """The logarithm of the probability of 1 minus that of the probability of 0."""
        least = float(np.finfo(self.probs._array.dtype).eps)
        probs = clamp(self.probs, least, 1 - least)
        result: Tensor = log(probs) - log(1 - probs)
        return result

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        return self.probs

    @property
    def variance(self) -> Tensor:
        """The expected square of the distance from the mean."""
        result: Tensor = self.probs * (1 - self.probs)
        return result

    @property
    def mode(self) -> Tensor:
        """The likelier of the two; NaN where neither is."""
        p = self.probs._array
        return wrap(np.where(p == 0.5, math.nan, p > 0.5).astype(p.dtype))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Zeros and ones drawn at random."""
        values = default_generator.draw("random", self._extended(sample_shape))
        return drawn(values < self.probs._array, self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of `value`, which is 0 or 1."""
        self._check((value._array == 0) | (value._array == 1), "a value must be 0 or 1")
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        """How uncertain a value is, in nats."""
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
