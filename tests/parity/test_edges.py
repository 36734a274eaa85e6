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
