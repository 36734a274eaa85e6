"""Recurrent layers: what they refuse, and what they keep."""

import pickle

import numpy as np
import pytest

import tensorplay as tp
from tensorplay import nn
from tensorplay.nn.utils import rnn


def test_bad_arguments():
    for call in (
        lambda: nn.RNN(2, 0),
        lambda: nn.GRU(2, 3, num_layers=0),
        lambda: nn.LSTM(2, 3, dropout=1.5),
        lambda: nn.LSTM(2, 3, proj_size=1),
        lambda: nn.RNN(2, 3, nonlinearity="sigmoid"),
        lambda: nn.RNNBase("TREE", 2, 3),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            call()


def test_bad_inputs():
    layer, x = nn.LSTM(2, 3), tp.ones(4, 5, 2)
    h = tp.zeros(1, 5, 3)
    with pytest.raises(RuntimeError, match="Expected 2, got 3"):
        layer(tp.ones(4, 5, 3))
    with pytest.raises(ValueError, match="2D or 3D, got 1D"):
        layer(tp.ones(2))
    with pytest.raises(RuntimeError, match="larger than 0"):
        layer(tp.ones(0, 5, 2))
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 5, 3\), got \[1, 4, 3\]"):
        layer(x, (tp.zeros(1, 4, 3), h))
    with pytest.raises(RuntimeError, match="Expected cell size"):
        layer(x, (h, tp.zeros(2, 5, 3)))
    with pytest.raises(RuntimeError, match="is a pair"):
        layer(x, (h, h, h))
    with pytest.raises(RuntimeError, match="should also be 2-D"):
        layer(x[:, 0], (h, h))
    with pytest.raises(TypeError, match="must be a Tensor"):
        nn.GRU(2, 3)(x, 1.0)
    with pytest.raises(RuntimeError, match="must have one type"):
        layer(x.double())
    with pytest.raises(RuntimeError, match="floating-point"):
        nn.GRU(2, 3)(tp.ones(4, 5, 2, dtype=tp.int64), tp.zeros(1, 5, 3))
    cell = nn.GRUCell(2, 3)
    with pytest.raises(ValueError, match="1D or 2D, got 3D"):
        cell(x)
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        cell(x[0], tp.zeros(4, 3))
    with pytest.raises(RuntimeError, match="Unknown nonlinearity"):
        nn.RNNCell(2, 3, nonlinearity="sigmoid")


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_writes_into_results_and_inputs(name):
    """Results may be written to; what the rule needs may not."""
    layer, x = getattr(nn, name)(2, 3), tp.ones(4, 1, 2)
    out, state = layer(x)
    expected = tp.autograd.grad(layer(x)[0].sum(), list(layer.parameters()))
    total = out.sum()
    out.detach().zero_()
    (state[0] if name == "LSTM" else state).detach().zero_()
    for found, grad in zip(
        tp.autograd.grad(total, list(layer.parameters())), expected, strict=True
    ):
        assert tp.allclose(found, grad)
    total = layer(x)[0].sum()
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_nothing_is_kept_without_a_graph(name):
    layer, x = getattr(nn, name)(2, 3, num_layers=2), tp.ones(4, 1, 2)
    with tp.no_grad():
        out, _ = layer(x)
    assert not out.requires_grad
    assert tp.equal(out, layer(x)[0])
    frozen = layer.requires_grad_(False)
    assert not frozen(x)[0].requires_grad


def test_dropout_between_layers():
    tp.manual_seed(0)
    layer, x = nn.GRU(2, 8, num_layers=2, dropout=0.5), tp.ones(4, 3, 2)
    assert not tp.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert tp.equal(layer(x)[0], layer(x)[0])


def test_layers_can_be_sent():
    layer, x = nn.LSTM(2, 3, bidirectional=True), tp.ones(4, 1, 2)
    other = pickle.loads(pickle.dumps(layer))
    assert tp.equal(other(x)[0], layer(x)[0])
    packed = rnn.pack_sequence([tp.ones(2, 2), tp.ones(1, 2)])
    assert tp.equal(layer(pickle.loads(pickle.dumps(packed)))[0].data, layer(packed)[0].data)
    assert packed.to(tp.float64).data.dtype == tp.float64


def test_a_graph_that_is_used_twice():
    layer, x = nn.LSTM(2, 3), tp.ones(4, 1, 2)
    total = layer(x)[0].sum()
    total.backward(retain_graph=True)
    first = layer.weight_hh_l0.grad.numpy().copy()
    total.backward()
    assert np.allclose(layer.weight_hh_l0.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


def test_bad_sequences():
    x = tp.ones(3, 2, 1)
    with pytest.raises(RuntimeError, match="equal to batch_size"):
        rnn.pack_padded_sequence(x, [3])
    with pytest.raises(RuntimeError, match="greater than 0"):
        rnn.pack_padded_sequence(x, [3, 0])
    with pytest.raises(RuntimeError, match="not more than"):
        rnn.pack_padded_sequence(x, [4, 1])
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        rnn.pack_padded_sequence(x, [1, 3])
    with pytest.raises(ValueError, match="at least one sequence"):
        rnn.pad_sequence([])
    with pytest.raises(ValueError, match="padding_side"):
        rnn.pad_sequence([x], padding_side="middle")
    with pytest.raises(RuntimeError, match="alike but for"):
        rnn.pad_sequence([tp.ones(1, 2), tp.ones(1, 3)])
    with pytest.raises(ValueError, match="total_length"):
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 1]), total_length=2)
