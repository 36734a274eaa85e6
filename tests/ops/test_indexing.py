"""Reading with every kind of index that NumPy has."""

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.ops import indexing

A = np.arange(24.0).reshape(2, 3, 4)

INDICES = [
    0,
    -1,
    slice(1, None),
    slice(None, None, 2),
    (slice(None), 1),
    (0, 1, 2),
    (..., 0),
    (None, 0),
    (slice(None), None, ..., None),
    [0, 1, 1],
    ([0, 1], [2, 0]),
    (slice(None), [2, 0, 2]),
    ([0, 1], slice(None), [3, 0]),
    np.array([1, 0]),
    A[:, 0, 0] > 5,
    A > 5,
    (A[..., 0] > 5, 0),
    (slice(None), np.array([[0, 1], [2, 0]])),
    np.int64(1),
    True,
    [],
]


def as_tensors(index):
    """The index with tensors in the place of arrays and lists."""
    if isinstance(index, tuple):
        return tuple(as_tensors(part) for part in index)
    if isinstance(index, list) and not index:
        return tp.zeros(0, dtype=tp.int64)
    return tp.tensor(index) if isinstance(index, (list, np.ndarray)) else index


@pytest.mark.parametrize("convert", [lambda index: index, as_tensors])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading_gives_what_numpy_gives(index, convert):
    t = tp.tensor(A, requires_grad=True)
    found = t[convert(index)]
    expected = (
        A[np.array(index, int) if index == [] else index] if isinstance(index, list) else A[index]
    )
    assert found.shape == expected.shape
    assert np.array_equal(found.detach().numpy(), expected)
    found.backward(tp.ones_like(found))
    counts = np.zeros_like(A)
    np.add.at(counts, np.array(index, int) if isinstance(index, list) else index, 1)
    assert np.array_equal(t.grad.numpy(), counts)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_writing_does_what_numpy_does(index):
    t, array = tp.tensor(A), A.copy()
    t[as_tensors(index)] = -1.0
    array[np.array(index, int) if isinstance(index, list) else index] = -1.0
    assert np.array_equal(t.numpy(), array)


def test_integers_pick_before_arrays_do():
    """As in PyTorch.  NumPy moves the dimensions of the array to the front here."""
    t = tp.tensor(A, requires_grad=True)
    for index, expected in (
        ((0, slice(None), [1, 1]), A[0][:, [1, 1]]),
        ((tp.tensor(1), ..., tp.tensor([3, 0])), A[1][:, [3, 0]]),
        ((1, None, [2, 0], slice(1, None)), A[1][None, [2, 0], 1:]),
        ((0, slice(None), A[0, 0] > 1), A[0][:, A[0, 0] > 1]),
    ):
        assert np.array_equal(t[index].detach().numpy(), expected)
        copied = t * 1
        copied[index] = 0.0
        assert not copied[index].any()
        assert copied.detach().sum().item() == A.sum() - np.unique(expected).sum()
    t[0, :, [1, 1]].sum().backward()
    expected = np.zeros_like(A)
    expected[0, :, 1] = 2
    assert np.array_equal(t.grad.numpy(), expected)


def test_integers_and_slices_make_views_and_arrays_make_copies():
    t = tp.tensor(A)
    t[0, 0, 0].fill_(100.0)
    t[1, :, 0].fill_(200.0)
    t[tp.tensor(0), 1, 1].fill_(300.0)
    assert (t[0, 0, 0].item(), t[1, 2, 0].item(), t[0, 1, 1].item()) == (100.0, 200.0, 300.0)
    t[[0]].fill_(0.0)
    assert t[0, 0, 0].item() == 100.0


def test_a_tensor_of_one_whole_number_is_an_index_for_python():
    assert [10, 20, 30][tp.tensor(1)] == 20
    assert list(range(tp.tensor(3))) == [0, 1, 2]
    with pytest.raises(TypeError, match="integer tensors of a single element"):
        [1, 2][tp.tensor(1.0)]


def test_indices_out_of_range_and_of_other_types_are_refused():
    t = tp.tensor(A)
    with pytest.raises(IndexError):
        t[2]
    with pytest.raises(IndexError, match="tensors used as indices must be"):
        t[tp.tensor([0.0])]
    with pytest.raises(TypeError, match="0-d"):
        len(tp.tensor(1.0))
    with pytest.raises(TypeError, match="0-d"):
        iter(tp.tensor(1.0))


def test_membership():
    assert 3.0 in tp.tensor(A)
    assert 30.0 not in tp.tensor(A)


ADDED = [
    np.array([1, 0, 1]),
    (np.array([[0, 1], [1, 1]]),),
    (np.array([0, 1, -1]), np.array([[2], [-1]])),
    (slice(None), np.array([0, 2, 0])),
    (slice(None), np.array([0, 2, 0]), np.array([3, 1, 3])),
    (..., np.array([0, -1, 0])),
    (np.array([1, 1]), ...),
    (np.array([1, 1]), slice(None), np.array([0, 0])),
    (np.array([1, 1]), slice(1, None)),
    (0, np.array([1, 1])),
    (None, np.array([1, 1])),
    (slice(None), np.array([1, 1]), ..., np.array([1, 1])),
    A > 5,
]


@pytest.mark.parametrize("few", [0, 10**6])
@pytest.mark.parametrize("index", ADDED, ids=str)
def test_what_falls_on_one_element_is_summed(index, few, monkeypatch):
    monkeypatch.setattr(indexing, "_FEW", few)
    values = np.random.default_rng(0).random(A[index].shape)
    for out in (A.copy(), A.copy().T.copy().T):
        expected = A.copy()
        np.add.at(expected, index, values)
        indexing.add_at(out, index, values)
        assert np.allclose(out, expected)
        indexing.add_at(out, index, -1.0)
        np.add.at(expected, index, -1.0)
        assert np.allclose(out, expected)
