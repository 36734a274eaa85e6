"""What all distributions have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.grad_mode import no_grad
from tensorplay.ops.creation import tensor
from tensorplay.ops.pointwise import exp, sqrt
from tensorplay.ops.shape import broadcast_to
from tensorplay.tensor import Tensor, wrap

Shape = tuple[int, ...]
_Self = TypeVar("_Self", bound="Distribution")


class Distribution:
    """A batch of distributions of one kind.

    Args:
        batch_shape: The shape of the batch: one distribution for each place.
        event_shape: The shape of what one distribution gives; ``()`` for single numbers.
        validate_args: Check parameters and values.
    """

    #: Whether `rsample` exists: samples through which gradients flow to the parameters.
    has_rsample = False

    def __init__(
        self, batch_shape: Shape = (), event_shape: Shape = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape = tuple(batch_shape)
        self._event_shape = tuple(event_shape)
        self._validate_args = validate_args is not False

    @property
    def batch_shape(self) -> Shape:
        """The shape of the batch."""
        return self._batch_shape

    @property
    def event_shape(self) -> Shape:
        """The shape of what one distribution gives."""
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def variance(self) -> Tensor:
        """The expected square of the distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return sqrt(self.variance)

    def expand(self: _Self, batch_shape: Sequence[int], _instance: Any = None) -> _Self:
        """The same distributions with a larger batch shape, broadcast."""
        shape = tuple(batch_shape)
        own: dict[str, Any] = {
            name: broadcast_to(value, shape + value._array.shape[len(self._batch_shape) :])
            for name, value in self._parameters().items()
        }
        return type(self)(**own, validate_args=False)

    def _parameters(self) -> dict[str, Tensor]:
        """The constructor's arguments, for `expand`."""
        raise NotImplementedError(f"{type(self).__name__} cannot be expanded")

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values drawn at random, ``sample_shape + batch_shape + event_shape``; no gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """As `sample`, but gradients flow through the values to the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample: use sample")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability (or its density) of values."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is not above the values."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def entropy(self) -> Tensor:
        """How uncertain a value is, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return exp(self.entropy())

    def _extended(self, sample_shape: Sequence[int]) -> Shape:
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def _check(self, condition: Any, what: str) -> None:
        """Raise unless a condition (an array) holds everywhere."""
        if self._validate_args and not np.all(condition):
            raise ValueError(f"{type(self).__name__}: {what}")

    def __repr__(self) -> str:
        shown = [f"{name}: {_short(value)}" for name, value in self._parameters().items()]
        return f"{type(self).__name__}({', '.join(shown)})"


def _short(value: Tensor) -> str:
    return str(value.item()) if value._array.size == 1 else str(tuple(value._array.shape))


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape.

    Numbers get the type of the first tensor, or the default type.

    Raises:
        ValueError: One is neither a tensor nor a number.
    """
    for value in values:
        if not isinstance(value, (Tensor, int, float)):
            raise ValueError(
                f"Input arguments must all be numbers or tensors, not {type(value).__name__}"
            )
    given = [value for value in values if isinstance(value, Tensor)]
    dtype = given[0]._array.dtype if given else dtypes.get_default_dtype()
    tensors = [
        value if isinstance(value, Tensor) else tensor(value, dtype=dtype) for value in values
    ]
    shape = np.broadcast_shapes(*[one._array.shape for one in tensors])
    return tuple(
        [one if one._array.shape == shape else broadcast_to(one, shape) for one in tensors]
    )


def drawn(array: Any, like: Tensor) -> Tensor:
    """Random numbers as a tensor of a parameter's type."""
    return wrap(np.asarray(array, like._array.dtype))
