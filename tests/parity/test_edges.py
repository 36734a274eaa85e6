"""Unusual numbers, types and sizes: the same as torch, or the same kind of refusal."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402  # torch first: it may not be there

EXPONENTS = [0, 1, 2, 3, 4, 5, 6, 0.5, 1.5, -0.5, -1, -1.5, -2, -3, -4, -5, 2.0, 3.0, -1.0, 2.5]


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_by_multiplication(exponent, dtype):
    x = np.random.default_rng(1).uniform(0.2, 3, 40).astype(dtype)
    if exponent == exponent // 1:
        x[::2] *= -1
    compare(lambda lib, a: a**exponent, x, tolerance=1e-6 if dtype is np.float32 else 1e-14)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_powers_of_zero_infinity_and_nan(exponent):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], np.float32)
    if exponent != exponent // 1:
        x[x == -np.inf] = -2.0  # torch's own answer depends on the number of elements
    with np.errstate(all="ignore"):
        mine = (tp.tensor(x) ** exponent).numpy()
    np.testing.assert_array_equal(mine, (torch.tensor(x) ** exponent).numpy())
    if exponent == exponent // 1:
        assert np.array_equal(np.signbit(mine), np.signbit((torch.tensor(x) ** exponent).numpy()))


def _halves(*shape, scale=1.0):
    return (np.random.default_rng(3).uniform(-1, 1, shape) * scale).astype(np.float16)


HALF = {
    "sum": (lambda lib, a: a.sum(), _halves(3000) + np.float16(1)),
    "sum, dim": (lambda lib, a: a.sum(0), _halves(3000, 2) + np.float16(1)),
    "mean": (lambda lib, a: a.mean(), np.full(2, 60000, np.float16)),
    "var": (lambda lib, a: a.var(), _halves(50, scale=3)),
    "std": (lambda lib, a: a.std(), np.array([300, -300], np.float16)),
    "norm": (lambda lib, a: a.norm(), np.array([300, -400], np.float16)),
    "cumsum": (lambda lib, a: a.cumsum(0), np.ones(5000, np.float16)),
    "prod": (lambda lib, a: a.prod(), np.array([30, 30, 0.01], np.float16)),
    "cumprod": (lambda lib, a: a.cumprod(0)[-1], np.full(6, 1.25, np.float16)),
    "logsumexp": (lambda lib, a: a.logsumexp(0), _halves(3000)),
    "softmax": (lambda lib, a: a.softmax(0), _halves(3000)),
    "log_softmax": (lambda lib, a: a.log_softmax(0), _halves(3000)),
    "layer_norm": (
        lambda lib, a: lib.nn.functional.layer_norm(a, (64,)),
        _halves(4, 64, scale=400),
    ),
    "batch_norm": (
        lambda lib, a: lib.nn.functional.batch_norm(a, None, None, training=True),
        _halves(64, 3, scale=400),
    ),
    "group_norm": (lambda lib, a: lib.nn.functional.group_norm(a, 2), _halves(2, 4, 9, scale=400)),
    "normalize": (lambda lib, a: lib.nn.functional.normalize(a), _halves(2, 64, scale=400)),
    "nansum": (lambda lib, a: a.nansum(), np.array([1, np.nan, 2], np.float16)),
    "nanmean": (lambda lib, a: a.nanmean(), np.array([3, 7], np.float16)),
    "cross_entropy": (
        lambda lib, a: lib.nn.functional.cross_entropy(a, lib.zeros(400, dtype=lib.int64)),
        _halves(400, 9),
    ),
    "mse_loss": (
        lambda lib, a: lib.nn.functional.mse_loss(a, lib.zeros_like(a)),
        _halves(3000, scale=30),
    ),
    "smooth_l1_loss": (
        lambda lib, a: lib.nn.functional.smooth_l1_loss(a, lib.zeros_like(a)),
        _halves(3000, scale=30),
    ),
}


@pytest.mark.parametrize("name", HALF)
def test_half_precision_is_rounded_once(name):
    function, values = HALF[name]
    compare(function, values, tolerance=2e-3)


@pytest.mark.parametrize("kind", [float, int, bool, complex])
def test_python_types_as_dtypes(kind):
    makers = (
        lambda lib: lib.zeros(1, dtype=kind),
        lambda lib: lib.tensor([1], dtype=kind),
        lambda lib: lib.ones(2).to(kind),
        lambda lib: lib.ones(2).type(kind),
        lambda lib: lib.full((2,), 1, dtype=kind),
        lambda lib: lib.arange(3, dtype=kind),
        lambda lib: lib.zeros_like(lib.ones(1), dtype=kind),
    )
    for make in makers:
        if make is makers[3] and kind is complex:
            continue
        try:
            expected = make(torch)
        except (RuntimeError, TypeError, ValueError):
            continue
        assert str(make(tp).dtype) == str(expected.dtype).removeprefix("torch.")


def test_a_layer_of_python_float():
    assert tp.nn.Linear(2, 1, dtype=float).weight.dtype == tp.float64


_ONE = lambda lib: lib.tensor([1.0])  # noqa: E731
TAKERS = {
    "gather": lambda lib, x, i: lib.gather(x, 0, i),
    "index_select": lambda lib, x, i: lib.index_select(x, 0, i),
    "take": lambda lib, x, i: lib.take(x, i),
    "take_along_dim": lambda lib, x, i: lib.take_along_dim(x, i, 0),
    "take_along_dim, flat": lambda lib, x, i: lib.take_along_dim(x, i),
    "scatter": lambda lib, x, i: x.scatter(0, i, 1.0),
    "scatter_add": lambda lib, x, i: x.scatter_add(0, i, _ONE(lib)),
    "scatter_reduce": lambda lib, x, i: x.scatter_reduce(0, i, _ONE(lib), "amax"),
    "index_add": lambda lib, x, i: x.index_add(0, i, _ONE(lib)),
    "index_copy": lambda lib, x, i: x.index_copy(0, i, _ONE(lib)),
    "index_fill": lambda lib, x, i: x.index_fill(0, i, 1.0),
    "index_put": lambda lib, x, i: x.index_put((i,), _ONE(lib)),
    "embedding": lambda lib, x, i: lib.nn.functional.embedding(i, x.reshape(3, 1)),
    "nll_loss": lambda lib, x, i: lib.nn.functional.nll_loss(x.reshape(1, 3), i),
    "one_hot": lambda lib, x, i: lib.nn.functional.one_hot(i, 3),
    "brackets": lambda lib, x, i: x[i],
}


@pytest.mark.parametrize("number", [-4, -3, -1, 0, 2, 3])
@pytest.mark.parametrize("name", TAKERS)
def test_indices_out_of_bounds_and_negative_ones(name, number):
    def call(lib):
        return TAKERS[name](lib, lib.tensor([10.0, 20.0, 30.0]), lib.tensor([number]))

    if name == "take_along_dim" and number in (-4, 3):
        # PyTorch goes around more than once; here that is refused.
        with pytest.raises(IndexError, match="out of bounds"):
            call(tp)
        return
    try:
        expected = call(torch)
    except (RuntimeError, IndexError):
        with pytest.raises((RuntimeError, IndexError)):
            call(tp)
    else:
        np.testing.assert_array_equal(call(tp).numpy(), expected.numpy())


EMPTY = {
    "softmax": lambda lib: lib.zeros(2, 0).softmax(1),
    "log_softmax": lambda lib: lib.zeros(2, 0).log_softmax(1),
    "logsumexp": lambda lib: lib.zeros(2, 0).logsumexp(1),
    "logsumexp, other": lambda lib: lib.zeros(2, 0).logsumexp(0),
    "argmax, other": lambda lib: lib.zeros(2, 0).argmax(0),
    "cross_entropy": lambda lib: _loss(lib, "cross_entropy", "mean"),
    "cross_entropy, sum": lambda lib: _loss(lib, "cross_entropy", "sum"),
    "cross_entropy, none": lambda lib: _loss(lib, "cross_entropy", "none"),
    "nll_loss": lambda lib: _loss(lib, "nll_loss", "mean"),
    "nll_loss, sum": lambda lib: _loss(lib, "nll_loss", "sum"),
}


def _loss(lib, name, reduction):
    targets = lib.zeros(0, dtype=lib.int64)
    return getattr(lib.nn.functional, name)(lib.zeros(0, 3), targets, reduction=reduction)


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_at_all(name):
    mine, theirs = EMPTY[name](tp).numpy(), EMPTY[name](torch).numpy()
    assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize(
    "values", [[2, 2, 1], [2, 2, 2, 1], [1, np.nan, np.nan], [[1, 2], [2, 2]], [np.nan, np.nan]]
)
def test_equal_elements_share_the_gradient_of_a_median(name, values):
    x = np.array(values, np.float64)
    compare(lambda lib, a: getattr(a, name)(), x)
    if x.ndim == 2:
        compare(lambda lib, a: getattr(a, name)(1).values, x)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32", "float64"])
@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_empty_tensors_print_their_type(dtype, shape):
    mine = repr(tp.zeros(*shape, dtype=getattr(tp, dtype)))
    assert mine == repr(torch.zeros(*shape, dtype=getattr(torch, dtype))).replace("torch.", "")
