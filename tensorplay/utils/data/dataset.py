"""Data sets: samples by their numbers, or one after another."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from tensorplay.random import Generator, randperm
from tensorplay.tensor import Tensor

Sample = TypeVar("Sample", covariant=True)


class Dataset(Generic[Sample]):
    """Samples by their numbers: a subclass defines ``__getitem__`` and, mostly, ``__len__``.

    A subclass may also define ``__getitems__``, which takes a list of numbers and returns a list of
    samples.
    """

    def __getitem__(self, index: Any) -> Sample:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Sample]):
    """Samples one after another, without numbers: a subclass defines ``__iter__``."""

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors of equal first size; a sample is a tuple of their rows with one number.

    Raises:
        ValueError: The first sizes differ, or there is no tensor.
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors or len({len(one) for one in tensors}) != 1:
            raise ValueError(f"Size mismatch between tensors: {[one.shape for one in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([one[index] for one in self.tensors])

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset[Sample]):
    """Some of the samples of another data set.

    Args:
        dataset: The whole.
        indices: The numbers, in the whole, of the samples that this one consists of.
    """

    def __init__(self, dataset: Dataset[Sample], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[Sample]):
    """Several data sets as one, the samples of each after those of the one before.

    Raises:
        ValueError: There is none.
        TypeError: One has no numbers to its samples.
    """

    def __init__(self, datasets: Iterable[Dataset[Sample]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("datasets should not be an empty iterable")
        if any(isinstance(one, IterableDataset) for one in self.datasets):
            raise TypeError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate([_size(one) for one in self.datasets]))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Sample:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"index {index} is out of range for {size} samples")
        index %= size
        place = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[place - 1] if place else 0
        return self.datasets[place][index - before]


def _size(dataset: Any) -> int:
    return len(dataset)


def random_split(
    dataset: Dataset[Sample],
    lengths: Sequence[int | float],
    generator: Generator | None = None,
) -> list[Subset[Sample]]:
    """Data sets that share the samples of one out among them, at random.

    Args:
        dataset: The whole.
        lengths: How many samples each gets; or what share, if they add up to 1 (what is left over
            by rounding goes to the first ones).
        generator: Where the order comes from; by default the one that `manual_seed` seeds.

    Raises:
        ValueError: The lengths do not add up to that of the whole, or a share is not in [0, 1].

    >>> import tensorplay as tp
    >>> parts = random_split(range(10), [0.7, 0.3])
    >>> [len(part) for part in parts]
    [7, 3]
    """
    total = _size(dataset)
    counts: list[int]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, share in enumerate(lengths):
            if not 0 <= share <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        counts = [math.floor(total * share) for share in lengths]
        for i in range(total - sum(counts)):
            counts[i % len(counts)] += 1
        for i, count in enumerate(counts):
            if count == 0:
                warnings.warn(
                    f"Length of split at index {i} is 0. This might result in an empty dataset.",
                    stacklevel=2,
                )
    else:
        counts = [int(count) for count in lengths]
    if sum(counts) != total:
        raise ValueError(
            "Sum of input lengths does not equal the length of the input dataset: "
            f"{sum(counts)} and {total}"
        )
    order = randperm(total, generator=generator).tolist()
    bounds = itertools.pairwise(itertools.accumulate(counts, initial=0))
    return [Subset(dataset, order[a:b]) for a, b in bounds]
