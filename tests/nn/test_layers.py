"""Layers, activations, initial values and gradient clipping."""

import math

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it
from tensorplay import nn
from tensorplay.nn import init


def test_linear_layers_are_affine():
    layer = nn.Linear(3, 2)
    x = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    expected = x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    assert np.allclose(layer(tp.tensor(x)).detach().numpy(), expected, atol=1e-6)
    assert nn.Linear(3, 2, bias=False).bias is None
    assert nn.Linear(3, 2, dtype=tp.float64).weight.dtype == tp.float64


def test_linear_layers_start_within_their_bounds():
    tp.manual_seed(0)
    layer = nn.Linear(400, 50)
    bound = 1 / math.sqrt(400)
    for values in (layer.weight.detach().numpy(), layer.bias.detach().numpy()):
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.9 * bound
    tp.manual_seed(0)
    assert tp.equal(nn.Linear(400, 50).weight, layer.weight)


def test_arguments_of_linear_are_checked():
    with pytest.raises(RuntimeError, match="do not fit"):
        F.linear(tp.ones(2, 3), tp.ones(2, 2))
    with pytest.raises(RuntimeError, match="same dtype"):
        F.linear(tp.ones(2, 3), tp.ones(2, 3, dtype=tp.float64))
    with pytest.raises(RuntimeError, match="the bias must have the shape"):
        F.linear(tp.ones(2, 3), tp.ones(2, 3), tp.ones(3))


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (nn.ReLU(), lambda x: np.maximum(x, 0)),
        (nn.Tanh(), np.tanh),
        (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
        (nn.Softmax(1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        (nn.LogSoftmax(dim=0), lambda x: x - np.log(np.exp(x).sum(0))),
        (nn.Identity("any", thing=1), lambda x: x),
        (nn.Flatten(), lambda x: x.reshape(len(x), -1)),
        (nn.Flatten(0), lambda x: x.reshape(-1)),
    ],
)
def test_modules_without_parameters(module, function):
    x = np.random.default_rng(0).standard_normal((3, 4, 2))
    x = x[..., 0] if "oftmax" in type(module).__name__ else x
    assert np.allclose(module(tp.tensor(x)).numpy(), function(x))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("relu", ()),
        ("relu6", ()),
        ("leaky_relu", (0.2,)),
        ("elu", (2.0,)),
        ("selu", ()),
        ("celu", (0.5,)),
        ("silu", ()),
        ("mish", ()),
        ("hardtanh", (-0.5, 0.5)),
        ("hardsigmoid", ()),
        ("hardswish", ()),
    ],
)
def test_functional_activations_in_place(name, arguments):
    function = getattr(nn.functional, name)
    start = tp.tensor([-2.0, -0.3, 0.4, 7.0], dtype=tp.float64, requires_grad=True)
    expected = function(start, *arguments)
    (slopes,) = tp.autograd.grad(expected.sum(), [start])
    inner = start * 1
    assert function(inner, *arguments, True) is inner
    assert inner.tolist() == expected.tolist()
    inner.sum().backward()
    assert start.grad.tolist() == slopes.tolist()
    plain = start.detach().clone()
    assert function(plain, *arguments, inplace=True) is plain
    assert plain.tolist() == expected.tolist()


def test_activations_in_place():
    x = tp.tensor([-1.0, 1.0], requires_grad=True)
    y = x * 2
    assert nn.ReLU(inplace=True)(y) is y
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 2.0]


def test_dropout():
    tp.manual_seed(0)
    x = tp.ones(10_000, requires_grad=True)
    layer = nn.Dropout(0.25)
    y = layer(x)
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    assert np.allclose(y.detach().numpy()[kept], 1 / 0.75)
    y.sum().backward()
    assert np.allclose(x.grad.numpy(), kept / 0.75)
    assert layer.eval()(x) is x
    assert F.dropout(x, 1.0).sum().item() == 0.0
    assert y.dtype == tp.float32
    z = x * 1
    assert nn.Dropout(0.5, inplace=True)(z) is z
    for make in (nn.Dropout, lambda p: F.dropout(x, p)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            make(1.5)


def test_initial_values():
    tp.manual_seed(0)
    w = nn.Parameter(tp.empty(200, 100))
    version = w._version[0]
    assert init.uniform_(w, 2, 3) is w
    assert w._version[0] > version
    assert (w.min().item() >= 2, w.max().item() <= 3) == (True, True)
    std = init.normal_(w, 1.0, 0.5).detach().numpy()
    assert (round(std.mean(), 1), round(std.std(), 1)) == (1.0, 0.5)
    spread = {
        init.kaiming_uniform_: math.sqrt(2 / 100),
        init.kaiming_normal_: math.sqrt(2 / 100),
        init.xavier_uniform_: math.sqrt(2 / 300),
        init.xavier_normal_: math.sqrt(2 / 300),
    }
    for function, expected in spread.items():
        assert function(w).detach().numpy().std() == pytest.approx(expected, rel=0.05)
    wide = init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu").detach().numpy()
    assert wide.std() == pytest.approx(math.sqrt(2 / 200), rel=0.05)
    assert init.zeros_(w).sum().item() == 0
    assert init.ones_(w).mean().item() == 1
    assert init.constant_(w, 3).mean().item() == 3
    assert tp.equal(init.eye_(tp.empty(2, 3)), tp.eye(2, 3))
    assert init.calculate_gain("leaky_relu", 1.0) == 1.0
    assert init.calculate_gain("tanh") == 5 / 3
    for call in (
        lambda: init.calculate_gain("nothing"),
        lambda: init.xavier_uniform_(tp.ones(2)),
        lambda: init.kaiming_uniform_(w, mode="sideways"),
        lambda: init.eye_(tp.ones(1)),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()


def test_gradients_are_clipped_to_a_norm():
    x, y, unused = (tp.zeros(2, requires_grad=True) for _ in range(3))
    x.grad, y.grad = tp.tensor([3.0, 0.0]), tp.tensor([0.0, 4.0])
    assert nn.utils.clip_grad_norm_([x, y, unused], 10.0).item() == 5.0
    assert x.grad.tolist() == [3.0, 0.0]
    assert nn.utils.clip_grad_norm_([x, y], 1.0, norm_type=float("inf")).item() == 4.0
    assert y.grad.tolist() == pytest.approx([0.0, 1.0])
    nn.utils.clip_grad_value_([x, y], 0.5)
    assert (x.grad.tolist(), y.grad.tolist()) == ([0.5, 0.0], [0.0, 0.5])
    assert nn.utils.clip_grad_norm_(unused, 1.0).item() == 0.0
    x.grad = tp.tensor([float("nan"), 0.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(x, 1.0, error_if_nonfinite=True)
    assert x.grad[1].item() == 0.0
    y.grad.fill_(1.0)
    assert nn.utils.clip_grad_norm_([x, y], 1.0).isnan()
    assert x.grad.isnan().all()
    assert y.grad.isnan().all()
    assert nn.utils.parameters_to_vector([x, y]).shape == (4,)


def test_complex_gradients_are_clipped_to_a_norm_only():
    z = tp.zeros(2, dtype=tp.complex64, requires_grad=True)
    z.grad = tp.tensor([3j, 4.0 + 0j])
    norm = nn.utils.clip_grad_norm_(z, 1.0)
    assert (norm.item(), norm.dtype) == (5.0, tp.float32)
    assert z.grad.tolist() == pytest.approx([0.6j, 0.8])
    with pytest.raises(NotImplementedError, match="use clip_grad_norm_"):
        nn.utils.clip_grad_value_(z, 0.5)


def test_two_dimensional_dropout_of_fewer_dimensions():
    tp.manual_seed(0)
    x = tp.ones(40, 50, 4)
    out = nn.functional.dropout2d(x, 0.5)
    # (N, C, L): whole channels of each sample.
    assert set(out.sum(-1).unique().tolist()) == {0.0, 8.0}
    with pytest.warns(UserWarning, match="dropout2d: received a 2-D input"):
        out = nn.functional.dropout2d(x[..., 0], 0.5)
    assert 800 < tp.count_nonzero(out) < 1200
