"""Data sets, and how they are split and joined."""

import pytest

import tensorplay as tp
from tensorplay.utils.data import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Squares(Dataset):
    def __init__(self, size):
        self.size = size

    def __getitem__(self, index):
        if index >= self.size:
            raise IndexError(index)
        return index * index

    def __len__(self):
        return self.size


def test_tensors():
    pairs = TensorDataset(tp.arange(3), tp.ones(3, 2))
    assert len(pairs) == 3
    x, y = pairs[1]
    assert x.item() == 1
    assert y.tolist() == [1.0, 1.0]
    assert [one.shape for one in pairs[[0, 2]]] == [(2,), (2, 2)]
    for bad in ((), (tp.ones(2), tp.ones(3))):
        with pytest.raises(ValueError, match="Size mismatch"):
            TensorDataset(*bad)


def test_subsets_and_sums():
    part = Subset(Squares(10), [3, 5])
    assert [part[i] for i in range(len(part))] == [9, 25]
    whole = part + Squares(2) + Squares(3)
    assert isinstance(whole, ConcatDataset)
    assert [whole[i] for i in range(len(whole))] == [9, 25, 0, 1, 0, 1, 4]
    assert whole[-1] == 4
    assert whole[-7] == 9
    for index in (7, -8):
        with pytest.raises(IndexError, match="out of range"):
            whole[index]
    with pytest.raises(ValueError, match="empty"):
        ConcatDataset([])
    with pytest.raises(TypeError, match="IterableDataset"):
        ConcatDataset([IterableDataset()])
    assert Subset(TensorDataset(tp.arange(9)), [4, 6])[[0, 1]][0].tolist() == [4, 6]


def test_random_parts():
    generator = tp.Generator().manual_seed(3)
    parts = random_split(Squares(10), [7, 3], generator)
    assert [len(part) for part in parts] == [7, 3]
    assert sorted([*parts[0], *parts[1]]) == [i * i for i in range(10)]
    again = random_split(Squares(10), [7, 3], tp.Generator().manual_seed(3))
    assert list(again[0]) == list(parts[0])
    assert [len(part) for part in random_split(Squares(10), [0.33, 0.33, 0.34])] == [4, 3, 3]
    with pytest.raises(ValueError, match="does not equal the length"):
        random_split(Squares(10), [7, 4])
    with pytest.raises(ValueError, match="not between 0 and 1"):
        random_split(Squares(10), [1.5, -0.5])
    with pytest.warns(UserWarning, match="split at index 1 is 0"):
        random_split(Squares(1), [0.5, 0.5])


def test_what_subclasses_must_define():
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(IterableDataset())
