"""Elementwise operations and reductions against NumPy and Python, and what they refuse."""

import math

import numpy as np
import pytest

import tensorplay as tp

A = np.random.default_rng(0).uniform(0.1, 0.9, (3, 4))
B = np.random.default_rng(1).uniform(0.1, 0.9, (3, 4))


def check(tensor, array):
    assert isinstance(tensor, tp.Tensor)
    assert tensor.dtype == array.dtype
    assert tensor.shape == array.shape
    assert np.allclose(tensor.numpy(), array, rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp2", np.exp2),
        ("expm1", np.expm1),
        ("log1p", np.log1p),
        ("log2", np.log2),
        ("log10", np.log10),
        ("tan", np.tan),
        ("asin", np.arcsin),
        ("arccos", np.arccos),
        ("atan", np.arctan),
        ("sinh", np.sinh),
        ("cosh", np.cosh),
        ("asinh", np.arcsinh),
        ("arctanh", np.arctanh),
        ("sinc", np.sinc),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("fix", np.trunc),
        ("round", np.round),
    ],
)
def test_functions_of_one_tensor(name, function):
    check(getattr(tp, name)(tp.tensor(A)), function(A))
    check(getattr(tp.tensor(A), name)(), function(A))


@pytest.mark.parametrize("name", ["erf", "erfc"])
@pytest.mark.parametrize("scale", [1e-12, 0.1, 0.46875, 1.0, 4.0, 6.0, 26.0])
def test_error_functions_are_those_of_python(name, scale):
    x = scale * np.linspace(-1, 1, 41)
    expected = np.array([getattr(math, name)(one) for one in x])
    found = getattr(tp, name)(tp.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-15, atol=1e-307)
    single = getattr(tp, name)(tp.tensor(x, dtype=tp.float32))
    assert single.dtype is tp.float32
    rounded = [getattr(math, name)(one) for one in x.astype(np.float32).tolist()]
    np.testing.assert_allclose(single.numpy(), rounded, rtol=2e-6, atol=1e-37)


def test_error_functions_at_the_ends():
    ends = tp.tensor([math.inf, -math.inf, math.nan, -0.0], dtype=tp.float64)
    for dtype in (tp.float32, tp.float64):
        values = tp.erf(ends.to(dtype)).numpy()
        assert np.array_equal(values, [1.0, -1.0, math.nan, 0.0], equal_nan=True)
        assert np.signbit(values[3])
    assert np.array_equal(tp.erfc(ends).numpy(), [0.0, 2.0, math.nan, 1.0], equal_nan=True)
    assert tp.erf(tp.zeros(0)).shape == (0,)
    assert tp.erf(tp.tensor(0.5, dtype=tp.float16)).dtype is tp.float16


def test_the_rest_of_a_division_has_the_sign_of_python():
    t = tp.tensor([-7, 7])
    assert (t % 3).tolist() == [-7 % 3, 7 % 3]
    assert (t // 3).tolist() == [-7 // 3, 7 // 3]
    assert (t % -3).tolist() == [-7 % -3, 7 % -3]
    assert (20 // t).tolist() == [20 // -7, 20 // 7]
    assert (20 % t).tolist() == [20 % -7, 20 % 7]
    assert tp.fmod(t, 3).tolist() == [-1, 1]
    assert tp.div(t, 3, rounding_mode="trunc").tolist() == [-2, 2]
    t //= 2
    assert t.tolist() == [-4, 3]
    with pytest.raises(TypeError):
        t % "text"


def test_running_and_other_reductions():
    t = tp.tensor(A)
    check(t.cumsum(1), A.cumsum(1))
    check(t.cumprod(0), A.cumprod(0))
    check(t.prod(), np.asarray(A.prod()))
    check(t.prod(1, keepdim=True), A.prod(1, keepdims=True))
    check(t.count_nonzero(), np.asarray(12))
    for one, expected in zip(tp.var_mean(t, 1, correction=0), (A.var(1), A.mean(1)), strict=True):
        check(one, expected)
    check(tp.hypot(t, tp.tensor(B)), np.hypot(A, B))
    check(tp.atan2(t, tp.tensor(B)), np.arctan2(A, B))
    check(tp.logaddexp(t, tp.tensor(B)), np.logaddexp(A, B))
    assert tp.median(tp.tensor([4.0, 1.0, 3.0, 2.0])).item() == 2.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tp.tensor([1]) // 0, RuntimeError, "ZeroDivisionError"),
        (lambda: tp.tensor([1]) % 0, RuntimeError, "ZeroDivisionError"),
        (lambda: tp.div(tp.ones(1), 2, rounding_mode="up"), RuntimeError, "rounding_mode"),
        (lambda: tp.ones(1) & 1, NotImplementedError, "bitwise_and"),
        (lambda: ~tp.ones(1), NotImplementedError, "bitwise_not"),
        (lambda: tp.tensor([1]) << 1.5, NotImplementedError, "bitwise_left_shift"),
        (lambda: tp.floor(tp.tensor([True])), NotImplementedError, "floor"),
        (lambda: tp.frac(tp.tensor([1])), NotImplementedError, "frac"),
        (lambda: tp.floor(tp.tensor([1j])), NotImplementedError, "floor"),
        (lambda: tp.erf(tp.tensor([1j])), NotImplementedError, "erf"),
        (lambda: tp.median(tp.tensor([1j])), NotImplementedError, "median"),
        (lambda: tp.logit(tp.tensor([1j])), NotImplementedError, "logit"),
        (lambda: tp.atan2(tp.ones(1), 1.0), TypeError, "must be a Tensor"),
        (lambda: tp.fmax(tp.ones(1), 1.0), TypeError, "must be a Tensor"),
        (lambda: tp.hypot(tp.ones(2), tp.ones(3)), RuntimeError, "must match the size"),
        (lambda: tp.remainder(tp.ones(2), tp.ones(3)), RuntimeError, "must match the size"),
        (lambda: tp.logical_and(tp.ones(2), tp.ones(3)), RuntimeError, "must match the size"),
        (lambda: tp.lerp(tp.ones(1), tp.ones(1).double(), 0.5), RuntimeError, "expected dtype"),
        (
            lambda: tp.addcdiv(tp.ones(1), tp.tensor([1]), tp.tensor([1])),
            RuntimeError,
            "Integer division with addcdiv",
        ),
        (lambda: tp.cumsum(tp.ones(2), 1), IndexError, "out of range"),
        (lambda: tp.prod(tp.ones(2), -2), IndexError, "out of range"),
        (lambda: tp.median(tp.ones(2, 0), 1), IndexError, "non-zero size"),
        (lambda: tp.var(tp.tensor([1, 2])), RuntimeError, "floating point"),
        (lambda: tp.std(tp.ones(2), 0, bias=True), TypeError, "bias"),
        (lambda: +tp.tensor([True]), RuntimeError, "bool tensor"),
        (lambda: tp.arange(2).exp2_(), RuntimeError, "can't be cast"),
        (lambda: tp.ones(2).atan2_(tp.ones(2, 2)), RuntimeError, "doesn't match"),
        (lambda: tp.logspace(0, 1, 2, device="cuda"), RuntimeError, "there is no device"),
        (lambda: tp.ones(1).new_zeros(1, device="cuda"), RuntimeError, "there is no device"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()
