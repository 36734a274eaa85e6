"""Recurrent layers and cells, and sequences of different lengths, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402
from tensorplay import nn  # noqa: E402

random = np.random.default_rng(17)
TYPES = [np.float32, np.float64]
KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("LSTM", {}), ("GRU", {})]
#: Keyword arguments of all kinds.
FORMS = [
    {},
    {"num_layers": 2},
    {"bias": False},
    {"bidirectional": True},
    {"batch_first": True, "num_layers": 2, "bidirectional": True, "bias": False},
]


def as_type(library, dtype):
    return getattr(library, np.dtype(dtype).name)


def pair(name, options, *sizes, dtype=np.float64):
    """The same module in both libraries, with the same parameters."""
    theirs = getattr(torch.nn, name)(*sizes, **options).to(as_type(torch, dtype))
    ours = getattr(nn, name)(*sizes, **options).to(as_type(tp, dtype))
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return {tp: ours, torch: theirs}


def compare_modules(modules, function, *inputs, tolerance=None):
    """Values and gradients of ``function(library, module, *inputs)``, also for the parameters."""

    def with_parameters(library, *own):
        results = function(library, modules[library], *own)
        return results, [parameter * 1 for parameter in modules[library].parameters()]

    compare(with_parameters, *inputs, tolerance=tolerance)
    for (name, ours), (other, theirs) in zip(
        modules[tp].named_parameters(), modules[torch].named_parameters(), strict=True
    ):
        assert name == other
        limit = tolerance or {"float32": 5e-5, "float64": 1e-10}[ours.dtype.name]
        scale = max(1.0, float(theirs.grad.abs().max()))
        np.testing.assert_allclose(
            ours.grad, theirs.grad, rtol=limit, atol=limit * scale, err_msg=name
        )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_layers(name, options, form, dtype):
    modules = pair(name, options | form, 3, 4, dtype=dtype)
    x = random.normal(size=(5, 2, 3)).astype(dtype)
    compare_modules(modules, lambda library, module, x: module(x), x, tolerance=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_a_state_to_start_with(name, options, form):
    modules = pair(name, options | form, 3, 4)
    layers = form.get("num_layers", 1) * (2 if form.get("bidirectional") else 1)
    batch = 5 if form.get("batch_first") else 2
    states = [random.normal(size=(layers, batch, 4)) for _ in range(2)]

    def function(library, module, x, h, c):
        return module(x, (h, c) if name == "LSTM" else h + c)

    compare_modules(modules, function, random.normal(size=(5, 2, 3)), *states)


@pytest.mark.parametrize("form", FORMS[-2:])
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_one_sequence_without_a_batch(name, options, form):
    modules = pair(name, options | form, 3, 4)
    layers = form.get("num_layers", 1) * 2
    x, state = random.normal(size=(5, 3)), random.normal(size=(layers, 4))

    def function(library, module, x, h):
        return module(x, (h, h * 2) if name == "LSTM" else h)

    compare_modules(modules, lambda library, module, x: module(x), x)
    compare_modules(pair(name, options | form, 3, 4), function, x, state)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_packed_sequences(name, options, bidirectional):
    modules = pair(name, options | {"bidirectional": bidirectional, "num_layers": 2}, 3, 4)
    lengths = [2, 5, 1, 4]

    def function(library, module, x):
        rnn = library.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        out, state = module(packed)
        return rnn.pad_packed_sequence(out), state

    compare_modules(modules, function, random.normal(size=(5, 4, 3)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("name", "options"),
    [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("LSTMCell", {}), ("GRUCell", {})],
)
def test_cells(name, options, bias):
    def function(library, module, x, h):
        first = module(x)
        second = module(x, (h, h * 2) if name == "LSTMCell" else h)
        return first, second

    for shape in [(2,), ()]:
        modules = pair(name, options | {"bias": bias}, 3, 4)
        inputs = random.normal(size=(*shape, 3)), random.normal(size=(*shape, 4))
        compare_modules(modules, function, *inputs)
        assert repr(modules[tp]) == repr(modules[torch])


def test_padding():
    sequences = [random.normal(size=(n, 2)) for n in (3, 1, 4)]
    for options in (
        {},
        {"batch_first": True},
        {"padding_value": -1.0, "padding_side": "left"},
    ):
        compare(
            lambda library, *own: library.nn.utils.rnn.pad_sequence(own, **options),  # noqa: B023
            *sequences,
        )

    def there_and_back(library, *own):
        rnn = library.nn.utils.rnn
        packed = rnn.pack_sequence(own, enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(packed, True, -2.0, 6)
        return (
            packed.data,
            packed.batch_sizes,
            packed.sorted_indices,
            packed.unsorted_indices,
            padded,
            lengths,
            rnn.unpack_sequence(packed),
        )

    compare(there_and_back, *sequences)


def test_attributes_and_texts():
    for name, options in KINDS:
        for form in FORMS:
            ours, theirs = (
                getattr(library.nn, name)(3, 4, **options, **form) for library in (tp, torch)
            )
            assert ours.mode == theirs.mode
            shapes = [[tuple(one.shape) for one in layer] for layer in ours.all_weights]
            assert shapes == [[tuple(one.shape) for one in layer] for layer in theirs.all_weights]
            assert [str(line) for line in repr(ours).split(", ")] == repr(theirs).split(", ")
            bound = 1 / np.sqrt(4)
            drawn = np.concatenate([one.detach().numpy().ravel() for one in ours.parameters()])
            assert -bound <= drawn.min() < -0.6 * bound < 0.6 * bound < drawn.max() <= bound
