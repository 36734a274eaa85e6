"""Going through a data set in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorplay.random import Generator
from tensorplay.utils.data.collate import default_collate
from tensorplay.utils.data.dataset import IterableDataset
from tensorplay.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler


class DataLoader:
    """Batches of a data set's samples; each ``for`` loop goes through all of them anew.

    Args:
        dataset: Samples by their numbers, or an `IterableDataset`.
        batch_size: Samples in a batch; None for samples one by one, as they are.
        shuffle: Go through them in a random order.
        sampler: Gives the numbers of the samples; instead of `shuffle`.
        batch_sampler: Gives lists of numbers; instead of `batch_size`, `shuffle`, `sampler` and
            `drop_last`.
        num_workers: Must be 0: samples are made by the process that wants them.
        collate_fn: Makes a batch of a list of samples; by default `default_collate`.
        pin_memory: Accepted for PyTorch's sake; it changes nothing here.
        drop_last: Leave out the last batch if it has fewer samples.
        timeout: Must be 0: there are no workers to wait for.
        worker_init_fn: Must be None, likewise.
        generator: Where the random order comes from; by default the one that `manual_seed` seeds.

    Raises:
        ValueError: Arguments that exclude one another, or `num_workers` is not 0.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        *,
        generator: Generator | None = None,
    ) -> None:
        if num_workers or timeout or worker_init_fn is not None:
            raise ValueError(
                "num_workers must be 0, without timeout and worker_init_fn: samples are made by "
                "the process that wants them (a rank must not fork once MPI has started)"
            )
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError(
                "DataLoader with IterableDataset: expected unspecified shuffle, sampler and "
                "batch_sampler: its samples have no numbers"
            )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                    "and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        if sampler is None and not self._iterable:
            if shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and sampler is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = 0
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.generator = generator
        self._collates = batch_sampler is not None or batch_size is not None
        if collate_fn is None:
            collate_fn = default_collate if self._collates else _as_it_is
        self.collate_fn = collate_fn

    def __iter__(self) -> Iterator[Any]:
        if self._iterable:
            yield from self._from_stream()
        elif self.batch_sampler is not None:
            for numbers in self.batch_sampler:
                yield self.collate_fn(self._fetched(numbers))
        else:
            assert self.sampler is not None
            for number in self.sampler:
                yield self.collate_fn(self.dataset[number])

    def _fetched(self, numbers: list[Any]) -> list[Any]:
        if hasattr(self.dataset, "__getitems__"):
            samples: list[Any] = self.dataset.__getitems__(numbers)
            return samples
        return [self.dataset[number] for number in numbers]

    def _from_stream(self) -> Iterator[Any]:
        if self.batch_size is None:
            for sample in self.dataset:
                yield self.collate_fn(sample)
            return
        for batch in BatchSampler(self.dataset, self.batch_size, self.drop_last):
            yield self.collate_fn(batch)

    def __len__(self) -> int:
        if self._iterable:
            count = len(self.dataset)
            if self.batch_size is None:
                return count
            full, rest = divmod(count, self.batch_size)
            return full + bool(rest and not self.drop_last)
        source: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(source)


def _as_it_is(sample: Any) -> Any:
    return sample
