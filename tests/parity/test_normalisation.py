"""Normalisation and its modules, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

TYPES = [np.float32, np.float64]
SHAPES = [(6, 3), (4, 3, 5), (4, 3, 5, 2)]


def drawn(dtype, *shapes, seed=0):
    random = np.random.default_rng(seed)
    return [(random.standard_normal(shape) * 2 + 1).astype(dtype) for shape in shapes]


def apply(name, *args, **options):
    return lambda lib, *tensors: getattr(lib.nn.functional, name)(*tensors, *args, **options)


def near(dtype):
    return 1e-4 if dtype == np.float32 else None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm(dtype, shape):
    x, w, b, mean = drawn(dtype, shape, 3, 3, 3)
    var = np.abs(mean) + 1

    def training(lib, x, w, b):
        running = lib.tensor(mean), lib.tensor(var)
        y = lib.nn.functional.batch_norm(x, *running, w, b, True, 0.3, 1e-3)
        return (y, *running)

    def evaluation(lib, x, w, b):
        return lib.nn.functional.batch_norm(x, lib.tensor(mean), lib.tensor(var), w, b)

    compare(training, x, w, b, tolerance=near(dtype))
    compare(evaluation, x, w, b, tolerance=near(dtype))
    compare(apply("batch_norm", None, None, training=True), x, tolerance=near(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_instance_norm(dtype, shape):
    x, w, b = drawn(dtype, shape, 3, 3)
    compare(
        lambda lib, x, w, b: lib.nn.functional.instance_norm(x, weight=w, bias=b),
        x,
        w,
        b,
        tolerance=near(dtype),
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "own"), [((4, 3), (3,)), ((2, 4, 3), (4, 3)), ((2, 2, 4, 3), (3,)), ((5,), (5,))]
)
def test_layer_norm(dtype, shape, own):
    x, w, b = drawn(dtype, shape, own, own)

    def whole(lib, x, w, b):
        return lib.nn.functional.layer_norm(x, own, w, b)

    compare(whole, x, w, b, tolerance=near(dtype))
    compare(apply("layer_norm", own, eps=0.1), x, tolerance=near(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 6), (3, 6, 4), (3, 6, 4, 2)])
@pytest.mark.parametrize("groups", [1, 2])
def test_group_norm(dtype, shape, groups):
    x, w, b = drawn(dtype, shape, 6, 6)
    compare(
        lambda lib, x, w, b: lib.nn.functional.group_norm(x, groups, w, b),
        x,
        w,
        b,
        tolerance=near(dtype),
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_unit_vectors_and_angles(dtype):
    x, y, row = drawn(dtype, (3, 4, 2), (3, 4, 2), (4, 2))
    x[0, :, 0] = 0
    for p, dim in [(2.0, 1), (1.0, -1), (3.0, 0), (2, 2)]:
        compare(apply("normalize", p, dim), x + (1 if p != 2 else 0))
    compare(apply("cosine_similarity"), y, y[::-1].copy())
    compare(apply("cosine_similarity", -1), y, row)


MODULES = [
    ("BatchNorm1d", (3,), {}, (6, 3)),
    ("BatchNorm1d", (3,), {"momentum": None}, (4, 3, 5)),
    ("BatchNorm2d", (3,), {"eps": 0.1, "momentum": 0.3}, (4, 3, 5, 2)),
    ("BatchNorm2d", (3,), {"affine": False}, (4, 3, 5, 2)),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, (4, 3, 5, 2)),
    ("InstanceNorm1d", (3,), {"affine": True}, (3, 5)),
    ("InstanceNorm2d", (3,), {"track_running_stats": True}, (4, 3, 5, 2)),
    ("LayerNorm", (3,), {}, (4, 3)),
    ("LayerNorm", ((4, 3),), {"bias": False}, (2, 4, 3)),
    ("LayerNorm", (3,), {"elementwise_affine": False}, (4, 3)),
    ("GroupNorm", (2, 4), {}, (3, 4, 5)),
    ("GroupNorm", (2, 4), {"affine": False}, (3, 4)),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), MODULES)
def test_modules(name, args, options, shape):
    ours, theirs = [getattr(lib.nn, name)(*args, **options) for lib in (tp, torch)]
    assert repr(ours) == repr(theirs)
    for i, one in enumerate(theirs.parameters()):
        torch.nn.init.normal_(one, generator=torch.Generator().manual_seed(i))
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    for seed in range(3):
        (x,) = drawn(np.float32, shape, seed=seed)
        compare(lambda lib, x: (ours if lib is tp else theirs)(x), x, tolerance=1e-4)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-3, atol=1e-3)
    expected = theirs.state_dict()
    assert list(ours.state_dict()) == list(expected)
    for key, value in ours.state_dict().items():
        np.testing.assert_allclose(value.numpy(), expected[key].numpy(), rtol=1e-5, atol=1e-6)
    ours.eval()
    theirs.eval()
    compare(lambda lib, x: (ours if lib is tp else theirs)(x), x, tolerance=1e-4)


def normalised(lib, kind, x, half, training):
    """The result, its gradients, and running averages, of an input of half precision."""
    module = {
        "batch": lambda: lib.nn.BatchNorm1d(4),
        "batch, plain": lambda: lib.nn.BatchNorm1d(4, affine=False),
        "layer": lambda: lib.nn.LayerNorm(5),
        "group": lambda: lib.nn.GroupNorm(2, 4),
        "instance": lambda: lib.nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
    }[kind]()
    if half:
        module.half()
    module.train(training)
    given = lib.tensor(x, dtype=lib.float16, requires_grad=True)
    out = module(given)
    (out * lib.tensor(x)).sum().backward()
    assert out.dtype == given.grad.dtype == lib.float16
    assert all(p.grad.dtype == p.dtype for p in module.parameters())
    grads = [p.grad for p in module.parameters()]
    return [np.asarray(t.detach()) for t in (out, given.grad, *grads, *module.buffers())]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("kind", ["batch", "batch, plain", "layer", "group", "instance"])
def test_half_precision(kind, half, training):
    (x,) = drawn(np.float32, (6, 4, 5))
    pairs = [normalised(lib, kind, x, half, training) for lib in (tp, torch)]
    for ours, theirs in zip(*pairs, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-2, atol=2e-2)


def test_sums_of_halves_stay_in_range():
    x = np.full((2000, 2), 100.0, np.float32)
    x[::2] += 1
    pairs = [
        np.asarray(lib.nn.BatchNorm1d(2).half()(lib.tensor(x, dtype=lib.float16)).detach())
        for lib in (tp, torch)
    ]
    np.testing.assert_allclose(pairs[0], pairs[1], rtol=1e-2)
