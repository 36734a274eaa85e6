"""`autograd.grad`, and derivatives of derivatives."""

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.autograd import grad


def leaf(*values):
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


def test_leaves_are_left_alone():
    x = leaf(1.0, 2.0)
    (dx,) = grad((x * x).sum(), x)
    assert dx.tolist() == [2.0, 4.0]
    assert x.grad is None


def test_inputs_may_be_inside_the_graph():
    x = leaf(2.0)
    y = x * x
    z = y * y
    dy, dx = grad(z.sum(), [y, x])
    assert dy.tolist() == [8.0]
    assert dx.tolist() == [32.0]


def test_an_output_may_be_an_input():
    x = leaf(2.0)
    y = x * x
    assert grad(y, y, tp.tensor([3.0], dtype=tp.float64))[0].tolist() == [3.0]
    assert grad(x, x)[0].tolist() == [1.0]


def test_one_piece_of_several_may_be_an_input():
    x = leaf(1.0, 2.0, 3.0)
    first, second, _ = (x * 1.0).unbind()
    d_first, d_second = grad(first * second, [first, second])
    assert (d_first.item(), d_second.item()) == (2.0, 1.0)


def test_only_what_leads_to_the_inputs_is_run():
    x, w = leaf(1.0), leaf(2.0)
    ran = []
    other = w * w
    other.register_hook(ran.append)
    assert grad((x * other).sum(), x)[0].tolist() == [4.0]
    assert not ran


def test_nothing_is_run_beyond_the_inputs():
    x = leaf(1.0)
    y = x * 2
    z = (y * y).sum()
    assert grad(z, y)[0].tolist() == [4.0]
    # What led to y is still there: its part of the graph was not used up.
    y.sum().backward()
    assert x.grad.tolist() == [2.0]


def test_an_unused_input_is_an_error_unless_allowed():
    x, unused = leaf(1.0), leaf(1.0)
    y = (x * 2).sum()
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        grad(y, [x, unused], retain_graph=True)
    assert grad(y, unused, allow_unused=True, retain_graph=True) == (None,)
    assert grad(y, unused, materialize_grads=True)[0].tolist() == [0.0]


def test_an_input_that_does_not_require_grad_is_an_error():
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(x * 2, tp.ones(1))


def test_gradients_can_be_differentiated_on():
    x = leaf(2.0)
    values = []
    y = (x**4).sum()
    for _ in range(4):
        (y,) = grad(y.sum(), x, create_graph=True)
        values.append(y.item())
    assert values == [32.0, 48.0, 48.0, 24.0]


def test_without_create_graph_the_result_is_a_constant():
    x = leaf(2.0)
    assert not grad((x * x).sum(), x)[0].requires_grad


def test_grad_outputs_can_be_differentiated():
    x, v = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (product,) = grad(x * x, x, v, create_graph=True)
    assert grad(product.sum(), v)[0].tolist() == [2.0, 4.0]


def test_backward_can_create_a_graph():
    x = leaf(3.0)
    (x * x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    first, x.grad = x.grad, None
    first.sum().backward()
    assert x.grad.item() == 18.0


def test_a_penalty_on_the_gradient_can_be_trained():
    x, w = leaf(1.0, 2.0), leaf(0.5, -1.0)
    (dx,) = grad((x * w).tanh().sum(), x, create_graph=True)
    (dx * dx).sum().backward()

    def penalty(values):
        slopes = values * (1 - np.tanh(x.detach().numpy() * values) ** 2)
        return (slopes**2).sum()

    for i in range(2):
        step = np.eye(2)[i] * 1e-6
        start = w.detach().numpy()
        numeric = (penalty(start + step) - penalty(start - step)) / 2e-6
        assert w.grad[i].item() == pytest.approx(numeric, rel=1e-6)


def mlp(flat, x):
    hidden = (x @ flat[:6].reshape(2, 3) + flat[6:9]).tanh()
    return ((hidden @ flat[9:].reshape(3, 1)) ** 2).mean()


def test_the_hessian_of_a_network_is_that_of_finite_differences():
    drawn = np.random.default_rng(0)
    x = tp.tensor(drawn.standard_normal((4, 2)))
    start = drawn.standard_normal(12)
    flat = tp.tensor(start, requires_grad=True)
    (slope,) = grad(mlp(flat, x), flat, create_graph=True)
    hessian = np.stack([grad(one, flat, retain_graph=True)[0].numpy() for one in slope])
    assert np.allclose(hessian, hessian.T)

    def slope_at(values):
        moved = tp.tensor(values, requires_grad=True)
        return grad(mlp(moved, x), moved)[0].numpy()

    eps = 1e-6
    numeric = np.stack(
        [
            (slope_at(start + eps * unit) - slope_at(start - eps * unit)) / (2 * eps)
            for unit in np.eye(12)
        ]
    )
    assert np.allclose(hessian, numeric, atol=1e-7)


def test_a_parameter_replaced_meanwhile_does_not_disturb_the_second_order():
    x, w = leaf(2.0), leaf(3.0)
    (dx,) = grad((x * x * w).sum(), x, create_graph=True)
    tp.optim.SGD([w, x], lr=1.0).step_with({w: tp.ones(1), x: tp.ones(1)})
    assert w.tolist() == [2.0]
    d2x, dw = grad(dx.sum(), [x, w])
    assert (d2x.item(), dw.item()) == (6.0, 4.0)


def test_options_that_programs_give_with_their_only_value():
    x = tp.tensor(3.0, requires_grad=True)
    (dx,) = tp.autograd.grad(x * x, x, only_inputs=True, is_grads_batched=False)
    assert dx.item() == 6.0
    with pytest.raises(ValueError, match="only_inputs"):
        tp.autograd.grad(x * x, x, only_inputs=False)
    with pytest.raises(ValueError, match="is_grads_batched"):
        tp.autograd.grad(x * x, x, is_grads_batched=True)
