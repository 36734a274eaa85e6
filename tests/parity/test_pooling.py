"""Pooling, folding, padding and their modules, against torch."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

TYPES = [np.float32, np.float64]


def drawn(dtype, *shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def apply(name, *args, **options):
    return lambda lib, *tensors: getattr(lib.nn.functional, name)(*tensors, *args, **options)


WINDOWS = list(itertools.product([2, (2, 3)], [None, 1, (3, 2)], [0, 1], [False, True]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("kernel", "stride", "padding", "ceil"), WINDOWS)
def test_pooling_of_images(dtype, kernel, stride, padding, ceil):
    x = drawn(dtype, 3, 4, 7, 8)
    for dilation in (1, 2):
        for indices in (False, True):
            compare(apply("max_pool2d", kernel, stride, padding, dilation, ceil, indices), x)
    for count, divisor in ((True, None), (False, None), (True, 3)):
        compare(apply("avg_pool2d", kernel, stride, padding, ceil, count, divisor), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "ceil"),
    list(itertools.product([3, (2,)], [None, 1, (3,)], [0, 1], [False, True])),
)
def test_pooling_of_signals(dtype, kernel, stride, padding, ceil):
    for x in (drawn(dtype, 3, 2, 8), drawn(dtype, 2, 8)):
        compare(apply("max_pool1d", kernel, stride, padding, 2, ceil, return_indices=True), x)
        for count in (True, False):
            compare(apply("avg_pool1d", kernel, stride, padding, ceil, count), x)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_a_single_image_and_ties(name):
    x = np.random.default_rng(0).integers(0, 3, (2, 6, 6)).astype(np.float32)
    compare(apply(name, 3, 1), x)


def test_maxima_of_integers():
    x = np.random.default_rng(0).integers(-9, 9, (1, 2, 5, 5))
    compare(apply("max_pool2d", 2, 1, 1), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, (2, 4), (None, 3), (6, 8), (7, 11)], ids=str)
def test_adaptive_pooling_of_images(dtype, size):
    for x in (drawn(dtype, 3, 2, 6, 8), drawn(dtype, 2, 5, 7)):
        compare(apply("adaptive_avg_pool2d", size), x)
        compare(apply("adaptive_max_pool2d", size, return_indices=True), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_adaptive_pooling_of_signals(dtype, size):
    for x in (drawn(dtype, 3, 2, 8), drawn(dtype, 2, 8)):
        compare(apply("adaptive_avg_pool1d", size), x)
        compare(apply("adaptive_max_pool1d", size, return_indices=True), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": (3, 2), "stride": 2, "padding": 1},
        {"kernel_size": 2, "dilation": (2, 1), "stride": (1, 2)},
    ],
    ids=str,
)
def test_folding(dtype, options):
    for x in (drawn(dtype, 3, 2, 6, 7), drawn(dtype, 2, 6, 7)):
        compare(apply("unfold", **options), x)
        columns = torch.nn.functional.unfold(torch.tensor(x), **options).numpy()
        compare(apply("fold", (6, 7), **options), columns)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 6)])
@pytest.mark.parametrize(
    "options",
    [{"size": 12}, {"size": 7}, {"size": 3}, {"scale_factor": 3}, {"scale_factor": 1.7}],
    ids=str,
)
def test_interpolation(dtype, shape, options):
    compare(apply("interpolate", **options), drawn(dtype, *shape))


MODULES = [
    ("MaxPool2d", (2,), {}, (2, 3, 6, 7)),
    ("MaxPool2d", ((3, 2), 1, 1), {"return_indices": True, "ceil_mode": True}, (3, 6, 7)),
    ("MaxPool1d", (3, 2), {"dilation": 2}, (2, 3, 9)),
    ("AvgPool2d", (2,), {"padding": 1, "count_include_pad": False}, (2, 3, 6, 7)),
    ("AvgPool2d", ((2, 3), 2), {"divisor_override": 5}, (2, 3, 6, 7)),
    ("AvgPool1d", (3, 2, 1), {"ceil_mode": True}, (2, 3, 8)),
    ("AdaptiveAvgPool2d", ((1, None),), {}, (2, 3, 6, 7)),
    ("AdaptiveAvgPool1d", (3,), {}, (2, 3, 7)),
    ("AdaptiveMaxPool2d", ((3, 2),), {}, (2, 3, 6, 7)),
    ("AdaptiveMaxPool1d", (3,), {"return_indices": True}, (2, 3, 7)),
    ("Unfold", (2,), {"stride": 2}, (2, 3, 6, 7)),
    ("Fold", ((3, 4), 2), {}, (2, 8, 6)),
    ("Upsample", (), {"scale_factor": 2}, (2, 3, 3, 4)),
    ("Upsample", ((5, 4),), {}, (2, 3, 3, 4)),
    ("ZeroPad2d", (2,), {}, (2, 3, 4)),
    ("ZeroPad2d", ((1, -1, 0, 2),), {}, (2, 3, 4, 5)),
    ("Unflatten", (1, (2, -1)), {}, (3, 6, 2)),
    ("Flatten", (1, 2), {}, (3, 2, 2, 2)),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), MODULES)
def test_modules(name, args, options, shape):
    ours, theirs = [getattr(lib.nn, name)(*args, **options) for lib in (tp, torch)]
    if "return_indices" not in options:
        assert repr(ours) == repr(theirs)
    compare(lambda lib, x: (ours if lib is tp else theirs)(x), drawn(np.float32, *shape))
