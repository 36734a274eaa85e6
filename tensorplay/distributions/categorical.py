"""The categorical distribution: one of several classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tensorplay.distributions.distribution import Distribution
from tensorplay.ops.gathering import gather
from tensorplay.ops.pointwise import log
from tensorplay.ops.selection import clamp
from tensorplay.ops.shape import broadcast_to
from tensorplay.ops.softmax import log_softmax, softmax
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor, wrap


class Categorical(Distribution):
    """The numbers from 0 up to the number of classes, each with a probability of its own.

    Args:
        probs: ``(*, classes)``: the probabilities, or numbers in proportion to them.
        logits: Instead: their logarithms, up to a constant.

    Raises:
        ValueError: Not just one of the two is given, it has no dimensions, or a probability is
            negative.

    >>> import tensorplay as tp
    >>> policy = Categorical(logits=tp.zeros(5, 4))
    >>> action = policy.sample()
    >>> policy.log_prob(action).shape
    (5,)
    """

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if probs is not None and logits is None:
            given = probs
        elif logits is not None and probs is None:
            given = logits
        else:
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if given._array.ndim < 1:
            raise ValueError("`probs` and `logits` must be at least one-dimensional.")
        super().__init__(given._array.shape[:-1], validate_args=validate_args)
        self._by_logits = logits is not None
        if self._by_logits:
            self._check(~np.isnan(given._array), "logits must not be NaN")
            self.__dict__["logits"] = log_softmax(given, -1)
        else:
            self._check(given._array >= 0, "probs must not be negative")
            total = given.sum(-1, keepdim=True)
            self._check(total._array > 0, "probs must not all be zero")
            self.__dict__["probs"] = given / total

    def _parameters(self) -> dict[str, Tensor]:
        return {"logits": self.logits} if self._by_logits else {"probs": self.probs}

    @cached_property
    def probs(self) -> Tensor:
        """The probabilities; they add up to 1."""
        return softmax(self.logits, -1)

    @cached_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        least = float(np.finfo(self.probs._array.dtype).eps)
        return log(clamp(self.probs, least, 1 - least))

    @property
    def mean(self) -> Tensor:
        """NaN: classes have no order."""
        return wrap(np.full(self._batch_shape, np.nan, self.probs._array.dtype))

    @property
    def variance(self) -> Tensor:
        """NaN: classes have no order."""
        return self.mean

    @property
    def mode(self) -> Tensor:
        """The likeliest class."""
        return wrap(self.probs._array.argmax(-1))

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of the probabilities."""
        return self.probs.shape

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Classes drawn at random, int64."""
        rising = np.cumsum(self.probs._array, -1, dtype=np.float64)
        # From 0 up to, not including, the sum: so the last class that has a chance is never passed.
        chances = default_generator.draw("random", self._extended(sample_shape)) * rising[..., -1]
        return wrap((rising <= chances[..., None]).sum(-1))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of classes."""
        classes = value._array
        count = self.logits._array.shape[-1]
        self._check((classes >= 0) & (classes < count), f"a class must be below {count}")
        shape = np.broadcast_shapes(classes.shape, self._batch_shape)
        index = wrap(np.broadcast_to(classes, shape)[..., None].astype(np.int64))
        logits = broadcast_to(self.logits, (*shape, count))
        return gather(logits, len(shape), index).squeeze(-1)

    def entropy(self) -> Tensor:
        """How uncertain a class is, in nats."""
        # A probability of zero times its logarithm counts as zero.
        logits = clamp(self.logits, float(np.finfo(self.logits._array.dtype).min))
        return -(logits * self.probs).sum(-1)
