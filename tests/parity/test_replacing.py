"""Members that are replaced stay in their places, and are refused, as in PyTorch."""

import copy

import pytest

import tensorplay as tp

torch = pytest.importorskip("torch")


def replaced(lib):
    nn = lib.nn
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Tanh())
    model[0].weight = nn.Parameter(lib.ones(2, 2))
    model[1].running_mean = lib.zeros(2)
    model[1].register_parameter("weight", nn.Parameter(lib.ones(2)))
    model[2] = nn.Linear(2, 1)
    model[0] = nn.Linear(2, 2)
    return model


def test_order():
    ours, theirs = replaced(tp), replaced(torch)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for list_names in ("named_parameters", "named_modules", "named_buffers"):
        names = [[name for name, _ in getattr(m, list_names)()] for m in (ours, theirs)]
        assert names[0] == names[1]


def outcomes(lib):
    """The errors' beginnings, or None, of setting each kind of member to each kind of value."""
    nn = lib.nn
    found = []
    for name in ("p", "c", "b"):
        for make in (lambda: 3, nn.ReLU, lambda: nn.Parameter(lib.ones(1)), lambda: None):
            m = nn.Module()
            m.p = nn.Parameter(lib.ones(1))
            m.c = nn.Tanh()
            m.register_buffer("b", lib.ones(1))
            try:
                setattr(m, name, make())
            except TypeError as error:
                found.append(str(error).split(" as ")[1].split(" (")[0])
            else:
                found.append(None)
    return found


def test_kinds():
    assert outcomes(tp) == outcomes(torch)


def grads_of_copies(lib):
    tensor = lib.ones(2, requires_grad=True)
    layer = lib.nn.Linear(2, 1)
    layer(tensor).sum().backward()
    optimizer = lib.optim.SGD([*layer.parameters(), tensor], lr=0.1)
    copies = [
        copy.deepcopy(tensor),
        *copy.deepcopy(layer).parameters(),
        *copy.deepcopy(optimizer).param_groups[0]["params"],
    ]
    return [one.grad is None for one in copies]


def test_gradients_of_copies():
    assert grads_of_copies(tp) == grads_of_copies(torch)
