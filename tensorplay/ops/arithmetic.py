"""Addition, subtraction, multiplication, division.

These are the hot operations: on small tensors their cost is Python's, not NumPy's.  So each is one
function, made by a factory below, that does everything in line: no call but the ufunc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.autograd.grad_mode import grad_mode, switched_off
from tensorplay.autograd.graph import BareNode, Node
from tensorplay.ops.recording import common, shape_error, stretch
from tensorplay.ops.rounding import rounded_division
from tensorplay.tensor import Tensor, wrap

Operator = Callable[[Any, Any], Any]

_ndarray = np.ndarray
_asarray = np.asarray


class AddBackward0(BareNode):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad, grad)


class SubBackward0(BareNode):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad, None if self.edges[1] is None else -grad)


class MulBackward0(BareNode):
    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, a: Any, b: Any) -> tuple[Any, ...]:
        return (
            None if b is None else grad * b.conjugate(),
            None if a is None else grad * a.conjugate(),
        )


class DivBackward0(BareNode):
    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, a: Any, b: Any) -> tuple[Any, ...]:
        quotient = grad / b.conjugate()
        return (quotient, None if a is None else -quotient * (a / b).conjugate())


def _sum_operator(ufunc: Any, node_class: type[Node]) -> Operator:
    """An operator whose gradient does not depend on its operands."""

    def operator(a: Any, b: Any) -> Any:
        x = a._array
        if b.__class__ is Tensor or isinstance(b, Tensor):
            y = b._array
            if x.dtype is not y.dtype:
                return _mixed(operator, a, b)
            other = b._requires_grad
            try:
                out = ufunc(x, y)
            except ValueError:
                raise shape_error(x, y) from None
            except TypeError:
                return _mixed(operator, a, b)
        elif b.__class__ is float or b.__class__ is int:
            out = ufunc(x, b)
            if out.dtype is not x.dtype:
                return _mixed(operator, a, b)
            y = None
            other = False
        else:
            return _mixed(operator, a, b)
        tensor = Tensor()
        tensor._array = out if out.__class__ is _ndarray else _asarray(out)
        tensor._grad = None
        tensor._hooks = None
        tensor._alias = None
        tensor._version = [0]
        if (a._requires_grad or other) and (not switched_off or grad_mode.enabled):
            node = node_class()  # type: ignore[call-arg]  # a BareNode takes no arguments
            left = (a._node or a) if a._requires_grad else None
            right = (b._node or b) if other else None
            if y is not None and x.shape != y.shape:
                shape = out.shape
                if left is not None:
                    left = stretch(left, x.shape, shape)
                if right is not None:
                    right = stretch(right, y.shape, shape)
            node.edges = (left, right)
            node.saved = ()
            node.versions = ()
            node.stamp = 0
            node._hooks = None
            tensor._node = node
            tensor._requires_grad = True
        else:
            tensor._node = None
            tensor._requires_grad = False
        return tensor

    return operator


def _product_operator(
    ufunc: Any, node_class: type[Node], *, keeps_right: bool, divide: bool
) -> Operator:
    """An operator whose rule needs its operands: for each gradient at least the other operand.

    Args:
        keeps_right: The gradient of the right operand needs that operand too.
        divide: Integers give floating-point numbers.
    """

    def operator(a: Any, b: Any) -> Any:
        x = a._array
        y: Any
        if b.__class__ is Tensor or isinstance(b, Tensor):
            y = b._array
            if x.dtype is not y.dtype:
                return _mixed(operator, a, b, divide)
            other = b._requires_grad
            try:
                out = ufunc(x, y)
            except ValueError:
                raise shape_error(x, y) from None
            if divide and out.dtype is not x.dtype:
                return _mixed(operator, a, b, divide)
        elif b.__class__ is float or b.__class__ is int:
            out = ufunc(x, b)
            if out.dtype is not x.dtype:
                return _mixed(operator, a, b, divide)
            y = b
            other = None
        else:
            return _mixed(operator, a, b, divide)
        tensor = Tensor()
        tensor._array = out if out.__class__ is _ndarray else _asarray(out)
        tensor._grad = None
        tensor._hooks = None
        tensor._alias = None
        tensor._version = [0]
        if (a._requires_grad or other) and (not switched_off or grad_mode.enabled):
            node = node_class()  # type: ignore[call-arg]  # a BareNode takes no arguments
            left = (a._node or a) if a._requires_grad else None
            if other is None:
                node.edges = (left, None)
                node.saved = (None, y)
                node.versions = ()
                node.stamp = 0
            else:
                right = (b._node or b) if other else None
                if x.shape != y.shape:
                    left = stretch(left, x.shape, out.shape)
                    right = stretch(right, y.shape, out.shape)
                node.edges = (left, right)
                if right is None:
                    version = b._version
                    node.saved = (None, y)
                    node.versions = (version,)
                    node.stamp = version[0]
                elif left is None and not keeps_right:
                    version = a._version
                    node.saved = (x, None)
                    node.versions = (version,)
                    node.stamp = version[0]
                else:
                    version = a._version
                    second = b._version
                    node.saved = (x, y)
                    node.versions = (version, second)
                    node.stamp = version[0] + second[0]
            node._hooks = None
            tensor._node = node
            tensor._requires_grad = True
        else:
            tensor._node = None
            tensor._requires_grad = False
        return tensor

    return operator


def _mixed(operator: Operator, a: Tensor, b: Any, divide: bool = False) -> Any:
    """Bring the operands to one type, then operate."""
    if operator is sub_operator:
        _refuse_booleans(a, b)
    pair = common(a, b, divide)
    # Python then tries the other operand's method, and raises TypeError if that fails too.
    return NotImplemented if pair is None else operator(*pair)


def _refuse_booleans(a: Tensor, b: Any) -> None:
    """Raise RuntimeError for a difference with a boolean in it."""
    first = a._array.dtype.kind == "b"
    second = b._array.dtype.kind == "b" if isinstance(b, Tensor) else isinstance(b, bool)
    if first and second:
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    if first or second:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )


def reflected(operator: Operator, divide: bool = False) -> Operator:
    """The operator with a left operand that is not a tensor."""

    def reflected_operator(b: Tensor, a: Any) -> Any:
        if operator is sub_operator:
            _refuse_booleans(b, a)
        pair = common(b, a, divide)
        if pair is None:
            return NotImplemented
        b, a = pair
        return operator(a if isinstance(a, Tensor) else wrap(np.array(a, b._array.dtype)), b)

    return reflected_operator


add_operator = _sum_operator(np.add, AddBackward0)
sub_operator = _sum_operator(np.subtract, SubBackward0)
mul_operator = _product_operator(np.multiply, MulBackward0, keeps_right=False, divide=False)
div_operator = _product_operator(np.divide, DivBackward0, keeps_right=True, divide=True)


def add(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``; shapes broadcast."""
    result: Tensor = input + (other if alpha == 1 else other * alpha)
    return result


def sub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``; shapes broadcast."""
    result: Tensor = input - (other if alpha == 1 else other * alpha)
    return result


def mul(input: Tensor, other: Any) -> Tensor:
    """``input * other``; shapes broadcast."""
    result: Tensor = input * other
    return result


def div(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; shapes broadcast, and integers give floating-point numbers.

    Args:
        rounding_mode: None; or ``"floor"`` or ``"trunc"`` for a whole quotient, rounded down or
            towards zero, of integers an integer.
    """
    if rounding_mode is not None:
        return rounded_division(input, other, rounding_mode)
    result: Tensor = input / other
    return result
