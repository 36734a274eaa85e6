"""In which order the samples of a data set are gone through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from tensorplay.random import Generator, default_generator

Index = TypeVar("Index", covariant=True)


class Sampler(Generic[Index]):
    """An order of the samples: a subclass defines ``__iter__`` and, if it can, ``__len__``."""

    def __iter__(self) -> Iterator[Index]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """From the first to the last."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """In a random order, another one each time.

    Args:
        data_source: The data set.
        replacement: Draw each number anew, so that some come several times and others never.
        num_samples: How many to draw; by default as many as there are.
        generator: Where the order comes from; by default the one that `manual_seed` seeds.

    Raises:
        ValueError: `num_samples` is not positive.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if num_samples is not None and num_samples <= 0:
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many numbers one pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, left = len(self.data_source), self.num_samples
        source = self.generator or default_generator
        if self.replacement:
            yield from source.draw("integers", 0, size, left).tolist()
            return
        while left > 0 and size:
            yield from source.draw("permutation", size)[:left].tolist()
            left -= size

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given numbers, in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        source = self.generator or default_generator
        for i in source.draw("permutation", len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Numbers drawn with given chances.

    Args:
        weights: The chance of each number; they need not add up to 1.
        num_samples: How many to draw.
        replacement: Whether a number may come several times.
        generator: Where they come from; by default the one that `manual_seed` seeds.

    Raises:
        ValueError: `num_samples` is not positive, or the weights are not a vector.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        if num_samples <= 0:
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        self.weights = np.asarray(weights, np.float64)
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {self.weights.shape}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        source = self.generator or default_generator
        chances = self.weights / self.weights.sum()
        size = len(chances)
        drawn = source.draw("choice", size, self.num_samples, self.replacement, chances)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[Any]]):
    """The numbers that another sampler gives, several at a time.

    Args:
        sampler: Gives the numbers.
        batch_size: How many at a time.
        drop_last: Leave out the last batch if it has fewer.

    Raises:
        ValueError: `batch_size` is not a positive whole number.

    >>> list(BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if type(batch_size) is not int or batch_size <= 0:
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]  # a TypeError says that it has none
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
