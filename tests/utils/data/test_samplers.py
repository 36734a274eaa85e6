"""Orders of samples."""

from collections import Counter

import pytest

import tensorplay as tp
from tensorplay.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

DATA = range(10)


def seeded(seed=0):
    return tp.Generator().manual_seed(seed)


def test_one_after_another():
    assert list(SequentialSampler(DATA)) == list(DATA)
    assert len(SequentialSampler(DATA)) == 10
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(Sampler())


def test_at_random():
    sampler = RandomSampler(DATA, generator=seeded())
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(DATA)
    assert first != second
    assert list(RandomSampler(DATA, generator=seeded())) == first
    tp.manual_seed(4)
    by_default = list(RandomSampler(DATA))
    tp.manual_seed(4)
    assert list(RandomSampler(DATA)) == by_default


def test_another_number():
    assert len(list(RandomSampler(DATA, num_samples=4))) == len(set(RandomSampler(DATA, False, 4)))
    more = list(RandomSampler(DATA, num_samples=25))
    assert len(more) == 25
    assert sorted(more[:10]) == sorted(more[10:20]) == list(DATA)
    again = RandomSampler(DATA, replacement=True, num_samples=500, generator=seeded())
    assert len(again) == 500
    assert set(again) == set(DATA)
    with pytest.raises(ValueError, match="positive"):
        RandomSampler(DATA, num_samples=0)


def test_some_numbers():
    assert sorted(SubsetRandomSampler([3, 5, 8], seeded())) == [3, 5, 8]
    assert len(SubsetRandomSampler([3, 5, 8])) == 3


def test_with_chances():
    drawn = Counter(WeightedRandomSampler([0, 1, 3], 4000, generator=seeded()))
    assert drawn[0] == 0
    assert drawn[2] / drawn[1] == pytest.approx(3, rel=0.2)
    once = WeightedRandomSampler([1, 1, 1], 3, replacement=False)
    assert sorted(once) == [0, 1, 2]
    assert len(once) == 3
    with pytest.raises(ValueError, match="positive"):
        WeightedRandomSampler([1], 0)
    with pytest.raises(ValueError, match="1d sequence"):
        WeightedRandomSampler([[1]], 1)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 3, 5, 10, 20])
def test_batches(size, drop_last):
    sampler = BatchSampler(SequentialSampler(DATA), size, drop_last)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    kept = [i for batch in batches for i in batch]
    assert kept == list(DATA)[: 10 - 10 % size if drop_last else 10]
    assert all(len(batch) == size for batch in batches[:-1])


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_batches_of_a_bad_size(size):
    with pytest.raises(ValueError, match="positive integer"):
        BatchSampler(SequentialSampler(DATA), size, False)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("size", "ranks"), [(10, 1), (10, 3), (9, 3), (2, 5), (11, 4)])
def test_ranks_share_all(size, ranks, drop_last, shuffle):
    samplers = [
        DistributedSampler(range(size), ranks, rank, shuffle, drop_last=drop_last)
        for rank in range(ranks)
    ]
    parts = [list(sampler) for sampler in samplers]
    assert len({len(part) for part in parts}) == 1
    assert [len(sampler) for sampler in samplers] == [len(part) for part in parts]
    met = Counter(i for part in parts for i in part)
    if drop_last:
        assert sum(met.values()) == size - size % ranks
        assert max(met.values(), default=1) == 1
    else:
        assert set(met) == set(range(size))
        assert sum(met.values()) < size + ranks


def test_each_epoch_has_its_order():
    sampler = DistributedSampler(range(50), 2, 0, seed=1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    other = DistributedSampler(range(50), 2, 1, seed=1)
    other.set_epoch(1)
    assert not set(sampler) & set(other)


def test_ranks_must_be_known():
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        DistributedSampler(range(3))
    for rank in (2, -1):
        with pytest.raises(ValueError, match=f"Invalid rank {rank}"):
            DistributedSampler(range(3), 2, rank)
