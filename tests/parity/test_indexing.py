"""Indexing, scattering, masking, sorting and counting, against torch."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

random = np.random.default_rng(3)


def values(*shape):
    return random.uniform(-2, 2, shape)


def few(*shape):
    """With many equal elements."""
    return random.integers(-2, 3, shape).astype(float)


def both_types(function, *inputs):
    for dtype in (np.float32, np.float64):
        compare(
            function,
            *[
                one.astype(dtype) if isinstance(one, np.ndarray) and one.dtype.kind == "f" else one
                for one in inputs
            ],
        )


def an_index(shape):
    """A random index of any kind, as a tuple of numbers, slices, None, ``...``, arrays, masks."""
    parts = []
    arrays = random.random() < 0.6
    common = tuple(random.integers(1, 4, random.integers(1, 3)).tolist())
    axis = 0
    while axis < len(shape):
        size = shape[axis]
        kind = random.choice(["int", "slice", "none", "array", "mask", "dots", "stop"])
        if kind == "int":
            parts.append(int(random.integers(-size, size)))
        elif kind == "slice":
            start, stop = sorted(random.integers(-1, size + 2, 2).tolist())
            parts.append(slice(start, stop, int(random.integers(1, 3))))
        elif kind == "none":
            parts.append(None)
            continue
        elif kind == "array" and arrays:
            parts.append(random.integers(-size, size, common[random.integers(0, 2) :]))
        elif kind == "mask" and arrays and not any(_is_mask(part) for part in parts):
            mask = np.zeros(size, bool)
            # As many as the last dimension of the arrays, so that they go together.
            mask[random.permutation(size)[: common[-1]]] = True
            if mask.sum() != common[-1]:
                continue
            parts.append(mask)
        elif kind == "dots" and ... not in [part for part in parts if not hasattr(part, "dtype")]:
            parts.append(...)
            axis = max(axis + 1, len(shape) - int(random.integers(0, 2)))
            continue
        elif kind == "stop":
            break
        else:
            continue
        axis += 1
    return tuple(parts)


def _is_mask(part):
    return isinstance(part, np.ndarray) and part.dtype == bool


def _in(lib, index):
    return tuple([lib.tensor(part) if isinstance(part, np.ndarray) else part for part in index])


@pytest.mark.parametrize("round", range(150))
def test_reading_and_writing_with_any_index(round):
    shape = tuple(random.integers(2, 5, random.integers(1, 5)).tolist())
    x = values(*shape)
    index = an_index(shape)
    place = torch.tensor(x)[_in(torch, index)].shape
    both_types(lambda lib, t: t[_in(lib, index)], x)
    # Values that broadcast; each element is written at most once.
    order = torch.arange(x.size).reshape(shape)[_in(torch, index)].reshape(-1)
    if len(order.unique()) == len(order):
        y = values(*[1 if random.random() < 0.3 else size for size in place])
        both_types(functools.partial(_assigned, index=index), x, y)
        both_types(functools.partial(_assigned, index=index), x, values())
    both_types(functools.partial(_assigned, index=index), x, 0.5)


def _assigned(lib, x, y, index):
    copy = x * 1
    copy[_in(lib, index)] = y
    return copy * copy


A = values(3, 4, 5)
#: Without repeats along the last dimension.
PERMUTED = np.argsort(random.random((2, 4, 5)), -1)[..., :3]
REPEATED = random.integers(0, 3, (3, 2, 4))
ROWS = np.array([2, 0])
AGAIN = np.array([1, 1, 0, 2, 1])
MASK = random.random((3, 4, 5)) < 0.4

CASES = {
    "gather": (lambda lib, x, i: x.gather(2, i), A, PERMUTED),
    "index_select": (lambda lib, x, i: x.index_select(1, i), A, AGAIN),
    "scatter": (lambda lib, x, i, s: x.scatter(2, i, s), A, PERMUTED, values(2, 4, 3)),
    "scatter, value": (lambda lib, x, i: lib.scatter(x, -1, i, 2.5), A, PERMUTED),
    "scatter, named value": (lambda lib, x, i: x.scatter(-1, i, value=2.5), A, PERMUTED),
    "scatter_": (lambda lib, x, i, s: (x * 1).scatter_(2, i, s), A, PERMUTED, values(2, 4, 3)),
    "scatter_, value": (lambda lib, x, i: (x * 1).scatter_(2, i, 1.5), A, PERMUTED),
    "scatter, add": (
        lambda lib, x, i: x.detach().clone().scatter_(0, i, 1.5, reduce="add"),
        A,
        REPEATED,
    ),
    "scatter, multiply": (
        lambda lib, x, i: x.detach().scatter(0, i, 1.5, reduce="multiply"),
        A,
        REPEATED,
    ),
    "scatter, empty": (lambda lib, x: x.scatter(0, lib.zeros(0, 0, 0).long(), 1.0), A),
    "scatter_add": (lambda lib, x, i, s: lib.scatter_add(x, 0, i, s), A, REPEATED, values(3, 2, 4)),
    "scatter_add, larger source": (
        lambda lib, x, i, s: x.scatter_add(0, i, s.detach()),
        A,
        REPEATED,
        values(4, 3, 4),
    ),
    "scatter_add_": (
        lambda lib, x, i, s: (x * 1).scatter_add_(0, i, s),
        A,
        REPEATED,
        values(3, 2, 4),
    ),
    "index_add": (lambda lib, x, i, s: x.index_add(1, i, s), A, AGAIN, values(3, 5, 5)),
    "index_add, alpha": (
        lambda lib, x, i, s: lib.index_add(x, 0, i, s, alpha=-2),
        A,
        AGAIN,
        values(5, 4, 5),
    ),
    "index_add_": (
        lambda lib, x, i, s: (x * 1).index_add_(-1, i, s, alpha=2),
        A,
        AGAIN,
        values(3, 4, 5),
    ),
    "index_copy": (lambda lib, x, i, s: x.index_copy(1, i, s), A, ROWS, values(3, 2, 5)),
    "index_copy_": (lambda lib, x, i, s: (x * 1).index_copy_(0, i, s), A, ROWS, values(2, 4, 5)),
    "index_fill": (lambda lib, x, i: x.index_fill(1, i, 0.5), A, ROWS),
    "index_fill, tensor": (lambda lib, x, i, v: lib.index_fill(x, 1, i, v), A, AGAIN, values()),
    "index_fill_": (lambda lib, x, i: (x * 1).index_fill_(2, i, -1), A, ROWS),
    "index_put": (
        lambda lib, x, i, v: x.index_put((i, lib.tensor([1, 3])), v),
        A,
        ROWS,
        values(2, 5),
    ),
    "index_put, accumulate": (
        lambda lib, x, i, v: lib.index_put(x, (i, i), v, accumulate=True),
        A,
        AGAIN,
        values(5),
    ),
    "index_put, mask": (lambda lib, x, m, v: x.index_put([m], v), A, MASK, values()),
    "index_put_": (lambda lib, x, i, v: (x * 1).index_put_((i,), v), A, ROWS, values(4, 1)),
    "index_put_, accumulate": (
        lambda lib, x, i, v: (x * 1).index_put_((i,), v, True),
        A,
        AGAIN,
        values(5, 4, 1),
    ),
    "take": (lambda lib, x, i: x.take(i), A, np.array([[0, 59], [7, 7]])),
    "take, one": (lambda lib, x: lib.take(x, lib.tensor(-1)), A),
    "take_along_dim": (lambda lib, x, i: lib.take_along_dim(x, i, 2), A, PERMUTED[:1]),
    "take_along_dim, stretched": (
        lambda lib, x, i: x[:1].take_along_dim(i, 1),
        A,
        REPEATED[..., :1],
    ),
    "take_along_dim, flat": (lambda lib, x, i: x.take_along_dim(i), A, AGAIN),
    "masked_fill": (lambda lib, x, m: x.masked_fill(m, 0.5), A, MASK),
    "masked_fill, stretched": (lambda lib, x, m: lib.masked_fill(x, m, -1), A[0], MASK),
    "masked_fill, tensor": (lambda lib, x, m, v: x.masked_fill(m, v), A, MASK[0], values()),
    "masked_fill_": (lambda lib, x, m: (x * 1).masked_fill_(m, -np.inf).exp(), A, MASK[0]),
    "masked_fill_, tensor": (lambda lib, x, m, v: (x * 1).masked_fill_(m, v), A, MASK, values()),
    "masked_select": (lambda lib, x, m: x.masked_select(m), A, MASK),
    "masked_select, stretched": (lambda lib, x, m: lib.masked_select(x, m), A[0], MASK[:, :1]),
    "masked_scatter": (lambda lib, x, m, s: x.masked_scatter(m, s), A, MASK, values(60)),
    "masked_scatter, stretched": (
        lambda lib, x, m, s: x.masked_scatter(m, s),
        A,
        MASK[0],
        values(3, 20),
    ),
    "masked_scatter_": (lambda lib, x, m, s: (x * 1).masked_scatter_(m, s), A, MASK, values(12, 5)),
    "where": (lambda lib, x: list(lib.where(x > 0)), A),
    "nonzero": (lambda lib, x: (x > 0).nonzero(), A),
    "sort": (lambda lib, x: list(x.sort()), A),
    "sort, descending": (lambda lib, x: list(lib.sort(x, 0, descending=True)), A),
    "sort, equal": (
        lambda lib, x: [
            p for d in (0, 1) for p in lib.sort(x, dim=d, descending=d == 0, stable=True)
        ],
        few(9, 5),
    ),
    "sort, nan": (
        lambda lib, x: [
            p for d in (False, True) for p in lib.sort(x, dim=-1, descending=d, stable=True)
        ],
        np.array([[2.0, np.nan, 1.0, np.inf, np.nan]]),
    ),
    "argsort": (lambda lib, x: [x.argsort(1), lib.argsort(x, descending=True)], A),
    "msort": (lambda lib, x: lib.msort(x), A),
    "topk": (lambda lib, x: [p for k in (0, 1, 3, 5) for p in x.topk(k)], A),
    "topk, least": (lambda lib, x: list(lib.topk(x, 2, 0, largest=False)), A),
    "topk, nan": (
        lambda lib, x: [lib.topk(x, 3).values, lib.topk(x, 3, largest=False).values],
        np.array([2.0, np.nan, 1.0, 4.0, 0.0]),
    ),
    "kthvalue": (lambda lib, x: [p for k in (1, 2, 5) for p in x.kthvalue(k)], A),
    "kthvalue, kept": (lambda lib, x: list(lib.kthvalue(x, 2, 0, True)), A),
    "cummax": (lambda lib, x: [p for d in (0, 2) for p in x.cummax(d)], A),
    "cummin": (lambda lib, x: list(lib.cummin(x, -1)), A),
    "cummax, equal": (lambda lib, x: list(x.cummax(0)), few(9)),
    "cummin, nan": (
        lambda lib, x: [lib.cummin(x, 0).indices, lib.cummax(x, 0).indices],
        np.array([2.0, 1.0, np.nan, 0.0, np.nan, 5.0]),
    ),
    "of one number": (
        lambda lib, x: [
            p
            for f in (
                lib.sort,
                functools.partial(lib.topk, k=1),
                functools.partial(lib.kthvalue, k=1),
            )
            for p in f(x)
        ],
        values(),
    ),
    "of one number, scattered": (
        lambda lib, x, i: [x.scatter(0, i, 2.0), x.gather(0, i), x.index_add(0, i, x)],
        values(),
        np.array(0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    function, *inputs = CASES[name]
    both_types(function, *inputs)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce, include_self):
    def reduced(lib, x, i, s):
        return x.scatter_reduce(0, i, s, reduce, include_self=include_self)

    def in_place(lib, x, i, s):
        return (x * 1).scatter_reduce_(0, i, s, reduce, include_self=include_self)

    for function in (reduced, in_place):
        both_types(function, A, REPEATED, values(3, 2, 4))
        # With equal elements and with zeros.  Old elements that do not take part are not equal to
        # new ones here: torch lets them have a share of the gradient.
        both_types(function, few(3, 4, 5) + 0.5 * (not include_self), REPEATED, few(3, 2, 4))
    compare(reduced, few(3, 4, 5).astype(np.int64), REPEATED, few(3, 2, 4).astype(np.int64))


SORTED = np.sort(few(7) + 0.5)

COUNTED = {
    "searchsorted": (
        lambda lib, s, v: [
            lib.searchsorted(s, v),
            lib.searchsorted(s, v, right=True),
            lib.searchsorted(s, v, side="right", out_int32=True),
            lib.searchsorted(s, 0.5),
        ],
        SORTED,
        few(3, 4) + 0.5,
    ),
    "searchsorted, rows": (
        lambda lib, s, v: [lib.searchsorted(s, v), lib.searchsorted(s, v, right=True)],
        np.sort(few(3, 2, 6)),
        few(3, 2, 9),
    ),
    "searchsorted, sorter": (
        lambda lib, s, v: lib.searchsorted(s, v, sorter=s.argsort()),
        values(2, 5),
        values(2, 3),
    ),
    "bucketize": (
        lambda lib, v, s: [lib.bucketize(v, s), lib.bucketize(v, s, right=True, out_int32=True)],
        few(3, 4) + 0.5,
        SORTED,
    ),
    "unique": (lambda lib, x: lib.unique(x, return_inverse=True, return_counts=True), few(3, 5)),
    "unique, dim": (lambda lib, x: lib.unique(x, dim=0, return_inverse=True), few(9, 2)),
    "unique, alone": (lambda lib, x: x.unique(), few(3, 5)),
    "unique_consecutive": (lambda lib, x: x.unique_consecutive(True, True), few(4, 9) // 2),
    "unique_consecutive, dim": (
        lambda lib, x: lib.unique_consecutive(x, return_counts=True, dim=1),
        np.repeat(few(3, 5), 2, 1),
    ),
    "bincount": (
        lambda lib, x: [x.bincount(), lib.bincount(x, minlength=9), lib.bincount(x[:0])],
        np.array([0, 3, 3, 5]),
    ),
    "bincount, weights": (
        lambda lib, x, w: lib.bincount(x, w.detach(), 2),
        np.array([0, 3, 3]),
        values(3),
    ),
    "histc": (
        lambda lib, x: [
            x.histc(7),
            lib.histc(x, bins=4, min=-1, max=1),
            lib.histc(x * 0, 3),
            lib.histc(x[:0]),
        ],
        few(50),
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counting_and_searching(name):
    function, *inputs = COUNTED[name]
    for dtype in (np.float32, np.float64):
        compare(
            lambda lib, *t: function(lib, *[one.detach() for one in t]),
            *[one.astype(dtype) if one.dtype.kind == "f" else one for one in inputs],
        )


def test_writes_count_versions():
    x = tp.zeros(3, 4)
    index = tp.tensor([[0], [1], [2]])
    mask = x > 0
    row = tp.tensor([1])
    for write in (
        lambda: x.scatter_(1, index, 1.0),
        lambda: x.scatter_add_(1, index, tp.ones(3, 1)),
        lambda: x.scatter_reduce_(1, index, tp.ones(3, 1), "prod"),
        lambda: x.index_add_(0, row, tp.ones(1, 4)),
        lambda: x.index_copy_(0, row, tp.ones(1, 4)),
        lambda: x.index_fill_(0, row, 2.0),
        lambda: x.index_put_((row,), tp.tensor(1.0)),
        lambda: x.masked_fill_(mask, 1.0),
        lambda: x.masked_scatter_(mask, tp.ones(12)),
        lambda: x.tril_(),
        lambda: x.addmm_(tp.ones(3, 2), tp.ones(2, 4)),
    ):
        before = x._version[0]
        assert write() is x
        assert x._version[0] == before + 1
    leaf = tp.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.masked_fill_(leaf == 0, 1.0)
    saved = leaf * 1
    product = saved * saved
    saved.index_fill_(0, row, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        product.sum().backward()


@pytest.mark.parametrize(
    "function",
    [
        lambda t, i: t[i],
        lambda t, i: t[0, ..., i[0]],
        lambda t, i: t.gather(1, i),
        lambda t, i: t.index_select(1, i[0]),
        lambda t, i: t.take(i),
        lambda t, i: t.scatter(0, i, 1.0),
        lambda t, i: t.scatter_add(0, i, t),
        lambda t, i: t.index_add(0, i[0], t),
        lambda t, i: t.index_put((i,), t[0, 0]),
        lambda t, i: (t * 1).index_put_((i,), t[0, 0]),
        lambda t, i: written(t, (0, i[0])),
        lambda t, i: written(t.reshape(3, 1, 3), (0, slice(None), i[0, :2])),
    ],
)
def test_writes_into_indices_are_noticed(function):
    t = tp.tensor(values(3, 3), requires_grad=True)
    index = tp.tensor([[1, 0, 2], [0, 0, 1], [2, 1, 0]])
    out = function(t, index)
    index.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        out.sum().backward()


def test_writes_into_masks_and_results_are_noticed():
    t = tp.tensor(values(3, 3), requires_grad=True)
    mask = tp.tensor([True, False, True])
    for out in (t.masked_fill(mask, 0.0), (t * 1).masked_fill_(mask, 0.0), t[mask]):
        mask[0] = False
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            out.sum().backward()
    for result in (t.sort(), t.topk(2), t.cummax(0)):
        result.indices.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            result.values.sum().backward()
    # A single number is taken as it is at the time.
    position = tp.tensor(1)
    out = t[position]
    position += 1
    out.sum().backward()
    assert t.grad.sum(1).tolist() == [0.0, 3.0, 0.0]


def written(t, index):
    copied = t * 1
    copied[index] = 0.0
    return copied


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda t, i: t.scatter(0, i, 1.0), "out of bounds"),
        (lambda t, i: t.scatter(0, -i, 1.0), "out of bounds"),
        (lambda t, i: t.scatter(0, i[0] * 0, 1.0), "same number of dimensions"),
        (lambda t, i: t.scatter(0, t, 1.0), "expected integers"),
        (lambda t, i: t.scatter(0, i * 0, tp.zeros(1, 1)), "no larger than src"),
        (lambda t, i: t.scatter(0, i * 0, tp.zeros(1, 3).double()), "dtype"),
        (lambda t, i: t.scatter(0, i.repeat(1, 2) * 0, 1.0), "apart from dimension"),
        (lambda t, i: t.scatter(0, i * 0, 1.0, reduce="max"), "add or multiply"),
        (lambda t, i: t.scatter_reduce(0, i * 0, t, "max"), "reduce argument"),
        (lambda t, i: t.index_add(0, i[0], t), "out of bounds"),
        (lambda t, i: t.index_add(1, tp.tensor([0]), t), "does not fit the slices"),
        (lambda t, i: t.index_copy(0, i * 0, t), "supposed to be a vector"),
        (lambda t, i: t.index_fill(0, tp.tensor([0]), t), "0-dimensional value"),
        (lambda t, i: t.masked_fill(i, 1.0), "boolean masks"),
        (lambda t, i: t.masked_fill(t > 0, t), "0-dimensional value"),
        (lambda t, i: t.masked_scatter(t == 0, tp.zeros(2)), "same number of elements"),
        (lambda t, i: t.take(t), "integers"),
        (lambda t, i: t.take(tp.tensor([9])), "out of bounds"),
        (lambda t, i: t.topk(4), "out of range"),
        (lambda t, i: t.kthvalue(0), "out of range"),
        (lambda t, i: tp.searchsorted(t, tp.zeros(3, 3)), "must match"),
        (lambda t, i: tp.searchsorted(t, t, side="middle"), "side"),
        (lambda t, i: tp.bucketize(t, t), "1 dimension"),
        (lambda t, i: tp.bincount(t), "non-negative integral"),
        (lambda t, i: tp.bincount(i[0] - 5), "non-negative integral"),
        (lambda t, i: t.histc(0), "bins must be"),
        (lambda t, i: t.histc(3, 2, 1), "larger than min"),
    ],
)
def test_what_makes_no_sense_is_refused(function, match):
    with pytest.raises((RuntimeError, IndexError), match=match):
        function(tp.zeros(2, 3), tp.tensor([[1, 2, 0]]))
    with pytest.raises(TypeError, match="must be a Tensor"):
        tp.index_add(tp.zeros(2), 0, [0], tp.zeros(1))


@pytest.mark.parametrize("round", range(25))
def test_random_shapes_and_dimensions(round):
    own = np.random.default_rng(round)
    shape = tuple(own.integers(1, 6, own.integers(1, 4)).tolist())
    ndim = len(shape)
    dim = int(own.integers(-ndim, ndim))
    size = shape[dim]
    x = own.permutation(int(np.prod(shape))).reshape(shape) - 3.5
    # No larger than the tensor but along the dimension, and there without repeats.
    smaller = [int(own.integers(1, n + 1)) for n in shape]
    unrepeated = np.argsort(
        own.random([size if n == dim % ndim else s for n, s in enumerate(smaller)]), dim
    )
    unrepeated = unrepeated.take(np.arange(smaller[dim]), dim)
    longer = [int(own.integers(1, 7)) if n == dim % ndim else s for n, s in enumerate(smaller)]
    repeated = own.integers(0, size, longer)
    row = own.permutation(size)[: own.integers(1, size + 1)]
    rows = own.integers(0, size, int(own.integers(1, 7)))
    slices = [len(row) if n == dim % ndim else s for n, s in enumerate(shape)]
    more = [len(rows) if n == dim % ndim else s for n, s in enumerate(shape)]
    k = int(own.integers(1, size + 1))
    mask = own.random(shape[own.integers(0, ndim) :]) < 0.5
    random_values = own.uniform
    for function, *others in (
        (lambda lib, t, i: t.gather(dim, i), repeated),
        (lambda lib, t, i, s: t.scatter(dim, i, s), unrepeated, random_values(-1, 1, smaller)),
        (lambda lib, t, i, s: t.scatter_add(dim, i, s), repeated, random_values(-1, 1, longer)),
        (
            lambda lib, t, i, s: t.scatter_reduce(dim, i, s, "mean"),
            repeated,
            random_values(-1, 1, longer),
        ),
        (lambda lib, t, i: t.index_select(dim, i), rows),
        (lambda lib, t, i, s: t.index_add(dim, i, s, alpha=0.5), rows, random_values(-1, 1, more)),
        (lambda lib, t, i, s: t.index_copy(dim, i, s), row, random_values(-1, 1, slices)),
        (lambda lib, t, i: t.index_fill(dim, i, 0.5), rows),
        (lambda lib, t, m: t.masked_fill(m, -2), mask),
        (lambda lib, t, m: t.masked_select(m), mask),
        (lambda lib, t: list(t.sort(dim)),),
        (lambda lib, t: list(lib.sort(t, dim, descending=True)),),
        (lambda lib, t: list(t.topk(k, dim)),),
        (lambda lib, t: list(t.topk(k, dim, largest=False)),),
        (lambda lib, t: list(t.kthvalue(k, dim)),),
        (lambda lib, t: [*t.cummax(dim), *t.cummin(dim)],),
        (lambda lib, t: t.flip(dim).take(lib.tensor([0, -1])),),
    ):
        both_types(function, x, *others)
