"""Sums and means."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import OUTPUT, BareNode, Node
from tensorplay.ops import dual
from tensorplay.ops.pointwise import unary
from tensorplay.ops.recording import cast, edge_of, in_single, recorded, wanted
from tensorplay.tensor import Tensor, wrap

_HALF = dtypes.float16

Dim = int | tuple[int, ...] | list[int] | None


class SumBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, shape: tuple[int, ...], kept: tuple[int, ...]) -> tuple[Any, ...]:
        return (dual.spread(grad.reshape(kept), shape),)


class MeanBackward0(Node):
    __slots__ = ()

    def rule(
        self, grad: Any, shape: tuple[int, ...], kept: tuple[int, ...], count: int
    ) -> tuple[Any, ...]:
        return (dual.spread((grad / count).reshape(kept), shape),)


class VarBackward0(Node):
    __slots__ = ()
    lift = (0, None, None, None, None)

    def rule(
        self,
        grad: Any,
        x: Any,
        axes: tuple[int, ...],
        kept: tuple[int, ...],
        count: int,
        factor: float,
    ) -> tuple[Any, ...]:
        return (_deviation(x, axes, count) * (grad.reshape(kept) * (2 * factor)),)


def axes_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """The axes that `dim` names, counted from the front; all of them for None or ``()``.

    Raises:
        IndexError: One is out of range.
        RuntimeError: One appears twice.
    """
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        if not dim:
            return tuple(range(ndim))
        axes = tuple([axis_of(one, ndim) for one in dim])
        if len(set(axes)) != len(axes):
            raise RuntimeError(f"dim appears multiple times in the list of dims: {dim}")
        return axes
    return (axis_of(dim, ndim),)


def axis_of(dim: Any, ndim: int) -> int:
    """One axis, counted from the front.  A tensor without dimensions takes 0 and -1."""
    size = ndim or 1
    try:
        axis = dim if dim.__class__ is int else dim.__index__()
    except AttributeError:
        raise TypeError(f"dim must be an integer, not {dim!r}") from None
    if not -size <= axis < size:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], "
            f"but got {axis})"
        )
    return int(axis % size)


def _reduction(shape: tuple[int, ...], dim: Any) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The axes to reduce (None for all of them), and the shape that keeps them with size 1."""
    if dim is None or not shape:
        if dim is not None:
            axes_of(dim, 0)
        return None, (1,) * len(shape)
    axes = axes_of(dim, len(shape))
    return axes, kept_shape(shape, axes)


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape after a reduction that keeps the reduced axes with size 1."""
    return tuple([1 if i in axes else size for i, size in enumerate(shape)])


def sum(
    input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None, axis: Dim = None
) -> Tensor:
    """The sum of all elements, or over the dimensions `dim`.

    Args:
        input: Any shape and type; integers and booleans are summed as int64.
        dim: One dimension, several, or None for all.  `axis` is another name for it.
        keepdim: Keep the summed dimensions, with size 1.
        dtype: Type to convert to first.

    >>> import tensorplay as tp
    >>> tp.sum(tp.ones(2, 3), dim=0)
    tensor([2., 2., 2.])
    """
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    elif input._array.dtype.kind in "biu":
        input = cast(input, dtypes.int64)
    x = input._array
    if x.dtype is _HALF:
        summed: Tensor = in_single(sum, input, dim if axis is None else axis, keepdim)
        return summed
    axes, kept = _reduction(x.shape, dim if axis is None else axis)
    out = dual.add_up(x, axes, None, None, keepdim)
    return recorded(out, SumBackward0, input, (x.shape, kept))


def mean(
    input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: Any = None, axis: Dim = None
) -> Tensor:
    """The mean of all elements, or over the dimensions `dim`; arguments as for `sum`.

    Raises:
        RuntimeError: The elements are integers or booleans and no floating `dtype` is given.
    """
    if dtype is not None:
        input = cast(input, dtypes.as_dtype(dtype))
    x = input._array
    if x.dtype.kind not in "fc":
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {x.dtype}"
        )
    if x.dtype is _HALF:
        halved: Tensor = in_single(mean, input, dim if axis is None else axis, keepdim)
        return halved
    axes, kept = _reduction(x.shape, dim if axis is None else axis)
    count = x.size
    if axes is not None:
        count = 1
        for i in axes:
            count *= x.shape[i]
    total = dual.add_up(x, axes, None, None, keepdim)
    out = total / count if count else total * np.nan
    return recorded(out, MeanBackward0, input, (x.shape, kept, count))


def var(
    input: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False, **options: Any
) -> Tensor:
    """The variance, over all elements or the dimensions `dim`.

    That of complex numbers is real: the variances of their parts, added.

    Args:
        correction: What is subtracted from the number of elements in the divisor.
        options: ``unbiased=False`` is another way to say ``correction=0``; so is a boolean in the
            place of `correction`, or alone in that of `dim`.
    """
    if isinstance(dim, bool):
        dim, correction = None, int(dim)
    correction = _correction(correction, options)
    if input._array.dtype.kind == "c":
        of_parts = [var(part, dim, correction, keepdim) for part in (input.real, input.imag)]
        both: Tensor = of_parts[0] + of_parts[1]
        return both
    x = input._array
    if x.dtype.kind != "f":
        raise RuntimeError("std and var only support floating point and complex dtypes")
    if x.dtype is _HALF:
        halved: Tensor = in_single(var, input, dim, correction, keepdim)
        return halved
    axes = axes_of(dim, x.ndim) if x.ndim else ()
    count = 1
    for i in axes:
        count *= x.shape[i]
    deviation = _deviation(x, axes, count)
    deviation *= deviation
    divisor = count - correction
    factor = 1 / divisor if divisor > 0 else float("inf")
    with np.errstate(invalid="ignore"):
        out = dual.add_up(deviation, axis=axes, keepdims=keepdim) * factor
    if not wanted(input):
        return wrap(out)
    saved = (x, axes, kept_shape(x.shape, axes), count, factor)
    return wrap(out, VarBackward0((edge_of(input),), saved, (input._version,)))


def _deviation(x: Any, axes: tuple[int, ...], count: int) -> Any:
    """How far each element is from the mean over some axes."""
    return x - dual.sum_over(x, axes, True) / max(count, 1)


class StdBackward0(BareNode):
    """The square root of a variance.  Where all elements are equal, the gradient is zero."""

    __slots__ = ()
    lift = (OUTPUT,)

    def rule(self, grad: Any, out: Any) -> tuple[Any, ...]:
        zero = dual.array(out) == 0
        return (dual.where(zero, 0, grad / dual.where(zero, 1, out + out)),)


_root = unary(np.sqrt, StdBackward0, "The square root, as `std` takes it.")


def std(
    input: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False, **options: Any
) -> Tensor:
    """The standard deviation: the square root of `var`, whose arguments it takes."""
    if input._array.dtype is _HALF:
        halved: Tensor = in_single(std, input, dim, correction, keepdim, **options)
        return halved
    return _root(var(input, dim, correction, keepdim, **options))


def _correction(correction: Any, options: dict[str, Any]) -> Any:
    unbiased = options.pop("unbiased", None)
    if options:
        raise TypeError(f"unexpected keyword argument {next(iter(options))!r}")
    if unbiased is not None:
        return int(unbiased)
    return 1 if correction is None else correction
