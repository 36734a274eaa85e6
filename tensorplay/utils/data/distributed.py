"""Sharing a data set out among ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from tensorplay.random import Generator, randperm
from tensorplay.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """The samples of one rank: all ranks together go through the data set once.

    Each rank gets as many samples as any other: the first ones come a second time, or the last
    ones are left out, as far as need be.  Call `set_epoch` before each pass, or the order is the
    same in all of them.

    Args:
        dataset: The whole data set.
        num_replicas: How many ranks share it; by default all workers of RPC.
        rank: Which of them this is; by default this worker's id.
        shuffle: Go through it in a random order, the same on all ranks.
        seed: Of that order; the same on all ranks.
        drop_last: Leave out the last samples, rather than repeat the first, so that all ranks get
            the same number.

    Raises:
        RuntimeError: RPC is not initialised, and `num_replicas` or `rank` is not given.
        ValueError: The rank is not one of the `num_replicas`.

    >>> [list(DistributedSampler(range(5), 2, rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            # Only here: a data set can be gone through without MPI.
            from tensorplay.distributed import rpc

            if num_replicas is None:
                num_replicas = rpc.get_world_size()
            if rank is None:
                rank = rpc.get_worker_info().id
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        size = len(dataset)
        self.num_samples = size // num_replicas if drop_last else math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = randperm(size, generator=generator).tolist()
        else:
            order = list(range(size))
        if size:
            order *= math.ceil(self.total_size / size)
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which pass comes next, so that each has an order of its own."""
        self.epoch = epoch
