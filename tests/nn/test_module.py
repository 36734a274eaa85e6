"""Modules: what they find among their attributes, and what they do with it."""

import copy
import pickle

import numpy as np
import pytest

import tensorplay as tp
from tensorplay import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.scale = nn.Parameter(tp.ones(1))
        self.register_buffer("seen", tp.zeros(1))
        self.register_buffer("scratch", tp.zeros(1), persistent=False)
        self.register_parameter("absent", None)
        self.plain = 7

    def forward(self, x):
        return self.inner(x) * self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        self.again = self.first

    def forward(self, x):
        return self.second(self.first(x))


NAMES = [
    "first.scale",
    "first.inner.weight",
    "first.inner.bias",
    "second.0.weight",
    "second.0.bias",
]


@pytest.fixture
def model():
    tp.manual_seed(0)
    return Model()


def test_parameters_are_found_once_each(model):
    assert [name for name, _ in model.named_parameters()] == NAMES
    assert len(list(model.parameters())) == 5
    assert [n for n, _ in model.first.named_parameters(recurse=False)] == ["scale"]
    assert "net.first.scale" in dict(model.named_parameters(prefix="net"))
    assert [n for n, _ in model.named_buffers()] == ["first.seen", "first.scratch"]
    assert len(list(model.buffers())) == 2


def test_modules_are_found_once_each(model):
    names = [name for name, _ in model.named_modules()]
    assert names == ["", "first", "first.inner", "second", "second.0", "second.1"]
    assert len(list(model.modules())) == 6
    assert [name for name, _ in model.named_children()] == ["first", "second"]
    assert list(model.children()) == [model.first, model.second]


def test_members_are_reached_by_name(model):
    assert model.get_submodule("first.inner") is model.first.inner
    assert model.get_submodule("") is model
    assert model.get_parameter("second.0.bias") is model.second[0].bias
    for call in (
        lambda: model.get_submodule("first.nothing"),
        lambda: model.get_parameter("first.plain"),
        lambda: model.nothing,
    ):
        with pytest.raises(AttributeError, match="has no"):
            call()
    assert {"first", "second", "forward"} <= set(dir(model))


def test_attributes_can_be_replaced_and_deleted(model):
    block = model.first
    block.scale = nn.Parameter(tp.zeros(1))
    assert block.scale.item() == 0.0
    block.seen = tp.ones(1)
    assert dict(block.named_buffers())["seen"].item() == 1.0
    block.scale = None
    assert "scale" not in dict(block.named_parameters())
    with pytest.raises(TypeError, match="cannot assign 'Tensor' as parameter 'absent'"):
        block.absent = tp.ones(1)
    block.absent = nn.Parameter(tp.ones(1))
    assert "absent" in dict(block.named_parameters())
    block.plain = nn.Identity()
    assert "plain" in dict(block.named_children())
    block.plain = None
    assert block.plain is None
    del block.seen
    del block.inner
    with pytest.raises(AttributeError):
        _ = block.inner


def test_registration_is_checked(model):
    with pytest.raises(TypeError, match="cannot assign 'Tensor' object to parameter"):
        model.register_parameter("p", tp.ones(1))
    with pytest.raises(KeyError, match="already exists"):
        model.register_buffer("first", tp.ones(1))
    with pytest.raises(KeyError, match="must not be empty nor contain"):
        model.register_module("a.b", nn.Identity())
    with pytest.raises(TypeError, match="not a Module subclass"):
        model.add_module("m", 1)

    class Early(nn.Module):
        def __init__(self):
            self.layer = nn.Identity()

    with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
        Early()
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        nn.Module()(1)


def test_a_state_is_saved_and_loaded(model):
    state = model.state_dict()
    assert sorted(state) == sorted(
        [*NAMES, "first.seen", *[f"again.{n[6:]}" for n in NAMES[:3]], "again.seen"]
    )
    assert not any(value.requires_grad for value in state.values())
    other = Model()
    assert not np.allclose(other.first.inner.weight.detach(), model.first.inner.weight.detach())
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    for name, value in other.state_dict().items():
        assert tp.equal(value, state[name])
    arrays = {name: value.numpy().astype(np.float64) for name, value in state.items()}
    other.load_state_dict(arrays)
    assert other.first.scale.dtype == tp.float32


def test_a_state_that_does_not_fit_is_refused(model):
    state = model.state_dict()
    weight = model.second[0].weight.detach().clone()
    del state["second.0.bias"]
    state["other"] = tp.ones(1)
    with pytest.raises(RuntimeError) as error:
        model.load_state_dict(state)
    assert 'Missing key(s) in state_dict: "second.0.bias"' in str(error.value)
    assert 'Unexpected key(s) in state_dict: "other"' in str(error.value)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["second.0.bias"], ["other"])
    state["second.0.weight"] = tp.ones(5)
    with pytest.raises(RuntimeError, match=r"size mismatch for second\.0\.weight"):
        model.load_state_dict(state, strict=False)
    assert tp.equal(model.second[0].weight, weight)


def test_loading_leaves_recorded_graphs_exact(model):
    x = tp.ones(1, 2, requires_grad=True)
    out = model(x).sum()
    expected = tp.autograd.grad(model(x).sum(), x)[0]
    model.load_state_dict(Model().state_dict())
    assert tp.equal(tp.autograd.grad(out, x)[0], expected)


def test_modes_and_flags_reach_all_modules(model):
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    model.train()
    assert all(module.training for module in model.modules())
    model.requires_grad_(False)
    assert not model(tp.ones(1, 2)).requires_grad


def test_gradients_are_dropped_or_zeroed(model):
    model(tp.ones(1, 2)).sum().backward()
    kept = model.first.scale.grad._array
    before = kept.copy()
    model.zero_grad(set_to_none=False)
    assert model.first.scale.grad.tolist() == [0.0]
    assert np.array_equal(kept, before)
    model.zero_grad()
    assert model.first.scale.grad is None


def test_conversion_of_element_types(model):
    assert model.double() is model
    assert {p.dtype for p in model.parameters()} == {tp.dtype("float64")}
    assert model.first.seen.dtype == tp.float64
    assert model(tp.ones(1, 2, dtype=tp.float64)).dtype == tp.float64
    assert model.to(tp.float16).first.scale.dtype == tp.float16
    assert model.float().to("cpu").half().first.scale.dtype == tp.float16
    assert model.double().to(tp.float32).first.scale.dtype == tp.float32
    with pytest.raises(TypeError, match="only accepts floating point"):
        model.to(tp.int64)


def test_conversion_to_complex_numbers_and_between_them():
    layer = tp.nn.Linear(2, 3).to(tp.complex64)
    assert layer.weight.dtype == tp.complex64
    layer(tp.ones(1, 2) * 1j).abs().sum().backward()
    assert layer.weight.grad.dtype == tp.complex64
    assert layer.double().weight.dtype == tp.complex64
    assert layer.to(tp.complex128).weight.dtype == tp.complex128


def test_both_parts_of_complex_parameters_are_drawn():
    weight = tp.nn.Linear(100, 100, dtype=tp.complex64).weight.detach()
    for part in (weight.real, weight.imag):
        assert 0.09 < part.abs().max().item() < 0.1
        assert abs(part.mean().item()) < 0.01
    drawn = tp.nn.init.normal_(tp.empty(100, 100, dtype=tp.complex64), 3.0, 2.0)
    assert drawn.var().item() == pytest.approx(4.0, rel=0.1)
    assert abs(drawn.mean().item() - 3.0) < 0.1


def test_apply_reaches_children_first(model):
    order = []
    model.apply(lambda module: order.append(type(module).__name__))
    assert order[-1] == "Model"
    assert order.index("Linear") < order.index("Sequential")


def test_hooks_around_forward():
    layer = nn.Identity()
    before = layer.register_forward_pre_hook(lambda module, args: args[0] + 1)
    after = layer.register_forward_hook(lambda module, args, result: (args[0], result * 10))
    assert [one.item() for one in layer(tp.tensor(1.0))] == [2.0, 20.0]
    before.remove()
    after.remove()
    assert layer(tp.tensor(1.0)).item() == 1.0


def test_modules_can_be_copied_and_pickled(model):
    x = tp.ones(1, 2)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert tp.equal(other(x), model(x))
        assert other.first is other.again
        assert [n for n, _ in other.named_parameters()] == NAMES
        other.first.scale.data.zero_()
    assert model.first.scale.item() == 1.0


def test_printing(model):
    assert repr(model) == (
        "Model(\n"
        "  (first): Block(\n"
        "    (inner): Linear(in_features=2, out_features=2, bias=True)\n"
        "  )\n"
        "  (second): Sequential(\n"
        "    (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (again): Block(\n"
        "    (inner): Linear(in_features=2, out_features=2, bias=True)\n"
        "  )\n"
        ")"
    )
    assert repr(nn.Dropout(0.1)) == "Dropout(p=0.1, inplace=False)"


def test_parameters():
    data = tp.ones(2)
    p = nn.Parameter(data, requires_grad=False)
    assert not p.requires_grad
    p._array[0] = 5
    assert data.tolist() == [5.0, 1.0]
    assert nn.Parameter().shape == (0,)
    with pytest.raises(TypeError, match="made from a Tensor"):
        nn.Parameter([1.0])
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(tp.ones(2, dtype=tp.int64))


def test_sequential_is_a_list_of_modules():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    net.append(nn.Linear(3, 1)).extend([nn.Sigmoid()])
    assert len(net) == 4
    assert isinstance(net[-1], nn.Sigmoid)
    assert isinstance(net[1:3], nn.Sequential)
    assert [type(m).__name__ for m in net] == ["Linear", "Tanh", "Linear", "Sigmoid"]
    net[1] = nn.ReLU()
    del net[3]
    assert [name for name, _ in net.named_children()] == ["0", "1", "2"]
    assert net(tp.ones(4, 2)).shape == (4, 1)
    with pytest.raises(IndexError, match="out of range"):
        net[3]
    named = nn.Sequential({"in": nn.Linear(2, 2), "out": nn.Identity()})
    assert named[0] is named.get_submodule("in")
    assert nn.Sequential()(1) == 1


def test_lists_and_dictionaries_of_modules():
    layers = nn.ModuleList([nn.Linear(1, 1)])
    layers.append(nn.Linear(1, 1))
    layers.insert(0, nn.Identity())
    assert len(list(layers.parameters())) == 4
    assert isinstance(layers[0], nn.Identity)
    assert len(layers[1:]) == 2
    named = nn.ModuleDict({"a": nn.Identity()})
    named["b"] = nn.Linear(1, 1)
    assert list(named) == list(named.keys()) == ["a", "b"]
    assert "b" in named
    assert len(named) == len(list(named.items())) == len(list(named.values())) == 2
    del named["a"]
    assert isinstance(named["b"], nn.Linear)
    assert len(named) == 1


def test_names_under_which_a_member_stands_several_times(model):
    every = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert sorted(every) == sorted([*NAMES, *[f"again.{name[6:]}" for name in NAMES[:3]]])
    modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
    assert modules.count("again.inner") == modules.count("first.inner") == 1
    buffers = [name for name, _ in model.named_buffers(remove_duplicate=False)]
    assert buffers == ["first.seen", "first.scratch", "again.seen", "again.scratch"]


def test_buffers_and_modules_by_name(model):
    assert model.get_buffer("first.seen") is model.first.seen
    with pytest.raises(AttributeError, match="no buffer `scale`"):
        model.get_buffer("first.scale")
    model.set_submodule("second.1", nn.Tanh())
    assert isinstance(model.second[1], nn.Tanh)
    with pytest.raises(ValueError, match="without a target name"):
        model.set_submodule("", nn.Tanh())


def test_where_a_state_goes(model):
    into = {"kept": 1}
    assert model.state_dict(destination=into, prefix="net.", keep_vars=True) is into
    assert into["net.first.scale"] is model.first.scale
    assert into["kept"] == 1
    with pytest.raises(TypeError, match="dict-like"):
        model.load_state_dict([1])


def test_loading_by_assignment(model):
    state = {name: value.double() for name, value in Model().state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert model.first.scale.dtype == tp.float64
    assert model.first.scale._array is state["again.scale"]._array
    assert isinstance(model.first.scale, nn.Parameter)
    assert model.first.scale.requires_grad


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def test_extra_state():
    net = nn.Sequential(Counted(), nn.Linear(1, 1))
    net[0].count = 5
    state = net.state_dict()
    assert state["0._extra_state"] == {"count": 5}
    other = nn.Sequential(Counted(), nn.Linear(1, 1))
    other.load_state_dict(state)
    assert other[0].count == 5
    del state["0._extra_state"]
    with pytest.raises(RuntimeError, match=r'Missing key.* "0\._extra_state"'):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match="no extra state"):
        nn.Identity().get_extra_state()


def test_other_conversions(model):
    assert model.cpu() is model
    model.register_buffer("counts", tp.zeros(1, dtype=tp.int64))
    model.double()
    assert model.counts.dtype == tp.int64
    assert model.type(tp.float32) is model
    assert {one.dtype for one in (*model.parameters(), *model.buffers())} == {tp.float32}
