"""The greatest and the least elements, and where they stand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorplay.autograd.graph import OUTPUT, Node
from tensorplay.ops import dual
from tensorplay.ops.gathering import index_along
from tensorplay.ops.indexing import scatter
from tensorplay.ops.recording import edge_of, refuse_complex, wanted
from tensorplay.ops.reduction import Dim, axes_of, axis_of, kept_shape
from tensorplay.ops.selection import maximum, minimum
from tensorplay.tensor import Tensor, wrap


class ValuesAndIndices(NamedTuple):
    """The elements found along a dimension, and their indices in it (int64)."""

    values: Tensor
    indices: Tensor


class _AlongDim(Node):
    """One element along a dimension was chosen: its place gets the gradient."""

    __slots__ = ()

    def rule(
        self, grad: Any, index: Any, kept: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[Any, ...]:
        return (scatter(grad.reshape(kept), index, shape, repeated=False),)


class MaxBackward0(_AlongDim):
    __slots__ = ()


class MinBackward0(_AlongDim):
    __slots__ = ()


class _Shared(Node):
    """All elements that are equal to the extremum share its gradient evenly, as in PyTorch."""

    __slots__ = ()
    lift = (0, OUTPUT, None, None)

    def rule(
        self, grad: Any, x: Any, out: Any, kept: tuple[int, ...], axes: tuple[int, ...]
    ) -> tuple[Any, ...]:
        values = dual.array(x)
        chosen = values == dual.array(out).reshape(kept)
        count = dual.add_up(chosen, axis=axes, keepdims=True)
        share = np.divide(chosen, count, dtype=values.dtype)
        return (grad.reshape(kept) * share,)


class AmaxBackward0(_Shared):
    __slots__ = ()


class AminBackward0(_Shared):
    __slots__ = ()


def max(input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None) -> Any:
    """The greatest element; along a dimension; or the greater of two tensors' elements.

    Args:
        dim: None for the greatest of all; a dimension to get ``(values, indices)`` along it; or
            another tensor, as for `maximum`.

    >>> import tensorplay as tp
    >>> tp.max(tp.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1).indices
    tensor([1, 0])
    """
    dim = axis if dim is None else dim
    if dim is None:
        return amax(input)
    if isinstance(dim, Tensor):
        return maximum(input, dim)
    refuse_complex(input._array, "max")
    return _along(np.argmax, MaxBackward0, input, dim, keepdim)


def min(input: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None) -> Any:
    """The least element; arguments as for `max`."""
    dim = axis if dim is None else dim
    if dim is None:
        return amin(input)
    if isinstance(dim, Tensor):
        return minimum(input, dim)
    refuse_complex(input._array, "min")
    return _along(np.argmin, MinBackward0, input, dim, keepdim)


def _along(
    search: Any, node_class: type[Node], input: Tensor, dim: Any, keepdim: bool
) -> ValuesAndIndices:
    x = input._array
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return ValuesAndIndices(input.clone(), wrap(np.zeros((), np.int64)))
    _check_not_empty(x, (axis,), search.__name__.removeprefix("arg"), dim)
    found = np.expand_dims(search(x, axis=axis), axis)
    index = index_along(found, axis)
    values = x[index]
    kept = values.shape
    shape = kept if keepdim else kept[:axis] + kept[axis + 1 :]
    node = node_class((edge_of(input),), (index, kept, x.shape)) if wanted(input) else None
    return ValuesAndIndices(wrap(values.reshape(shape), node), wrap(found.reshape(shape)))


def amax(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The greatest element, over all or some dimensions; equal ones share the gradient."""
    refuse_complex(input._array, "amax")
    return _shared(np.maximum, AmaxBackward0, input, dim, keepdim)


def amin(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """The least element, over all or some dimensions; equal ones share the gradient."""
    refuse_complex(input._array, "amin")
    return _shared(np.minimum, AminBackward0, input, dim, keepdim)


def _shared(ufunc: Any, node_class: type[Node], input: Tensor, dim: Dim, keepdim: bool) -> Tensor:
    x = input._array
    axes = axes_of(dim, x.ndim) if x.ndim else ()
    _check_not_empty(x, axes, "amax" if ufunc is np.maximum else "amin", dim)
    out = wrap(ufunc.reduce(x, axis=axes, keepdims=keepdim))
    if wanted(input):
        saved = (x, out._array, kept_shape(x.shape, axes), axes)
        out._node = node_class((edge_of(input),), saved, (input._version, out._version))
        out._requires_grad = True
    return out


def _check_not_empty(x: np.ndarray[Any, Any], axes: tuple[int, ...], name: str, dim: Any) -> None:
    if dim is None and not x.size:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
            "reduction dim with the 'dim' argument."
        )
    for axis in axes:
        if x.shape[axis] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the greatest element, in the flattened tensor or along a dimension."""
    refuse_complex(input._array, "argmax")
    return _index(np.argmax, input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the least element, in the flattened tensor or along a dimension."""
    refuse_complex(input._array, "argmin")
    return _index(np.argmin, input, dim, keepdim)


def _index(search: Any, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    x = input._array
    name = search.__name__
    if dim is None:
        if not x.size:
            raise IndexError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0."
            )
        found = search(x)
        return wrap(np.full((1,) * x.ndim, found) if keepdim else found)
    axis = axis_of(dim, x.ndim)
    if x.ndim:
        _check_not_empty(x, (axis,), name, dim)
    return wrap(search(x, axis=axis, keepdims=keepdim) if x.ndim else np.zeros((), np.int64))
