"""Writing and adding elements along a dimension, at indices that a tensor names."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.aliasing import is_recorded
from tensorplay.ops.gathering import index_along
from tensorplay.ops.indexing import add_at, getitem
from tensorplay.ops.inplace import write_through
from tensorplay.ops.placing import Place, checked, put, put_, put_add, put_add_
from tensorplay.ops.recording import as_operand, cast, edge_of, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.tensor import Tensor, wrap

_Target = tuple[Place, Any]


def _place(input: Tensor, dim: int, index: Tensor, source: Any, what: str) -> _Target:
    """The place that the arguments mean, and the part of the source for it."""
    shape = input._array.shape
    axis = axis_of(dim, len(shape))
    indices = checked(index, shape[axis] if shape else 1, what)
    if not shape:
        return Place(..., (), ()), source
    if indices.ndim != len(shape):
        raise RuntimeError(
            f"{what}: Index tensor must have the same number of dimensions as self tensor: "
            f"{indices.ndim}, not {len(shape)}"
        )
    for i, size in enumerate(indices.shape):
        if i != axis and size > shape[i]:
            raise RuntimeError(
                f"{what}: Expected index {list(indices.shape)} to be no larger than self "
                f"{list(shape)} apart from dimension {axis}"
            )
    if isinstance(source, Tensor):
        source = _source_part(source, indices.shape, what)
    return Place(index_along(indices, axis), indices.shape, (index._version,)), source


def _source_part(source: Tensor, shape: tuple[int, ...], what: str) -> Tensor:
    own = source._array.shape
    if own == shape:
        return source
    if len(own) != len(shape) or any(a < b for a, b in zip(own, shape, strict=True)):
        raise RuntimeError(
            f"{what}: Expected index {list(shape)} to be no larger than src {list(own)}"
        )
    return getitem(source, tuple([slice(size) for size in shape]))


def _of_one_dtype(input: Tensor, source: Any, what: str) -> None:
    if isinstance(source, Tensor) and source._array.dtype != input._array.dtype:
        raise RuntimeError(
            f"{what}: Expected self.dtype to be equal to src.dtype, but got "
            f"{input._array.dtype} and {source._array.dtype}"
        )


def _scatter_source(src: Any, value: Any) -> Any:
    if (src is None) == (value is None):
        raise TypeError("scatter(): expected one of 'src' (a Tensor) and 'value' (a number)")
    return value if src is None else src


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy of `input` in which the elements that `index` names along `dim` have other values.

    Args:
        index: Integers; as many dimensions as `input`, and no larger than it but along `dim`.
        src: The values, of the type of `input` and at least as large as `index`; or a number.
        value: The one value to write, in place of `src`.
        reduce: ``"add"`` or ``"multiply"``, to combine with the old values instead.

    Raises:
        IndexError: An index is out of range.
        RuntimeError: Shapes or types do not fit.

    >>> import tensorplay as tp
    >>> tp.scatter(tp.zeros(3), 0, tp.tensor([2, 0]), tp.tensor([1.0, 2.0]))
    tensor([2., 0., 1.])
    """
    source = _scatter_source(src, value)
    if reduce is not None:
        return _scatter_combined(input, dim, index, source, reduce)
    _of_one_dtype(input, source, "scatter()")
    return put(input, *_place(input, dim, index, source, "scatter()"))


def scatter_(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """`scatter`, written into the tensor."""
    source = _scatter_source(src, value)
    if reduce is not None:
        return _written(input, _scatter_combined, dim, index, source, reduce)
    _of_one_dtype(input, source, "scatter_()")
    return put_(input, *_place(input, dim, index, source, "scatter_()"))


_COMBINE = {"add": "sum", "multiply": "prod"}


def _scatter_combined(input: Tensor, dim: int, index: Tensor, source: Any, reduce: str) -> Tensor:
    if reduce not in _COMBINE:
        raise RuntimeError(f"reduce argument must be either add or multiply, not {reduce!r}")
    if not isinstance(source, Tensor):
        source = wrap(np.full(index._array.shape, source, input._array.dtype))
    return scatter_reduce(input, dim, index, source, _COMBINE[reduce])


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input` with the elements of `src` added where `index` names along `dim`.

    Arguments as for `scatter`; what falls on the same element is summed.
    """
    _of_one_dtype(input, as_operand(src, "src"), "scatter_add()")
    return put_add(input, *_place(input, dim, index, src, "scatter_add()"))


def scatter_add_(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`scatter_add`, written into the tensor."""
    _of_one_dtype(input, as_operand(src, "src"), "scatter_add_()")
    return put_add_(input, *_place(input, dim, index, src, "scatter_add_()"))


class _ScatterNode(Node):
    """``combine`` at places of a tensor."""

    __slots__ = ()
    lift = (0, 1, None, OUTPUT)


class ScatterExtremumBackward0(_ScatterNode):
    """All elements that are equal to the extremum share its gradient evenly."""

    __slots__ = ()

    def rule(self, grad: Any, a: Any, b: Any, index: Any, out: Any) -> tuple[Any, ...]:
        old, new, extremum = dual.array(a), dual.array(b), dual.array(out)
        dtype = extremum.dtype
        from_old = (old == extremum).astype(dtype)
        from_new = (new == extremum[index]).astype(dtype)
        count = from_old.copy()
        add_at(count, index, from_new)
        share = grad / np.maximum(count, 1)
        return (share * from_old, share[index] * from_new)


class ScatterProdBackward0(_ScatterNode):
    """A product of old and new elements: each one's derivative is that of all the others."""

    __slots__ = ()

    def rule(self, grad: Any, a: Any, b: Any, index: Any, out: Any) -> tuple[Any, ...]:
        old, new = dual.array(a), dual.array(b)
        zero_old, zero_new = old == 0, new == 0
        if not zero_old.any() and not zero_new.any():
            share = grad * out
            return (share / a, share[index] / b)
        # The product of what is not zero, for elements that are the only zero or beside none.
        ones = dual.where(zero_old, 1, a)
        product = dual.on_tensors(
            lambda x, y: _combined(x, y, index, "prod"), ones, dual.where(zero_new, 1, b)
        )
        zeros = zero_old.astype(old.dtype)
        add_at(zeros, index, zero_new.astype(old.dtype))
        share = grad * product
        alone_old = (zeros - zero_old == 0).astype(old.dtype)
        alone_new = (zeros[index] - zero_new == 0).astype(old.dtype)
        return (
            share / ones * alone_old,
            share[index] / dual.where(zero_new, 1, b) * alone_new,
        )


_UFUNCS = {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _combined(input: Tensor, source: Tensor, index: Any, reduce: str) -> Tensor:
    out = wrap(input._array.copy())
    _UFUNCS[reduce].at(out._array, index, source._array)
    if wanted(input, source):
        kind = ScatterProdBackward0 if reduce == "prod" else ScatterExtremumBackward0
        saved = (input._array, source._array, index, out._array)
        versions = (input._version, source._version, out._version)
        out._node = kind((edge_of(input), edge_of(source)), saved, versions)
        out._requires_grad = True
    return out


def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy of `input` with the elements of `src` combined where `index` names along `dim`.

    Args:
        reduce: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        include_self: Whether the old element takes part where there are new ones.

    The other arguments are those of `scatter`.

    >>> import tensorplay as tp
    >>> index, values = tp.tensor([0, 0, 1]), tp.tensor([3.0, 5.0, 4.0])
    >>> tp.scatter_reduce(tp.zeros(3), 0, index, values, "mean", include_self=False)
    tensor([4., 4., 0.])
    """
    what = "scatter_reduce()"
    _of_one_dtype(input, as_operand(src, "src"), what)
    if reduce not in ("sum", "mean", *_UFUNCS):
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if reduce in _UFUNCS and wanted(input, src):
        # What these save is not watched for writes.
        index = index.clone()
    place, source = _place(input, dim, index, src, what)
    if not include_self:
        input = put(input, place, _neutral(reduce, input._array.dtype))
    if reduce in _UFUNCS:
        if not index._array.size:
            return input.clone()
        return _combined(input, source.reshape(place.shape), place.index, reduce)
    total = put_add(input, place, source)
    if reduce == "sum":
        return total
    count = np.full(input._array.shape, 1, np.int64)
    if not include_self:
        count[place.index] = 0
    add_at(count, place.index, np.ones(place.shape, np.int64))
    np.maximum(count, 1, out=count)
    if total._array.dtype.kind in "iu":
        return wrap(total._array // count.astype(total._array.dtype))
    mean: Tensor = total / wrap(count.astype(total._array.dtype))
    return mean


def _neutral(reduce: str, dtype: np.dtype[Any]) -> Any:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.kind == "f":
        return -np.inf if reduce == "amax" else np.inf
    if dtype.kind == "b":
        return reduce == "amin"
    limits = np.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def scatter_reduce_(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """`scatter_reduce`, written into the tensor."""

    def combined(before: Tensor) -> Tensor:
        return scatter_reduce(before, dim, index, src, reduce, include_self=include_self)

    return _written(input, combined, sources=(src,))


def _written(input: Tensor, out_of_place: Any, *args: Any, sources: Any = None) -> Tensor:
    """The in-place form of an operation that has no quicker one."""
    operands = args if sources is None else sources
    if is_recorded(input, *[one for one in operands if isinstance(one, Tensor)]):
        return write_through(input, out_of_place, *args)
    result = out_of_place(input.detach(), *args)
    input._array[...] = cast(result, input._array.dtype)._array
    input._version[0] += 1
    return input
