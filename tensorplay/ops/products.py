"""Products, and sums and products that run along a dimension.

A product's derivative with respect to one factor is the product of the others.  Dividing the whole
by the factor finds it, except where a factor is zero; there the products of the others are taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.joining import cat
from tensorplay.ops.recording import cast, edge_of, in_single, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.shape import flatten
from tensorplay.tensor import Tensor, wrap

_multiplied: Any = np.multiply.reduce


class ProdBackward0(Node):
    __slots__ = ()
    lift = (0, OUTPUT, None, None)

    def rule(
        self, grad: Any, x: Any, out: Any, axis: int, kept: tuple[int, ...]
    ) -> tuple[Any, ...]:
        grad = grad.reshape(kept)
        if np.all(dual.array(x)):
            return (grad * (out.reshape(kept) / x).conj(),)
        others = _products_of_others(x.swapaxes(axis, -1)).swapaxes(axis, -1)
        return (grad * others.conj(),)


class CumsumBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, axis: int, backwards: bool) -> tuple[Any, ...]:
        return (_running_sum(grad, axis, not backwards),)


class CumprodBackward0(Node):
    __slots__ = ()
    lift = (0, OUTPUT, None)

    def rule(self, grad: Any, x: Any, out: Any, axis: int) -> tuple[Any, ...]:
        zero = dual.array(x) == 0
        if not zero.any():
            return (_running_sum(grad * out.conj(), axis, True) / x.conj(),)
        if isinstance(grad, Tensor):
            moved = _by_all_pairs(grad.swapaxes(axis, -1), x.swapaxes(axis, -1))
            return (moved.swapaxes(axis, -1),)
        # Before the first zero all is as ever; behind it all derivatives are zero; at the zero
        # itself count the products in which it is replaced by one.
        seen = np.logical_or.accumulate(zero, axis=axis)
        first = zero & (np.add.accumulate(zero, axis=axis) == 1)
        before = _running_sum(grad * out.conj(), axis, True) / np.where(zero, 1, x.conj())
        replaced = np.multiply.accumulate(np.where(first, 1, x), axis=axis)
        at_zero = _running_sum(grad * replaced.conj() * seen, axis, True)
        return (np.where(first, at_zero, np.where(seen, 0, before)),)


def _products_of_others(x: Any) -> Any:
    """For each element the product of all others along the last axis.

    Pairs are multiplied, then pairs of pairs, and so on up; on the way down, each gets its sibling.
    """
    count = x.shape[-1]
    size = 1
    while size < count:
        size *= 2
    shape = x.shape[:-1]
    ones = np.ones((*shape, size - count), dual.array(x).dtype)
    if isinstance(x, Tensor):
        level: Any = cat([x, wrap(ones)], -1)
    else:
        level = np.concatenate([x, ones], -1)
    siblings = []
    while size > 1:
        size //= 2
        pairs = level.reshape((*shape, size, 2))
        siblings.append(pairs[..., [1, 0]])
        level = pairs[..., 0] * pairs[..., 1]
    others: Any = np.ones((*shape, 1), ones.dtype)
    for sibling in reversed(siblings):
        # Tensors first: they know how to multiply with arrays.
        others = sibling * others.reshape((*shape, -1, 1))
        others = others.reshape((*shape, -1))
    return others[..., :count]


def _by_all_pairs(grad: Any, x: Any) -> Any:
    """The gradient of `cumprod` along the last axis, right with zeros and to any order."""
    count = x.shape[-1]
    own = np.eye(count, dtype=np.bool_)
    without = cumprod(dual.where(~own, x.reshape((*x.shape[:-1], 1, count)), 1), -1)
    later = np.triu(np.ones((count, count), dual.array(x).dtype))
    return (without.conj() * grad.reshape((*x.shape[:-1], 1, count)) * wrap(later)).sum(-1)


def _running_sum(value: Any, axis: int, backwards: bool) -> Any:
    """The running sum of an array or a tensor, from either end."""
    array = dual.array(value)
    if backwards:
        out = np.flip(np.add.accumulate(np.flip(array, axis), axis=axis), axis)
    else:
        out = np.add.accumulate(array, axis=axis)
    if not isinstance(value, Tensor):
        return out
    if not wanted(value):
        return wrap(out)
    return wrap(out, CumsumBackward0((edge_of(value),), (axis, backwards)))


def _summable(input: Tensor, dtype: Any) -> Tensor:
    """The tensor in the type that it is summed or multiplied in."""
    if dtype is not None:
        return cast(input, dtypes.as_dtype(dtype))
    return cast(input, dtypes.int64) if input._array.dtype.kind in "biu" else input


def prod(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The product of all elements, or along a dimension.

    Args:
        input: Any shape and type; integers and booleans are multiplied as int64.
        dim: A dimension, or None for all.
        keepdim: Keep the dimension, with size 1.
        dtype: Type to convert to first.

    >>> import tensorplay as tp
    >>> tp.prod(tp.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=1)
    tensor([ 2., 12.])
    """
    input = _summable(input, dtype)
    if input._array.dtype is dtypes.float16:
        halved: Tensor = in_single(prod, input, dim, keepdim)
        return halved
    if dim is None:
        whole = flatten(input)
        return prod(whole, 0)
    x = input._array
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return input.clone()
    out = wrap(_multiplied(x, axis=axis, keepdims=keepdim))
    if wanted(input):
        kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        saved = (x, out._array, axis, kept)
        out._node = ProdBackward0((edge_of(input),), saved, (input._version, out._version))
        out._requires_grad = True
    return out


def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running sum along a dimension.

    Args:
        input: Any shape and type; integers and booleans are summed as int64.
        dim: The dimension.
        dtype: Type to convert to first.

    >>> import tensorplay as tp
    >>> tp.cumsum(tp.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 3., 6.])
    """
    input = _summable(input, dtype)
    if input._array.dtype is dtypes.float16:
        halved: Tensor = in_single(cumsum, input, dim)
        return halved
    axis = axis_of(dim, input._array.ndim)
    result: Tensor = _running_sum(input, axis, False) if input._array.ndim else input.clone()
    return result


def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The running product along a dimension; arguments as for `cumsum`."""
    input = _summable(input, dtype)
    x = input._array
    if x.dtype is dtypes.float16:
        halved: Tensor = in_single(cumprod, input, dim)
        return halved
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return input.clone()
    out = wrap(np.multiply.accumulate(x, axis=axis))
    if wanted(input):
        saved = (x, out._array, axis)
        out._node = CumprodBackward0((edge_of(input),), saved, (input._version, out._version))
        out._requires_grad = True
    return out
