"""Modules and containers: names, order and texts, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402


def block(library, size):
    nn = library.nn
    return nn.Sequential(nn.Linear(size, size), nn.ReLU())


def model(library):
    nn = library.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([block(library, 2), block(library, 2), block(library, 3)])
            self.by_name = nn.ModuleDict({"b": nn.Tanh(), "a": nn.GRU(2, 3)})
            self.free = nn.ParameterList([library.ones(2), library.ones(1)])
            self.named = nn.ParameterDict({"y": library.ones(2), "x": library.ones(1)})
            self.attention = nn.MultiheadAttention(4, 2)
            self.loss = nn.CrossEntropyLoss(library.ones(3))
            self.again = self.blocks[0]
            self.register_buffer("seen", library.zeros(1))
            self.register_buffer("scratch", library.zeros(1), persistent=False)
            self.nothing = nn.ModuleList()

    return Model()


def names(found):
    return [name for name, _ in found]


def test_names_and_their_order():
    ours, theirs = model(tp), model(torch)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for method in ("named_parameters", "named_buffers", "named_modules"):
        for options in ({}, {"prefix": "p"}, {"remove_duplicate": False}):
            mine = names(getattr(ours, method)(**options))
            assert mine == names(getattr(theirs, method)(**options)), (method, options)
    assert names(ours.named_children()) == names(theirs.named_children())
    assert names(ours.named_parameters(recurse=False)) == []
    mine = names(ours.free.named_parameters("p", recurse=False))
    assert mine == names(theirs.free.named_parameters("p", recurse=False))


def test_texts():
    ours, theirs = model(tp), model(torch)
    for name in ("blocks", "by_name", "loss", "again", "nothing"):
        assert repr(getattr(ours, name)) == repr(getattr(theirs, name))


def outcome(module, state, strict):
    try:
        result = module.load_state_dict(state, strict=strict)
    except RuntimeError as error:
        # Theirs has a space at the end of each line.
        return str(error).replace(". ", ".").strip()
    return sorted(result.missing_keys), sorted(result.unexpected_keys)


@pytest.mark.parametrize("strict", [False, True])
def test_what_loading_says(strict):
    results = []
    for library in (tp, torch):
        made = model(library)
        state = dict(made.state_dict())
        del state["free.0"], state["seen"]
        state["other.weight"] = library.ones(1)
        results.append(outcome(made, state, strict))
    assert results[0] == results[1]


def test_gradient_clipping():
    random = np.random.default_rng(0)
    values = [random.normal(0, 3, shape) for shape in ((3, 2), (4,))]
    for order in (1.0, 2.0, 3.0, float("inf")):
        found = []
        for library in (tp, torch):
            owners = [library.zeros(*one.shape, dtype=library.float64) for one in values]
            for owner, value in zip(owners, values, strict=True):
                owner.requires_grad_().grad = library.tensor(value)
            norm = library.nn.utils.clip_grad_norm_(owners, 1.5, order)
            library.nn.utils.clip_grad_value_(owners[:1], 0.1)
            found.append([norm.item(), *[one.grad.numpy() for one in owners]])
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_parameters_as_a_vector():
    for library in (tp, torch):
        owners = [library.nn.Parameter(library.zeros(2, 2)), library.nn.Parameter(library.ones(1))]
        utils = library.nn.utils
        utils.vector_to_parameters(library.arange(5).float(), owners)
        assert owners[0].tolist() == [[0.0, 1.0], [2.0, 3.0]]
        vector = utils.parameters_to_vector(owners)
        assert vector.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        (vector * vector).sum().backward()
        assert owners[1].grad.tolist() == [8.0]
