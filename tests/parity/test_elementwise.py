"""Elementwise operations: values, types and gradients as torch has them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402  # torch first: it may not be there

OF_TWO = "add sub mul div atan2 hypot maximum minimum fmax fmin remainder fmod logaddexp"

WITH_SPECIAL_VALUES = (
    "exp expm1 tanh sigmoid erf erfc atan abs sign floor ceil round trunc isnan isinf isfinite "
    "isposinf isneginf signbit nan_to_num logical_not"
)

EVERYWHERE = (
    "exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh sigmoid erf erfc abs sign square "
    "floor ceil round trunc frac neg relu sinc positive"
)

TYPES = [np.float32, np.float64]
SHAPES = [(), (5,), (3, 4), (2, 1, 3)]


def numbers(seed, shape, dtype, low=-3.0, high=3.0):
    return np.asarray(np.random.default_rng(seed).uniform(low, high, shape), dtype)


def complex_numbers(seed, shape, dtype):
    drawn = np.random.default_rng(seed).uniform(-1.5, 1.5, (*shape, 2))
    return np.asarray(drawn[..., 0] + 1j * drawn[..., 1], dtype)


#: name: the range in which it is defined
DOMAINS = {
    **dict.fromkeys(
        EVERYWHERE.split(),
        (-3.0, 3.0),
    ),
    **dict.fromkeys(["log", "log2", "log10", "sqrt", "rsqrt", "reciprocal"], (0.1, 4.0)),
    "log1p": (-0.9, 3.0),
    "acosh": (1.1, 4.0),
    "logit": (0.1, 0.9),
    **dict.fromkeys(["asin", "acos", "atanh"], (-0.9, 0.9)),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", DOMAINS)
def test_functions_of_one_tensor(name, dtype):
    for seed, shape in enumerate(SHAPES):
        x = numbers(seed, shape, dtype, *DOMAINS[name])
        compare(lambda library, a: getattr(library, name)(a), x)
        compare(lambda library, a: getattr(a, name)(), x)


HOLOMORPHIC = (
    "exp expm1 log log1p log2 log10 sqrt rsqrt reciprocal square sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh sigmoid"
)


@pytest.mark.parametrize("name", HOLOMORPHIC.split())
def test_functions_of_complex_numbers(name):
    for seed in range(3):
        x = complex_numbers(seed, (4,), np.complex128)
        compare(lambda library, a: getattr(library, name)(a), x, tolerance=1e-9)


INTEGRAL = "exp exp2 log1p sqrt rsqrt sin atan erf sigmoid floor ceil trunc sign abs neg relu round"


@pytest.mark.parametrize("name", INTEGRAL.split())
def test_functions_of_integers(name):
    compare(lambda library, a: getattr(library, name)(a), np.array([[1, 2], [5, 7]]))


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, 0.5, -2.5])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "name",
    WITH_SPECIAL_VALUES.split(),
)
def test_special_values(name, dtype):
    x = SPECIAL.astype(dtype)
    with np.errstate(all="ignore"), tp.no_grad(), torch.no_grad():
        mine = getattr(tp, name)(tp.tensor(x)).numpy()
        theirs = getattr(torch, name)(torch.tensor(x)).numpy()
    assert mine.dtype == theirs.dtype
    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    if mine.dtype.kind == "f":
        assert np.array_equal(np.signbit(mine[:4]), np.signbit(theirs[:4]))


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_error_functions_are_exact_to_the_last_digits(name):
    x = np.concatenate([np.linspace(-7, 27, 20001), 10.0 ** -np.arange(0.0, 30.0)])
    mine = getattr(tp, name)(tp.tensor(x)).numpy()
    theirs = getattr(torch, name)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(mine, theirs, rtol=2e-15, atol=1e-307)
    single = getattr(tp, name)(tp.tensor(x.astype(np.float32)))
    exact = getattr(torch, name)(torch.tensor(x.astype(np.float32).astype(np.float64))).numpy()
    assert single.dtype == tp.float32
    np.testing.assert_allclose(single.numpy(), exact, rtol=2e-6, atol=1e-37)


PAIRS = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,)), ((2, 3), ())]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shapes", PAIRS)
@pytest.mark.parametrize(
    "name",
    OF_TWO.split(),
)
def test_functions_of_two_tensors(name, shapes, dtype):
    a, b = numbers(0, shapes[0], dtype), numbers(1, shapes[1], dtype)
    compare(lambda library, a, b: getattr(library, name)(a, b), a, b)
    compare(lambda library, a, b: getattr(a, name)(b), a, b)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extrema_of_equal_elements(name):
    a = np.array([1.0, 2.0, -1.0, 3.0])
    b = np.array([1.0, 3.0, -1.0, 0.0])
    compare(lambda library, a, b: getattr(library, name)(a, b), a, b)


def test_extrema_beside_nan():
    a, b = np.array([np.nan, 1.0, np.nan]), np.array([2.0, np.nan, np.nan])
    for name in ("maximum", "minimum", "fmax", "fmin"):
        mine = getattr(tp, name)(tp.tensor(a), tp.tensor(b)).numpy()
        theirs = getattr(torch, name)(torch.tensor(a), torch.tensor(b)).numpy()
        assert np.array_equal(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("other", [2, -3, 2.5, -1.5])
def test_division_and_its_rest(dtype, other):
    x = np.array([-7, -4, -1, 0, 1, 5, 9]).astype(dtype)
    with tp.no_grad(), torch.no_grad():
        for function in (
            lambda library, a: a % other,
            lambda library, a: a // other,
            lambda library, a: library.fmod(a, other),
            lambda library, a: library.remainder(a, other),
            lambda library, a: library.floor_divide(a, other),
            lambda library, a: library.div(a, other, rounding_mode="trunc"),
            lambda library, a: library.div(a, other, rounding_mode="floor"),
            lambda library, a: other // (a + 10),
            lambda library, a: other % (a + 10),
            lambda library, a: library.remainder(other, a + 10),
        ):
            mine, theirs = function(tp, tp.tensor(x)), function(torch, torch.tensor(x))
            assert str(mine.dtype) == str(theirs.dtype).removeprefix("torch.")
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_rounded_division_has_gradients(mode):
    a, b = numbers(0, (3, 4), np.float64), numbers(1, (4,), np.float64)
    compare(lambda library, a, b: library.div(a, b, rounding_mode=mode), a, b)


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round_to_decimals(decimals):
    x = numbers(0, (20,), np.float64, -30, 30)
    compare(lambda library, a: library.round(a, decimals=decimals), x)


@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_three_tensors(dtype):
    a, b, c = (numbers(i, shape, dtype) for i, shape in enumerate([(3, 4), (4,), (3, 1)]))
    weights = numbers(3, (3, 4), dtype, 0, 1)
    compare(lambda library, a, b, c: library.addcmul(a, b, c, value=-0.5), a, b, c)
    compare(lambda library, a, b, c: library.addcdiv(a, b, c, value=2), a, b, c)
    compare(lambda library, a, b, w: library.lerp(a, b, w), a, np.copy(a[::-1]), weights)
    for weight in (0.0, 0.3, 0.8, 1.0):
        compare(lambda library, a, b, w=weight: library.lerp(a, b, w), a, np.copy(a[::-1]))


@pytest.mark.parametrize("dtype", TYPES)
def test_clamp(dtype):
    x, low, high = numbers(0, (4, 5), dtype), numbers(1, (5,), dtype), numbers(2, (4, 1), dtype)
    compare(lambda library, a: library.clamp(a, -1, 1.5), x)
    compare(lambda library, a: library.clamp(a, max=0.5), x)
    compare(lambda library, a: a.clamp_min(0.25), x)
    compare(lambda library, a: library.clamp_max(a, 0.25), x)
    compare(lambda library, a: library.clip(a, 0.0, 1.0), x)
    compare(lambda library, a, low: library.clamp(a, low), x, low)
    compare(lambda library, a, low, high: library.clamp(a, low, high), x, low, high)


def test_clamp_of_integers():
    x = np.array([0, 1, 2, 3])
    compare(lambda library, a: library.clamp(a, 1, 2), x)
    compare(lambda library, a: library.clamp(a, 0.5, 2), x)


@pytest.mark.parametrize("dtype", TYPES)
def test_nan_to_num(dtype):
    x = np.array([[1.5, np.nan, np.inf], [-np.inf, 0.0, -3.0]], dtype)
    compare(lambda library, a: library.nan_to_num(a), x)
    compare(lambda library, a: library.nan_to_num(a, nan=1.0, posinf=2.0, neginf=-2.0), x)


@pytest.mark.parametrize("eps", [None, 0.0, 0.2])
def test_logit_moves_its_input_inside(eps):
    compare(lambda library, a: library.logit(a, eps), numbers(0, (9,), np.float64, 0.05, 0.95))


@pytest.mark.parametrize("p", [-2, -1, 0, 0.5, 1, 2, 3, 1.5])
def test_powers(p):
    compare(lambda library, a: a**p, numbers(0, (3, 4), np.float64, 0.3, 2.0))
    compare(lambda library, a: library.pow(1.5, a), numbers(0, (3, 4), np.float64))


def test_where():
    a, b = numbers(0, (3, 4), np.float32), numbers(1, (4,), np.float32)
    compare(lambda library, a, b: library.where(a > 0, a, b), a, b)
    compare(lambda library, a: library.where(a > 0, a, 2.0), a)
    compare(lambda library, a: library.where(a > 0, 1.0, a), a)
    compare(lambda library, a: library.where(a > 0, 1, 0), a)


WHOLE = [np.bool_, np.uint8, np.int8, np.int32, np.int64]


@pytest.mark.parametrize("left", WHOLE)
@pytest.mark.parametrize("right", WHOLE)
def test_bits(left, right):
    random = np.random.default_rng(0)
    a, b = random.integers(0, 5, (2, 12))
    a, b = a.astype(left), b.astype(right)
    for name in ("and", "or", "xor"):
        compare(lambda library, a, b, n=name: getattr(library, f"bitwise_{n}")(a, b), a, b)
    compare(lambda library, a, b: (a & b, a | b, a ^ b), a, b)
    compare(lambda library, a: (a & 1, 1 | a, a ^ True), a)
    compare(lambda library, a: (library.bitwise_not(a), ~a), a)
    if left is not np.bool_ and right is not np.bool_:
        compare(lambda library, a, b: (a << b, a >> b), a, b)
        compare(lambda library, a: (a << 1, library.bitwise_right_shift(a, 1)), a)


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float32, np.float64])
def test_logic(dtype):
    a, b = np.random.default_rng(0).integers(0, 2, (2, 12)).astype(dtype)
    with tp.no_grad(), torch.no_grad():
        for name in ("and", "or", "xor"):
            mine = getattr(tp, f"logical_{name}")(tp.tensor(a), tp.tensor(b))
            theirs = getattr(torch, f"logical_{name}")(torch.tensor(a), torch.tensor(b))
            assert np.array_equal(mine.numpy(), theirs.numpy())
        assert np.array_equal(tp.tensor(a).logical_not(), torch.tensor(a).logical_not())


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name):
    random = np.random.default_rng(0)
    for left in (np.int64, np.float32, np.float64):
        for right in (np.int32, np.float32):
            a = random.integers(-2, 3, (4, 5)).astype(left)
            b = random.integers(-2, 3, 5).astype(right)
            with tp.no_grad(), torch.no_grad():
                mine = getattr(tp, name)(tp.tensor(a), tp.tensor(b))
                theirs = getattr(torch, name)(torch.tensor(a), torch.tensor(b))
                assert np.array_equal(mine.numpy(), theirs.numpy())
                assert np.array_equal(
                    getattr(tp.tensor(a), name)(1).numpy(), getattr(torch.tensor(a), name)(1)
                )


OPERANDS = [np.bool_, np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64]


@pytest.mark.parametrize("left", OPERANDS)
@pytest.mark.parametrize("right", [*OPERANDS, True, 2, 1.5])
@pytest.mark.parametrize("scalar", [False, True])
def test_types_of_results(left, right, scalar):
    a = np.ones((), left) if scalar else np.ones(3, left)
    is_number = isinstance(right, (bool, int, float))
    b = right if is_number else np.ones(3, right)
    mine = (tp.tensor(a), b if is_number else tp.tensor(b))
    theirs = (torch.tensor(a), b if is_number else torch.tensor(b))
    for function in (
        lambda library, a, b: a + b,
        lambda library, a, b: a * b,
        lambda library, a, b: a / b,
        lambda library, a, b: library.where(library.ones(3) > 0, a, b),
    ):
        expected = str(function(torch, *theirs).dtype).removeprefix("torch.")
        assert str(function(tp, *mine).dtype) == expected
    expected = str(torch.result_type(*theirs)).removeprefix("torch.")
    assert str(tp.result_type(*mine)) == expected


@pytest.mark.parametrize("base", [np.uint8, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("exponent", [np.bool_, np.int64, np.float32, 2, 1.5])
def test_types_of_powers(base, exponent):
    a = np.array([1, 2, 3], base)
    if isinstance(exponent, type):
        b = np.array([1, 0, 1], exponent)
        mine, theirs = tp.tensor(a) ** tp.tensor(b), torch.tensor(a) ** torch.tensor(b)
    else:
        mine, theirs = tp.tensor(a) ** exponent, torch.tensor(a) ** exponent
    assert str(mine.dtype) == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_powers_of_booleans_are_refused():
    truth = np.array([True, False])
    for library, tensor in ((tp, tp.tensor(truth)), (torch, torch.tensor(truth))):
        with pytest.raises(NotImplementedError, match="pow"):
            library.pow(tensor, tensor)
