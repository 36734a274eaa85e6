"""Products, einsum and linear algebra, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402

random = np.random.default_rng(5)


def values(*shape):
    return random.uniform(-2, 2, shape)


def invertible(*batch, size=3):
    """Matrices far from singular, with distinct eigenvalues."""
    return values(*batch, size, size) * 0.3 + np.diag(np.arange(1.0, size + 1))


def definite(*batch, size=3):
    a = values(*batch, size, size) * 0.5
    return a @ np.swapaxes(a, -1, -2) + np.diag(np.arange(1.0, size + 1))


def distinct_values(*batch, rows, columns):
    """Matrices with singular values 1, 2, ..."""
    u, _, vh = np.linalg.svd(values(*batch, rows, columns), full_matrices=False)
    return u * np.arange(1.0, min(rows, columns) + 1) @ vh


def both_types(function, *inputs, tolerance=None):
    compare(function, *inputs)
    compare(function, *_narrow(inputs), tolerance=tolerance or 1e-4)


def _narrow(inputs):
    return [
        _narrow(one)
        if isinstance(one, list)
        else one.astype(np.float32 if one.dtype.kind == "f" else np.complex64)
        for one in inputs
    ]


EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,jk": [(2, 3), (3, 4)],
    "ij , jk -> k i": [(2, 3), (3, 4)],
    "ba,ca": [(2, 3), (4, 3)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 2)],
    "bij,bik->bjk": [(2, 3, 4), (2, 3, 2)],
    "i,i": [(3,), (3,)],
    "i,j->ij": [(3,), (2,)],
    "ij->ji": [(2, 3)],
    "ij->": [(2, 3)],
    "ij->j": [(2, 3)],
    "ii": [(3, 3)],
    "ii->i": [(3, 3)],
    "iij->ji": [(3, 3, 2)],
    "iii->i": [(2, 2, 2)],
    "ij,ij->ij": [(2, 3), (2, 3)],
    "ij,j->ij": [(2, 3), (3,)],
    "ij,kl->ki": [(2, 3), (4, 2)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 2)],
    "bn,anm,bm->ba": [(2, 3), (5, 3, 4), (2, 4)],
    "i,i,i->i": [(3,), (3,), (3,)],
    "a,b,c,d->dcba": [(2,), (3,), (1,), (2,)],
    "...ij,...jk->...ik": [(5, 1, 2, 3), (4, 3, 2)],
    "...i->...": [(2, 3, 4)],
    "i...,i...": [(2, 3), (2, 3)],
    "...": [(2, 3)],
    "...,...->...": [(2, 3), (3,)],
    "i...j->j...i": [(2, 3, 4)],
    "ii...->...i": [(3, 3, 2)],
    "ij,jk->ik ": [(2, 1), (3, 4)],
    "ij,ij->i": [(1, 3), (2, 1)],
    "bhid,bhjd->bhij": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "bhij,bhjd->bihd": [(2, 2, 3, 4), (2, 2, 4, 5)],
    "Ab,bA->A": [(2, 3), (3, 2)],
    ",ij->ij": [(), (2, 3)],
    "ij,jk,": [(2, 3), (3, 2), ()],
    "ij,j": [(0, 3), (3,)],
    "ij,jk->i": [(2, 0), (0, 3)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation):
    operands = [values(*shape) for shape in EQUATIONS[equation]]
    both_types(lambda lib, *t: lib.einsum(equation, *t), *operands)
    both_types(lambda lib, *t: lib.einsum(equation, list(t)), *operands)


def test_einsum_with_lists():
    a, b = values(2, 3, 4), values(4, 3)
    both_types(lambda lib, x, y: lib.einsum(x, [0, 1, 2], y, [2, 1], [1, 0]), a, b)
    both_types(lambda lib, x, y: lib.einsum(x, [5, 1, 2], y, [2, 0]), a, b)
    both_types(lambda lib, x, y: lib.einsum(x, [..., 2], y, [2, 1], [1, ...]), a, b)


def test_einsum_of_complex_numbers():
    a, b = values(2, 3) + 1j * values(2, 3), values(3, 2) + 1j * values(3, 2)
    both_types(lambda lib, x, y: lib.einsum("ij,jk->ki", x, y), a, b)


@pytest.mark.parametrize("round", range(30))
def test_random_einsum(round):
    own = np.random.default_rng(round)
    names = "abcde"
    sizes = dict(zip(names, own.integers(1, 4, 5).tolist(), strict=True))
    terms = [
        "".join(own.choice(list(names), own.integers(0, 4)).tolist())
        for _ in range(own.integers(1, 4))
    ]
    used = sorted(set("".join(terms)))
    out = "".join(own.permutation(used)[: own.integers(0, len(used) + 1)].tolist()) if used else ""
    operands = [own.uniform(-1, 1, [sizes[name] for name in term]) for term in terms]
    both_types(lambda lib, *t: lib.einsum(",".join(terms) + "->" + out, *t), *operands)
    both_types(lambda lib, *t: lib.einsum(",".join(terms), *t), *operands)


M, N, V, W = values(2, 3), values(3, 4), values(3), values(2)
S, R = values(5, 2, 3), values(5, 3, 4)

PRODUCTS = {
    "mm": (lambda lib, a, b: lib.mm(a, b), M, N),
    "bmm": (lambda lib, a, b: a.bmm(b), S, R),
    "dot": (lambda lib, a, b: [a.dot(b), lib.dot(b, b)], V, values(3)),
    "outer": (lambda lib, a, b: lib.outer(a, b), V, W),
    "mv": (lambda lib, a, b: a.mv(b), M, V),
    "vdot": (lambda lib, a, b: lib.vdot(a, b), V, values(3)),
    "inner": (lambda lib, a, b: lib.inner(a, b), S, values(4, 3)),
    "inner, number": (lambda lib, a, b: a.inner(b), S, values()),
    "addmm": (lambda lib, c, a, b: lib.addmm(c, a, b), values(2, 4), M, N),
    "addmm, stretched": (lambda lib, c, a, b: c.addmm(a, b, beta=0.5, alpha=-2), values(4), M, N),
    "addmm, without": (lambda lib, c, a, b: lib.addmm(c, a, b, beta=0) + 0 * c, values(4), M, N),
    "addmm_": (lambda lib, c, a, b: (c * 1).addmm_(a, b, alpha=2), values(2, 4), M, N),
    "addmv": (lambda lib, c, a, b: lib.addmv(c, a, b, beta=2), W, M, V),
    "addmv_": (lambda lib, c, a, b: (c * 1).addmv_(a, b), W, M, V),
    "addr": (lambda lib, c, a, b: lib.addr(c, a, b, alpha=3), values(2, 3), W, V),
    "addr_": (lambda lib, c, a, b: (c * 1).addr_(a, b), values(2, 3), W, V),
    "baddbmm": (lambda lib, c, a, b: lib.baddbmm(c, a, b, beta=2, alpha=3), values(5, 2, 4), S, R),
    "baddbmm, stretched": (lambda lib, c, a, b: c.baddbmm(a, b), values(1, 4), S, R),
    "baddbmm_": (lambda lib, c, a, b: (c * 1).baddbmm_(a, b), values(5, 2, 4), S, R),
    "addbmm": (lambda lib, c, a, b: c.addbmm(a, b, alpha=2), values(2, 4), S, R),
    "tensordot": (lambda lib, a, b: lib.tensordot(a, b, 1), S, N),
    "tensordot, 2": (lambda lib, a, b: lib.tensordot(a, b), S, values(2, 3, 2)),
    "tensordot, 0": (lambda lib, a, b: lib.tensordot(a, b, dims=0), M, V),
    "tensordot, lists": (
        lambda lib, a, b: lib.tensordot(a, b, dims=([0, 2], [1, -1])),
        S,
        values(2, 5, 3),
    ),
    "kron": (lambda lib, a, b: lib.kron(a, b), M, N),
    "kron, other dimensions": (lambda lib, a, b: a.kron(b), S, V),
    "cross": (lambda lib, a, b: lib.cross(a, b, dim=-1), S.reshape(5, 2, 3), values(5, 2, 3)),
    "cross, first dimension": (lambda lib, a, b: a.cross(b, 0), values(3, 2), values(3, 2)),
    "linalg.cross": (lambda lib, a, b: lib.linalg.cross(a, b), values(4, 1, 3), values(1, 2, 3)),
    "linalg.vecdot": (lambda lib, a, b: lib.linalg.vecdot(a, b, dim=1), S, values(1, 2, 3)),
    "linalg.diagonal": (lambda lib, a: lib.linalg.diagonal(a, offset=1), S),
    "multi_dot": (lambda lib, *t: lib.linalg.multi_dot(t), M, N, values(4, 1), values(1, 5)),
    "multi_dot, vectors": (lambda lib, *t: lib.linalg.multi_dot(t), W, M, N, values(4)),
    "multi_dot, two": (lambda lib, *t: lib.linalg.multi_dot(t), M, V),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    function, *inputs = PRODUCTS[name]
    both_types(function, *inputs)


@pytest.mark.parametrize("round", range(20))
def test_matmul_of_random_shapes(round):
    own = np.random.default_rng(round)
    n, k, m = own.integers(1, 5, 3).tolist()
    batch = own.integers(1, 4, own.integers(0, 3)).tolist()

    def stretched():
        part = [size if own.random() < 0.6 else 1 for size in batch]
        return part[own.integers(0, len(part) + 1) :]

    left = (k,) if own.random() < 0.2 else (*stretched(), n, k)
    right = (k,) if own.random() < 0.2 else (*stretched(), k, m)
    both_types(lambda lib, a, b: a @ b, own.uniform(-1, 1, left), own.uniform(-1, 1, right))


E3, D3 = invertible(2), definite(2)
RANK2 = distinct_values(rows=4, columns=2) @ distinct_values(rows=2, columns=3)
SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])

LINALG = {
    "inv": (lambda lib, a: lib.linalg.inv(a), E3),
    "inverse": (lambda lib, a: a.inverse(), invertible(size=1)),
    "solve": (lambda lib, a, b: lib.linalg.solve(a, b), E3, values(2, 3, 4)),
    "solve, vector": (lambda lib, a, b: lib.linalg.solve(a, b), invertible(), values(3)),
    "solve, vectors": (lambda lib, a, b: lib.linalg.solve(a, b), E3, values(2, 3)),
    "solve, one vector": (lambda lib, a, b: lib.linalg.solve(a, b), E3, values(3)),
    "solve, stretched": (lambda lib, a, b: lib.linalg.solve(a, b), E3, values(4, 1, 3, 2)),
    "solve, one matrix": (lambda lib, a, b: lib.linalg.solve(a, b), invertible(), values(4, 3, 2)),
    "solve, right": (lambda lib, a, b: lib.linalg.solve(a, b, left=False), E3, values(2, 4, 3)),
    "solve_triangular": (
        lambda lib, a, b: [
            lib.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)
            for upper in (True, False)
            for unit in (True, False)
        ],
        E3,
        values(2, 3, 2),
    ),
    "solve_triangular, right": (
        lambda lib, a, b: lib.linalg.solve_triangular(a, b, upper=True, left=False),
        E3,
        values(2, 1, 3),
    ),
    "det": (lambda lib, a: [lib.det(a), lib.linalg.det(a)], E3),
    "det, negative": (lambda lib, a: a.det(), -invertible()),
    "det, of none": (lambda lib, a: a.det(), np.zeros((2, 0, 0))),
    "det, singular": (lambda lib, a: a.det(), SINGULAR),
    "det, some singular": (lambda lib, a: a.det(), np.stack([invertible(), SINGULAR])),
    "slogdet": (lambda lib, a: [lib.slogdet(a).sign.detach(), lib.slogdet(a)[1]], E3),
    "linalg.slogdet": (lambda lib, a: lib.linalg.slogdet(a).logabsdet, -E3),
    "logdet": (lambda lib, a: a.logdet(), E3),
    "cholesky": (lambda lib, a: lib.linalg.cholesky(a), D3),
    "cholesky, upper": (lambda lib, a: lib.linalg.cholesky(a, upper=True), D3),
    "qr": (lambda lib, a: list(lib.linalg.qr(a)), distinct_values(2, rows=4, columns=3)),
    "qr, square": (lambda lib, a: list(lib.linalg.qr(a, "complete")), E3),
    "qr, wide": (lambda lib, a: list(lib.linalg.qr(a)), distinct_values(2, rows=2, columns=4)),
    "qr, R": (lambda lib, a: lib.linalg.qr(a).R, distinct_values(rows=4, columns=3)),
    "qr, Q": (lambda lib, a: lib.linalg.qr(a).Q, distinct_values(rows=4, columns=3)),
    "qr, values": (
        lambda lib, a: [p for m in ("complete", "r") for p in lib.linalg.qr(a.detach(), mode=m)],
        values(4, 3),
    ),
    "svd, values": (lambda lib, a: lib.linalg.svd(a).S, distinct_values(2, rows=4, columns=3)),
    "svdvals": (lambda lib, a: lib.linalg.svdvals(a), distinct_values(2, rows=3, columns=4)),
    "eigvalsh": (lambda lib, a: lib.linalg.eigvalsh(a), D3),
    "eigvalsh, upper": (lambda lib, a: lib.linalg.eigvalsh(a, UPLO="U"), D3),
    "pinv": (lambda lib, a: lib.linalg.pinv(a), distinct_values(2, rows=4, columns=3)),
    "pinv, wide": (lambda lib, a: lib.linalg.pinv(a), distinct_values(2, rows=2, columns=4)),
    "pinv, of lower rank": (lambda lib, a: lib.linalg.pinv(a, rtol=1e-5), RANK2),
    "pinv, limit": (
        lambda lib, a: lib.linalg.pinv(a, atol=1.5),
        distinct_values(rows=3, columns=3),
    ),
    "pinverse": (lambda lib, a: a.pinverse(), E3),
    "matrix_power": (
        lambda lib, a: [lib.matrix_power(a, n) for n in (1, 2, 3, 5, 8, -1, -3)],
        E3 / 2,
    ),
    "matrix_power, 0": (lambda lib, a: lib.linalg.matrix_power(a, 0) * a, E3),
    "vector_norm": (
        lambda lib, a: [
            lib.linalg.vector_norm(a, p, d)
            for p in (2, 1, 3.5, -1, -2.5, float("inf"), -float("inf"), 0.5)
            for d in (None, 1, (0, -1))
        ],
        values(2, 3, 4),
    ),
    "vector_norm, 0": (lambda lib, a: lib.linalg.vector_norm(a.detach(), 0, -1), values(2, 3)),
    "vector_norm, kept": (
        lambda lib, a: lib.linalg.vector_norm(a, dim=1, keepdim=True),
        values(2, 3, 4),
    ),
    "vector_norm, of zeros": (
        lambda lib, a: [
            lib.linalg.vector_norm(a, p, -1) for p in (1, 2, 3, 1.5, 0.5, float("inf"))
        ],
        np.array([[0.0, 0.0], [0.0, 2.0]]),
    ),
    "matrix_norm": (
        lambda lib, a: [
            lib.linalg.matrix_norm(a, p, keepdim=kept)
            for p in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))
            for kept in (False, True)
        ],
        distinct_values(2, rows=4, columns=3),
    ),
    "matrix_norm, dims": (
        lambda lib, a: [
            lib.linalg.matrix_norm(a, p, d, keepdim=kept)
            for p in ("fro", "nuc", 1, -2, float("inf"))
            for d in ((0, 2), (2, 1))
            for kept in (False, True)
        ],
        values(2, 3, 4),
    ),
    "norm": (
        lambda lib, a: [
            lib.linalg.norm(a),
            lib.linalg.norm(a[0], 1),
            lib.linalg.norm(a[0, 0], 1),
            lib.linalg.norm(a, "nuc", (1, 2)),
            lib.linalg.norm(a, 3, 1),
            lib.linalg.norm(a, dim=(0, 1), keepdim=True),
        ],
        values(2, 3, 4),
    ),
    "matrix_rank": (
        lambda lib, a: [
            lib.linalg.matrix_rank(a.detach(), rtol=1e-5),
            lib.linalg.matrix_rank(a.detach(), atol=1.5),
        ],
        np.stack([RANK2, distinct_values(rows=4, columns=3)]),
    ),
}


@pytest.mark.parametrize("name", LINALG)
def test_linalg(name):
    function, *inputs = LINALG[name]
    both_types(function, *inputs, tolerance=2e-3)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (2, 4)])
def test_singular_vectors(shape):
    """Their signs are free, so they are compared by what does not depend on them."""
    a = distinct_values(2, rows=shape[0], columns=shape[1])
    weights = values(*shape)

    def projected(lib, x):
        u, s, vh = lib.linalg.svd(x, full_matrices=False)
        w = lib.tensor(weights, dtype=x.dtype)
        return [(u.mT @ w @ vh.mT).diagonal(0, -2, -1) * s, u @ vh]

    def with_v(lib, x):
        u, s, v = lib.svd(x)
        return u @ lib.diag_embed(s**2) @ v.mT

    def one_of_them(lib, x):
        u, _, vh = lib.linalg.svd(x, full_matrices=False)
        return [u[..., :1] @ u[..., :1].mT, (vh[..., :1, :].mT @ vh[..., :1, :]) ** 2]

    for function in (projected, with_v, one_of_them):
        both_types(function, a, tolerance=2e-3)


def test_eigenvectors():
    def projected(lib, x):
        values, vectors = lib.linalg.eigh(x)
        return [
            vectors @ lib.diag_embed(values**2) @ vectors.mT,
            vectors[..., :1] @ vectors[..., :1].mT,
        ]

    both_types(projected, D3, tolerance=2e-3)


@pytest.mark.parametrize("name", ["inv", "solve", "det", "solve, right", "det, negative"])
def test_linalg_of_complex_matrices(name):
    function, *inputs = LINALG[name]
    both_types(function, *[one * (1 + 0.5j) for one in inputs], tolerance=2e-3)


def test_gradients_that_do_not_exist_are_refused():
    a = tp.tensor(values(4, 3), requires_grad=True)
    u, s, _ = tp.linalg.svd(a)
    s.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="not differentiable"):
        u.sum().backward()
    for mode in ("complete", "r"):
        with pytest.raises(RuntimeError, match="not differentiable"):
            tp.linalg.qr(a, mode).R.sum().backward()


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda t: tp.linalg.inv(t), "square matrices"),
        (lambda t: tp.linalg.inv(t[0]), "at least 2 dimensions"),
        (lambda t: tp.linalg.inv(t[:, :2] * 0), "singular"),
        (lambda t: tp.linalg.solve(t[:, :2] * 0, t), "singular"),
        (lambda t: tp.linalg.solve(t[:, :2], t[:1]), "Incompatible shapes"),
        (lambda t: tp.linalg.solve(t[:, :2], t.double()), "same dtype"),
        (lambda t: tp.linalg.cholesky(-t[:, :2]), "positive-definite"),
        (lambda t: tp.linalg.svd(t.to(tp.complex64)), "complex matrices are not supported"),
        (lambda t: tp.linalg.inv(tp.eye(2, dtype=tp.int64)), "Expected a floating point tensor"),
        (lambda t: tp.linalg.matrix_norm(t, 3), "Order 3 not supported"),
        (lambda t: tp.linalg.eigh(t[:, :2], "X"), "UPLO"),
        (lambda t: tp.linalg.qr(t, "all"), "unrecognized mode"),
        (lambda t: tp.linalg.multi_dot([t]), "at least 2 tensors"),
        (lambda t: tp.linalg.multi_dot([t, t]), "cannot be multiplied"),
        (lambda t: tp.addmm(tp.zeros(3), t, t.T), "must match the existing size"),
        (lambda t: t.mv(t), "a matrix and a vector"),
        (lambda t: tp.cross(t, t, dim=0), "must have length 3"),
        (lambda t: tp.tensordot(t, t, 3), "tensordot expects"),
        (lambda t: tp.einsum("ij,jk->ik", t), "names 2 operands, but 1"),
        (lambda t: tp.einsum("ijk->i", t), "does not match"),
        (lambda t: tp.einsum("ij->k", t), "does not appear"),
        (lambda t: tp.einsum("ij->ii", t), "more than once"),
        (lambda t: tp.einsum("i1->i", t), "invalid subscript"),
        (lambda t: tp.einsum("ii->i", t), "sizes don't match"),
        (lambda t: tp.einsum("ij,ji", t, t), "does not broadcast"),
        (lambda t: tp.einsum("ij->i->", t), "more than once"),
        (lambda t: tp.einsum("ij,ij", t, t.double()), "same dtype"),
    ],
)
def test_what_makes_no_sense_is_refused(function, match):
    with pytest.raises(RuntimeError, match=match):
        function(tp.tensor([[1.0, 2.0, 3.0], [2.0, 5.0, 6.0]]))


@pytest.mark.parametrize("round", range(12))
def test_linalg_of_random_stacks(round):
    own = np.random.default_rng(round)
    size = int(own.integers(1, 5))
    batch = own.integers(1, 4, own.integers(0, 3)).tolist()
    columns = int(own.integers(1, 4))
    a = own.uniform(-0.3, 0.3, (*batch, size, size)) + np.diag(np.arange(1.0, size + 1))
    other = [n if own.random() < 0.6 else 1 for n in batch]
    b = own.uniform(-1, 1, (*other, size, columns))
    for function, *inputs in (
        (lambda lib, a: lib.linalg.inv(a), a),
        (lambda lib, a, b: lib.linalg.solve(a, b), a, b),
        (lambda lib, a, b: lib.linalg.solve(a, b.mT, left=False), a, b),
        (lambda lib, a: lib.det(a), a),
        (lambda lib, a: lib.linalg.slogdet(a)[1], a),
        (lambda lib, a: lib.linalg.cholesky(a @ a.mT), a),
        (lambda lib, a, b: lib.linalg.qr(a @ b[..., :1]).R.abs(), a, b),
        (lambda lib, a: lib.linalg.svdvals(a), a),
        (lambda lib, a: lib.linalg.eigvalsh(a + a.mT), a),
        (lambda lib, a: lib.linalg.pinv(a), a),
        (lambda lib, a: lib.linalg.matrix_power(a, 3), a),
        (lambda lib, a: lib.linalg.matrix_norm(a, 2), a),
    ):
        both_types(function, *inputs, tolerance=5e-3)
