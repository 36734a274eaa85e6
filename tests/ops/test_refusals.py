"""What is refused, and that the error says what to do."""

import pickle

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it
from tensorplay import nn

NO_TENSORS = [np.ones(2), [1.0, 2.0], 3.0]
FUNCTIONS = {
    "exp": tp.exp,
    "relu": F.relu,
    "softmax": lambda x: F.softmax(x, 0),
    "sum": tp.sum,
    "mean": tp.mean,
    "linear": lambda x: F.linear(x, tp.ones(1, 2)),
    "matmul": lambda x: tp.matmul(x, tp.ones(2)),
    "square": tp.square,
    "add": lambda x: tp.add(x, tp.ones(2)),
    "gather": lambda x: tp.gather(x, 0, tp.tensor([0])),
    "mse_loss": lambda x: F.mse_loss(x, tp.ones(2)),
    "cumsum": lambda x: tp.cumsum(x, 0),
    "clamp": lambda x: tp.clamp(x, 0, 1),
    "reshape": lambda x: tp.reshape(x, (2,)),
    "conv1d": lambda x: F.conv1d(x, tp.ones(1, 1, 1)),
    "layer_norm": lambda x: F.layer_norm(x, (2,)),
}


@pytest.mark.parametrize("value", NO_TENSORS, ids=["array", "list", "number"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_tensor_is_named(name, value):
    kind = {np.ndarray: "numpy.ndarray", list: "list", float: "float"}[type(value)]
    message = rf"{name}\(\): argument 'input' \(position 1\) must be a Tensor, not {kind}"
    with pytest.raises(TypeError, match=message):
        FUNCTIONS[name](value)


def test_a_later_argument_is_named():
    with pytest.raises(TypeError, match=r"linear\(\): argument 'weight' \(position 2\)"):
        F.linear(tp.ones(2), np.ones((1, 2)))
    with pytest.raises(TypeError, match=r"cross_entropy\(\): argument 'target' \(position 2\)"):
        F.cross_entropy(tp.ones(1, 2), [1])
    with pytest.raises(TypeError, match=r"gather\(\): argument 'index' \(position 3\)"):
        tp.gather(input=tp.ones(2), dim=0, index=[1])


def test_modules_refuse_what_is_no_tensor():
    for module in (nn.Linear(2, 1), nn.LSTM(2, 3), nn.GRUCell(2, 3), nn.ReLU()):
        with pytest.raises(TypeError, match="Tensor"):
            module([1])


def test_other_errors_stay_as_they_are():
    with pytest.raises(TypeError, match="nothing"):
        tp.sum(tp.ones(2), nothing=1)
    with pytest.raises(IndexError):
        tp.sum(tp.ones(2), 5)


def test_functions_and_methods_pickle():
    for function in (tp.sum, tp.square, tp.exp, F.linear, tp.Tensor.sum, tp.Tensor.gather):
        assert pickle.loads(pickle.dumps(function)) is function
