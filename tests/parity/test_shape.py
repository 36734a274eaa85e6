"""Operations that move elements about, against torch."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

TYPES = [np.float32, np.float64]
random = np.random.default_rng(11)


def values(*shape):
    return random.uniform(-2, 2, shape)


def shapes(count, low, high, sizes=(1, 5)):
    """Random shapes."""
    return [
        tuple(random.integers(*sizes, size=random.integers(low, high + 1)).tolist())
        for _ in range(count)
    ]


def checked_in_both_types(function, *inputs):
    for dtype in TYPES:
        compare(
            function,
            *[
                one.astype(dtype) if isinstance(one, np.ndarray) and one.dtype.kind == "f" else one
                for one in inputs
            ],
        )


A = values(2, 3, 4)

#: Functions of the library and one tensor of shape (2, 3, 4).
OF_ONE = {
    "reshape": lambda lib, x: [x.reshape(4, -1), lib.reshape(x, (2, 2, 3, 2)), x.mT.reshape(-1)],
    "view": lambda lib, x: [x.view(6, 4), x.view((-1,))],
    "flatten": lambda lib, x: [
        x.flatten(),
        lib.flatten(x, 1),
        x.flatten(0, -2),
        x[0, 0, 0].flatten(),
    ],
    "transpose": lambda lib, x: [x.transpose(0, 2), lib.transpose(x, -1, 1)],
    "permute": lambda lib, x: [x.permute(2, 0, 1), lib.permute(x, (1, -1, 0))],
    "t": lambda lib, x: [x[0].t(), x[0, 0].t(), lib.t(x[0]), x[0].T],
    "squeeze": lambda lib, x: [
        x[:1, :, :1].squeeze(),
        x[:1].squeeze(0),
        x[:1].squeeze(1),
        lib.squeeze(x[:1, :1], (0, 2)),
        x[0, 0, 0].squeeze(-1),
    ],
    "unsqueeze": lambda lib, x: [x.unsqueeze(-1), lib.unsqueeze(x, 1), x[0, 0, 0].unsqueeze(0)],
    "expand": lambda lib, x: [
        x[:, :1].expand(-1, 5, -1),
        x.expand(2, -1, -1, -1),
        x[0, 0].expand((3, 4)),
    ],
    "broadcast_to": lambda lib, x: [
        x[0].broadcast_to((2, 3, 4)),
        lib.broadcast_to(x[0, 0, 0], (2,)),
    ],
    "cat": lambda lib, x: [lib.cat([x, x[:, :1]], 1), lib.cat((x[0, 0], lib.zeros(0), x[0, 1]))],
    "stack": lambda lib, x: [lib.stack([x, x * 2], -1), lib.stack((x[0, 0, 0], x[1, 2, 3]))],
    "split": lambda lib, x: [x.split(2, 1), lib.split(x, [1, 3], dim=-1), x.split(5)],
    "chunk": lambda lib, x: [x.chunk(3, 2), lib.chunk(x, 5), x.chunk(2)],
    "unbind": lambda lib, x: [x.unbind(), lib.unbind(x, -1)],
    "contiguous": lambda lib, x: [x.mT.contiguous(), x.mT.is_contiguous(), x.is_contiguous()],
    "sizes": lambda lib, x: [tuple(x.size()), x.size(1), x.size(-1), x.dim(), x.numel(), x.ndim],
    "clone": lambda lib, x: [x.mT.clone(), lib.clone(x)],
    "movedim": lambda lib, x: x.movedim(0, 2),
    "movedim, several": lambda lib, x: lib.movedim(x, (0, 2), (-1, 0)),
    "moveaxis": lambda lib, x: lib.moveaxis(x, -1, 0),
    "swapaxes": lambda lib, x: lib.swapaxes(x, 0, 1),
    "swapdims": lambda lib, x: x.swapdims(0, -1),
    "adjoint": lambda lib, x: x.adjoint(),
    "mT": lambda lib, x: x.mT,
    "mH": lambda lib, x: x.mH,
    "H": lambda lib, x: x[0].H,
    "unflatten": lambda lib, x: x.unflatten(2, (2, -1)),
    "ravel": lambda lib, x: x.ravel(),
    "view_as": lambda lib, x: x.view_as(lib.zeros(6, 4)),
    "reshape_as": lambda lib, x: x.mT.reshape_as(lib.zeros(6, 4)),
    "expand_as": lambda lib, x: x[:, :1].expand_as(lib.zeros(5, 2, 3, 4)),
    "narrow": lambda lib, x: x.narrow(1, 1, 2),
    "narrow, from the end": lambda lib, x: lib.narrow(x, -1, -3, 2),
    "select": lambda lib, x: x.select(1, -1),
    "flip": lambda lib, x: x.flip(0, 2),
    "flip, list": lambda lib, x: lib.flip(x, [-2]),
    "fliplr": lambda lib, x: lib.fliplr(x),
    "flipud": lambda lib, x: x.flipud(),
    "rot90": lambda lib, x: [lib.rot90(x, k, (0, 2)) for k in range(-1, 4)],
    "roll": lambda lib, x: x.roll(2),
    "roll, dims": lambda lib, x: lib.roll(x, (1, -5), (2, 0)),
    "roll, one dim twice": lambda lib, x: x.roll((1, 1), (2, 2)),
    "repeat": lambda lib, x: x.repeat(2, 1, 2, 3),
    "repeat, once": lambda lib, x: x.repeat(1, 1, 1),
    "repeat, never": lambda lib, x: x.repeat(2, 0, 2),
    "tile": lambda lib, x: lib.tile(x, (2, 2)),
    "tile, more": lambda lib, x: x.tile(2, 1, 1, 2),
    "repeat_interleave": lambda lib, x: x.repeat_interleave(3),
    "repeat_interleave, dim": lambda lib, x: lib.repeat_interleave(x, 2, dim=-1),
    "repeat_interleave, counts": lambda lib, x: x.repeat_interleave(lib.tensor([2, 0, 1]), dim=1),
    "repeat_interleave, of counts": lambda lib, x: lib.repeat_interleave(lib.tensor([2, 0, 3])),
    "unfold": lambda lib, x: x.unfold(2, 2, 1),
    "unfold, steps": lambda lib, x: x.unfold(1, 2, 2),
    "unfold, all": lambda lib, x: x.unfold(-1, 4, 3),
    "unfold, gaps": lambda lib, x: x.unfold(2, 1, 3),
    "tensor_split": lambda lib, x: lib.tensor_split(x, 3, -1),
    "tensor_split, cuts": lambda lib, x: x.tensor_split((1, 3), 2),
    "tensor_split, strange cuts": lambda lib, x: x.tensor_split((3, 1, -1, 9), 2),
    "tensor_split, tensor": lambda lib, x: x.tensor_split(lib.tensor([1, 2]), 1),
    "hsplit": lambda lib, x: x.hsplit(3),
    "vsplit": lambda lib, x: lib.vsplit(x, (1,)),
    "hstack": lambda lib, x: lib.hstack([x, x[:, :1]]),
    "hstack, vectors": lambda lib, x: lib.hstack((x[0, 0], x[1, :, 1], x[0, 0, 0])),
    "vstack": lambda lib, x: lib.vstack([x[0], x[1, 2]]),
    "dstack": lambda lib, x: lib.dstack([x[0], x[1]]),
    "column_stack": lambda lib, x: lib.column_stack([x[0], x[1, :, 0]]),
    "atleast": lambda lib, x: [
        f(part)
        for f in (lib.atleast_1d, lib.atleast_2d, lib.atleast_3d)
        for part in (x[0, 0, 0], x[0, 0], x[0], x)
    ],
    "atleast, several": lambda lib, x: lib.atleast_2d(x[0, 0], x[0]),
    "concat": lambda lib, x: lib.concat([x, x], 1),
    "broadcast_tensors": lambda lib, x: lib.broadcast_tensors(x, x[0], x[0, 0]),
    "meshgrid": lambda lib, x: lib.meshgrid(x[0, 0], x[0, :, 0], x[0, 0, 0], indexing="ij"),
    "meshgrid, xy": lambda lib, x: lib.meshgrid([x[0, 0], x[0, :, 0]], indexing="xy"),
    "cartesian_prod": lambda lib, x: lib.cartesian_prod(x[0, 0], x[0, :, 0]),
    "diagonal": lambda lib, x: x.diagonal(),
    "diagonal, all arguments": lambda lib, x: lib.diagonal(x, -1, 2, 0),
    "diagonal, above": lambda lib, x: lib.diagonal(x, offset=2, dim1=1, dim2=2),
    "diagonal, none left": lambda lib, x: x.diagonal(7),
    "diag_embed": lambda lib, x: x.diag_embed(),
    "diag_embed, all arguments": lambda lib, x: lib.diag_embed(x, -2, 1, 0),
    "diag_embed, dims": lambda lib, x: lib.diag_embed(x, 1, 0, 2),
    "diag": lambda lib, x: [x[0].diag(), x[0].diag(1), x[0, 0].diag(), lib.diag(x[0, 0], -2)],
    "diagflat": lambda lib, x: lib.diagflat(x[0], 1),
    "trace": lambda lib, x: x[1].trace(),
    "tril": lambda lib, x: [x.tril(), lib.tril(x, 1), x.tril(-1)],
    "triu": lambda lib, x: [x.triu(), lib.triu(x, 1), x.triu(-1)],
    "unsqueeze_": lambda lib, x: (x * 1).unsqueeze_(1),
    "squeeze_": lambda lib, x: [(x[:1, :1] * 1).squeeze_(), (x[:1, :1] * 1).squeeze_(1)],
    "transpose_": lambda lib, x: [(x * 1).transpose_(0, 2), (x * 1).swapaxes_(1, -1)],
    "t_": lambda lib, x: (x[0] * 1).t_(),
    "fill_diagonal_": lambda lib, x: [(x[0] * 1).fill_diagonal_(3), (x[0].T * 1).fill_diagonal_(1)],
    "fill_diagonal_, wrapped": lambda lib, x: (x.reshape(8, 3) * 1).fill_diagonal_(3.0, wrap=True),
    "fill_diagonal_, cube": lambda lib, x: (x[:, :2, :2] * 1).fill_diagonal_(-1),
    "tril_": lambda lib, x: (x * 1).tril_(1),
    "triu_": lambda lib, x: (x * 1).triu_(),
    "transpose of unfold": lambda lib, x: (x * 1).unfold(2, 2, 1).transpose(0, 1).reshape(-1),
    "stride": lambda lib, x: [x.stride(), x.mT.stride(), x.stride(1), x.nelement(), x.ndimension()],
    "tril_indices": lambda lib, x: [lib.tril_indices(3, 4, k) for k in (-1, 0, 2)],
    "triu_indices": lambda lib, x: [lib.triu_indices(4, 3, k) for k in (-1, 0, 2)],
}


@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_tensor(name):
    checked_in_both_types(OF_ONE[name], A)


@pytest.mark.parametrize("shape", shapes(12, 1, 4), ids=str)
def test_random_moves(shape):
    x = values(*shape)
    ndim = len(shape)
    order = random.permutation(ndim).tolist()
    dims = sorted(random.permutation(ndim)[: random.integers(1, ndim + 1)].tolist())
    dim = int(random.integers(-ndim, ndim))
    times = random.integers(0, 3, ndim + 1).tolist()
    window = int(random.integers(1, shape[dim] + 1))
    step = int(random.integers(1, 4))
    shifts = random.integers(-7, 8, len(dims)).tolist()
    for function in (
        lambda lib, t: t.movedim(tuple(range(ndim)), tuple(order)),
        lambda lib, t: t.permute(order),
        lambda lib, t: t.flip(dims),
        lambda lib, t: t.roll(shifts, dims),
        lambda lib, t: t.repeat(*times),
        lambda lib, t: t.unfold(dim, window, step),
        lambda lib, t: t.unfold(dim, window, step).unfold(0, 1, 2),
        lambda lib, t: lib.tensor_split(t, step, dim),
        lambda lib, t: t.repeat_interleave(step, dim),
        lambda lib, t: t.split(step, dim),
        lambda lib, t: t.chunk(step, dim),
        lambda lib, t: t.unbind(dim),
        lambda lib, t: t.squeeze(dims),
        lambda lib, t: t.transpose(dim, 0).reshape(-1, shape[dim]),
        lambda lib, t: lib.cat([t, t.flip(0)], dim),
        lambda lib, t: lib.stack([t, t * 2], dim),
        lambda lib, t: t.unsqueeze(dim).expand(*([-1] * (ndim + 1))),
    ):
        checked_in_both_types(function, x)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_pad(mode, spatial):
    for _ in range(6):
        shape = (*random.integers(1, 3, 2).tolist(), *random.integers(3, 6, spatial).tolist())
        pad = random.integers(-1, 3, 2 * spatial).tolist()
        checked_in_both_types(functools.partial(_padded, pad=pad, mode=mode), values(*shape))


def _padded(lib, x, pad, mode):
    F = lib.nn.functional  # noqa: N806
    return F.pad(x, pad, mode, 1.5) if mode == "constant" else F.pad(x, pad, mode=mode)


def test_pad_of_some_dimensions():
    for pad in [(), (1, 2), (1, 0, 0, 2), (0, -1, 1, 1), (-1, 2, 0, 0, 1, 1)]:
        checked_in_both_types(functools.partial(_padded, pad=pad, mode="constant"), A)
    compare(lambda lib, x: lib.nn.functional.pad(x, (1, 1)), A)
    compare(lambda lib, x: lib.nn.functional.pad(x, (1, 1), value=3), np.arange(4))
    # Without a batch.
    checked_in_both_types(functools.partial(_padded, pad=(1, 1, 2, 0), mode="reflect"), A)


def test_writes_into_views_are_seen_through_the_base():
    def written(lib, x, y):
        base = x * 1
        base.diagonal(0, 1, 2)[...] = y
        base.select(0, 1).mul_(2)
        base.narrow(2, 1, 2).tril_()
        base.movedim(0, 2)[0].mul_(y)
        return base

    checked_in_both_types(written, values(2, 2, 3), values(2))


def test_changes_of_shape_in_place_keep_views_right():
    def changed(lib, x, y):
        base = x * 1
        row, column = base[0], base[:, 1]
        base.t_()
        base[0].mul_(y)
        row.mul_(2)
        column.unsqueeze_(0)
        column.pow_(2)
        base.unsqueeze_(1)
        base[:2].mul_(3)
        return [base, row, column]

    checked_in_both_types(changed, values(2, 3), values(2))


def test_shape_in_place_of_leaves():
    leaf = tp.zeros(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.t_()
    with tp.no_grad():
        assert leaf.t_().shape == (3, 2)
    assert leaf.is_leaf
    assert leaf.requires_grad
    plain = tp.arange(6).reshape(2, 3)
    view = plain[1]
    assert plain.t_() is plain
    plain[0, 1] = 9
    assert view.tolist() == [9, 4, 5]
    kept = leaf * 1
    kept.retain_grad()
    kept.unsqueeze_(0).sum().backward()
    assert kept.grad.shape == (1, 3, 2)


def test_views_share_memory_and_version():
    t = tp.zeros(3, 4)
    saved = t.clone().requires_grad_()
    for view in (
        t.diagonal(), t.unfold(1, 2, 2), t.narrow(0, 1, 1), t.movedim(0, 1), t.select(0, 1),
        t.ravel(), t.H, *t.tensor_split(2), tp.broadcast_tensors(t, tp.zeros(1))[0],
    ):  # fmt: skip
        before = t._version[0]
        view.fill_(1.0)
        assert t._version[0] == before + 1
        assert t.sum().item() >= 3
        t.zero_()
    for copy in (t.flip(0), t.roll(1), t.repeat(1, 1), t.tril(), t.tile(1)):
        copy.fill_(1.0)
        assert not t.numpy().any()
    with pytest.raises(RuntimeError, match="read-only"):
        t.unfold(1, 2, 1).fill_(1.0)
    base = saved * 1
    windows = base.unfold(0, 2, 1)
    out = windows * windows
    base.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        out.sum().backward()


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda t: t.movedim((0, 1), (0,)), "same number of dims"),
        (lambda t: t.movedim((0, 0), (0, 1)), "repeated dim"),
        (lambda t: t.narrow(0, 1, 3), "exceeds dimension size"),
        (lambda t: t.narrow(0, 0, -1), "non-negative"),
        (lambda t: t.flip(0, 0), "appears multiple times"),
        (lambda t: t.flip(2), "Dimension out of range"),
        (lambda t: t.roll((1, 2), 0), "must align"),
        (lambda t: t.repeat(2), "repeat dims can not be smaller"),
        (lambda t: t.repeat_interleave(tp.tensor([1, 2, 3]), 0), "same size as input along dim"),
        (lambda t: t.repeat_interleave(-1), "negative"),
        (lambda t: t.unfold(0, 3, 1), "maximum size for tensor"),
        (lambda t: t.unfold(0, 1, 0), "step is 0"),
        (lambda t: t.tensor_split(0), "larger than 0"),
        (lambda t: t.hsplit(2), "not divisible"),
        (lambda t: tp.meshgrid(t), "vectors"),
        (lambda t: tp.broadcast_tensors(t, tp.zeros(5)), "do not broadcast"),
        (lambda t: t.diagonal(0, 1, 1), "cannot be identical"),
        (lambda t: t[0].tril(), "at least 2 dimensions"),
        (lambda t: t[0].trace(), "expected a matrix"),
        (lambda t: tp.nn.functional.pad(t, (1,)), "must be even"),
        (lambda t: tp.nn.functional.pad(t, (1, 1, 1, 1), mode="reflect"), "not the first of all"),
        (lambda t: tp.nn.functional.pad(t, (3, 0), mode="reflect"), "should be less than"),
        (lambda t: tp.nn.functional.pad(t, (4, 0), mode="circular"), "more than once"),
        (lambda t: tp.nn.functional.pad(t, (-2, -2)), "not enough elements"),
        (lambda t: tp.nn.functional.pad(t, (1, 1), mode="mirror"), "Unrecognised padding mode"),
    ],
)
def test_what_makes_no_sense_is_refused(function, match):
    with pytest.raises((RuntimeError, IndexError, NotImplementedError), match=match):
        function(tp.zeros(2, 3))
