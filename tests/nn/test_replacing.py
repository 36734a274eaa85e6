"""Members put in the place of others: order, kinds, and what copies take along."""

import copy

import pytest

import tensorplay as tp
from tensorplay import nn


def kinds(container):
    return [type(module).__name__ for module in container.children()]


def test_a_replaced_child_runs_in_its_place():
    s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
    s[0] = nn.GELU()
    assert kinds(s) == ["GELU", "Tanh", "Sigmoid"]
    x = tp.tensor([-1.0, 2.0])
    assert tp.equal(s(x), nn.Sigmoid()(nn.Tanh()(nn.GELU()(x))))
    s.set_submodule("1", nn.ReLU())
    s.add_module("2", nn.Tanh())
    assert kinds(s) == ["GELU", "ReLU", "Tanh"]


def test_replaced_members_of_lists_and_dictionaries_stay_in_place():
    modules = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    modules[0] = nn.GELU()
    assert kinds(modules) == ["GELU", "Tanh"]
    named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    named["a"] = nn.GELU()
    assert list(named) == ["a", "b"]
    assert kinds(named) == ["GELU", "Tanh"]
    listed = nn.ParameterList([tp.ones(1), tp.zeros(2)])
    listed[0] = tp.ones(3)
    assert [p.shape for p in listed.parameters()] == [(3,), (2,)]
    held = nn.ParameterDict({"a": tp.ones(1), "b": tp.zeros(2)})
    held["a"] = tp.ones(3)
    assert [p.shape for p in held.parameters()] == [(3,), (2,)]


def test_replaced_parameters_and_buffers_keep_their_order():
    norm = nn.BatchNorm1d(2)
    before = list(norm.state_dict())
    norm.weight = nn.Parameter(tp.zeros(2))
    norm.register_parameter("weight", nn.Parameter(tp.ones(2)))
    norm.running_mean = tp.ones(2)
    norm.register_buffer("running_mean", tp.zeros(2))
    assert list(norm.state_dict()) == before
    norm.weight = None
    norm.weight = nn.Parameter(tp.zeros(2))
    assert list(norm.state_dict()) == before
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    names = [name for name, _ in model.named_parameters()]
    model[0].weight = nn.Parameter(tp.zeros(1, 1))
    assert [name for name, _ in model.named_parameters()] == names


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(tp.ones(1))
        self.c = nn.ReLU()
        self.register_buffer("b", tp.ones(1))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("b", 3, "cannot assign 'int' as buffer 'b'"),
        ("c", 3, "cannot assign 'int' as child module 'c'"),
        ("c", tp.ones(1), "cannot assign 'Tensor' as child module 'c'"),
        ("p", 3, "cannot assign 'int' as parameter 'p'"),
        ("p", tp.ones(1), "cannot assign 'Tensor' as parameter 'p'"),
        ("p", nn.ReLU(), "cannot assign 'ReLU' as parameter 'p'"),
    ],
)
def test_a_member_is_replaced_by_its_kind_only(name, value, message):
    m = Mixed()
    before = getattr(m, name)
    with pytest.raises(TypeError, match=message):
        setattr(m, name, value)
    assert getattr(m, name) is before
    assert name not in m.__dict__


@pytest.mark.parametrize("name", ["b", "c", "p"])
def test_none_takes_any_member_out_and_leaves_its_place(name):
    m = Mixed()
    setattr(m, name, None)
    assert getattr(m, name) is None
    assert name not in m.__dict__
    with pytest.raises(TypeError):
        setattr(m, name, 3)


def test_parameters_and_modules_may_take_the_names_of_others():
    m = Mixed()
    m.b = nn.Parameter(tp.ones(1))
    m.c = nn.Parameter(tp.ones(1))
    assert [name for name, _ in m.named_parameters()] == ["p", "b", "c"]
    assert not list(m.named_buffers())
    assert not list(m.named_children())
    m = Mixed()
    m.b = nn.Tanh()
    assert kinds(m) == ["ReLU", "Tanh"]


def test_a_buffer_is_saved_or_not_as_it_was_last_registered():
    m = nn.Module()
    m.register_buffer("b", tp.ones(1), persistent=False)
    assert list(m.state_dict()) == []
    m.register_buffer("b", tp.ones(1))
    assert list(m.state_dict()) == ["b"]
    m.register_buffer("b", tp.ones(1), persistent=False)
    m.b = nn.Parameter(tp.ones(1))
    assert list(m.state_dict()) == ["b"]


def test_copies_of_parameters_have_no_gradient_and_those_of_tensors_do():
    t = tp.ones(2, requires_grad=True)
    layer = nn.Linear(2, 1)
    (layer(t).sum() + t.sum()).backward()
    assert tp.equal(copy.deepcopy(t).grad, t.grad)
    assert copy.deepcopy(layer.weight).grad is None
    assert all(p.grad is None for p in copy.deepcopy(layer).parameters())
    optimizer = tp.optim.SGD([*layer.parameters(), t], lr=0.1)
    *parameters, tensor = copy.deepcopy(optimizer).param_groups[0]["params"]
    assert [p.grad for p in parameters] == [None, None]
    assert tp.equal(tensor.grad, t.grad)
    assert layer.weight.grad is not None
