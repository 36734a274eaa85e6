"""Activation functions and modules, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

TYPES = [np.float32, np.float64]
random = np.random.default_rng(3)
#: Of all sizes, with the corners.
VALUES = np.concatenate(
    [random.normal(0, 3, 38), [0.0, 1.0, -1.0, 6.0, -3.0, 3.0, 30.0, -30.0, 90.0, -90.0]]
).reshape(6, 8)

#: Of these torch computes some constants in float32 only.
ROUGH = dict.fromkeys(["celu", "hardsigmoid", "CELU", "Hardsigmoid"], 1e-6)
#: (name, keyword arguments)
FUNCTIONS = [
    ("relu", {}),
    ("relu6", {}),
    ("leaky_relu", {}),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("hardtanh", {}),
    ("hardtanh", {"min_val": -2.0, "max_val": 0.5}),
    ("elu", {}),
    ("elu", {"alpha": 0.5}),
    ("celu", {"alpha": 1.7}),
    ("selu", {}),
    ("silu", {}),
    ("mish", {}),
    ("softsign", {}),
    ("tanhshrink", {}),
    ("hardsigmoid", {}),
    ("hardswish", {}),
    ("softplus", {}),
    ("softplus", {"beta": 2.0, "threshold": 5.0}),
    ("logsigmoid", {}),
    ("tanh", {}),
    ("sigmoid", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("softmax", {"dim": 1}),
    ("softmin", {"dim": 0}),
    ("log_softmax", {"dim": -1}),
    ("glu", {}),
    ("glu", {"dim": 0}),
]


@pytest.mark.parametrize(("name", "options"), FUNCTIONS)
def test_functions(name, options):
    for dtype in TYPES:
        compare(
            lambda library, x: getattr(library.nn.functional, name)(x, **options),
            VALUES.astype(dtype),
            tolerance=ROUGH.get(name),
        )


@pytest.mark.parametrize(("name", "options"), FUNCTIONS)
def test_single_numbers_and_none(name, options):
    if name == "glu":
        return
    options = options | ({"dim": 0} if "dim" in options else {})
    for values in (np.array(0.5), np.array(-0.5, np.float32), np.zeros((2, 0))):
        compare(
            lambda library, x: getattr(library.nn.functional, name)(x, **options),
            values,
            tolerance=ROUGH.get(name),
        )


#: (name, arguments)
MODULES = [
    ("ReLU", ()),
    ("ReLU6", ()),
    ("LeakyReLU", (0.2,)),
    ("ELU", (0.7,)),
    ("CELU", (0.7,)),
    ("SELU", ()),
    ("GELU", ()),
    ("GELU", ("tanh",)),
    ("SiLU", ()),
    ("Mish", ()),
    ("Hardtanh", (-2.0, 3.0)),
    ("Hardsigmoid", ()),
    ("Hardswish", ()),
    ("Softplus", (2.0, 3.0)),
    ("Softsign", ()),
    ("Tanh", ()),
    ("Tanhshrink", ()),
    ("Sigmoid", ()),
    ("LogSigmoid", ()),
    ("Softmax", (1,)),
    ("Softmin", (1,)),
    ("LogSoftmax", (1,)),
    ("GLU", (1,)),
]


@pytest.mark.parametrize(("name", "arguments"), MODULES)
def test_modules(name, arguments):
    compare(
        lambda library, x: getattr(library.nn, name)(*arguments)(x),
        VALUES,
        tolerance=ROUGH.get(name),
    )
    ours, theirs = (getattr(library.nn, name)(*arguments) for library in (tp, torch))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("ReLU", ()), ("LeakyReLU", (0.2,)), ("ELU", (1.0,)), ("SiLU", ()), ("Hardtanh", (-1.0, 1.0))],
)
def test_modules_that_write_into_their_input(name, arguments):
    def written(library, x):
        inner = x * 2
        out = getattr(library.nn, name)(*arguments, inplace=True)(inner)
        assert out is inner
        return out

    compare(written, VALUES)


@pytest.mark.parametrize(
    ("shape", "count"), [((4, 3), 3), ((4, 3), 1), ((2, 3, 5), 3), ((5,), 1), ((), 1)]
)
def test_prelu(shape, count):
    x, weight = random.normal(0, 1, shape), random.normal(0, 1, count)
    compare(lambda library, a, w: library.nn.functional.prelu(a, w), x, weight)
    ours, theirs = (library.nn.PReLU(count, 0.3) for library in (tp, torch))
    assert repr(ours) == repr(theirs)
    assert np.allclose(ours.weight.detach(), theirs.weight.detach())


def test_bad_arguments():
    F = tp.nn.functional  # noqa: N806
    with pytest.raises(RuntimeError, match="Halving dimension must be even"):
        F.glu(tp.ones(3))
    with pytest.raises(ValueError, match="min_val cannot be greater"):
        F.hardtanh(tp.ones(3), 1.0, -1.0)
    with pytest.raises(RuntimeError, match="Mismatch of parameter numbers"):
        F.prelu(tp.ones(2, 3), tp.ones(2))
    with pytest.raises(RuntimeError, match="approximate argument"):
        F.gelu(tp.ones(2), "erf")
