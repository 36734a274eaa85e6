"""Functions of two or three tensors, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.recording import (
    applied,
    as_operand,
    common_tensors,
    edge_of,
    floating,
    refuse_complex,
    stretched_edges,
    wanted,
)
from tensorplay.ops.selection import where
from tensorplay.tensor import Tensor, wrap


class Atan2Backward0(Node):
    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, y: Any, x: Any) -> tuple[Any, ...]:
        squares = y * y + x * x
        zero = dual.array(squares) == 0
        share = dual.where(zero, 0, grad / dual.where(zero, 1, squares))
        return (share * x, -(share * y))


class HypotBackward0(Node):
    __slots__ = ()
    lift = (0, 1, OUTPUT)

    def rule(self, grad: Any, a: Any, b: Any, out: Any) -> tuple[Any, ...]:
        share = grad / out
        return (share * a, share * b)


class LogaddexpBackward0(Node):
    __slots__ = ()
    lift = (0, 1, OUTPUT)

    def rule(self, grad: Any, a: Any, b: Any, out: Any) -> tuple[Any, ...]:
        return (grad * dual.exp(a - out), grad * dual.exp(b - out))


class _PreferringNode(Node):
    """One of two elements was taken: it gets the whole gradient."""

    __slots__ = ()

    def rule(self, grad: Any, first: Any) -> tuple[Any, ...]:
        return (dual.where(first, grad), dual.where(~first, grad))


class FmaxBackward0(_PreferringNode):
    __slots__ = ()


class FminBackward0(_PreferringNode):
    __slots__ = ()


class NanToNumBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, finite: Any) -> tuple[Any, ...]:
        return (grad * finite,)


def _floating_pair(input: Tensor, other: Any, name: str) -> tuple[Tensor, Tensor]:
    a, b = common_tensors(input, as_operand(other, "other"), "other")
    refuse_complex(a._array, name)
    return floating(a), floating(b)


def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angles of the points ``(other, input)``, in radians from ``-pi`` to ``pi``.

    Args:
        input: The points' second coordinates; shapes broadcast.
        other: Their first coordinates.

    The gradient at ``(0, 0)`` is zero.
    """
    a, b = _floating_pair(input, other, "atan2")
    out = applied(np.arctan2, a._array, b._array)
    if not wanted(a, b):
        return wrap(out)
    saved, versions = (a._array, b._array), (a._version, b._version)
    return wrap(out, Atan2Backward0(stretched_edges(out.shape, a, b), saved, versions))


def hypot(input: Tensor, other: Tensor) -> Tensor:
    """``sqrt(input ** 2 + other ** 2)``, computed without overflow; shapes broadcast."""
    return _keeping_output(np.hypot, HypotBackward0, input, other)


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """``log(exp(input) + exp(other))``, computed without overflow; shapes broadcast."""
    return _keeping_output(np.logaddexp, LogaddexpBackward0, input, other)


def _keeping_output(ufunc: Any, node_class: type[Node], input: Tensor, other: Tensor) -> Tensor:
    a, b = _floating_pair(input, other, ufunc.__name__)
    out = wrap(applied(ufunc, a._array, b._array))
    if wanted(a, b):
        saved = (a._array, b._array, out._array)
        versions = (a._version, b._version, out._version)
        out._node = node_class(stretched_edges(out._array.shape, a, b), saved, versions)
        out._requires_grad = True
    return out


def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The greater of the elements, one by one; where one is NaN, the other.

    Of two equal elements the first gets the gradient.
    """
    a, b = common_tensors(input, as_operand(other, "other"), "other")
    refuse_complex(a._array, "fmax")
    first = applied(np.greater_equal, a._array, b._array) | np.isnan(b._array)
    return _preferring(np.fmax, FmaxBackward0, a, b, first)


def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The lesser of the elements, one by one; where one is NaN, the other."""
    a, b = common_tensors(input, as_operand(other, "other"), "other")
    refuse_complex(a._array, "fmin")
    first = applied(np.less_equal, a._array, b._array) | np.isnan(b._array)
    return _preferring(np.fmin, FminBackward0, a, b, first)


def _preferring(ufunc: Any, node_class: type[Node], a: Tensor, b: Tensor, first: Any) -> Tensor:
    out = ufunc(a._array, b._array)
    if not wanted(a, b):
        return wrap(out)
    return wrap(out, node_class(stretched_edges(out.shape, a, b), (first,)))


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``; shapes broadcast."""
    product = tensor1 * tensor2
    result: Tensor = input + (product if value == 1 else product * value)
    return result


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``; shapes broadcast.

    Raises:
        RuntimeError: Both divided tensors hold integers.
    """
    if tensor1._array.dtype.kind in "bui" and tensor2._array.dtype.kind in "bui":
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported: convert the tensors to "
            "floating-point numbers first"
        )
    quotient = tensor1 / tensor2
    result: Tensor = input + (quotient if value == 1 else quotient * value)
    return result


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``.

    Args:
        input: Where the weight is 0.
        end: Where it is 1; of the same type.
        weight: A number or a tensor; shapes broadcast.

    Raises:
        RuntimeError: The types differ.
    """
    if input._array.dtype != as_operand(end, "end")._array.dtype:
        raise RuntimeError(
            f"expected dtype {input._array.dtype} for `end` but got dtype {end._array.dtype}"
        )
    # From the nearer end, so that both ends are met exactly.
    if isinstance(weight, Tensor):
        if weight._array.dtype != input._array.dtype:
            raise RuntimeError(
                f"expected dtype {input._array.dtype} for `weight` but got dtype "
                f"{weight._array.dtype}"
            )
        from_start: Tensor = input + weight * (end - input)
        from_end: Tensor = end - (end - input) * (1 - weight)
        near = np.broadcast_to(np.abs(weight._array) < 0.5, from_start._array.shape)
        chosen: Tensor = where(wrap(near), from_start, from_end)
        return chosen
    result: Tensor = (
        input + (end - input) * weight if abs(weight) < 0.5 else end - (end - input) * (1 - weight)
    )
    return result


def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """Numbers in place of NaN and the infinities; their gradient is zero.

    Args:
        nan: In place of NaN; 0 by default.
        posinf: In place of infinity; by default the greatest number of the type.
        neginf: In place of its negative; by default the least number of the type.

    >>> import tensorplay as tp
    >>> tp.nan_to_num(tp.tensor([float("nan"), 1.0]), nan=2.0)
    tensor([2., 1.])
    """
    x = input._array
    out = np.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)
    if not wanted(input):
        return wrap(out)
    return wrap(out, NanToNumBackward0((edge_of(input),), (np.isfinite(x),)))
