"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.recording import edge_of, floating, wanted
from tensorplay.tensor import Tensor, wrap


class ExpBackward0(Node):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * out,)


class LogBackward0(Node):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad / x,)


class SqrtBackward0(Node):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad / (out * 2),)


class TanhBackward0(Node):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * (1 - out * out),)


class SigmoidBackward0(Node):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (grad * (out * (1 - out)),)


class SinBackward0(Node):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (grad * dual.cos(x),)


class CosBackward0(Node):
    __slots__ = ()
    lift = (0,)

    def rule(self, grad: Any, x: Any) -> tuple[Any, ...]:
        return (-grad * dual.sin(x),)


class AbsBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, sign: Any) -> tuple[Any, ...]:
        return (grad * sign,)


class ReluBackward0(Node):
    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        return (dual.where(dual.array(out) > 0, grad),)


def of_output(
    function: Callable[[Any], Any], node_class: type[Node], doc: str, *, to_float: bool = True
) -> Any:
    """An operation whose rule needs its result."""

    def operation(input: Tensor) -> Tensor:
        if to_float and input._array.dtype.kind != "f":
            input = floating(input)
        if not wanted(input):
            return wrap(function(input._array))
        out = wrap(function(input._array))
        version = out._version
        out._node = node_class((edge_of(input),), (out._array,), (version,))
        out._requires_grad = True
        return out

    operation.__doc__ = doc
    return operation


def of_input(function: Callable[[Any], Any], node_class: type[Node], doc: str) -> Any:
    """An operation whose rule needs its argument."""

    def operation(input: Tensor) -> Tensor:
        input = floating(input)
        x = input._array
        out = function(x)
        if not wanted(input):
            return wrap(out)
        return wrap(out, node_class((edge_of(input),), (x,), (input._version,)))

    operation.__doc__ = doc
    return operation


def abs(input: Tensor) -> Tensor:
    """The absolute value of each element."""
    x = input._array
    out = np.absolute(x)
    if not wanted(input):
        return wrap(out)
    return wrap(out, AbsBackward0((edge_of(input),), (np.sign(x),)))


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _sigmoid(x: Any) -> Any:
    # For very negative values exp overflows to inf, and 1 / inf is the right answer.
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


cos = of_input(np.cos, CosBackward0, "The cosine of each element.")
log = of_input(np.log, LogBackward0, "The natural logarithm of each element.")
sin = of_input(np.sin, SinBackward0, "The sine of each element.")
exp = of_output(np.exp, ExpBackward0, "The exponential of each element.")
sqrt = of_output(np.sqrt, SqrtBackward0, "The square root of each element.")
tanh = of_output(np.tanh, TanhBackward0, "The hyperbolic tangent of each element.")
sigmoid = of_output(_sigmoid, SigmoidBackward0, "``1 / (1 + exp(-x))`` of each element.")
relu = of_output(_relu, ReluBackward0, "Each element, or zero where it is negative.", to_float=False)


def square(input: Tensor) -> Tensor:
    """The square of each element."""
    result: Tensor = input * input
    return result


def reciprocal(input: Tensor) -> Tensor:
    """One divided by each element."""
    result: Tensor = 1 / input
    return result


def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1, as each element is negative, zero or positive; its gradient is zero."""
    return wrap(np.sign(input._array))
