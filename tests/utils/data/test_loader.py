"""Batches: how they are made, and in which order they come."""

from collections import namedtuple

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    default_collate,
)

Point = namedtuple("Point", "x y")


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(7))


class SizedStream(Stream):
    def __len__(self):
        return 7


def lists(loader):
    return [batch.tolist() for batch in loader]


def test_batches():
    data = TensorDataset(tp.arange(7), tp.arange(7) * 2.0)
    loader = DataLoader(data, batch_size=3)
    assert len(loader) == 3
    batches = list(loader)
    assert [x.tolist() for x, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches[0][1].dtype == tp.float32
    loader = DataLoader(data, 3, drop_last=True)
    assert len(loader) == len(list(loader)) == 2


def test_orders():
    shuffled = DataLoader(range(20), 4, shuffle=True, generator=tp.Generator().manual_seed(1))
    first, second = ([i for batch in lists(shuffled) for i in batch] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert lists(DataLoader(range(5), 2, sampler=[4, 2, 0])) == [[4, 2], [0]]
    loader = DataLoader(range(5), batch_sampler=[[1, 1], [0, 4, 2]])
    assert lists(loader) == [[1, 1], [0, 4, 2]]
    assert len(loader) == 2
    single = DataLoader(range(3), batch_size=None)
    assert list(single) == [0, 1, 2]
    assert len(single) == 3


def test_streams():
    assert lists(DataLoader(Stream(), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert lists(DataLoader(Stream(), 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert list(DataLoader(Stream(), None)) == list(range(7))
    assert len(DataLoader(SizedStream(), 3)) == 3
    assert len(DataLoader(SizedStream(), 3, drop_last=True)) == 2
    assert len(DataLoader(SizedStream(), None)) == 7
    with pytest.raises(TypeError, match="len"):
        len(DataLoader(Stream(), 3))


def test_collating():
    assert list(DataLoader(range(4), 2, collate_fn=sum)) == [1, 5]
    many = [
        {"t": tp.ones(2), "n": (1, 2.5), "s": "a", "p": Point(True, np.float32(1)), "a": np.ones(1)}
    ] * 3
    batch = default_collate(many)
    assert batch["t"].shape == (3, 2)
    assert [one.dtype for one in batch["n"]] == [tp.int64, tp.float64]
    assert batch["s"] == ["a"] * 3
    assert type(batch["p"]) is Point
    assert [one.dtype for one in batch["p"]] == [tp.bool, tp.float32]
    assert batch["a"].dtype == tp.float64
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([(1, 2), (1,)])
    for bad in (object(), None, np.array(["x"])):
        with pytest.raises(TypeError, match=r"batch|arrays"):
            default_collate([bad])


class AtOnce(Dataset):
    def __getitems__(self, numbers):
        return [number * 10 for number in numbers]

    def __len__(self):
        return 4


def test_samples_made_at_once():
    assert lists(DataLoader(AtOnce(), 3)) == [[0, 10, 20], [30]]


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2},
        {"timeout": 1},
        {"worker_init_fn": print},
        {"sampler": [0], "shuffle": True},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
    ],
)
def test_arguments_that_do_not_go_together(options):
    with pytest.raises(ValueError, match=r"num_workers|exclusive|positive"):
        DataLoader(range(3), **options)


def test_streams_have_no_order():
    for options in ({"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}):
        with pytest.raises(ValueError, match="IterableDataset"):
            DataLoader(Stream(), **options)


def test_training_data_reaches_a_model():
    tp.manual_seed(0)
    x = tp.randn(64, 3)
    goal = tp.nn.Linear(3, 1)
    data = TensorDataset(x, goal(x).detach())
    net = tp.nn.Linear(3, 1)
    optimizer = tp.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(30):
        for inputs, targets in DataLoader(data, 16, shuffle=True):
            optimizer.zero_grad()
            loss = tp.nn.functional.mse_loss(net(inputs), targets)
            loss.backward()
            optimizer.step()
    assert loss.item() < 1e-3
