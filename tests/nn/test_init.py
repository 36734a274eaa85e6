"""Initial values that are more than random numbers."""

import math

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.nn import init


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (4, 2, 3)])
def test_orthogonal(shape):
    tp.manual_seed(0)
    w = tp.empty(shape, dtype=tp.float64)
    assert init.orthogonal_(w, gain=2.0) is w
    matrix = w.numpy().reshape(shape[0], -1)
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    assert np.allclose(small, 4 * np.eye(len(small)))


def test_truncated_normal():
    tp.manual_seed(0)
    w = init.trunc_normal_(tp.empty(200, 200), 1.0, 0.5, 0.5, 2.0).numpy()
    assert 0.5 <= w.min() < 0.51
    assert 1.9 < w.max() <= 2.0
    # Of the normal distribution between -1 and 2 standard deviations from the mean.
    density = [math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) for z in (-1, 2)]
    inside = (math.erf(math.sqrt(2)) + math.erf(math.sqrt(0.5))) / 2
    assert w.mean() == pytest.approx(1 + 0.5 * (density[0] - density[1]) / inside, abs=0.01)
    with pytest.raises(ValueError, match="next to no number"):
        init.trunc_normal_(tp.empty(2), 0.0, 1.0, 9.0, 10.0)


@pytest.mark.parametrize("groups", [1, 2])
def test_dirac(groups):
    x = np.random.default_rng(0).normal(size=(2 * groups, 7))
    weight = init.dirac_(tp.empty(2 * groups, 2, 3), groups).numpy()
    passed = [
        sum(np.convolve(x[2 * (row // 2) + i], weight[row, i, ::-1], "same") for i in range(2))
        for row in range(2 * groups)
    ]
    assert np.allclose(passed, x)


def test_bad_arguments():
    with pytest.raises(ValueError, match="2 or more dimensions"):
        init.orthogonal_(tp.empty(2))
    with pytest.raises(ValueError, match="Only tensors with 3"):
        init.dirac_(tp.empty(2, 2))
    with pytest.raises(ValueError, match="divisible by groups"):
        init.dirac_(tp.empty(3, 2, 1), 2)


def test_a_seed_gives_the_same_again():
    for function in (init.orthogonal_, init.trunc_normal_):
        one, other = (
            function(tp.empty(3, 3), generator=tp.Generator().manual_seed(1)) for _ in range(2)
        )
        assert tp.equal(one, other)
