"""Choosing between values, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.comparison import nonzero
from tensorplay.ops.creation import tensor
from tensorplay.ops.recording import (
    applied,
    as_operand,
    common_tensors,
    recorded,
    recorded_pair,
    refuse_complex,
)
from tensorplay.tensor import Tensor, wrap


class WhereBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, condition: Any) -> tuple[Any, ...]:
        left, right = self.edges
        return (
            None if left is None else dual.where(condition, grad),
            None if right is None else dual.where(~condition, grad),
        )


class ClampBackward0(Node):
    __slots__ = ()
    lift = (0, None, None)

    def rule(self, grad: Any, x: Any, low: Any, high: Any) -> tuple[Any, ...]:
        values = dual.array(x)
        if low is None:
            inside = values <= high
        else:
            inside = values >= low
            if high is not None:
                inside &= values <= high
        return (dual.scaled(grad, inside.astype(values.dtype)),)


class _ExtremumNode(Node):
    """Of two equal elements each is responsible for half of the gradient, as in PyTorch."""

    __slots__ = ()
    lift = (0, 1)
    better: Any

    def rule(self, grad: Any, a: Any, b: Any) -> tuple[Any, ...]:
        x, y = dual.array(a), dual.array(b)
        share = self.better(x, y) + 0.5 * (x == y)
        share = share.astype(dual.array(grad).dtype)
        left, right = self.edges
        return (
            None if left is None else grad * share,
            None if right is None else grad * (1 - share),
        )


class MaximumBackward0(_ExtremumNode):
    __slots__ = ()
    better = np.greater


class MinimumBackward0(_ExtremumNode):
    __slots__ = ()
    better = np.less


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where `condition` holds, `other` elsewhere; all three broadcast.

    With a condition only: the indices where it holds, one tensor for each dimension.

    >>> import tensorplay as tp
    >>> tp.where(tp.tensor([True, False]), tp.tensor([1.0, 2.0]), 0.0)
    tensor([1., 0.])
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    test = as_operand(condition, "condition")._array
    if test.dtype.kind != "b":
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got {test.dtype}")
    if (
        input.__class__ is Tensor
        and other.__class__ is Tensor
        and input._array.dtype is other._array.dtype
    ):
        a, b = input, other
    elif isinstance(input, Tensor):
        a, b = common_tensors(input, other, "other")
    elif isinstance(other, Tensor):
        b, a = common_tensors(other, input, "input")
    else:
        a, b = common_tensors(tensor(input), other, "other")
    try:
        out = np.where(test, a._array, b._array)
    except ValueError as error:
        raise RuntimeError(f"where(): {error}") from None
    return recorded_pair(out, WhereBackward0, a, b, (test,), (condition._version,))


def where_method(input: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The elements of the tensor where `condition` holds, those of `other` elsewhere."""
    result: Tensor = where(condition, input, other)
    return result


def maximum(input: Tensor, other: Tensor) -> Tensor:
    """The greater of the elements, one by one."""
    return _extremum(np.maximum, MaximumBackward0, input, other)


def minimum(input: Tensor, other: Tensor) -> Tensor:
    """The lesser of the elements, one by one."""
    return _extremum(np.minimum, MinimumBackward0, input, other)


def _extremum(ufunc: Any, node_class: type[Node], input: Tensor, other: Tensor) -> Tensor:
    a, b = input, as_operand(other, "other")
    if a._array.dtype is not b._array.dtype or a._array.dtype.kind == "c":
        a, b = common_tensors(a, b, "other")
        refuse_complex(a._array, ufunc.__name__)
    out = applied(ufunc, a._array, b._array)
    saved = (a._array, b._array)
    return recorded_pair(out, node_class, a, b, saved, (a._version, b._version))


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Each element, moved into the range from `min` to `max`.

    Args:
        min: A number, a tensor, or None for no bound; so `max`.  At least one must be given.

    The gradient passes where the element was within the bounds (inclusive).
    """
    if min is None and max is None:
        raise RuntimeError("clamp: at least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if min is not None:
            bound = _bound(input, min, "min")
            input = where(wrap(input._array < bound._array), bound, input)
        if max is not None:
            bound = _bound(input, max, "max")
            input = where(wrap(input._array > bound._array), bound, input)
        return input
    for bound in (min, max):
        # Numbers do not change floating-point types.
        if bound is not None and not (
            input._array.dtype.kind == "f" and bound.__class__ in (int, float)
        ):
            input = common_tensors(input, bound, "a bound of clamp")[0]
    x = input._array
    refuse_complex(x, "clamp")
    # Two functions of two operands: NumPy's own clip takes several times as long on small arrays.
    out: Any = x if min is None else np.maximum(x, min)
    if max is not None:
        out = np.minimum(out, max)
    return recorded(out, ClampBackward0, input, (x, min, max), input._version)


def _bound(input: Tensor, given: Any, what: str) -> Tensor:
    """A bound of `clamp` in the type that it and the input have in common."""
    bound = common_tensors(input, given, what)[1]
    refuse_complex(bound._array, "clamp")
    return bound


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """`clamp` with a lower bound only."""
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """`clamp` with an upper bound only."""
    return clamp(input, max=max)
