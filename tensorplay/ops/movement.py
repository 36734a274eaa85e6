"""Reordering, repeating and windowing: operations that move elements about."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.aliasing import related
from tensorplay.ops.complex_numbers import conj
from tensorplay.ops.indexing import getitem
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.shape import (
    broadcast_to,
    expand,
    matrix_transpose,
    permute,
    reshape,
    sizes,
    t,
    transpose,
    unsqueeze,
    view_as_shape,
)
from tensorplay.tensor import Tensor, wrap

Shape = tuple[int, ...]


class FlipBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, dims: Shape) -> tuple[Any, ...]:
        return (dual.on_tensors(lambda one: flip(one, dims), grad),)


class RollBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, shifts: Shape, dims: Shape) -> tuple[Any, ...]:
        back = tuple([-shift for shift in shifts])
        return (dual.on_tensors(lambda one: _rolled(one, back, dims), grad),)


class UnfoldBackward0(Node):
    """Windows along a dimension; an element may be in several."""

    __slots__ = ()

    def rule(self, grad: Any, shape: Shape, axis: int, size: int, step: int) -> tuple[Any, ...]:
        return (dual.on_tensors(lambda one: _folded(one, shape, axis, size, step), grad),)


class FoldBackward0(Node):
    """The sum of windows: the gradient of their making, recorded."""

    __slots__ = ()

    def rule(self, grad: Any, axis: int, size: int, step: int) -> tuple[Any, ...]:
        return (dual.on_tensors(lambda one: unfold(one, axis, size, step), grad),)


def _axes(given: Any, ndim: int) -> Shape:
    dims = given if isinstance(given, (tuple, list)) else (given,)
    return tuple([axis_of(one, ndim) for one in dims])


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """A view with some dimensions at other positions, the others in their order.

    Args:
        source: The dimension or dimensions to move.
        destination: For each, its position in the result.

    >>> import tensorplay as tp
    >>> tp.movedim(tp.zeros(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    ndim = input._array.ndim
    start, end = _axes(source, ndim), _axes(destination, ndim)
    if len(start) != len(end):
        raise RuntimeError(
            "movedim: Invalid source or destination dims: source "
            f"({list(start)} dims) should contain the same number of dims as destination "
            f"({list(end)} dims)"
        )
    if len(set(start)) != len(start) or len(set(end)) != len(end):
        raise RuntimeError("movedim: repeated dim in `source` or `destination`")
    order = [axis for axis in range(ndim) if axis not in start]
    for position, axis in sorted(zip(end, start, strict=True)):
        order.insert(position, axis)
    return permute(input, order)


def adjoint(input: Tensor) -> Tensor:
    """Matrices transposed, of the conjugates; of real numbers a view."""
    return conj(matrix_transpose(input))


def conjugate_transpose(input: Tensor) -> Tensor:
    """A matrix transposed, of the conjugates; of real numbers a view."""
    if input._array.ndim not in (0, 2):
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {input._array.ndim}-D "
            "tensor."
        )
    return conj(t(input))


def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """A view in which one dimension has become several.

    Args:
        sizes: Their sizes, of which one may be -1.
    """
    shape = input._array.shape
    axis = axis_of(dim, len(shape))
    return reshape(input, (*shape[:axis], *sizes, *shape[axis + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """The elements as one vector; a view where possible."""
    return reshape(input, -1)


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """A view in the shape of another tensor."""
    return view_as_shape(input, other._array.shape)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """The elements in the shape of another tensor; a view where possible."""
    return reshape(input, other._array.shape)


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """A view stretched to the shape of another tensor."""
    return expand(input, other._array.shape)


def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of `length` slices along a dimension, from `start` on."""
    shape = input._array.shape
    if not shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    axis, first, count = axis_of(dim, len(shape)), int(start), int(length)
    size = shape[axis]
    if count < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= first <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {first})"
        )
    first += size if first < 0 else 0
    if first + count > size:
        raise RuntimeError(f"start ({first}) + length ({count}) exceeds dimension size ({size}).")
    return getitem(input, (*(slice(None),) * axis, slice(first, first + count)))


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """A view of one slice along a dimension, which it does not have any more."""
    ndim = input._array.ndim
    if not ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    return getitem(input, (*(slice(None),) * axis_of(dim, ndim), index))


def flip(input: Tensor, *along: Any, dims: Any = None) -> Tensor:
    """A copy with the elements in reverse order along dimensions.

    >>> import tensorplay as tp
    >>> tp.flip(tp.tensor([[1, 2], [3, 4]]), [1])
    tensor([[2, 1],
            [4, 3]])
    """
    x = input._array
    axes = _axes(sizes(along, dims), x.ndim)
    if len(set(axes)) != len(axes):
        raise RuntimeError(f"flip(): dim appears multiple times in the list of dims: {axes}")
    if not x.ndim:
        return input.clone()
    node = FlipBackward0((edge_of(input),), (axes,)) if wanted(input) else None
    return wrap(np.array(np.flip(x, axes), order="C"), node)


def fliplr(input: Tensor) -> Tensor:
    """A copy with the columns (dimension 1) in reverse order."""
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """A copy with the rows (dimension 0) in reverse order."""
    return flip(input, 0)


def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """A copy turned `k` times by 90 degrees, from the first of two dimensions to the second."""
    first, second = _axes(dims, input._array.ndim)
    if first == second:
        raise RuntimeError("rot90(): the two dimensions must be different")
    if k % 4 == 1:
        return flip(transpose(input, first, second), first)
    if k % 4 == 2:
        return flip(input, first, second)
    if k % 4 == 3:
        return flip(transpose(input, first, second), second)
    return input.clone()


def _rolled(input: Tensor, shifts: Shape, dims: Shape) -> Tensor:
    node = RollBackward0((edge_of(input),), (shifts, dims)) if wanted(input) else None
    return wrap(np.roll(input._array, shifts, dims), node)


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """A copy with the elements moved along dimensions; what leaves at an end enters at the other.

    Args:
        shifts: By how many places; one number, or one for each dimension.
        dims: The dimensions; without any, the flattened tensor is rolled.

    >>> import tensorplay as tp
    >>> tp.roll(tp.arange(4), 1)
    tensor([3, 0, 1, 2])
    """
    moves = tuple(shifts) if isinstance(shifts, (tuple, list)) else (shifts,)
    if dims is None or dims == ():
        if len(moves) != 1:
            raise RuntimeError("roll(): shifts and dimensions must align: no dimensions are given")
        return reshape(_rolled(reshape(input, -1), moves, (0,)), input._array.shape)
    axes = _axes(dims, input._array.ndim)
    if len(axes) != len(moves):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(moves)}, dims: {len(axes)}"
        )
    return _rolled(input, moves, axes)


def repeat(input: Tensor, *repeats: Any) -> Tensor:
    """A copy made of the tensor, repeated along each dimension.

    Args:
        repeats: How often, for each dimension; those in front of the tensor's own are new.

    >>> import tensorplay as tp
    >>> tp.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = sizes(repeats)
    shape = input._array.shape
    if len(times) < len(shape):
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    own = (1,) * (len(times) - len(shape)) + shape
    between = [part for size in own for part in (1, size)]
    wide = [part for size, count in zip(own, times, strict=True) for part in (count, size)]
    out = tuple([size * count for size, count in zip(own, times, strict=True)])
    copied = reshape(broadcast_to(reshape(input, between), wide), out)
    # Nothing may be repeated at all: then these were views.
    return copied if copied._version is not input._version else copied.clone()


def tile(input: Tensor, *dims: Any) -> Tensor:
    """As `repeat`, but with fewer numbers than dimensions, the first dimensions stay."""
    times = sizes(dims)
    return repeat(input, (1,) * (input._array.ndim - len(times)) + times)


def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """A copy with each slice along a dimension several times, one after another.

    Args:
        repeats: How often: a number, or a tensor with one for each slice.
        dim: The dimension; without it, the flattened tensor is meant.
        output_size: Taken and not needed.

    With one argument only, it is a tensor of counts, and the result has each index that often.

    >>> import tensorplay as tp
    >>> tp.repeat_interleave(tp.tensor([5, 6]), tp.tensor([1, 2]))
    tensor([5, 6, 6])
    """
    if repeats is None:
        counts = input._array
        return wrap(np.repeat(np.arange(len(counts)), counts))
    if dim is None:
        input, dim = reshape(input, -1), 0
    shape = input._array.shape
    axis = axis_of(dim, len(shape))
    if isinstance(repeats, int) and repeats >= 0 and shape:
        wide = (*shape[: axis + 1], repeats, *shape[axis + 1 :])
        copied = reshape(
            broadcast_to(unsqueeze(input, axis + 1), wide),
            (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]),
        )
        return copied if copied._version is not input._version else copied.clone()
    counts = repeats._array if isinstance(repeats, Tensor) else np.asarray(repeats)
    if counts.size == 1:
        counts = counts.reshape(())
    elif counts.shape != input._array.shape[axis : axis + 1]:
        raise RuntimeError(
            "repeats must have the same size as input along dim, but got repeats of shape "
            f"{list(counts.shape)} and input of shape {list(input._array.shape)}, dim {dim}"
        )
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeats can not be negative")
    index = np.repeat(np.arange(input._array.shape[axis]), counts)
    return getitem(input, (*(slice(None),) * axis, index))


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of all windows along a dimension; the elements of each are a new last dimension.

    Windows that overlap cannot be written to.

    Args:
        size: The number of elements in a window.
        step: From the start of one window to that of the next.

    >>> import tensorplay as tp
    >>> tp.arange(5).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    x = input._array
    axis = axis_of(dimension, x.ndim)
    length = x.shape[axis] if x.ndim else 1
    if not 0 <= size <= length:
        raise RuntimeError(
            f"maximum size for tensor at dimension {axis} is {length} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    node = None
    if wanted(input):
        node = UnfoldBackward0((edge_of(input),), (x.shape, axis, size, step))
    if not x.ndim:
        return wrap(x.reshape(1)[:size], node)
    windows = (length - size) // step + 1
    stride = x.strides[axis]
    out = as_strided(
        x,
        (*x.shape[:axis], windows, *x.shape[axis + 1 :], size),
        (*x.strides[:axis], stride * step, *x.strides[axis + 1 :], stride),
        writeable=x.flags.writeable and step >= size,
    )
    return related(wrap(out, node), input, lambda base: unfold(base, axis, size, step))


def _folded(input: Tensor, shape: Shape, axis: int, size: int, step: int) -> Tensor:
    """The sum of windows, each at its place; the adjoint of `unfold`."""
    x = input._array
    out = np.zeros(shape, x.dtype)
    if not shape:
        out[...] = x.sum()
    else:
        front = (slice(None),) * axis
        last = (x.shape[axis] - 1) * step
        for i in range(size):
            out[(*front, slice(i, i + last + 1, step))] += x[..., i]
    node = FoldBackward0((edge_of(input),), (axis, size, step)) if wanted(input) else None
    return wrap(out, node)
