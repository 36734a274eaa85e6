"""Results of operations: values as NumPy's, types and errors as PyTorch's."""

import numpy as np
import pytest

import tensorplay as tp

A = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)


def check(tensor, array):
    assert isinstance(tensor, tp.Tensor)
    assert tensor.dtype == array.dtype
    assert tensor.shape == array.shape
    assert np.allclose(tensor.numpy(), array, equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["exp", "tanh", "sin", "cos", "abs", "square", "sign"])
def test_functions_of_each_element(name):
    check(getattr(tp, name)(tp.tensor(A)), getattr(np, name)(A))
    check(getattr(tp.tensor(A), name)(), getattr(np, name)(A))


def test_sigmoid_and_relu_hold_at_the_ends():
    ends = tp.tensor([-1000.0, -20.0, 0.0, 1000.0])
    check(tp.sigmoid(ends), np.array([0, 2.0611537e-09, 0.5, 1], np.float32))
    check(tp.relu(ends), np.array([0, 0, 0, 1000], np.float32))


def test_softmax_and_logsumexp_do_not_overflow():
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0]], np.float32)
    check(tp.softmax(tp.tensor(x), 1), np.array([[0.5, 0.5], [0, 1]], np.float32))
    halves = np.log(np.float32(0.5))
    check(tp.log_softmax(tp.tensor(x), 1), np.array([[halves, halves], [-1000, 0]], np.float32))
    check(tp.logsumexp(tp.tensor(x), 1), np.array([1000 - halves, 0], np.float32))
    low = tp.full((2,), -float("inf"))
    assert tp.logsumexp(low, 0).item() == -float("inf")


@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 1), [1]])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions(dim, keepdim):
    t = tp.tensor(A)
    axis = tuple(dim) if isinstance(dim, list) else dim
    check(t.sum(dim, keepdim), A.sum(axis, keepdims=keepdim))
    check(t.sum(axis=dim, keepdim=keepdim), A.sum(axis, keepdims=keepdim))
    check(t.mean(dim, keepdim), A.mean(axis, keepdims=keepdim))
    check(t.amax(dim, keepdim), A.max(axis, keepdims=keepdim))
    check(t.amin(dim, keepdim), A.min(axis, keepdims=keepdim))
    check(t.var(dim, keepdim=keepdim), A.var(axis, ddof=1, keepdims=keepdim))
    check(t.std(dim, keepdim=keepdim, unbiased=False), A.std(axis, keepdims=keepdim))
    check((t > 0).all(dim, keepdim), (A > 0).all(axis, keepdims=keepdim))
    check((t > 0).any(dim, keepdim), (A > 0).any(axis, keepdims=keepdim))


def test_extrema_come_with_their_places():
    values, indices = tp.tensor(A).max(1)
    check(values, A.max(1))
    check(indices, A.argmax(1))
    least = tp.tensor(A).min(0, keepdim=True)
    check(least.values, A.min(0, keepdims=True))
    check(least.indices, A.argmin(0, keepdims=True))
    check(tp.tensor(A).argmax(), np.asarray(A.argmax()))
    check(tp.argmin(tp.tensor(A), 1, keepdim=True), A.argmin(1, keepdims=True))
    check(tp.max(tp.tensor(A), tp.tensor(B)), np.maximum(A, B))
    check(tp.tensor(A).min(), A.min()[...])
    with pytest.raises(IndexError, match="non-zero size"):
        tp.zeros(0, 2).max(0)


def test_equal_extrema_share_the_gradient():
    x = tp.ones(2, 2, requires_grad=True)
    x.max().backward()
    assert x.grad.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    y = tp.ones(2, requires_grad=True)
    tp.maximum(y, tp.ones(2)).sum().backward()
    assert y.grad.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((3,), (5, 3, 2)),
    ],
)
def test_products_of_matrices(left, right):
    a, b = np.ones(left, np.float32), np.full(right, 2.0, np.float32)
    check(tp.tensor(a) @ tp.tensor(b), np.asarray(a @ b))


def test_products_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(2x3 and 2x3\)"):
        tp.ones(2, 3) @ tp.ones(2, 3)
    with pytest.raises(RuntimeError, match="same dtype"):
        tp.ones(2, 2) @ tp.ones(2, 2, dtype=tp.float64)
    with pytest.raises(RuntimeError, match="at least 1D"):
        tp.ones(()) @ tp.ones(2)
    with pytest.raises(TypeError, match="must be a Tensor"):
        tp.matmul(tp.ones(2), [1.0, 2.0])
    for call in (lambda: tp.mm(tp.ones(2), tp.ones(2)), lambda: tp.dot(tp.ones(1, 2), tp.ones(2))):
        with pytest.raises(RuntimeError):
            call()


def test_norms():
    t = tp.tensor(A)
    check(t.norm(), np.linalg.norm(A)[...])
    check(t.norm(1, dim=0), np.abs(A).sum(0))
    check(t.norm(float("inf"), dim=1), np.abs(A).max(1))
    check(t.norm(0), np.asarray((A != 0).sum(), np.float32))
    zero = tp.zeros(2, requires_grad=True)
    zero.norm().backward()
    assert zero.grad.tolist() == [0.0, 0.0]


def test_clamp_where_and_comparisons():
    t, u = tp.tensor(A), tp.tensor(B)
    check(t.clamp(-0.5, 0.5), A.clip(-0.5, 0.5))
    check(tp.clamp(t, min=u), np.maximum(A, B))
    check(tp.where(t > 0, t, u), np.where(A > 0, A, B))
    check(tp.where(t > 0, 1.0, 0.0), np.where(A > 0, 1, 0).astype(np.float32))
    assert [one.tolist() for one in tp.where(t > 1)] == [a.tolist() for a in np.nonzero(A > 1)]
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        ufunc = getattr(np, {"eq": "equal", "ne": "not_equal"}.get(name, ""), None)
        ufunc = ufunc or getattr(
            np, {"l": "less", "g": "greater"}[name[0]] + "_equal" * ("e" in name)
        )
        check(getattr(t, name)(u), ufunc(A, B))
        check(getattr(tp, name)(t, 0.5), ufunc(A, np.float32(0.5)))
    assert (t == None) is False  # noqa: E711  # Python falls back to identity
    assert (~(t > 0)).equal(t <= 0)
    assert tp.allclose(t, t + 1e-7)
    assert not tp.allclose(t, u)
    with pytest.raises(RuntimeError, match="at least one of"):
        t.clamp()
    with pytest.raises(RuntimeError, match="boolean tensor"):
        tp.where(t, t, u)


def test_joining_and_splitting():
    t, u = tp.tensor(A), tp.tensor(B)
    check(tp.cat([t, u], 1), np.concatenate([A, B], 1))
    check(tp.cat((t, tp.zeros(0))), A)
    check(tp.stack([t, u], dim=-1), np.stack([A, B], -1))
    assert [p.shape for p in t.split(3, 1)] == [(3, 3), (3, 1)]
    assert [p.shape for p in t.split([1, 2])] == [(1, 4), (2, 4)]
    assert [p.shape for p in tp.chunk(tp.zeros(7), 3)] == [(3,), (3,), (1,)]
    assert [p.tolist() for p in tp.unbind(tp.tensor([[1, 2], [3, 4]]), 1)] == [[1, 3], [2, 4]]
    assert [row.tolist() for row in tp.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert tp.cat([tp.ones(1), tp.ones(1, dtype=tp.float64)]).dtype == tp.float64
    for call, text in [
        (lambda: tp.cat([]), "non-empty"),
        (lambda: tp.cat([tp.ones(())]), "zero-dimensional"),
        (lambda: tp.cat([t, tp.zeros(2, 2)]), "must match"),
        (lambda: tp.stack([t, tp.zeros(2, 2)]), "equal size"),
        (lambda: t.split([1, 1]), "sum exactly to 3"),
        (lambda: t.chunk(0), "greater than 0"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()


def test_shapes():
    t = tp.tensor(A)
    check(t.reshape(2, -1), A.reshape(2, -1))
    check(t.view((4, 3)), A.reshape(4, 3))
    check(t.T, A.T)
    check(t.unsqueeze(1), A[:, None])
    check(t.unsqueeze(1).squeeze(1), A)
    check(t.unsqueeze(-1).permute(2, 0, -2), A[..., None].transpose(2, 0, 1))
    check(t[None].expand(2, -1, -1), np.broadcast_to(A, (2, 3, 4)))
    check(tp.zeros(2, 3, 4).mT, np.zeros((2, 4, 3), np.float32))
    check(tp.ones(2, 3, 4).flatten(1), np.ones((2, 12), np.float32))
    check(tp.ones(()).flatten(), np.ones(1, np.float32))
    assert t.view(4, 3)._version is t._version
    with pytest.raises(RuntimeError, match=r"shape '\[5\]' is invalid for input of size 12"):
        t.reshape(5)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        t.T.view(12)
    with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got 2"):
        t.sum(2)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        t.sum((0, 0))
    with pytest.raises(RuntimeError, match="must match the existing size"):
        t.expand(3, 5)
    with pytest.raises(RuntimeError, match="not an order"):
        t.permute(0, 0)


def test_integers_are_summed_as_int64_and_not_averaged():
    assert tp.ones(3, dtype=tp.bool).sum().dtype == tp.int64
    assert tp.ones(3, dtype=tp.int8).sum(0).dtype == tp.int64
    with pytest.raises(RuntimeError, match="could not infer output dtype"):
        tp.ones(3, dtype=tp.int64).mean()
    assert tp.ones(3, dtype=tp.int64).mean(dtype=tp.float64).dtype == tp.float64


def test_powers():
    t = tp.tensor([1.0, 2.0, 3.0])
    assert (t**2).tolist() == [1.0, 4.0, 9.0]
    assert (2**t).tolist() == [2.0, 4.0, 8.0]
    assert tp.pow(2, t).tolist() == [2.0, 4.0, 8.0]
    assert (tp.tensor([2, 3]) ** 2).tolist() == [4, 9]
    with pytest.raises(RuntimeError, match="negative integer powers"):
        tp.tensor([2, 3]) ** -1
    zero = tp.zeros(1, requires_grad=True)
    (zero**0).sum().backward()
    (zero ** tp.zeros(1)).sum().backward()
    assert zero.grad.tolist() == [0.0]


def test_gather_and_select():
    t = tp.tensor(A)
    index = tp.tensor([[0, 3], [1, 1]])
    check(tp.gather(t, 1, index), np.take_along_axis(A[:2], index.numpy(), 1))
    check(tp.index_select(t, 0, tp.tensor([2, 0])), A[[2, 0]])
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        tp.gather(t, 1, tp.tensor([0]))


def test_shapes_that_do_not_go_together_are_named():
    t, u = tp.ones(2, 3), tp.ones(4, 3)
    text = (
        r"size of tensor a \(2\) must match the size of tensor b \(4\) at non-singleton dimension 0"
    )
    for call in (
        lambda: t + u,
        lambda: t * u,
        lambda: t < u,
        lambda: t**u,
        lambda: tp.maximum(t, u),
        lambda: t.add_(u),
        lambda: t.copy_(u),
        lambda: tp.nn.functional.mse_loss(t, u),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
