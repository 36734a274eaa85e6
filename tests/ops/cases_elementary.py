"""Cases for test_gradients.py: elementwise functions, running and other reductions."""

import numpy as np

import tensorplay as tp


def within(*shape, seed=0):
    """Numbers of both signs, less than one."""
    values = np.random.default_rng(seed).uniform(0.1, 0.8, shape)
    signs = np.random.default_rng(seed + 100).choice([-1.0, 1.0], shape)
    return tp.tensor(values * signs, requires_grad=True)


def above_one(*shape, seed=0):
    values = np.random.default_rng(seed).uniform(1.2, 2.5, shape)
    return tp.tensor(values, requires_grad=True)


def with_zeros(values):
    return tp.tensor(np.array(values, np.float64), requires_grad=True)


def written(base, write):
    copied = base * 1.0
    write(copied)
    return copied


def chance(*shape):
    return tp.tensor(np.random.default_rng(3).uniform(0.2, 0.8, shape), requires_grad=True)


ONE_ZERO = [[1.5, 0.0, -0.5, 2.0], [0.7, 1.1, -1.3, 0.9]]
TWO_ZEROS = [[1.5, 0.0, -0.5, 0.0, 1.2], [0.7, 1.1, -1.3, 0.9, 0.0]]


def cases(real, positive, distinct):
    return {
        "exp2": (tp.exp2, (real(3),)),
        "expm1": (tp.expm1, (real(3),)),
        "log1p": (tp.log1p, (positive(3),)),
        "log2": (tp.log2, (positive(3),)),
        "log10": (tp.log10, (positive(3),)),
        "rsqrt": (tp.rsqrt, (positive(3),)),
        "tan": (tp.tan, (within(3),)),
        "asin": (tp.asin, (within(3),)),
        "acos": (tp.acos, (within(3),)),
        "atan": (tp.atan, (real(3),)),
        "sinh": (tp.sinh, (real(3),)),
        "cosh": (tp.cosh, (real(3),)),
        "asinh": (tp.asinh, (real(3),)),
        "acosh": (tp.acosh, (above_one(3),)),
        "atanh": (tp.atanh, (within(3),)),
        "sinc": (tp.sinc, (real(3),)),
        "logit": (tp.logit, (chance(4),)),
        "logit, eps": (lambda a: tp.logit(a, 0.3), (chance(8),)),
        "erf": (tp.erf, (real(4),)),
        "erfc": (tp.erfc, (real(4),)),
        "atan2": (tp.atan2, (real(2, 3), real(3, seed=1))),
        "hypot": (tp.hypot, (real(2, 3), real(3, seed=1))),
        "logaddexp": (tp.logaddexp, (real(2, 3), real(3, seed=1))),
        "fmax": (lambda a, b: tp.fmax(a * a, b), (real(2, 3), real(3, seed=1))),
        "fmin": (lambda a, b: tp.fmin(a * a, b), (real(2, 3), real(3, seed=1))),
        "addcmul": (
            lambda a, b, c: tp.addcmul(a, b, c, value=0.5),
            (real(2, 3), real(3, seed=1), real(2, 1, seed=2)),
        ),
        "addcdiv": (
            lambda a, b, c: tp.addcdiv(a, b, c, value=0.5),
            (real(2, 3), real(3, seed=1), real(2, 1, seed=2)),
        ),
        "lerp": (lambda a, b: tp.lerp(a, b, 0.7), (real(2, 3), real(3, seed=1))),
        "lerp, weights": (tp.lerp, (real(2, 3), real(3, seed=1), chance(3))),
        "nan_to_num": (lambda a: tp.nan_to_num(a * a), (real(3),)),
        "remainder": (lambda a, b: tp.remainder(a * a, b), (real(2, 3), above_one(3))),
        "fmod": (lambda a, b: tp.fmod(a * a, b), (real(2, 3), above_one(3))),
        "fmod, by number": (lambda a: tp.fmod(a * a, 0.7), (real(2, 3),)),
        "frac": (lambda a: tp.frac(a) * a, (real(3),)),
        "floor": (lambda a: tp.floor(a) * a, (real(3),)),
        "ceil": (lambda a: tp.ceil(a) * a, (real(3),)),
        "trunc": (lambda a: tp.trunc(a) * a, (real(3),)),
        "round": (lambda a: tp.round(a) * a, (real(3),)),
        "sign": (lambda a: tp.sign(a) * a * a, (real(3),)),
        "div, rounded": (
            lambda a, b: tp.div(a, b, rounding_mode="trunc") * a,
            (real(3) * 3, real(3, seed=1)),
        ),
        "prod": (lambda a: (a * a).prod(), (real(5),)),
        "prod, dim": (lambda a: (a * a).prod(0, keepdim=True), (real(3, 2),)),
        "prod, one zero": (lambda a: a.prod(1), (with_zeros(ONE_ZERO),)),
        "prod, two zeros": (lambda a: a.prod(1), (with_zeros(TWO_ZEROS),)),
        "prod, zeros in all": (lambda a: a.prod(), (with_zeros([0.0, 2.0, 3.0]),)),
        "cumsum": (lambda a: (a * a).cumsum(1), (real(2, 3),)),
        "cumprod": (lambda a: (a * a).cumprod(1), (real(2, 3),)),
        "cumprod, one zero": (lambda a: a.cumprod(1), (with_zeros(ONE_ZERO),)),
        "cumprod, two zeros": (lambda a: a.cumprod(1), (with_zeros(TWO_ZEROS),)),
        "cumprod, first dim": (lambda a: a.cumprod(0), (with_zeros(np.transpose(TWO_ZEROS)),)),
        "median": (lambda a: tp.median(a * a), (distinct(7),)),
        "median, dim": (lambda a: tp.median(a * a, 1, keepdim=True).values, (distinct(3, 4),)),
        "nansum": (lambda a: tp.nansum(a * a, 0), (real(3, 2),)),
        "nanmean": (lambda a: tp.nanmean(a * a), (real(3, 2),)),
        "var_mean": (lambda a: (lambda v, m: v * m)(*tp.var_mean(a, 1)), (real(3, 4),)),
        "std_mean": (lambda a: (lambda s, m: s * m)(*tp.std_mean(a)), (real(3, 4),)),
        "norm, 0.5": (lambda a: a.norm(0.5, dim=1), (real(2, 3),)),
        "norm, -1": (lambda a: a.norm(-1), (real(3),)),
        "sin_": (lambda a: written(a, lambda t: t.sin_()), (real(3),)),
        "addcmul_": (
            lambda a, b, c: written(a, lambda t: t.addcmul_(b, c, value=2)),
            (real(2, 3), real(3, seed=1), real(2, 1, seed=2)),
        ),
        "cumsum_": (lambda a: written(a, lambda t: t[0].cumsum_(0)), (real(2, 3),)),
        "div_, rounded": (
            lambda a: written(a, lambda t: t[0].div_(2, rounding_mode="floor")),
            (real(2, 3),),
        ),
        "lerp_": (lambda a, b: written(a, lambda t: t.lerp_(b, 0.3)), (real(3), real(3, seed=1))),
        "ufunc of an array": (lambda a: np.arctan2(np.arange(3.0) + 0.5, a), (real(3),)),
    }


def complex_cases(waves):
    names = "exp2 expm1 log1p log2 log10 rsqrt tan asin acos atan sinh cosh asinh acosh atanh sinc"
    table = {name: (getattr(tp, name), (waves(4),)) for name in names.split()}
    for one in ("addcmul", "addcdiv"):
        function = getattr(tp, one)
        table[one] = (function, (waves(2), waves(2, seed=1), waves(2, seed=2)))
    table["lerp"] = (lambda a, b: tp.lerp(a, b, 0.7), (waves(2), waves(2, seed=1)))
    table["prod"] = (lambda a: a.prod(), (waves(4),))
    table["cumsum"] = (lambda a: a.cumsum(0), (waves(4),))
    table["cumprod"] = (lambda a: a.cumprod(0), (waves(4),))
    return table
