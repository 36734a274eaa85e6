"""Operations that move elements about without changing them: mostly views."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.aliasing import viewed
from tensorplay.ops.recording import recorded
from tensorplay.ops.reduction import axis_of
from tensorplay.tensor import Tensor

Shape = tuple[int, ...]


class ViewBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, shape: Shape) -> tuple[Any, ...]:
        return (grad.reshape(shape),)


class TransposeBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, dim0: int, dim1: int) -> tuple[Any, ...]:
        return (grad.swapaxes(dim0, dim1),)


class TBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad.T,)


class PermuteBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, axes: Shape) -> tuple[Any, ...]:
        back = [0] * len(axes)
        for place, axis in enumerate(axes):
            back[axis] = place
        return (dual.permuted(grad, tuple(back)),)


class ExpandBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any, shape: Shape) -> tuple[Any, ...]:
        return (dual.sum_to(grad, shape),)


class SqueezeBackward0(ViewBackward0):
    __slots__ = ()


class UnsqueezeBackward0(ViewBackward0):
    __slots__ = ()


class CloneBackward0(Node):
    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad,)


def sizes(given: tuple[Any, ...], named: Any = None) -> tuple[int, ...]:
    """A shape given as one sequence, as separate numbers, or by the argument's name."""
    if named is not None:
        if given:
            raise TypeError(f"sizes are given twice: {given}, and {named} by name")
        given = (named,)
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = tuple(given[0])
    for size in given:
        if size.__class__ is not int:
            break
    else:
        return given
    try:
        return tuple([size.__index__() for size in given])
    except AttributeError:
        kinds = ", ".join([type(size).__name__ for size in given])
        raise TypeError(f"sizes must be ints, or one sequence of ints, not ({kinds})") from None


def reshape(input: Tensor, *sizes_of_it: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape; a view where possible.

    Args:
        sizes_of_it: The new sizes, as separate arguments or as one sequence; one of them may be -1.
        shape: The same, by name.

    Raises:
        RuntimeError: The number of elements would change.

    >>> import tensorplay as tp
    >>> tp.arange(4).reshape(2, -1)
    tensor([[0, 1],
            [2, 3]])
    """
    x = input._array
    new = sizes(sizes_of_it, shape)
    try:
        out = x.reshape(new)
    except ValueError:
        raise RuntimeError(f"shape '{list(new)}' is invalid for input of size {x.size}") from None
    return viewed(input, out, ViewBackward0, (x.shape,), lambda base: reshape(base, new))


def view_as_shape(input: Tensor, *shape: Any) -> Tensor:
    """As `reshape`, but always a view.

    Raises:
        RuntimeError: The elements' places in memory do not allow a view of that shape.
    """
    x = input._array
    if input._alias is None and x.ndim > 2 and np.moveaxis(x, 0, -1).flags.c_contiguous:
        # As convolutions and what follows them leave their results; no user asked for that order.
        input._array = np.ascontiguousarray(x)
    out = reshape(input, *shape)
    if out._version is not input._version and out._array.size:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return out


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` (inclusive) as one."""
    shape = input._array.shape
    if not shape:
        return reshape(input, 1)
    start, end = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    merged = 1
    for size in shape[start : end + 1]:
        merged *= size
    return reshape(input, (*shape[:start], merged, *shape[end + 1 :]))


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with two dimensions exchanged."""
    x = input._array
    dim0, dim1 = axis_of(dim0, x.ndim), axis_of(dim1, x.ndim)
    if not x.ndim:
        return reversed_axes(input)
    return viewed(
        input,
        x.swapaxes(dim0, dim1),
        TransposeBackward0,
        (dim0, dim1),
        lambda base: transpose(base, dim0, dim1),
    )


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """A view with two dimensions exchanged."""
    return transpose(input, axis0, axis1)


def reversed_axes(input: Tensor) -> Tensor:
    """A view with the dimensions in reverse order."""
    return viewed(input, input._array.T, TBackward0, (), reversed_axes)


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a vector or a number as it is."""
    if input._array.ndim > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {input._array.ndim}D"
        )
    return reversed_axes(input)


def matrix_transpose(input: Tensor) -> Tensor:
    """A view with the last two dimensions exchanged."""
    if input._array.ndim < 2:
        raise RuntimeError(
            "tensor.mT is only supported on matrices or batches of matrices. Got "
            f"{input._array.ndim}-D tensor."
        )
    return transpose(input, -2, -1)


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """A view with the dimensions in the given order."""
    x = input._array
    axes = tuple([axis_of(dim, x.ndim) for dim in sizes(order, dims)])
    if len(axes) != x.ndim or len(set(axes)) != x.ndim:
        raise RuntimeError(f"permute(): {axes} is not an order of {x.ndim} dimensions")
    return viewed(
        input, x.transpose(axes), PermuteBackward0, (axes,), lambda base: permute(base, axes)
    )


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """A view without the dimensions of size 1: all of them, or those in `dim`."""
    x = input._array
    if dim is None:
        axes: Any = range(x.ndim)
    else:
        axes = [axis_of(one, x.ndim) for one in (dim if isinstance(dim, (tuple, list)) else [dim])]
    shape = tuple([size for i, size in enumerate(x.shape) if size != 1 or i not in axes])
    return viewed(
        input, x.reshape(shape), SqueezeBackward0, (x.shape,), lambda base: squeeze(base, dim)
    )


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a new dimension of size 1 at `dim`."""
    x = input._array
    axis = axis_of(dim, x.ndim + 1)
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return viewed(
        input, x.reshape(shape), UnsqueezeBackward0, (x.shape,), lambda base: unsqueeze(base, dim)
    )


def expand(input: Tensor, *shape: Any) -> Tensor:
    """A view stretched along dimensions of size 1, and by new ones in front; -1 keeps a size."""
    x = input._array
    new = sizes(shape)
    extra = len(new) - x.ndim
    if extra < 0:
        raise RuntimeError(
            f"expand(): the number of sizes provided ({len(new)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({x.ndim})"
        )
    new = tuple([x.shape[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(new)])
    return broadcast_to(input, new)


def broadcast_to(input: Tensor, shape: Any) -> Tensor:
    """A view stretched to `shape` by NumPy's broadcasting rules."""
    x = input._array
    new = sizes((shape,))
    try:
        # NumPy's is read-only, even where nothing is stretched.
        out = x.view() if x.shape == new else np.broadcast_to(x, new)
    except ValueError:
        raise RuntimeError(
            f"The expanded size of the tensor {new} must match the existing size {x.shape}"
        ) from None
    return viewed(input, out, ExpandBackward0, (x.shape,), lambda base: broadcast_to(base, new))


def clone(input: Tensor) -> Tensor:
    """A copy, through which gradients flow."""
    return recorded(input._array.copy(order="K"), CloneBackward0, input)


def contiguous(input: Tensor) -> Tensor:
    """The tensor itself if its elements lie in row order in memory, else a copy that does."""
    if input._array.flags.c_contiguous:
        return input
    return recorded(input._array.copy(), CloneBackward0, input)
