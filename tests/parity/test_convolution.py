"""Convolutions and their modules, against torch."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

TYPES = [np.float32, np.float64]
#: torch says so of even windows.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def drawn(dtype, *shapes, seed=0):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def function(library, name):
    return getattr(library.nn.functional, name)


PLANES = [
    {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for stride, padding, dilation, groups in itertools.product(
        [1, 2, (2, 1)], [0, (2, 1), "same", "valid"], [1, (1, 2)], [1, 2]
    )
    if padding != "same" or stride == 1
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("options", PLANES, ids=str)
def test_conv2d(dtype, options):
    x, w, b = drawn(dtype, (3, 4, 7, 8), (6, 4 // options["groups"], 3, 2), 6)
    compare(lambda lib, *a: function(lib, "conv2d")(*a, **options), x, w, b)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("seed", range(12))
def test_conv2d_of_random_shapes(dtype, seed):
    random = np.random.default_rng(seed)
    groups, inner, outer = random.integers(1, 4, 3)
    kernel, stride, padding, dilation = random.integers(1, 4, (4, 2)).tolist()
    size = [
        max(1, dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i]) + random.integers(0, 6)
        for i in range(2)
    ]
    samples = random.integers(0, 5)
    x, w = drawn(
        dtype, (samples, groups * inner, *size), (groups * outer, inner, *kernel), seed=seed
    )
    compare(
        lambda lib, x, w: function(lib, "conv2d")(
            x, w, None, stride, padding, dilation, int(groups)
        ),
        x,
        w,
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"stride": (3,), "padding": (2,), "dilation": (2,)},
        {"padding": "same", "groups": 2},
    ],
    ids=str,
)
def test_conv1d(dtype, options):
    x, w, b = drawn(dtype, (3, 4, 9), (6, 4 // options.get("groups", 1), 3), 6)
    compare(lambda lib, *a: function(lib, "conv1d")(*a, **options), x, w, b)
    compare(lambda lib, *a: function(lib, "conv1d")(*a, **options), x[0], w, b)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "output_padding": 1},
        {"stride": (2, 3), "padding": (1, 2), "output_padding": (0, 2), "groups": 2},
        {"dilation": (2, 1), "padding": 1},
    ],
    ids=str,
)
def test_conv_transpose2d(dtype, options):
    x, w, b = drawn(dtype, (3, 4, 5, 6), (4, 6 // options.get("groups", 1), 3, 2), 6)
    compare(lambda lib, *a: function(lib, "conv_transpose2d")(*a, **options), x, w, b)
    compare(lambda lib, *a: function(lib, "conv_transpose2d")(*a, **options), x[0], w, b)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": (1, 2)}, {"dilation": (1, 2), "padding": 1}], ids=str
)
def test_a_weight_for_each_channel(dtype, options):
    x, w, b = drawn(dtype, (3, 4, 6, 7), (4, 1, 3, 2), 4)
    for name in ("conv2d", "conv_transpose2d"):
        compare(lambda lib, *a, n=name: function(lib, n)(*a, groups=4, **options), x, w, b)


@pytest.mark.parametrize("dtype", TYPES)
def test_conv_transpose1d(dtype):
    x, w, b = drawn(dtype, (3, 4, 5), (4, 3, 3), 6)
    compare(lambda lib, *a: function(lib, "conv_transpose1d")(*a, 2, 1, 1, 2), x, w, b)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_single_image_and_images_in_any_memory_order(dtype):
    x, w, b = drawn(dtype, (2, 5, 6), (3, 2, 2, 2), 3)
    compare(lambda lib, *a: function(lib, "conv2d")(*a), x, w, b)
    (x,) = drawn(dtype, (6, 5, 2, 3))
    compare(lambda lib, x, w: function(lib, "conv2d")(x.permute(3, 2, 0, 1), w), x, w)
    compare(lambda lib, x, w: function(lib, "conv2d")(x.permute(3, 2, 0, 1)[:, :, ::2], w), x, w)


@pytest.mark.parametrize("dtype", TYPES)
def test_results_can_be_viewed_and_written_to(dtype):
    x, w = drawn(dtype, (2, 2, 5, 5), (3, 2, 2, 2))

    def both(lib, x, w):
        y = function(lib, "max_pool2d")(function(lib, "conv2d")(x, w).relu(), 2)
        flat = y.view(-1, 12)
        flat[0] = 1.0
        return flat, y

    compare(both, x, w)
    compare(lambda lib, x, w: function(lib, "conv1d")(x[:, :, 0], w[:, :, 0]).view(2, -1), x, w)
    compare(lambda lib, x, w: function(lib, "conv2d")(x, w).relu_().view(-1), x, w)


MODULES = [
    ("Conv2d", (2, 4, 3), {}, (3, 2, 6, 7)),
    ("Conv2d", (2, 4, (3, 2)), {"stride": 2, "padding": 1, "bias": False}, (3, 2, 6, 7)),
    ("Conv2d", (2, 4, 3), {"padding": "same", "groups": 2}, (2, 6, 7)),
    ("Conv2d", (2, 4, 3), {"padding": (2, 1), "padding_mode": "circular"}, (3, 2, 6, 7)),
    ("Conv2d", (2, 4, 3), {"padding": "same", "padding_mode": "reflect"}, (3, 2, 6, 7)),
    ("Conv2d", (2, 4, 3), {"padding": 2, "padding_mode": "replicate"}, (3, 2, 6, 7)),
    ("Conv1d", (2, 4, 3), {"dilation": 2}, (3, 2, 9)),
    ("Conv1d", (2, 4, 3), {"padding": "same", "padding_mode": "circular"}, (2, 9)),
    ("ConvTranspose2d", (2, 4, 3), {"stride": 2, "output_padding": 1}, (3, 2, 4, 4)),
    ("ConvTranspose1d", (4, 6, 3), {"groups": 2, "padding": 1}, (3, 4, 6)),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), MODULES)
def test_modules(name, args, options, shape):
    theirs = getattr(torch.nn, name)(*args, **options)
    ours = getattr(tp.nn, name)(*args, **options)
    assert repr(ours) == repr(theirs)
    state = {key: value.numpy() for key, value in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    (x,) = drawn(np.float32, shape)
    compare(lambda lib, x: (ours if lib is tp else theirs)(x), x)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_the_output_size_of_a_transposed_convolution_can_be_chosen():
    theirs = torch.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    ours = tp.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    (x,) = drawn(np.float32, (1, 2, 4, 4))
    for size in [(7, 8), (8, 7)]:
        compare(lambda lib, x, s=size: (ours if lib is tp else theirs)(x, output_size=s), x)
    with pytest.raises(ValueError, match="requested an output size of"):
        ours(tp.tensor(x), output_size=(9, 9))


def test_parameters_start_like_those_of_torch():
    tp.manual_seed(0)
    torch.manual_seed(0)
    for name in ("Conv2d", "ConvTranspose2d"):
        ours, theirs = [getattr(lib.nn, name)(32, 48, 3) for lib in (tp, torch)]
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            a, b = mine.detach().numpy(), other.detach().numpy()
            assert abs(np.abs(a).max() / np.abs(b).max() - 1) < 0.1
            assert abs(a.std() / b.std() - 1) < 0.2


def test_gradients_to_second_order():
    x, w = drawn(np.float64, (2, 2, 5, 5), (3, 2, 3, 3))
    found = []
    for lib in (tp, torch):
        a, b = lib.tensor(x, requires_grad=True), lib.tensor(w, requires_grad=True)
        y = function(lib, "max_pool2d")(function(lib, "conv2d")(a, b, padding=1).tanh(), 2)
        ga, gb = lib.autograd.grad((y * y).sum(), [a, b], create_graph=True)
        ((ga * ga).sum() + (gb * gb * gb).sum()).backward()
        found.append((a.grad.numpy(), b.grad.numpy()))
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-10)
