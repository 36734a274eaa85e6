"""Containers of modules and of parameters."""

import copy
import pickle

import pytest

import tensorplay as tp
from tensorplay import nn


def kinds(container):
    return [type(module).__name__ for module in container]


@pytest.mark.parametrize("make", [nn.ModuleList, lambda modules: nn.Sequential(*modules)])
def test_lists(make):
    net = make([nn.Identity(), nn.Tanh()])
    assert net.insert(1, nn.ReLU()) is net
    net += [nn.Sigmoid()]
    assert kinds(net) == ["Identity", "ReLU", "Tanh", "Sigmoid"]
    assert kinds(net + make([nn.GELU()])) == [*kinds(net), "GELU"]
    assert type(net + net) is type(net)
    assert isinstance(net.pop(0), nn.Identity)
    assert isinstance(net.pop(-1), nn.Sigmoid)
    assert [name for name, _ in net.named_children()] == ["0", "1"]
    del net[:]
    assert len(net) == 0
    with pytest.raises(IndexError, match="out of range"):
        net.pop(0)
    with pytest.raises(IndexError, match="out of range"):
        net.insert(2, nn.Tanh())
    with pytest.raises(TypeError, match="not a Module subclass"):
        net.insert(0, 1)
    with pytest.raises(TypeError, match="not a Module subclass"):
        net.append(1)


def test_names_of_a_sequence_stay_in_its_slices():
    net = nn.Sequential({"in": nn.Linear(1, 2), "act": nn.Tanh(), "out": nn.Linear(2, 1)})
    assert [name for name, _ in net[1:].named_children()] == ["act", "out"]
    net[1] = nn.ReLU()
    assert isinstance(net.act, nn.ReLU)


def test_dictionaries():
    held = nn.ModuleDict([("a", nn.Tanh())])
    held.update({"b": nn.ReLU(), "a": nn.Identity()})
    assert [(key, type(value).__name__) for key, value in held.items()] == [
        ("a", "Identity"),
        ("b", "ReLU"),
    ]
    assert isinstance(held.pop("a"), nn.Identity)
    held.clear()
    assert not list(held)
    with pytest.raises(KeyError):
        held.pop("a")


def test_lists_of_parameters():
    held = nn.ParameterList([tp.ones(2), nn.Parameter(tp.zeros(1))])
    held.append(tp.ones(3)).extend([tp.ones(4)])
    held += [tp.ones(5)]
    assert [one.shape for one in held] == [(2,), (1,), (3,), (4,), (5,)]
    assert all(isinstance(one, nn.Parameter) for one in held)
    assert [name for name, _ in held.named_parameters()] == ["0", "1", "2", "3", "4"]
    held[-1] = tp.ones(7)
    assert held[4].shape == (7,)
    assert [one.shape for one in held[1:3]] == [(1,), (3,)]
    assert len(held) == 5
    assert held
    assert "(0): Parameter containing: [float32 of size 2]" in repr(held)
    with pytest.raises(IndexError, match="out of range"):
        held[5]
    with pytest.raises(TypeError, match="iterable"):
        held.extend(tp.ones(2))
    for other in (copy.deepcopy(held), pickle.loads(pickle.dumps(held))):
        assert [one.shape for one in other] == [one.shape for one in held]


def test_dictionaries_of_parameters():
    held = nn.ParameterDict({"w": tp.ones(2)})
    held["b"] = tp.zeros(1)
    held.update([("c", tp.ones(3))])
    assert [name for name, _ in held.named_parameters()] == ["w", "b", "c"]
    assert list(held) == list(held.keys()) == ["w", "b", "c"]
    assert list(reversed(held)) == ["c", "b", "w"]
    assert [one.shape for one in held.values()] == [(2,), (1,), (3,)]
    assert held.get("x", 5) == 5
    assert held.setdefault("w") is held["w"]
    assert held.setdefault("d", tp.ones(4)).shape == (4,)
    assert held.popitem()[0] == "d"
    assert isinstance(held.pop("c"), nn.Parameter)
    assert len(held) == 2
    assert "w" in held
    merged = held | {"e": tp.ones(1)}
    assert list(merged) == ["w", "b", "e"]
    assert merged["w"] is held["w"]
    held |= {"f": tp.ones(1)}
    assert list(held.copy()) == ["w", "b", "f"]
    assert list(held.fromkeys(["x"], tp.ones(1))) == ["x"]
    assert "(w): Parameter containing: [float32 of size 2]" in repr(held)
    with pytest.raises(KeyError):
        held["x"]
    with pytest.raises(TypeError, match="must be a string"):
        held[1] = tp.ones(1)
    with pytest.raises(KeyError, match="already exists"):
        held["forward"] = tp.ones(1)
    other = pickle.loads(pickle.dumps(held))
    assert [name for name, _ in other.named_parameters()] == ["w", "b", "f"]
    held.clear()
    assert not list(held.parameters())
