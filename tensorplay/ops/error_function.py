"""The error function and its complement, to full precision.

NumPy has neither.  The approximations are those of W. J. Cody, "Rational Chebyshev approximations
for the error function", Mathematics of Computation 23 (1969): one quotient of polynomials near
zero, one for the middle and one for the tails, each evaluated only where it is needed.  For the
function itself in float32, one quotient serves everywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.autograd.graph import BareNode
from tensorplay.ops import dual
from tensorplay.ops.pointwise import unary

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
_ONE_OVER_ROOT_PI = 1 / math.sqrt(math.pi)
#: Below it the approximation near zero is used, above `_FAR` that of the tails.
_NEAR = 0.46875
_FAR = 4.0

# Numerators and denominators, from the highest power down.
_NEAR_ZERO = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e00,
        1.13864154151050156e02,
        3.77485237685302021e02,
        3.20937758913846947e03,
    ),
    (
        1.0,
        2.36012909523441209e01,
        2.44024637934444173e02,
        1.28261652607737228e03,
        2.84423683343917062e03,
    ),
)
_MIDDLE = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594e00,
        6.61191906371416295e01,
        2.98635138197400131e02,
        8.81952221241769090e02,
        1.71204761263407058e03,
        2.05107837782607147e03,
        1.23033935479799725e03,
    ),
    (
        1.0,
        1.57449261107098347e01,
        1.17693950891312499e02,
        5.37181101862009858e02,
        1.62138957456669019e03,
        3.29079923573345963e03,
        4.36261909014324716e03,
        3.43936767414372164e03,
        1.23033935480374942e03,
    ),
)
_TAILS = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242e00,
        1.87295284992346725e00,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)
# A quotient that serves for all of float32: beyond 4 the function is one to that precision.
_SINGLE = (
    (
        -2.72614225801306e-10,
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    ),
    (
        -1.45660718464996e-05,
        -2.13374055278905e-04,
        -1.68282697438203e-03,
        -7.37332916720468e-03,
        -1.42647390514189e-02,
    ),
)


_SINGLE_TERMS = tuple([tuple([np.float32(term) for term in terms]) for terms in _SINGLE])
_GREATEST_SINGLE, _LEAST_SINGLE = np.float32(4), np.float32(-4)
_ONE, _MINUS_ONE = np.float32(1), np.float32(-1)
#: So many elements at a time, and all passes over them find them in the cache.
_BLOCK = 8192


class ErfBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * (dual.exp(-(x * x)) * _TWO_OVER_ROOT_PI),)


class ErfcBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * (dual.exp(-(x * x)) * -_TWO_OVER_ROOT_PI),)


def _quotient(t: Any, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Any:
    """A quotient of two polynomials, by Horner's rule."""
    totals = []
    for terms in coefficients:
        total = np.full_like(t, terms[0])
        for term in terms[1:]:
            total *= t
            total += term
        totals.append(total)
    totals[0] /= totals[1]
    return totals[0]


def _decay(y: Any) -> Any:
    """``exp(-y * y)``, with a square that is exact in its leading part."""
    head = np.trunc(y * 16) / 16
    return np.exp(-head * head) * np.exp((head - y) * (head + y))


def _tail(y: Any) -> Any:
    """The complement of the error function of numbers from `_NEAR` up."""
    out = np.empty_like(y)
    far = y > _FAR
    middle = y[~far]
    out[~far] = _quotient(middle, _MIDDLE) * _decay(middle)
    # Beyond 30 the result is zero in every type, and the square must not overflow.
    distant = np.minimum(y[far], 30)
    inverse = 1 / (distant * distant)
    out[far] = (_ONE_OVER_ROOT_PI - inverse * _quotient(inverse, _TAILS)) / distant
    out[far] *= _decay(distant)
    return out


def _parts(x: Any) -> tuple[Any, Any, Any, Any]:
    """Values as a vector; where they are near zero; the function there, and the tails elsewhere."""
    if x.dtype.kind == "c":
        raise NotImplementedError(f'"erf" not implemented for {x.dtype}: its numbers are real')
    flat = np.asarray(x, np.float32 if x.dtype == np.float16 else x.dtype).reshape(-1)
    size = np.abs(flat)
    near = size <= _NEAR
    small = flat[near]
    with np.errstate(under="ignore", invalid="ignore"):
        return flat, near, small * _quotient(small * small, _NEAR_ZERO), _tail(size[~near])


def _in_single(x: Any) -> Any:
    """The error function to the precision of float32, as a vector; a block at a time."""
    flat = np.asarray(x, np.float32).reshape(-1)
    result = np.empty_like(flat)
    count = min(flat.size, _BLOCK)
    clipped, square, below = (np.empty(count, np.float32) for _ in range(3))
    for start in range(0, flat.size, _BLOCK):
        piece = flat[start : start + _BLOCK]
        out = result[start : start + _BLOCK]
        if piece.size < count:
            clipped, square, below = (one[: piece.size] for one in (clipped, square, below))
        np.clip(piece, _LEAST_SINGLE, _GREATEST_SINGLE, out=clipped)
        np.multiply(clipped, clipped, out=square)
        for terms, total in zip(_SINGLE_TERMS, (out, below), strict=True):
            np.multiply(square, terms[0], out=total)
            for term in terms[1:-1]:
                total += term
                total *= square
            total += terms[-1]
        out /= below
        out *= clipped
        np.clip(out, _MINUS_ONE, _ONE, out=out)
    return result


def erf_of(x: np.ndarray[Any, Any]) -> Any:
    """The error function of an array."""
    if x.dtype.itemsize <= 4 and x.dtype.kind == "f":
        return _in_single(x).reshape(x.shape).astype(x.dtype, copy=False)
    flat, near, small, tails = _parts(x)
    out = np.empty_like(flat)
    out[near] = small
    out[~near] = np.copysign(1 - tails, flat[~near])
    return out.reshape(x.shape).astype(x.dtype, copy=False)


def erfc_of(x: np.ndarray[Any, Any]) -> Any:
    """The complement of the error function of an array."""
    flat, near, small, tails = _parts(x)
    out = np.empty_like(flat)
    out[near] = 1 - small
    out[~near] = np.where(flat[~near] < 0, 2 - tails, tails)
    return out.reshape(x.shape).astype(x.dtype, copy=False)


erf = unary(
    erf_of,
    ErfBackward0,
    """The error function of each element: the probability that a normal variable of variance 1/2
    lies within ``[-x, x]``.""",
)
erfc = unary(erfc_of, ErfcBackward0, "``1 - erf(x)`` of each element, exact also in the tail.")
