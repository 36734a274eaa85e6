"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.autograd.grad_mode import grad_mode, switched_off
from tensorplay.autograd.graph import OUTPUT, BareNode, Node
from tensorplay.ops import dual
from tensorplay.ops.guard import not_a_tensor
from tensorplay.ops.recording import edge_of, floating, refuse_complex, wanted
from tensorplay.tensor import Tensor, wrap

_ndarray = np.ndarray
_asarray = np.asarray

# A Python number beside a small array would cost NumPy more than the operation itself.
_ZEROS = {np.dtype(code): np.zeros((), code) for code in "efdbhilqBHILQ"}

_ONES = {np.dtype(code): np.ones((), code) for code in "efd"}


class NegBackward0(BareNode):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (-grad,)


class ExpBackward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * out.conj(),)


class LogBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad / x.conj(),)


class SqrtBackward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad / (out + out).conj(),)


class SinBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * dual.cos(x).conj(),)


class CosBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (-(grad * dual.sin(x).conj()),)


class TanhBackward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad - grad * (out * out).conj(),)


class SigmoidBackward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * (out - out * out).conj(),)


class AbsBackward0(BareNode):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        values = dual.array(x)
        if values.dtype.kind == "c":
            return (grad * dual.direction(x),)
        return (grad * np.sign(values),)


class ReluBackward0(BareNode):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        values = dual.array(out)
        passes = (values > _ZEROS.get(values.dtype, 0)).astype(values.dtype)
        return (dual.scaled(grad, passes),)


class SignBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (dual.zeros_like(grad),)


def unary(
    function: Callable[[Any], Any],
    node_class: type[Node],
    doc: str,
    *,
    to_float: bool = True,
) -> Callable[[Tensor], Tensor]:
    """An operation on each element; the node class's `lift` says what is saved.

    Written out, like the operators of `tensorplay.ops.arithmetic`, for the same reason.

    Args:
        function: From array to array.
        to_float: Convert integers first.
    """
    name = node_class.__name__.removesuffix("Backward0").lower()
    keeps_input = node_class.lift == (0,)
    keeps_output = node_class.lift == (OUTPUT,)

    def operation(input: Tensor) -> Tensor:
        try:
            x = input._array
        except AttributeError:
            raise not_a_tensor(name, "input", 1, input) from None
        if to_float:
            kind = x.dtype.kind
            if kind != "f" and kind != "c":
                return operation(floating(input))
        try:
            out = function(x)
        except TypeError:
            if x.dtype.kind != "b":
                raise
            raise RuntimeError(
                f"{name}() of a bool tensor is not supported. If you are trying to invert a mask, "
                "use the `~` or `logical_not()` operator instead."
            ) from None
        if out.__class__ is not _ndarray:
            out = _asarray(out)
        tensor = Tensor()
        tensor._array = out
        tensor._grad = None
        tensor._hooks = None
        tensor._alias = None
        own_version = tensor._version = [0]
        if input._requires_grad and (not switched_off or grad_mode.enabled):
            node = node_class()  # type: ignore[call-arg]  # a BareNode takes no arguments
            node.edges = (input._node or input,)
            if keeps_output:
                node.saved = (out,)
                node.versions = (own_version,)
                node.stamp = 0
            elif keeps_input:
                version = input._version
                node.saved = (x,)
                node.versions = (version,)
                node.stamp = version[0]
            else:
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

    operation.__doc__ = doc
    # Pickle finds it by its name in the module that has its node class.
    operation.__module__ = node_class.__module__
    operation.__name__ = operation.__qualname__ = name
    return operation


def _relu(x: Any) -> Any:
    zero: Any = _ZEROS.get(x.dtype)
    if zero is None:
        refuse_complex(x, "relu")
        zero = 0
    return np.maximum(x, zero)


def _sigmoid(x: Any) -> Any:
    # For very negative values exp overflows to inf, and 1 / inf is the right answer.
    out = _asarray(np.negative(x))
    with np.errstate(over="ignore"):
        np.exp(out, out)
    out += _ONES.get(x.dtype, 1)
    return np.divide(_ONES.get(x.dtype, 1), out, out)


neg = unary(np.negative, NegBackward0, "The negative of each element.", to_float=False)
abs = unary(np.absolute, AbsBackward0, "The absolute value of each element.", to_float=False)
exp = unary(np.exp, ExpBackward0, "The exponential of each element.")
log = unary(np.log, LogBackward0, "The natural logarithm of each element.")
sqrt = unary(np.sqrt, SqrtBackward0, "The square root of each element.")
sin = unary(np.sin, SinBackward0, "The sine of each element.")
cos = unary(np.cos, CosBackward0, "The cosine of each element.")
tanh = unary(np.tanh, TanhBackward0, "The hyperbolic tangent of each element.")
sigmoid = unary(_sigmoid, SigmoidBackward0, "``1 / (1 + exp(-x))`` of each element.")
relu = unary(_relu, ReluBackward0, "Each element, or zero where it is negative.", to_float=False)


def square(input: Tensor) -> Tensor:
    """The square of each element."""
    return input * input


def reciprocal(input: Tensor) -> Tensor:
    """One divided by each element."""
    return 1 / input


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1, as each element is negative, zero (or NaN) or positive; its gradient is zero."""
    x = input._array
    refuse_complex(x, "sign")
    # NumPy's sign of NaN is NaN.
    out = x.copy() if x.dtype.kind == "b" else np.subtract(x > 0, x < 0, dtype=x.dtype)
    return wrap(out, SignBackward0((edge_of(input),)) if wanted(input) else None)


def sgn(input: Tensor) -> Tensor:
    """`sign`; of complex numbers, each divided by its absolute value (zero stays zero).

    >>> import tensorplay as tp
    >>> tp.sgn(tp.tensor([3 + 4j, 0j]))
    tensor([0.6000+0.8000j, 0.0000+0.0000j])
    """
    if input._array.dtype.kind != "c":
        return sign(input)
    result: Tensor = dual.direction(input)
    return result


def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        RuntimeError: It holds booleans.
    """
    if input._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input
