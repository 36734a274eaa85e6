"""Reductions, and sums and products that run: values, types and gradients as torch has them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402  # torch first: it may not be there

TYPES = [np.float32, np.float64]
DIMS = [None, 0, 1, -1, (0, 2), (1,)]


def numbers(seed, shape, dtype=np.float64):
    return np.asarray(np.random.default_rng(seed).uniform(-2, 2, shape), dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "logsumexp", "nansum", "nanmean"])
def test_over_dimensions(name, dim, keepdim, dtype):
    x = numbers(0, (3, 4, 2), dtype)
    if dim is None:
        if name in ("sum", "mean"):
            compare(lambda library, a: getattr(library, name)(a), x)
        return
    compare(lambda library, a: getattr(library, name)(a, dim, keepdim), x)
    compare(lambda library, a: getattr(a, name)(dim=dim, keepdim=keepdim), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_variances(name, dim, dtype):
    x = numbers(0, (3, 4, 5), dtype)
    for correction in (0, 1, 2):
        for keepdim in (False, True):
            compare(
                lambda library, a, c=correction, k=keepdim: getattr(library, name)(
                    a, dim, correction=c, keepdim=k
                ),
                x,
            )
    if dim is not None:
        compare(lambda library, a: getattr(library, name)(a, dim, False), x)
    compare(lambda library, a: getattr(library, name)(a, False), x)
    compare(lambda library, a: getattr(library, name)(a, unbiased=False), x)


@pytest.mark.parametrize("name", ["var", "std"])
def test_variances_of_few_elements(name):
    compare(lambda library, a: getattr(library, name)(a, 0), np.ones((3, 2)))
    for count in (1, 2):
        x = np.arange(float(count))
        with np.errstate(all="ignore"):
            mine = getattr(tp.tensor(x), name)(correction=2).numpy()
        with pytest.warns(UserWarning, match="degrees of freedom"):
            theirs = getattr(torch.tensor(x), name)(correction=2).numpy()
        assert np.array_equal(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("keepdim", [False, True])
def test_extrema_and_their_places(dtype, keepdim):
    x = np.random.default_rng(0).permutation(24).reshape(3, 4, 2).astype(dtype)
    for dim in (0, 1, -1):
        for name in ("max", "min", "median", "nanmedian"):
            compare(lambda library, a, n=name, d=dim: getattr(library, n)(a, d, keepdim), x)
        for name in ("argmax", "argmin"):
            compare(lambda library, a, n=name, d=dim: getattr(library, n)(a, d, keepdim), x)
    for name in ("max", "min", "median", "nanmedian", "argmax", "argmin"):
        compare(lambda library, a, n=name: getattr(library, n)(a), x)


def test_equal_extrema():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    for name in ("max", "min", "amax", "amin"):
        compare(lambda library, a, n=name: getattr(library, n)(a), x) if name in (
            "max",
            "min",
        ) else compare(lambda library, a, n=name: getattr(library, n)(a, 1), x)
    compare(lambda library, a: (library.max(a, 1).values, library.argmax(a, 1)), x)


def test_medians_beside_nan():
    nan = np.nan
    x = np.array([[1.0, nan, 2.0, 3.0], [nan, nan, 1.0, 0.0], [4.0, 3.0, 2.0, 1.0]])
    for name in ("median", "nanmedian"):
        mine = getattr(tp, name)(tp.tensor(x), 1)
        theirs = getattr(torch, name)(torch.tensor(x), 1)
        assert np.array_equal(mine.values, theirs.values, equal_nan=True)
        picked = np.take_along_axis(x, mine.indices.numpy()[:, None], 1)[:, 0]
        assert np.array_equal(picked, theirs.values, equal_nan=True)
        whole = getattr(torch, name)(torch.tensor(x))
        assert np.array_equal(getattr(tp, name)(tp.tensor(x)), whole, equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("zeros", [0, 1, 3])
def test_products(dtype, zeros):
    for seed, shape in enumerate([(), (5,), (3, 4), (2, 3, 2)]):
        x = numbers(seed, shape, dtype)
        if x.size:
            places = np.random.default_rng(seed).integers(0, max(x.size, 1), zeros)
            x = x.ravel().copy()
            x[places] = 0
            x = x.reshape(shape)
        compare(lambda library, a: library.prod(a), x)
        for dim in range(-1, len(shape)):
            compare(lambda library, a, d=dim: library.prod(a, d), x)
            compare(lambda library, a, d=dim: a.prod(d, keepdim=True), x)
            compare(lambda library, a, d=dim: library.cumprod(a, d), x)
            compare(lambda library, a, d=dim: library.cumsum(a, d), x)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.uint8])
def test_whole_numbers(dtype):
    x = np.random.default_rng(0).integers(0, 2, (3, 4)).astype(dtype)
    compare(lambda library, a: (library.sum(a), library.prod(a), library.cumsum(a, 1)), x)
    compare(lambda library, a: (library.cumprod(a, 0), library.sum(a, 1)), x)
    compare(lambda library, a: (library.count_nonzero(a), library.count_nonzero(a, 1)), x)
    compare(lambda library, a: library.sum(a, 0, dtype=library.float64), x)
    compare(lambda library, a: library.cumsum(a, 0, dtype=library.float32), x)
    compare(lambda library, a: library.prod(a, 0, dtype=library.float32), x)


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float32])
@pytest.mark.parametrize("keepdim", [False, True])
def test_all_and_any(dtype, keepdim):
    x = np.random.default_rng(0).integers(0, 2, (3, 2, 2)).astype(dtype)
    for name in ("all", "any"):
        for dim in (0, 1, -1, (0, 1)):
            mine = getattr(tp, name)(tp.tensor(x), dim, keepdim)
            theirs = getattr(torch, name)(torch.tensor(x), dim, keepdim)
            assert np.array_equal(mine.numpy(), theirs.numpy())
        assert getattr(tp.tensor(x), name)().item() == getattr(torch.tensor(x), name)().item()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, -1, float("inf"), -float("inf"), "fro"])
def test_norms(p, dtype):
    x = numbers(0, (3, 4), dtype)
    if p == 0:
        mine, theirs = tp.tensor(x).norm(0, 1), torch.tensor(x).norm(0, 1)
        assert np.array_equal(mine.numpy(), theirs.numpy())
        return
    compare(lambda library, a: library.norm(a, p), x)
    compare(lambda library, a: a.norm(p, dim=1, keepdim=True), x)
    compare(lambda library, a: a.norm(p, dim=(0, 1)), x)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 0.5])
def test_norms_of_zeros(p):
    x = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, -2.0]])
    compare(lambda library, a: library.norm(a, p, dim=1), x)


def test_nansum_and_nanmean_leave_nan_out():
    x = np.array([[1.0, np.nan, 2.0], [4.0, 5.0, 6.0]])
    compare(lambda library, a: (library.nansum(a), library.nanmean(a, 1)), x)


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_unique(dim, dtype):
    x = np.random.default_rng(0).integers(0, 2, (6, 3)).astype(dtype)
    mine = tp.unique(tp.tensor(x), return_inverse=True, return_counts=True, dim=dim)
    theirs = torch.unique(torch.tensor(x), return_inverse=True, return_counts=True, dim=dim)
    for one, other in zip(mine, theirs, strict=True):
        assert np.array_equal(one.numpy(), other.numpy())
        assert one.numpy().dtype == other.numpy().dtype
    assert np.array_equal(tp.tensor(x).unique(dim=dim), torch.tensor(x).unique(dim=dim))


def test_complex_products_and_sums():
    drawn = np.random.default_rng(0).uniform(-1, 1, (3, 4, 2))
    x = drawn[..., 0] + 1j * drawn[..., 1]
    compare(lambda library, a: library.prod(a), x)
    compare(lambda library, a: library.prod(a, 1), x)
    compare(lambda library, a: library.cumsum(a, 0), x)
    compare(lambda library, a: library.cumprod(a, 1), x)
    x[0, 1] = 0
    compare(lambda library, a: library.cumprod(a, 1), x)
