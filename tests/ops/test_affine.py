"""The affine map of a linear layer: every way in which it is computed."""

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.nn.functional import linear


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lead", [(), (1,), (5,), (32,), (33,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("biased", [False, True])
def test_values_layout_and_gradients(lead, biased, dtype):
    drawn = np.random.default_rng(0)
    x, w, b = (drawn.standard_normal(shape) for shape in ((*lead, 200), (130, 200), (130,)))
    inputs = [tp.tensor(one.astype(dtype), requires_grad=True) for one in (x, w, b)]
    out = linear(*(inputs if biased else inputs[:2]))
    assert out.shape == (*lead, 130)
    assert out.dtype == dtype
    assert out.is_contiguous()
    np.testing.assert_allclose(out.detach(), x @ w.T + (b if biased else 0), rtol=0, atol=1e-4)
    grad = drawn.standard_normal(out.shape)
    out.backward(tp.tensor(grad.astype(dtype)))
    rows, columns = grad.reshape(-1, 130), x.reshape(-1, 200)
    np.testing.assert_allclose(inputs[0].grad, grad @ w, rtol=0, atol=1e-4)
    np.testing.assert_allclose(inputs[1].grad, rows.T @ columns, rtol=0, atol=1e-4)
    if biased:
        np.testing.assert_allclose(inputs[2].grad, rows.sum(0), rtol=0, atol=1e-4)


def test_no_input_features():
    out = linear(tp.zeros(2, 3, 0), tp.zeros(4, 0), tp.ones(4))
    assert out.tolist() == [[[1.0] * 4] * 3] * 2
