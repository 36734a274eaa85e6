"""The optimizers' formulas, options, states and groups."""

import copy
import math
import pickle

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.optim import SGD, Adam, AdamW

STEPS = 6


def sgd(w, grads, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False):
    """Written as in the documentation of PyTorch's SGD."""
    buffer = None
    for g in grads:
        g = -g if maximize else g
        g = g + weight_decay * w
        if momentum:
            buffer = g if buffer is None else momentum * buffer + (1 - dampening) * g
            g = g + momentum * buffer if nesterov else buffer
        w = w - lr * g
    return w


def adam(
    w,
    grads,
    lr=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0,
    amsgrad=False,
    maximize=False,
    decoupled=False,
):
    """Written as in the documentation of PyTorch's Adam and AdamW."""
    m = v = top = np.zeros_like(w)
    for t, g in enumerate(grads, 1):
        g = -g if maximize else g
        if decoupled:
            w = w - lr * weight_decay * w
        else:
            g = g + weight_decay * w
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        top = np.maximum(top, v)
        second = (top if amsgrad else v) / (1 - betas[1] ** t)
        w = w - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(second) + eps)
    return w


CASES = [
    (SGD, sgd, {}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "maximize": True}),
    (SGD, sgd, {"lr": 0.1, "weight_decay": 0.1}),
    (Adam, adam, {}),
    (Adam, adam, {"lr": 0.1, "weight_decay": 0.1, "betas": (0.5, 0.7), "eps": 1e-3}),
    (Adam, adam, {"lr": 0.1, "amsgrad": True, "maximize": True}),
    (AdamW, lambda w, g, **o: adam(w, g, decoupled=True, **o), {"lr": 0.1, "weight_decay": 0.2}),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("kind", "formula", "options"), CASES)
def test_steps_follow_the_formula(kind, formula, options, dtype):
    drawn = np.random.default_rng(0)
    start = drawn.standard_normal((3, 4)).astype(dtype)
    grads = drawn.standard_normal((STEPS, 3, 4)).astype(dtype)
    w = tp.tensor(start, requires_grad=True)
    optimizer = kind([w], **options)
    for g in grads:
        w.grad = tp.tensor(g)
        optimizer.step()
        assert np.array_equal(w.grad.numpy(), g)
    assert w.dtype == dtype
    expected = formula(start.astype(np.float64), grads.astype(np.float64), **options)
    assert np.allclose(w.detach().numpy(), expected, atol=1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("kind", [lambda p: SGD(p, momentum=0.5, nesterov=True), Adam])
def test_large_parameters_and_other_layouts_take_the_same_steps(kind):
    drawn = np.random.default_rng(0)
    values, grads = drawn.standard_normal((250, 300)), drawn.standard_normal((3, 250, 300))
    whole = tp.tensor(values, requires_grad=True)
    turned = tp.tensor(values.T.copy()).T.detach().requires_grad_()
    rows = [tp.tensor(row, requires_grad=True) for row in values]
    optimizers = [kind([whole]), kind([turned]), kind(rows)]
    for g in grads:
        optimizers[0].step_with({whole: tp.tensor(g)})
        optimizers[1].step_with({turned: tp.tensor(g)})
        optimizers[2].step_with({row: tp.tensor(g[i]) for i, row in enumerate(rows)})
    assert tp.equal(whole, turned)
    assert tp.equal(whole, tp.stack(rows))


@pytest.mark.parametrize(("kind", "_formula", "options"), CASES)
def test_parts_of_complex_numbers_take_steps_of_their_own(kind, _formula, options):
    parts = tp.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    whole = tp.view_as_complex(parts.detach().clone()).requires_grad_()
    optimizers = [kind([leaf], **options) for leaf in (parts, whole)]
    for step in range(4):
        slope = tp.tensor([[1.0, step], [-step, 0.5]])
        optimizers[0].step_with({parts: slope})
        optimizers[1].step_with({whole: tp.view_as_complex(slope)})
    assert tp.allclose(tp.view_as_real(whole), parts, rtol=1e-6)


def test_a_decay_of_weights_is_the_default_of_adamw():
    w = tp.ones(1, requires_grad=True)
    assert AdamW([w]).defaults["weight_decay"] == 1e-2
    assert SGD([w]).defaults["lr"] == 1e-3


def test_only_parameters_with_a_gradient_move():
    a, b, stranger = (tp.ones(2, requires_grad=True) for _ in range(3))
    optimizer = SGD([a, b], lr=1.0)
    optimizer.step_with({a: tp.ones(2), stranger: tp.ones(2)})
    assert a.tolist() == [0.0, 0.0]
    assert b.tolist() == stranger.tolist() == [1.0, 1.0]
    b.grad = tp.ones(2)
    optimizer.step()
    assert (a.tolist(), b.tolist()) == ([0.0, 0.0], [0.0, 0.0])


def test_gradients_given_are_used_instead_of_those_gathered():
    a = tp.ones(1, requires_grad=True)
    a.grad = tp.full((1,), 100.0)
    SGD([a], lr=1.0).step_with({a: tp.full((1,), 0.25)})
    assert a.tolist() == [0.75]
    assert a.grad.tolist() == [100.0]


def test_a_gradient_of_another_shape_is_refused_and_of_another_type_converted():
    a = tp.ones(2, requires_grad=True)
    optimizer = SGD([a], lr=1.0)
    with pytest.raises(RuntimeError, match="the gradient's shape"):
        optimizer.step_with({a: tp.ones(1)})
    optimizer.step_with({a: tp.ones(2, dtype=tp.float64)})
    assert a.dtype == tp.float32


def test_a_closure_is_called_with_recording_on():
    x = tp.tensor([3.0], requires_grad=True)
    optimizer = SGD([x], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        return loss

    with tp.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert x.item() == pytest.approx(2.4)


def test_gradients_are_dropped_or_zeroed():
    x = tp.ones(1, requires_grad=True)
    optimizer = SGD([x])
    x.grad = kept = tp.ones(1)
    optimizer.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0.0]
    assert kept.tolist() == [1.0]
    optimizer.zero_grad()
    assert x.grad is None


def test_groups_have_options_of_their_own():
    a, b, c = (tp.ones(1, requires_grad=True) for _ in range(3))
    optimizer = SGD([{"params": a, "lr": 0.1}, {"params": [b]}], lr=0.5)
    optimizer.add_param_group({"params": [c], "lr": 1.0})
    optimizer.step_with({one: tp.ones(1) for one in (a, b, c)})
    assert [a.item(), b.item(), c.item()] == pytest.approx([0.9, 0.5, 0.0])
    optimizer.param_groups[2]["lr"] = 0.0
    optimizer.step_with({c: tp.ones(1)})
    assert c.item() == 0.0
    assert repr(optimizer).splitlines()[:3] == ["SGD (", "Parameter Group 0", "    dampening: 0"]


def test_parameters_are_checked():
    x = tp.ones(1, requires_grad=True)
    for params, error, text in [
        (x, TypeError, "iterable of Tensors"),
        ([], ValueError, "empty parameter list"),
        ([1.0], TypeError, "can only optimize Tensors"),
        ([x * 2], ValueError, "non-leaf"),
        ([{"params": [x]}, {"params": [x]}], ValueError, "more than one"),
    ]:
        with pytest.raises(error, match=text):
            SGD(params)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SGD, {"lr": -1.0}),
        (SGD, {"momentum": -1.0}),
        (SGD, {"weight_decay": -1.0}),
        (SGD, {"nesterov": True}),
        (Adam, {"lr": -1.0}),
        (Adam, {"eps": -1.0}),
        (Adam, {"betas": (1.0, 0.9)}),
        (AdamW, {"weight_decay": -1.0}),
    ],
)
def test_options_are_checked(kind, options):
    with pytest.raises(ValueError, match=r"Invalid|Nesterov"):
        kind([tp.ones(1, requires_grad=True)], **options)


@pytest.mark.parametrize("restore", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize("kind", [lambda p: SGD(p, lr=0.1, momentum=0.9), Adam])
def test_training_goes_on_where_it_was(kind, restore):
    drawn = np.random.default_rng(0)
    grads = drawn.standard_normal((6, 3))

    def run(w, optimizer, some):
        for g in some:
            optimizer.step_with({w: tp.tensor(g)})

    straight = tp.ones(3, dtype=tp.float64, requires_grad=True)
    run(straight, kind([straight]), grads)

    w = tp.ones(3, dtype=tp.float64, requires_grad=True)
    optimizer = kind([w])
    run(w, optimizer, grads[:3])
    if restore == "state_dict":
        other = kind([w])
        other.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    else:
        again = copy.deepcopy if restore == "deepcopy" else lambda o: pickle.loads(pickle.dumps(o))
        w, other = again((w, optimizer))
    run(w, other, grads[3:])
    assert tp.allclose(w, straight, rtol=1e-12)


def test_a_saved_state_is_a_snapshot():
    w = tp.ones(1, requires_grad=True)
    optimizer = SGD([w], lr=0.1, momentum=0.9)
    optimizer.step_with({w: tp.ones(1)})
    saved = optimizer.state_dict()
    optimizer.step_with({w: tp.ones(1)})
    assert saved["state"][0]["momentum_buffer"].tolist() == [1.0]
    assert saved["param_groups"][0]["params"] == [0]
    with pytest.raises(ValueError, match="parameter groups that don't match"):
        SGD([w, tp.ones(1, requires_grad=True)]).load_state_dict(saved)


def test_a_network_learns():
    tp.manual_seed(0)
    net = tp.nn.Sequential(tp.nn.Linear(2, 16), tp.nn.Tanh(), tp.nn.Linear(16, 2))
    x = tp.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = tp.tensor([0, 1, 1, 0])
    optimizer = Adam(net.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss = tp.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    assert net(x).argmax(1).tolist() == y.tolist()
    assert loss.item() < 0.05
    assert not math.isnan(loss.item())


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_parameter_twice_in_a_group_moves_twice(kind):
    w, twice = (tp.ones(2, requires_grad=True) for _ in range(2))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = kind([twice, twice], lr=0.1)
    w.grad = twice.grad = tp.tensor([1.0, -2.0])
    optimizer.step()
    single = kind([w], lr=0.1)
    single.step()
    single.step()
    assert tp.equal(w, twice)
    state = optimizer.state_dict()
    assert state["param_groups"][0]["params"] == [1, 1]
    optimizer.load_state_dict(state)
    optimizer.step()
    single.step()
    single.step()
    assert tp.equal(w, twice)
