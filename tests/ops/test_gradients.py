"""Every operation's rule against finite differences, to first and second order."""

import inspect
import pkgutil
import runpy
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it
import tensorplay.ops
from tensorplay.autograd import grad, gradcheck, gradgradcheck
from tensorplay.autograd.graph import Node


def real(*shape, seed=0):
    """Numbers of both signs, none near zero."""
    values = np.random.default_rng(seed).uniform(0.3, 1.7, shape)
    signs = np.random.default_rng(seed + 100).choice([-1.0, 1.0], shape)
    return tp.tensor(values * signs, requires_grad=True)


def positive(*shape, seed=0):
    values = np.random.default_rng(seed).uniform(0.3, 1.7, shape)
    return tp.tensor(values, requires_grad=True)


def waves(*shape, seed=0):
    """Complex numbers in all quadrants, none near an axis."""
    return tp.complex(real(*shape, seed=seed), real(*shape, seed=seed + 50))


def distinct(*shape):
    """All different, so that the extrema stay where they are."""
    count = int(np.prod(shape))
    values = np.random.default_rng(7).permutation(count) / 3.0 + 0.1
    return tp.tensor(values.reshape(shape), requires_grad=True)


def written(base, write):
    """The function of `base` that writes into a copy of it."""
    copied = base * 1.0
    write(copied)
    return copied


def write_into_view(x, y):
    base = x * 1.0
    other_view = base[1:]
    base.T[0].mul_(y)
    return base * other_view.sum()


INDEX = tp.tensor([[0, 2], [1, 1]])
CLASSES = tp.tensor([2, 0, 1, -100])
MASK = tp.tensor([[True, False, True], [False, True, True]])

#: name: (function, inputs)
CASES = {
    "add": (lambda a, b: a + b, (real(2, 3), real(2, 3, seed=1))),
    "add, stretched": (lambda a, b: a + b, (real(2, 3), real(3, seed=1))),
    "add, both stretched": (lambda a, b: a + b, (real(2, 1), real(3, seed=1))),
    "add, number": (lambda a: a + 2.5, (real(2, 3),)),
    "sub": (lambda a, b: a - b, (real(2, 3), real(2, 1, seed=1))),
    "sub, from number": (lambda a: 2.5 - a, (real(3),)),
    "mul": (lambda a, b: a * b, (real(2, 3), real(2, 3, seed=1))),
    "mul, stretched": (lambda a, b: a * b, (real(2, 3), real(1, seed=1))),
    "mul, by itself": (lambda a: a * a, (real(2, 3),)),
    "mul, number": (lambda a: a * 3, (real(),)),
    "div": (lambda a, b: a / b, (real(2, 3), real(3, seed=1))),
    "div, by number": (lambda a: a / 3, (real(3),)),
    "div, of number": (lambda a: 3 / a, (real(3),)),
    "div, divisor only": (lambda a: tp.ones(3, dtype=tp.float64) / a, (real(3),)),
    "neg": (lambda a: -a, (real(3),)),
    "pow 2": (lambda a: a**2, (real(3),)),
    "pow 3": (lambda a: a**3, (real(3),)),
    "pow 4": (lambda a: a**4, (real(3),)),
    "pow 5": (lambda a: a**5, (real(3),)),
    "pow -1": (lambda a: a**-1, (real(3),)),
    "pow -2": (lambda a: a**-2, (real(3),)),
    "pow -3": (lambda a: a**-3, (real(3),)),
    "pow -0.5": (lambda a: a**-0.5, (positive(3),)),
    "pow 0": (lambda a: a**0 * a, (real(3),)),
    "pow -1.5": (lambda a: a**-1.5, (positive(3),)),
    "pow 0.5": (lambda a: a**0.5, (positive(3),)),
    "pow, tensors": (lambda a, b: a**b, (positive(2, 3), real(3, seed=1))),
    "pow, exponent only": (lambda b: 2.0**b, (real(3),)),
    "exp": (tp.exp, (real(3),)),
    "log": (tp.log, (positive(3),)),
    "sqrt": (tp.sqrt, (positive(3),)),
    "sin": (tp.sin, (real(3),)),
    "cos": (tp.cos, (real(3),)),
    "abs": (tp.abs, (real(3),)),
    "tanh": (tp.tanh, (real(3),)),
    "sigmoid": (tp.sigmoid, (real(3),)),
    "relu": (tp.relu, (real(4),)),
    "square": (tp.square, (real(3),)),
    "reciprocal": (tp.reciprocal, (real(3),)),
    "clamp": (lambda a: tp.clamp(a, -1.0, 1.0) * a, (real(8),)),
    "clamp, tensors": (
        lambda a, low, high: tp.clamp(a, low, high) * a,
        (real(6), real(1, seed=1) - 1.5, real(1, seed=2) + 1.5),
    ),
    "maximum": (tp.maximum, (real(2, 3), real(3, seed=1))),
    "minimum": (tp.minimum, (real(2, 3), real(2, 3, seed=1))),
    "where": (lambda a, b: tp.where(MASK, a * a, b * b), (real(2, 3), real(3, seed=1))),
    "where, number": (lambda a: tp.where(MASK, a * a, 0.0), (real(2, 3),)),
    "sum": (lambda a: (a * a).sum(), (real(2, 3),)),
    "sum, dim": (lambda a: (a * a).sum(1), (real(2, 3),)),
    "sum, dims kept": (lambda a: (a * a).sum((0, -1), keepdim=True), (real(2, 3, 2),)),
    "sum, no dimensions": (lambda a: (a * a).sum(), (real(),)),
    "mean": (lambda a: (a * a).mean(), (real(2, 3),)),
    "mean, dim": (lambda a: (a * a).mean(axis=0, keepdim=True), (real(2, 3),)),
    "var": (lambda a: a.var(1), (real(2, 3),)),
    "std": (lambda a: a.std(), (real(2, 3),)),
    "amax": (lambda a: tp.amax(a * a, 1), (distinct(2, 3),)),
    "amin": (lambda a: tp.amin(a * a), (distinct(2, 3),)),
    "max, dim": (lambda a: tp.max(a * a, 1).values, (distinct(2, 3),)),
    "min, dim kept": (lambda a: tp.min(a * a, 0, keepdim=True).values, (distinct(2, 3),)),
    "logsumexp": (lambda a: tp.logsumexp(a, 1), (real(2, 3),)),
    "logsumexp, dims kept": (lambda a: tp.logsumexp(a, (0, 1), keepdim=True), (real(2, 3),)),
    "softmax": (lambda a: tp.softmax(a, 1), (real(2, 3),)),
    "softmax, first dim": (lambda a: tp.softmax(a, 0), (real(2, 3),)),
    "log_softmax": (lambda a: tp.log_softmax(a, -1), (real(2, 3),)),
    "norm": (lambda a: a.norm(), (real(2, 3),)),
    "norm, dim": (lambda a: a.norm(dim=1, keepdim=True), (real(2, 3),)),
    "norm, p": (lambda a: a.norm(3, dim=0), (real(2, 3),)),
    "norm, 1": (lambda a: (a * a).norm(1), (real(2, 3),)),
    "norm, inf": (lambda a: (a * a).norm(float("inf")), (distinct(2, 3),)),
    "matmul": (tp.matmul, (real(2, 3), real(3, 4, seed=1))),
    "matmul, matrix vector": (tp.matmul, (real(2, 3), real(3, seed=1))),
    "matmul, vector matrix": (tp.matmul, (real(2), real(2, 3, seed=1))),
    "matmul, vectors": (tp.matmul, (real(3), real(3, seed=1))),
    "matmul, stacks": (tp.matmul, (real(2, 2, 3), real(2, 3, 2, seed=1))),
    "matmul, stretched stacks": (tp.matmul, (real(2, 1, 2, 3), real(3, 3, 2, seed=1))),
    "matmul, stack vector": (tp.matmul, (real(2, 2, 3), real(3, seed=1))),
    "outer": (tp.outer, (real(2), real(3, seed=1))),
    "linear": (F.linear, (real(2, 3), real(4, 3, seed=1), real(4, seed=2))),
    "linear, no bias": (F.linear, (real(2, 2, 3), real(4, 3, seed=1))),
    "linear, vector": (F.linear, (real(3), real(4, 3, seed=1), real(4, seed=2))),
    "reshape": (lambda a: (a * a).reshape(3, 2), (real(2, 3),)),
    "flatten": (lambda a: (a * a).flatten(), (real(2, 3),)),
    "transpose": (lambda a: (a * a).transpose(0, 2), (real(2, 3, 2),)),
    "permute": (lambda a: (a * a).permute(2, 0, 1), (real(2, 3, 2),)),
    "T": (lambda a: (a * a).T, (real(2, 3),)),
    "squeeze": (lambda a: (a * a).squeeze(), (real(2, 1, 3),)),
    "unsqueeze": (lambda a: (a * a).unsqueeze(-1), (real(2, 3),)),
    "expand": (lambda a: (a * a).expand(4, -1, 3), (real(2, 1),)),
    "clone": (lambda a: (a * a).clone(), (real(2),)),
    "cat": (lambda a, b: tp.cat([a * a, b, a], 1), (real(2, 1), real(2, 2, seed=1))),
    "stack": (lambda a, b: tp.stack([a * a, b], -1), (real(2), real(2, seed=1))),
    "split": (lambda a: (lambda p: p[0] * p[2])((a * a).split(2)), (real(6, 2),)),
    "split, one piece used": (lambda a: (a * a).split([1, 3], 1)[1], (real(2, 4),)),
    "unbind": (lambda a: (lambda p: p[0] * p[2])((a * a).unbind(1)), (real(2, 3),)),
    "index, integer": (lambda a: (a * a)[1], (real(2, 3),)),
    "index, slices": (lambda a: (a * a)[:, ::2, None], (real(2, 3),)),
    "index, ellipsis": (lambda a: (a * a)[..., -1], (real(2, 3),)),
    "index, repeated": (lambda a: (a * a)[INDEX], (real(3, 2),)),
    "index, mixed": (lambda a: (a * a)[[1, 1, 0], 1:], (real(2, 3),)),
    "index, mask": (lambda a: (a * a)[MASK], (real(2, 3),)),
    "gather": (lambda a: tp.gather(a * a, 1, INDEX), (real(2, 3),)),
    "index_select": (lambda a: tp.index_select(a * a, 1, tp.tensor([2, 2])), (real(2, 3),)),
    "to": (lambda a: (a.to(tp.float64) * a).float().double() * 0 + a, (real(2),)),
    "mse_loss": (F.mse_loss, (real(2, 3), real(2, 3, seed=1))),
    "mse_loss, none": (lambda a, b: F.mse_loss(a, b, "none"), (real(2, 3), real(2, 3, seed=1))),
    "mse_loss, stretched": (lambda a, b: F.mse_loss(a, b, "sum"), (real(2, 3), real(3, seed=1))),
    "l1_loss": (F.l1_loss, (real(2, 3), real(2, 3, seed=1))),
    "nll_loss": (lambda a: F.nll_loss(a * a, CLASSES), (real(4, 3),)),
    "nll_loss, none": (lambda a: F.nll_loss(a * a, CLASSES, reduction="none"), (real(4, 3),)),
    "cross_entropy": (lambda a: F.cross_entropy(a, CLASSES), (real(4, 3),)),
    "cross_entropy, none": (
        lambda a: F.cross_entropy(a, CLASSES, reduction="none"),
        (real(4, 3),),
    ),
    "cross_entropy, all options": (
        lambda a: F.cross_entropy(
            a, CLASSES, tp.tensor([0.5, 1.0, 2.0], dtype=tp.float64), label_smoothing=0.2
        ),
        (real(4, 3),),
    ),
    "cross_entropy, images": (
        lambda a: F.cross_entropy(a, tp.tensor([[[0, 2]], [[1, 1]]]), label_smoothing=0.1),
        (real(2, 3, 1, 2),),
    ),
    "cross_entropy, probabilities": (
        lambda a, b: F.cross_entropy(a, b, label_smoothing=0.1),
        (real(4, 3), positive(4, 3, seed=1)),
    ),
    "mul_": (lambda a, b: written(a, lambda t: t.mul_(b)), (real(2, 3), real(3, seed=1))),
    "pow_": (lambda a: written(a, lambda t: t.pow_(3)), (real(3),)),
    "relu_": (lambda a: written(a, lambda t: t.relu_()), (real(3),)),
    "exp_": (lambda a: written(a, lambda t: t.exp_()), (real(3),)),
    "copy_": (lambda a, b: written(a, lambda t: t.copy_(b * b)), (real(2, 3), real(3, seed=1))),
    "zero_": (lambda a: written(a, lambda t: t[0].zero_()), (real(2, 3),)),
    "fill_": (lambda a: a * written(a, lambda t: t.fill_(2.0)), (real(2, 3),)),
    "setitem": (
        lambda a, b: written(a, lambda t: t.__setitem__((slice(None), 1), b * b)),
        (real(2, 3), real(1, seed=1)),
    ),
    "setitem, mask": (lambda a: written(a, lambda t: t.__setitem__(MASK, 0.5)), (real(2, 3),)),
    "write into view": (write_into_view, (real(2, 3), real(2, seed=1))),
}


def write_parts(z, y):
    base = z * 1.0
    base.real[0].mul_(y[0])
    base[1].imag.copy_(y[1])
    return base * base.imag


def write_pairs(z, y):
    base = z * 1.0
    tp.view_as_real(base)[:, 0].mul_(y)
    return base * z


def write_numbers(y, z):
    base = y * 1.0
    tp.view_as_complex(base)[0].mul_(z)
    return base * y


def write_numbers_and_sum(y, z):
    """The gradient that comes back is one number, spread over all."""
    base = y * y
    tp.view_as_complex(base).mul_(z)
    return base.sum() * 2


def write_numbers_of_a_permuted_base(y, z):
    base = (y * y).permute(1, 0, 2).clone()
    assert not base.is_contiguous()
    tp.view_as_complex(base)[0].mul_(z)
    return base * base


#: The same with complex numbers; and what there is only for them.
COMPLEX = {
    "add": (lambda a, b: a + b, (waves(2, 3), waves(3, seed=1))),
    "add, real": (lambda a, b: a + b * a, (waves(2, 3), real(3, seed=1))),
    "add to real": (lambda a, b: a + b, (real(2, 3), waves(3, seed=1))),
    "add, number": (lambda a: a + (1 - 2j), (waves(3),)),
    "add, number to real": (lambda a: (a + 2j) * a, (real(3),)),
    "sub": (lambda a, b: a - b, (waves(2, 3), real(2, 1, seed=1))),
    "sub, from number": (lambda a: 2j - a, (waves(3),)),
    "mul": (lambda a, b: a * b, (waves(2, 3), waves(3, seed=1))),
    "mul, by itself": (lambda a: a * a, (waves(3),)),
    "mul, by its conjugate": (lambda a: a * a.conj(), (waves(3),)),
    "mul, real": (lambda a, b: a * b, (waves(2, 3), real(3, seed=1))),
    "mul of real": (lambda a, b: a * b, (real(2, 3), waves(3, seed=1))),
    "mul, real number": (lambda a: a * 3.0, (waves(3),)),
    "mul, number": (lambda a: a * (1 - 2j), (waves(3),)),
    "mul, number of real": (lambda a: a * a * (1 - 2j), (real(3),)),
    "div": (lambda a, b: a / b, (waves(2, 3), waves(3, seed=1))),
    "div, by real": (lambda a, b: a / b, (waves(2, 3), real(3, seed=1))),
    "div of real": (lambda a, b: a / b, (real(2, 3), waves(3, seed=1))),
    "div, by number": (lambda a: a / 2j, (waves(3),)),
    "div, of number": (lambda a: 2j / a, (waves(3),)),
    "neg": (lambda a: -a, (waves(3),)),
    "pow 2": (lambda a: a**2, (waves(3),)),
    "pow 3": (lambda a: a**3, (waves(3),)),
    "pow 4": (lambda a: a**4, (real(3),)),
    "pow 5": (lambda a: a**5, (real(3),)),
    "pow -1": (lambda a: a**-1, (real(3),)),
    "pow -2": (lambda a: a**-2, (real(3),)),
    "pow -3": (lambda a: a**-3, (real(3),)),
    "pow -0.5": (lambda a: a**-0.5, (positive(3),)),
    "pow 0": (lambda a: a**0 * a, (waves(3),)),
    "pow -1.5": (lambda a: a**-1.5, (waves(3),)),
    "pow, complex number": (lambda a: a ** (1 - 2j), (waves(3),)),
    "pow, complex number of real": (lambda a: a ** (1 - 2j), (positive(3),)),
    "pow, tensors": (lambda a, b: a**b, (waves(2, 3), waves(3, seed=1))),
    "pow, real base": (lambda a, b: a**b, (positive(2, 3), waves(3, seed=1))),
    "pow, real exponent": (lambda a, b: a**b, (waves(2, 3), real(3, seed=1))),
    "pow, exponent only": (lambda b: (1 + 2j) ** b, (waves(3),)),
    "exp": (tp.exp, (waves(3),)),
    "log": (tp.log, (waves(3),)),
    "sqrt": (tp.sqrt, (waves(3),)),
    "sin": (tp.sin, (waves(3),)),
    "cos": (tp.cos, (waves(3),)),
    "tanh": (tp.tanh, (waves(3),)),
    "sigmoid": (tp.sigmoid, (waves(3),)),
    "square": (tp.square, (waves(3),)),
    "reciprocal": (tp.reciprocal, (waves(3),)),
    "abs": (tp.abs, (waves(3),)),
    "abs, of square": (lambda a: (a * a).abs() * a, (waves(3),)),
    "angle": (tp.angle, (waves(3),)),
    "angle, real": (lambda a: tp.angle(a) * a, (real(3),)),
    "sgn": (tp.sgn, (waves(3),)),
    "sgn, real": (lambda a: tp.sgn(a) * a, (real(3),)),
    "real": (lambda a: a.real * a, (waves(3),)),
    "real of real": (lambda a: tp.real(a) * a, (real(3),)),
    "imag": (lambda a: a.imag * a, (waves(3),)),
    "conj": (lambda a: a.conj() * a * a, (waves(3),)),
    "conj of real": (lambda a: a.conj() * a, (real(3),)),
    "view_as_real": (lambda a: tp.view_as_real((a * a).T)[1:, :, 1], (waves(2, 3),)),
    "view_as_complex": (lambda a: tp.view_as_complex(a * a), (real(3, 2),)),
    "complex": (tp.complex, (real(2, 3), real(3, seed=1))),
    "complex, one part": (lambda a: tp.complex(tp.ones(3, dtype=tp.float64), a * a), (real(3),)),
    "polar": (tp.polar, (positive(2, 3), real(3, seed=1))),
    "where": (lambda a, b: tp.where(MASK, a * a, b * b), (waves(2, 3), real(3, seed=1))),
    "where, number": (lambda a: tp.where(MASK, a * a, 2j), (real(2, 3),)),
    "sum": (lambda a: (a * a).sum(1), (waves(2, 3),)),
    "mean": (lambda a: (a * a).mean(0, keepdim=True), (waves(2, 3),)),
    "var": (lambda a: a.var(1), (waves(2, 3),)),
    "std": (lambda a: a.std(), (waves(2, 3),)),
    "norm": (lambda a: a.norm(), (waves(2, 3),)),
    "norm, dim": (lambda a: a.norm(dim=1, keepdim=True) * a, (waves(2, 3),)),
    "norm, p": (lambda a: a.norm(3, dim=0), (waves(2, 3),)),
    "norm, 1": (lambda a: a.norm(1), (waves(2, 3),)),
    "norm, inf": (lambda a: (a * distinct(2, 3).detach()).norm(float("inf")), (waves(2, 3),)),
    "logsumexp": (lambda a: tp.logsumexp(a, 1), (waves(2, 3),)),
    "matmul": (tp.matmul, (waves(2, 3), waves(3, 4, seed=1))),
    "matmul, matrix vector": (tp.matmul, (waves(2, 3), waves(3, seed=1))),
    "matmul, vector matrix": (tp.matmul, (waves(2), waves(2, 3, seed=1))),
    "matmul, vectors": (tp.matmul, (waves(3), waves(3, seed=1))),
    "matmul, stretched stacks": (tp.matmul, (waves(2, 1, 2, 3), waves(3, 3, 2, seed=1))),
    "matmul, of real": (lambda a, b: (a * 1j) @ b, (real(2, 3), waves(3, 2, seed=1))),
    "outer": (tp.outer, (waves(2), real(3, seed=1))),
    "linear": (F.linear, (waves(2, 2, 3), waves(4, 3, seed=1), waves(4, seed=2))),
    "reshape": (lambda a: (a * a).reshape(3, 2).T, (waves(2, 3),)),
    "permute": (lambda a: (a * a).permute(2, 0, 1), (waves(2, 3, 2),)),
    "expand": (lambda a: (a * a).expand(4, -1, 3), (waves(2, 1),)),
    "cat": (lambda a, b: tp.cat([a * a, b, a], 1), (waves(2, 1), real(2, 2, seed=1))),
    "stack": (lambda a, b: tp.stack([a * a, b], -1), (real(2), waves(2, seed=1))),
    "split": (lambda a: (lambda p: p[0] * p[2])((a * a).split(2)), (waves(6, 2),)),
    "unbind": (lambda a: (a * a).unbind(1)[2], (waves(2, 3),)),
    "index, slices": (lambda a: (a * a)[:, ::2, None], (waves(2, 3),)),
    "index, repeated": (lambda a: (a * a)[INDEX], (waves(3, 2),)),
    "gather": (lambda a: tp.gather(a * a, 1, INDEX), (waves(2, 3),)),
    "to complex": (lambda a: a.to(tp.complex128) * a, (real(3),)),
    "l1_loss": (F.l1_loss, (waves(2, 3), real(2, 3, seed=1))),
    "mul_": (lambda a, b: written(a, lambda t: t.mul_(b)), (waves(2, 3), real(3, seed=1))),
    "add_": (lambda a, b: written(a, lambda t: t.add_(b)), (waves(2, 3), waves(3, seed=1))),
    "pow_": (lambda a: written(a, lambda t: t.pow_(3)), (waves(3),)),
    "copy_": (lambda a, b: written(a, lambda t: t.copy_(b * b)), (waves(2, 3), real(3, seed=1))),
    "fill_": (lambda a: a * written(a, lambda t: t[0].fill_(2j)), (waves(2, 3),)),
    "setitem": (
        lambda a, b: written(a, lambda t: t.__setitem__((slice(None), 1), b * b)),
        (waves(2, 3), real(1, seed=1)),
    ),
    "write into view": (write_into_view, (waves(2, 3), real(2, seed=1))),
    "write into parts": (write_parts, (waves(2, 3), real(2, 3, seed=1))),
    "write into pairs": (write_pairs, (waves(2), real(2, seed=1))),
    "write into numbers": (write_numbers, (real(2, 2), waves(seed=1))),
    "write into numbers, sum": (write_numbers_and_sum, (real(3, 2), waves(1, seed=1))),
    "write into numbers, permuted": (
        write_numbers_of_a_permuted_base,
        (real(2, 3, 2), waves(2, seed=1)),
    ),
    "view_as_complex, sum": (lambda a: tp.view_as_complex(a * a).sum(), (real(3, 2),)),
    "view_as_real, sum": (lambda a: tp.view_as_real(a * a).sum(), (waves(3),)),
    "parts, sum": (lambda a: (a * a).real.sum() + (a * a).imag.sum(), (waves(3),)),
}

#: More tables, of other families, each a file beside this one.
for _path in sorted(Path(__file__).parent.glob("cases_*.py")):
    _table = runpy.run_path(str(_path))
    CASES |= _table["cases"](real, positive, distinct)
    COMPLEX |= _table["complex_cases"](waves)

ALL = CASES | {f"complex: {name}": case for name, case in COMPLEX.items()}


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_finite_differences(name):
    function, inputs = ALL[name]
    inputs = tuple(one.detach().requires_grad_() for one in inputs)
    if name == "to":  # float32 in between: only its type is of interest
        assert gradcheck(function, inputs, atol=1e-3)
        return
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


def nodes_of(tensors):
    """The classes of all nodes that the tensors' graphs consist of."""
    stack = [one._node for one in tensors if one is not None and one._node is not None]
    found, seen = set(), set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        found.add(type(node))
        stack += [edge for edge in node.edges if isinstance(edge, Node)]
    return found


def classes_in_ops():
    found = set()
    for info in pkgutil.iter_modules(tensorplay.ops.__path__):
        module = import_module(f"tensorplay.ops.{info.name}")
        for _, one in inspect.getmembers(module, inspect.isclass):
            if issubclass(one, Node) and one.__module__ == module.__name__:
                found.add(one)
    return {one for one in found if not one.__name__.startswith("_")}


def test_every_rule_in_ops_is_checked():
    met = set()
    for function, inputs in ALL.values():
        own = [one.detach().requires_grad_() for one in inputs]
        out = function(*own)
        met |= nodes_of([out])
        starts = tp.ones_like(out, requires_grad=True)
        firsts = grad(out, own, starts, create_graph=True, allow_unused=True)
        met |= nodes_of(firsts)
    assert {one.__name__ for one in classes_in_ops() - met} == set()


@pytest.mark.parametrize("name", ALL)
def test_saved_values_are_described(name):
    """`lift` names each saved value, and `versions` has a counter for each array it lifts."""
    function, inputs = ALL[name]
    out = function(*[one.detach().requires_grad_() for one in inputs])
    stack = [out._node]
    while stack:
        node = stack.pop()
        stack += [edge for edge in node.edges if isinstance(edge, Node)]
        if not node.lift:
            continue
        assert len(node.lift) == len(node.saved), node
        lifted = [
            value
            for value, source in zip(node.saved, node.lift, strict=True)
            if source is not None and isinstance(value, np.ndarray)
        ]
        assert len(lifted) == len(node.versions), node


#: These bring a float64 tensor of their own.
WIDE = {"div, divisor only", "cross_entropy, all options"}


@pytest.mark.parametrize("name", [name for name in CASES if name not in WIDE])
def test_gradients_keep_the_type_of_their_input(name):
    function, inputs = CASES[name]
    own = [one.detach().float().requires_grad_() for one in inputs]
    out = function(*own)
    out.backward(tp.ones_like(out))
    assert {one.grad.dtype for one in own if one.grad is not None} == {tp.float32}


NARROW = {tp.float64: tp.float32, tp.complex128: tp.complex64}


@pytest.mark.parametrize("name", [name for name in COMPLEX if name != "complex, one part"])
def test_gradients_of_complex_operations_keep_the_type_of_their_input(name):
    function, inputs = COMPLEX[name]
    own = [one.detach().to(NARROW[one.dtype]).requires_grad_() for one in inputs]
    out = function(*own)
    out.backward(tp.ones_like(out))
    for one in own:
        assert one.grad is None or one.grad.dtype is one.dtype
