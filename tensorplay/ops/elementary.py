"""Further functions of one tensor: logarithms, exponentials, trigonometry and its inverses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.autograd.graph import OUTPUT, BareNode, Node
from tensorplay.ops import dual
from tensorplay.ops.pointwise import unary
from tensorplay.ops.recording import edge_of, floating, refuse_complex, wanted
from tensorplay.tensor import Tensor, wrap

_LN2 = math.log(2)
_LN10 = math.log(10)


class Exp2Backward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * (out * _LN2).conj(),)


class Expm1Backward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * (out + 1).conj(),)


class Log1PBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad / (x + 1).conj(),)


class Log2Backward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad / (x * _LN2).conj(),)


class Log10Backward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad / (x * _LN10).conj(),)


class RsqrtBackward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * (out * out * out * -0.5).conj(),)


class TanBackward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * (out * out + 1).conj(),)


class AsinBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * ((1 - x * x) ** -0.5).conj(),)


class AcosBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (-(grad * ((1 - x * x) ** -0.5).conj()),)


class AtanBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad / (x * x + 1).conj(),)


class SinhBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * dual.apply(cosh, np.cosh, x).conj(),)


class CoshBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * dual.apply(sinh, np.sinh, x).conj(),)


class AsinhBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * ((x * x + 1) ** -0.5).conj(),)


class AcoshBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        # In two factors: of complex numbers the root of the product may have the other sign.
        return (grad * ((x - 1) ** -0.5 * (x + 1) ** -0.5).conj(),)


class AtanhBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad / (1 - x * x).conj(),)


class LogitBackward0(Node):
    __slots__ = ()
    lift = (0, None)

    def rule(self, grad: Any, x: Any, eps: float | None) -> tuple[Any, ...]:
        slope = 1 / (x * (1 - x))
        if eps is not None:
            values = dual.array(x)
            slope = dual.where((values >= eps) & (values <= 1 - eps), slope)
        return (grad * slope,)


class SincBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        zero = dual.array(x) == 0
        angle = dual.where(zero, 1, x * math.pi)
        slope = (dual.cos(angle) - dual.sin(angle) / angle) / dual.where(zero, 1, x)
        return (grad * dual.where(zero, 0, slope).conj(),)


def _rsqrt(x: Any) -> Any:
    return np.reciprocal(np.sqrt(x))


exp2 = unary(np.exp2, Exp2Backward0, "Two to the power of each element.")
expm1 = unary(np.expm1, Expm1Backward0, "``exp(x) - 1``, exact also where x is small.")
log1p = unary(np.log1p, Log1PBackward0, "``log(1 + x)``, exact also where x is small.")
log2 = unary(np.log2, Log2Backward0, "The logarithm to base 2 of each element.")
log10 = unary(np.log10, Log10Backward0, "The logarithm to base 10 of each element.")
rsqrt = unary(_rsqrt, RsqrtBackward0, "One divided by the square root of each element.")
tan = unary(np.tan, TanBackward0, "The tangent of each element.")
asin = unary(np.arcsin, AsinBackward0, "The inverse sine of each element.")
acos = unary(np.arccos, AcosBackward0, "The inverse cosine of each element.")
atan = unary(np.arctan, AtanBackward0, "The inverse tangent of each element.")
sinh = unary(np.sinh, SinhBackward0, "The hyperbolic sine of each element.")
cosh = unary(np.cosh, CoshBackward0, "The hyperbolic cosine of each element.")
asinh = unary(np.arcsinh, AsinhBackward0, "The inverse hyperbolic sine of each element.")
acosh = unary(np.arccosh, AcoshBackward0, "The inverse hyperbolic cosine of each element.")
atanh = unary(np.arctanh, AtanhBackward0, "The inverse hyperbolic tangent of each element.")
sinc = unary(np.sinc, SincBackward0, "``sin(pi * x) / (pi * x)`` of each element, 1 at zero.")


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``, the inverse of `sigmoid`.

    Args:
        input: Probabilities; integers become the default floating-point type.
        eps: Move the elements into ``[eps, 1 - eps]`` first; the gradient is zero outside.

    >>> import tensorplay as tp
    >>> tp.logit(tp.tensor([0.5, 0.75]))
    tensor([0.0000, 1.0986])
    """
    input = floating(input)
    x = input._array
    refuse_complex(x, "logit")
    inside = x if eps is None else np.clip(x, eps, 1 - eps)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.log(inside / (1 - inside))
    if not wanted(input):
        return wrap(out)
    return wrap(out, LogitBackward0((edge_of(input),), (x, eps), (input._version,)))
