"""Embeddings and their modules, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

TYPES = [np.float32, np.float64]
random = np.random.default_rng(5)
ROWS = 7


def table(dtype):
    return np.random.default_rng(1).standard_normal((ROWS, 3)).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (4,), (2, 5), (2, 0), (2, 3, 4)])
@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding(dtype, shape, padding_idx):
    numbers = np.asarray(random.integers(0, ROWS, shape))
    compare(
        lambda lib, w, index: lib.nn.functional.embedding(index, w, padding_idx),
        table(dtype),
        numbers,
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("last", [False, True])
def test_bags(dtype, mode, padding_idx, last):
    numbers = random.integers(0, ROWS, 9)
    starts = np.array([0, 2, 2, 6, 9])

    def bags(lib, w, index, offsets):
        return lib.nn.functional.embedding_bag(
            index, w, offsets, mode=mode, include_last_offset=last, padding_idx=padding_idx
        )

    compare(bags, table(dtype), numbers, starts)
    compare(bags, table(dtype), numbers.astype(np.int32), np.array([0, 2, 9], np.int32))
    compare(
        lambda lib, w, index: lib.nn.functional.embedding_bag(
            index, w, mode=mode, padding_idx=padding_idx
        ),
        table(dtype),
        numbers.reshape(3, 3),
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_weighted_bags(dtype):
    numbers = random.integers(0, ROWS, 8)
    factors = random.standard_normal(8).astype(dtype)
    for padding_idx in (None, int(numbers[3])):
        compare(
            lambda lib, w, f, index, offsets, skipped=padding_idx: lib.nn.functional.embedding_bag(
                index, w, offsets, mode="sum", per_sample_weights=f, padding_idx=skipped
            ),
            table(dtype),
            factors,
            numbers,
            np.array([0, 3, 3]),
        )


MODULES = [
    ("Embedding", (ROWS, 3), {}),
    ("Embedding", (ROWS, 3), {"padding_idx": -2}),
    ("EmbeddingBag", (ROWS, 3), {}),
    ("EmbeddingBag", (ROWS, 3), {"mode": "max", "padding_idx": 1}),
]


@pytest.mark.parametrize(("name", "args", "options"), MODULES)
def test_modules(name, args, options):
    ours, theirs = [getattr(lib.nn, name)(*args, **options) for lib in (tp, torch)]
    assert repr(ours) == repr(theirs)
    for one in (ours, theirs):
        if one.padding_idx is not None:
            assert not one.weight[one.padding_idx].detach().numpy().any()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    numbers = random.integers(0, ROWS, (3, 4))
    (ours(tp.tensor(numbers)) ** 2).sum().backward()
    (theirs(torch.tensor(numbers)) ** 2).sum().backward()
    np.testing.assert_allclose(
        ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-5, atol=1e-6
    )
