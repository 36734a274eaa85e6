"""Cases for test_gradients.py: shapes, indices, products and linear algebra."""

import numpy as np

import tensorplay as tp

INDEX = tp.tensor([[0, 2], [1, 1]])
ROW = tp.tensor([2, 0])
AGAIN = tp.tensor([1, 1, 0])
MASK = tp.tensor([[True, False, True], [False, True, True]])
SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])


def square(*batch, size=3):
    """Matrices that are not singular, with different eigenvalues."""
    noise = np.random.default_rng(9).uniform(-0.4, 0.4, (*batch, size, size))
    return tp.tensor(noise + np.diag(np.arange(1.0, size + 1)), requires_grad=True)


def written(base, write):
    copied = base * 1.0
    write(copied)
    return copied


def into_windows(x, y):
    base = x * 1.0
    base.diagonal(0, 0, 1).mul_(y)
    base.unfold(1, 1, 2)[:, 1].mul_(y.unsqueeze(1))
    return base * base


def turned(x, y):
    """Changes of shape in place, of a base with a view and of a view, between writes."""
    base = x * 1.0
    row = base[0]
    base.t_()
    base[0].mul_(y)
    row.mul_(2.0)
    row.unsqueeze_(0)
    row.pow_(2)
    base.unsqueeze_(1).transpose_(0, 2)
    return (base * base).squeeze_(1) * row


def symmetric(x):
    return x + x.mT


def cases(real, positive, distinct):
    a, s, t = real(2, 3), real(2, 3, 3), real(3)
    return {
        "diagonal": (lambda a: (a * a).diagonal(1, -1, 0), (s,)),
        "diag_embed": (lambda a: tp.diag_embed(a * a, -1, 0, 2), (a,)),
        "diag": (lambda a: (a * a).diag(1), (a,)),
        "trace": (lambda a: (a * a).trace(), (a,)),
        "tril": (lambda a: (a * a).tril(1), (s,)),
        "triu": (lambda a: (a * a).triu(), (a,)),
        "tril_": (lambda a: written(a, lambda t: t.tril_()) * a, (a,)),
        "triu_": (lambda a: written(a, lambda t: t.triu_(1)) * a, (a,)),
        "movedim": (lambda a: (a * a).movedim((0, 1), (1, 2)), (s,)),
        "flip": (lambda a: (a * a).flip(0, -1), (s,)),
        "roll": (lambda a: (a * a).roll((1, -2), (0, 1)), (a,)),
        "roll, flat": (lambda a: (a * a).roll(2), (a,)),
        "repeat": (lambda a: (a * a).repeat(2, 1, 3), (a,)),
        "repeat_interleave": (lambda a: (a * a).repeat_interleave(AGAIN, 1), (a,)),
        "unfold": (lambda a: (a * a).unfold(0, 2, 1), (real(4, 2),)),
        "unfold, gaps": (lambda a: (a * a).unfold(1, 2, 3), (real(2, 6),)),
        "unfold, number": (lambda a: (a * a).unfold(0, 1, 1), (real(),)),
        "meshgrid": (lambda a, b: tp.meshgrid(a, b * b)[1] * a.sum(), (real(2), t)),
        "pad": (lambda a: tp.nn.functional.pad(a * a, (1, -1, -1, 2), value=2.0), (a,)),
        "pad, cropped": (lambda a: tp.nn.functional.pad(a * a, (-1, -1)), (a,)),
        "pad, reflect": (lambda a: tp.nn.functional.pad(a * a, (2, 1), mode="reflect"), (a,)),
        "pad, circular": (lambda a: tp.nn.functional.pad(a * a, (2, 3), mode="circular"), (a,)),
        "pad, replicate": (lambda a: tp.nn.functional.pad(a * a, (2, 1), mode="replicate"), (a,)),
        "write into windows": (into_windows, (real(2, 3), real(2, seed=1))),
        "shape in place": (turned, (a, real(2, seed=1))),
        "fill_diagonal_": (lambda a: written(a, lambda t: t.fill_diagonal_(2.0)) * a, (a,)),
        "scatter": (lambda a, b: a.scatter(1, ROW[:, None], b * b) * a, (a, real(2, 1, seed=1))),
        "scatter, number": (lambda a: a.scatter(1, ROW[:, None], 2.0) * a, (a,)),
        "scatter_": (
            lambda a, b: written(a, lambda t: t.scatter_(1, ROW[:, None], b * b)) * a,
            (a, real(2, 1, seed=1)),
        ),
        "scatter_add": (
            lambda a, b: a.scatter_add(1, INDEX, b * b) * a,
            (a, real(3, 2, seed=1)),
        ),
        "scatter_add_": (
            lambda a, b: written(a, lambda t: t.scatter_add_(1, INDEX, b)) * a,
            (a, real(2, 2, seed=1)),
        ),
        "scatter_reduce, prod": (
            lambda a, b: a.scatter_reduce(1, INDEX, b, "prod"),
            (a, real(2, 2, seed=1)),
        ),
        "scatter_reduce, mean": (
            lambda a, b: a.scatter_reduce(1, INDEX, b, "mean", include_self=False) * a,
            (a, real(2, 2, seed=1)),
        ),
        "scatter_reduce, amax": (
            lambda a, b: (a * a).scatter_reduce(1, INDEX, b * b, "amax"),
            (a, real(2, 2, seed=1)),
        ),
        "scatter_reduce_, amin": (
            lambda a, b: written(a, lambda t: t.scatter_reduce_(1, INDEX, b * b, "amin")) * a,
            (a, real(2, 2, seed=1)),
        ),
        "index_add": (
            lambda a, b: a.index_add(1, AGAIN, b * b, alpha=2) * a,
            (a, real(2, 3, seed=1)),
        ),
        "index_copy": (lambda a, b: a.index_copy(1, ROW, b * b) * a, (a, real(2, 2, seed=1))),
        "index_fill": (lambda a, b: a.index_fill(1, AGAIN, b * b) * a, (a, real(seed=1))),
        "index_put": (
            lambda a, b: a.index_put((ROW[1:], AGAIN), b * b, accumulate=True) * a,
            (a, real(3, seed=1)),
        ),
        "index_put_": (
            lambda a, b: written(a, lambda t: t.index_put_((MASK,), b * b)) * a,
            (a, real(4, seed=1)),
        ),
        "masked_fill": (lambda a, b: a.masked_fill(MASK, b * b) * a, (t, real(seed=1))),
        "masked_fill_": (
            lambda a, b: written(a, lambda t: t.masked_fill_(MASK, b * b)) * a,
            (a, real(seed=1)),
        ),
        "masked_scatter": (
            lambda a, b: a.masked_scatter(MASK, b * b) * a,
            (a, real(3, 2, seed=1)),
        ),
        "masked_select": (lambda a: (a * a).masked_select(MASK), (a,)),
        "setitem, integers first": (
            lambda a, b: written(a, lambda t: t.__setitem__((0, slice(None), AGAIN[1:]), b * b)),
            (s, real(3, 2, seed=1)),
        ),
        "take": (lambda a: (a * a).take(INDEX), (a,)),
        "sort": (lambda a: (a * a).sort(1, True).values, (distinct(2, 3),)),
        "topk": (lambda a: (a * a).topk(2).values, (distinct(2, 3),)),
        "kthvalue": (lambda a: (a * a).kthvalue(2, 0).values, (distinct(2, 3),)),
        "cummax": (lambda a: (a * a).cummax(1).values, (distinct(2, 3),)),
        "einsum": (
            lambda a, b, c: tp.einsum("ij,bjk,k->bi", a * a, b, c),
            (a, s, t),
        ),
        "einsum, one by one": (lambda a, b: tp.einsum("ij,...j->j...i", a, b * b), (a, s)),
        "einsum, diagonal": (lambda a, b: tp.einsum("bii,bi->i", a, b), (s, a)),
        "tensordot": (lambda a, b: tp.tensordot(a * a, b, 2), (a, real(2, 3, 2, seed=1))),
        "addmm": (
            lambda a, b, c: tp.addmm(a, b, c, beta=2, alpha=3),
            (t, a, real(3, 3, seed=1)),
        ),
        "addmm_": (
            lambda a, b, c: written(a, lambda t: t.addmm_(b, c)),
            (real(2, 2), a, real(3, 2, seed=1)),
        ),
        "kron": (tp.kron, (a, real(2, 2, seed=1))),
        "cross": (tp.linalg.cross, (a, real(2, 3, seed=1))),
        "cross, stretched": (tp.linalg.cross, (real(2, 1, 3), real(1, 2, 3, seed=1))),
        "inv": (tp.linalg.inv, (square(2),)),
        "solve": (tp.linalg.solve, (square(2), real(2, 3, 2))),
        "solve, vector": (tp.linalg.solve, (square(), t)),
        "solve_triangular": (
            lambda a, b: tp.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
            (square(), real(3, 2)),
        ),
        "det": (tp.det, (square(2),)),
        "det, singular": (tp.det, (tp.tensor(SINGULAR, requires_grad=True),)),
        "slogdet": (lambda a: tp.slogdet(a).logabsdet, (square(2),)),
        "logdet": (tp.logdet, (square(),)),
        "cholesky": (lambda a: tp.linalg.cholesky(symmetric(a)), (square(2),)),
        "qr": (lambda a: (lambda q, r: q[:, :, :2] * r)(*tp.linalg.qr(a)), (real(2, 2, 2),)),
        "qr, tall": (lambda a: (lambda q, r: q @ (r * r))(*tp.linalg.qr(a)), (real(3, 2),)),
        "qr, wide": (lambda a: tp.linalg.qr(a).R, (a,)),
        "qr, Q": (lambda a: tp.linalg.qr(a).Q, (real(3, 2),)),
        "svd": (lambda a: tp.linalg.svd(a).S, (square(2),)),
        "svd, vectors": (
            lambda a: (lambda u, s, vh: (u * s**2) @ vh)(*tp.linalg.svd(a, full_matrices=False)),
            (real(3, 2),),
        ),
        "svd, wide": (
            lambda a: (lambda u, s, vh: u @ vh)(*tp.linalg.svd(a, full_matrices=False)),
            (a,),
        ),
        "eigh": (
            lambda a: (lambda w, v: (v * w**3) @ v.mT)(*tp.linalg.eigh(symmetric(a))),
            (square(),),
        ),
        "eigvalsh": (lambda a: tp.linalg.eigvalsh(symmetric(a)), (square(2),)),
        "pinv": (tp.linalg.pinv, (real(3, 2),)),
        "matrix_power": (lambda a: tp.matrix_power(a, -3), (square(),)),
        "multi_dot": (
            lambda a, b, c: tp.linalg.multi_dot([a, b, c]),
            (a, real(3, 2, seed=1), real(2, seed=2)),
        ),
        "matrix_norm": (lambda a: tp.linalg.matrix_norm(a, "nuc"), (square(2),)),
        "vector_norm": (lambda a: tp.linalg.vector_norm(a, 3, -1), (a,)),
    }


def complex_cases(waves):
    a = waves(2, 3)
    return {
        "einsum": (lambda a, b: tp.einsum("ij,jk->ki", a, b), (a, waves(3, 2, seed=1))),
        "flip": (lambda a: (a * a).flip(1).tril().roll(1, 0), (a,)),
        "mH": (lambda a: a.mH @ a, (a,)),
        "inv": (tp.linalg.inv, (waves(2, 2),)),
        "solve": (tp.linalg.solve, (waves(2, 2), waves(2, 1, seed=1))),
        "det": (tp.det, (waves(2, 2),)),
        "scatter_add": (
            lambda a, b: a.scatter_add(1, INDEX, b * b) * a,
            (a, waves(2, 2, seed=1)),
        ),
        "unfold": (lambda a: (a * a).unfold(1, 2, 1), (a,)),
        "pad": (lambda a: tp.nn.functional.pad(a * a, (1, 1)), (a,)),
    }
