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
    with pytest.raises(TypeError, match=r"gather\(\): argument 'index' \(position 3\)"):
        tp.ones(2).gather(0, [1])


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


# Subtraction of booleans, and other refusals


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tp.tensor([True]) - tp.tensor([True]), RuntimeError, "logical_xor"),
        (lambda: tp.tensor([True]) - True, RuntimeError, "logical_xor"),
        (lambda: tp.tensor([True]) - 1, RuntimeError, "bool tensor"),
        (lambda: 1 - tp.tensor([True]), RuntimeError, "bool tensor"),
        (lambda: -tp.tensor([True]), RuntimeError, "bool tensor"),
        (lambda: tp.ones(2).mul_(2, alpha=3), TypeError, "alpha"),
        (lambda: tp.ones(2).pow_(2, alpha=3), TypeError, "alpha"),
        (lambda: tp.ones(2)[tp.tensor([0, 1], dtype=tp.uint8)], IndexError, "bool"),
        (lambda: tp.cat(tp.ones(2)), TypeError, "list or tuple"),
        (lambda: tp.stack(tp.ones(2)), TypeError, "list or tuple"),
        (lambda: tp.ones(2).reshape(1.5), TypeError, "must be ints"),
        (lambda: tp.zeros(1.5), TypeError, "must be ints"),
        (lambda: tp.randperm(-1), RuntimeError, "negative"),
        (lambda: tp.arange(0, 5, -1), RuntimeError, "step sign"),
        (lambda: tp.arange(5, 0), RuntimeError, "step sign"),
        (lambda: tp.arange(0, 5, 0), RuntimeError, "nonzero"),
        (lambda: tp.linspace(0, 1, -1), RuntimeError, "non-negative"),
        (lambda: tp.zeros(0).argmax(), IndexError, "Expected reduction dim"),
        (lambda: tp.zeros(2, 0).argmin(1), IndexError, "non-zero size"),
        (lambda: tp.zeros(0).max(), RuntimeError, "Expected reduction dim"),
        (lambda: tp.zeros(2, 0).max(1), IndexError, "non-zero size"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t.add_(tp.ones(3)),
        lambda t: t.mul_(2),
        lambda t: t.pow_(2),
        lambda t: t.relu_(),
        lambda t: t.fill_(1),
        lambda t: t.copy_(tp.ones(3)),
        lambda t: t.normal_(),
        lambda t: t.index_add_(0, tp.tensor([1]), tp.ones(1)),
        lambda t: t.scatter_(0, tp.tensor([1]), 1.0),
        lambda t: t.__setitem__(0, 1.0),
        lambda t: t.mul_(tp.ones(3, requires_grad=True)),
    ],
)
def test_a_write_into_an_expanded_tensor_says_to_clone(write):
    with pytest.raises(RuntimeError, match=r"clone\(\)"):
        write(tp.zeros(1).expand(3))


def test_a_write_into_read_only_memory_says_to_clone():
    array = np.zeros(2)
    array.flags.writeable = False
    with pytest.raises(RuntimeError, match=r"clone\(\)"):
        tp.from_numpy(array).add_(1.0)
