"""The tensor as an object: conversion, copying, printing, and its declared surface."""

import ast
import copy
import inspect
import pickle

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.ops import methods, surface


def test_facts():
    t = tp.zeros(2, 3)
    assert (t.shape, t.size(), t.size(1), t.ndim, t.dim(), t.numel()) == (
        (2, 3),
        (2, 3),
        3,
        2,
        2,
        6,
    )
    assert (t.device, t.is_leaf, t.requires_grad, t.grad) == ("cpu", True, False, None)
    assert len(t) == 2
    assert t.is_floating_point()
    assert t.is_contiguous()
    assert not t.T.is_contiguous()
    assert t.T.contiguous().is_contiguous()
    assert t.contiguous() is t
    assert tp.is_tensor(t)


def test_numbers():
    assert tp.tensor(2.5).item() == 2.5
    assert float(tp.tensor([2.5])) == 2.5
    assert int(tp.tensor(2.5)) == 2
    assert bool(tp.tensor([[1]]))
    assert not tp.tensor(0.0)
    with pytest.raises(RuntimeError, match="with 2 elements cannot be converted to Scalar"):
        tp.ones(2).item()
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with 2 values is ambiguous"):
        bool(tp.ones(2))
    with pytest.raises(RuntimeError, match="with no values is ambiguous"):
        bool(tp.zeros(0))


def test_arrays():
    t = tp.ones(2)
    assert t.numpy() is t._array
    assert np.asarray(t) is t._array
    assert np.array(t) is not t._array
    assert np.asarray(t, np.float64).dtype == np.float64
    x = tp.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\)"):
        x.numpy()
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(x)
    assert x.numpy(force=True) is x._array
    assert x.detach().numpy() is x._array


def test_identity_is_what_hashes_count():
    a, b = tp.ones(1), tp.ones(1)
    assert len({a, b, a}) == 2
    assert {a: 1}[a] == 1


def test_requires_grad_can_be_switched_on_leaves_only():
    x = tp.ones(1)
    assert x.requires_grad_() is x
    y = x * 2
    with pytest.raises(RuntimeError, match="only change requires_grad flags of leaf"):
        y.requires_grad = False
    y.requires_grad = True
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_data_gives_and_takes_values_outside_the_graph():
    x = tp.ones(2, requires_grad=True)
    y = x * x
    x.data.mul_(3)
    assert x.tolist() == [3.0, 3.0]
    x.data = tp.zeros(2)
    y.sum().backward()  # with the array that the forward pass saved
    assert x.tolist() == [0.0, 0.0]
    assert x.grad.tolist() == [6.0, 6.0]
    with pytest.raises(TypeError, match="must be a Tensor"):
        x.data = [1.0]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickling_leaves_the_graph_behind(protocol):
    x = tp.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for tensor in (x, x * 2, x.T, x.detach()[0], tp.tensor(3), x * 1j):
        copied = pickle.loads(pickle.dumps(tensor, protocol))
        assert tp.equal(copied, tensor)
        assert copied.dtype is tensor.dtype
        assert copied.requires_grad == tensor.requires_grad
        assert copied.is_leaf
        assert copied.grad is None


def test_parameters_stay_parameters():
    p = tp.nn.Parameter(tp.ones(2))
    p.note = "kept"
    for copied in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p), copy.copy(p)):
        assert type(copied) is tp.nn.Parameter
        assert copied.note == "kept"
        assert copied.requires_grad
    assert type(p * 1) is tp.Tensor
    assert type(p.detach()) is tp.Tensor


def test_deep_copies_are_leaves_with_their_gradient():
    x = tp.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    again, same = copy.deepcopy([x, x])
    assert again is same
    assert again._array is not x._array
    assert again.grad.tolist() == [2.0, 2.0]
    assert again.grad is not x.grad
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(x * 2)
    assert copy.deepcopy(x.detach() * 2).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (tp.tensor([1.0, 2.0]), "tensor([1., 2.])"),
        (tp.tensor([[1.5, -2.0]]), "tensor([[ 1.5000, -2.0000]])"),
        (tp.tensor(3), "tensor(3)"),
        (tp.tensor(3.14159), "tensor(3.1416)"),
        (tp.tensor([1e-9, 1.0]), "tensor([1.0000e-09, 1.0000e+00])"),
        (tp.tensor([float("nan"), float("inf"), 1.0]), "tensor([nan, inf, 1.])"),
        (tp.tensor([True, False]), "tensor([ True, False])"),
        (tp.zeros(0), "tensor([])"),
        (tp.zeros(0, 3), "tensor([], size=(0, 3))"),
        (tp.ones(1, dtype=tp.float64), "tensor([1.], dtype=float64)"),
        (tp.ones(1, dtype=tp.int32), "tensor([1], dtype=int32)"),
        (tp.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
        (tp.ones(1, requires_grad=True) * 2, "tensor([2.], grad_fn=<MulBackward0>)"),
        (tp.nn.Parameter(tp.ones(1)), "Parameter containing:\ntensor([1.], requires_grad=True)"),
        (tp.tensor([1 + 1j, 2 - 0.5j]), "tensor([1.+1.0000j, 2.-0.5000j])"),
        (tp.tensor(-2j), "tensor(-0.-2.j)"),
        (
            tp.tensor([[1.25 + 1e-6j, 2 - 0.5j]], dtype=tp.complex128),
            "tensor([[1.2500+1.0000e-06j, 2.0000-5.0000e-01j]], dtype=complex128)",
        ),
        (tp.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
    ],
)
def test_printing(tensor, text):
    assert repr(tensor) == text


def test_names_of_operations_are_those_of_pytorch():
    x = tp.ones(2, 2, requires_grad=True)
    names = {
        "AddBackward0": x + x,
        "SubBackward0": x - x,
        "MulBackward0": x * 2,
        "DivBackward0": x / x,
        "NegBackward0": -x,
        "PowBackward0": x**2,
        "MmBackward0": x @ x,
        "SumBackward0": x.sum(),
        "MeanBackward0": x.mean(),
        "TanhBackward0": x.tanh(),
        "ReluBackward0": x.relu(),
        "ViewBackward0": x.reshape(4),
        "TBackward0": x.t(),
        "CatBackward0": tp.cat([x, x]),
        "AddmmBackward0": tp.nn.functional.linear(x, x, x[0]),
    }
    assert {name: t.grad_fn.name() for name, t in names.items()} == {name: name for name in names}


def test_what_is_attached_is_what_is_declared():
    tree = ast.parse(inspect.getsource(surface))
    (declared,) = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    names = {node.name for node in declared.body if isinstance(node, ast.FunctionDef)}
    attached = {*methods.OPERATORS, *methods.METHODS, *methods.PROPERTIES}
    assert names == attached


def test_methods_are_documented():
    missing = [
        name
        for name in methods.METHODS
        if not name.startswith("_") and not getattr(tp.Tensor, name).__doc__
    ]
    assert missing == []
