"""Operations that write into a tensor.

Outside the graph they write straight into the array.  A write that is recorded is computed beside
it from a copy of the old values, so that what the rule saves is not what gets overwritten, and then
put into the array: see `tensorplay.ops.aliasing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import Node
from tensorplay.ops import arithmetic, dual, pointwise, power, selection
from tensorplay.ops.aliasing import is_recorded, write
from tensorplay.ops.indexing import getitem, in_two_steps, index_of, versions_of
from tensorplay.ops.recording import cast, common, edge_of, shape_error, stretch
from tensorplay.ops.shape import broadcast_to, reshape
from tensorplay.ops.writing import refused_write
from tensorplay.tensor import Tensor, wrap


class SetItemBackward0(Node):
    """``tensor[index] = value``: the old values elsewhere, the new ones at the index."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any) -> tuple[Any, ...]:
        old, new = self.edges
        kept = None
        if old is not None:
            kept = grad.clone() if isinstance(grad, Tensor) else np.array(grad)
            kept[index] = 0
        return (kept, None if new is None else grad[index])


class CopyBackwards(Node):
    """Other values written over the old ones."""

    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (None if self.edges[0] is None else dual.zeros_like(grad), grad)


def write_through(target: Tensor, out_of_place: Callable[..., Tensor], *args: Any) -> Tensor:
    """Compute beside the target, from a copy of it, and write the result into it."""
    before = wrap(target._array.copy(), target._node)
    result = out_of_place(before, *args)
    check_fits(target, result)
    write(target, cast(result, target._array.dtype))
    return target


def check_fits(target: Tensor, result: Tensor) -> None:
    x, out = target._array, result._array
    if out.dtype is x.dtype and out.shape == x.shape:
        return
    if out.shape != x.shape:
        raise RuntimeError(
            f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(out.shape)}"
        )
    if dtypes.CATEGORY[out.dtype.kind] > dtypes.CATEGORY[x.dtype.kind]:
        raise RuntimeError(
            f"result type {out.dtype} can't be cast to the desired output type {x.dtype}"
        )


def _operator(ufunc: Any, out_of_place: Callable[..., Tensor], symbol: str) -> Any:
    """The in-place form of a binary operator."""

    def in_place(input: Tensor, other: Any) -> Any:
        sources = (other,) if isinstance(other, Tensor) else ()
        if is_recorded(input, *sources):
            return write_through(input, out_of_place, other)
        x = input._array
        if sources and other._array.dtype is x.dtype and other._array.shape == x.shape:
            # The ordinary case at once.  A ufunc refuses to write another type than it finds.
            y = other._array
            if x.dtype.kind == "f":
                try:
                    ufunc(x, y, x)
                except ValueError as error:
                    raise refused_write(input, error) from None
                input._version[0] += 1
                return input
        pair = common(input, other)
        if pair is None:
            return NotImplemented
        a, b = pair
        x = input._array
        if a is input and x.dtype.kind in "fc":
            operand = b._array if isinstance(b, Tensor) else b
            if getattr(operand, "shape", ()) != x.shape:
                _check_broadcast(x.shape, getattr(operand, "shape", ()))
            try:
                ufunc(x, operand, out=x)
            except ValueError as error:
                raise refused_write(input, error) from None
        else:
            result = out_of_place(input.detach(), other)
            check_fits(input, result)
            try:
                x[...] = result._array
            except ValueError as error:
                raise refused_write(input, error) from None
        input._version[0] += 1
        return input

    in_place.__doc__ = f"``input {symbol}= other``, written into the tensor."
    return in_place


def _check_broadcast(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    try:
        both = np.broadcast_shapes(shape, other)
    except ValueError:
        raise shape_error(np.broadcast_to(0, shape), np.broadcast_to(0, other)) from None
    if both != shape:
        raise RuntimeError(
            f"output with shape {list(shape)} doesn't match the broadcast shape {list(both)}"
        )


def _scaled(operator: Any, name: str) -> Any:
    """The in-place form of a sum, with the factor that these take."""

    def in_place(input: Tensor, other: Any, *, alpha: Any = 1) -> Any:
        return operator(input, other if alpha == 1 else other * alpha)

    in_place.__doc__ = f"`{name}`, written into the tensor."
    return in_place


def _power_into(x: Any, y: Any, out: Any) -> None:
    out[...] = power.power_of(x, y)


iadd = _operator(np.add, arithmetic.add_operator, "+")
isub = _operator(np.subtract, arithmetic.sub_operator, "-")
add_ = _scaled(iadd, "add")
sub_ = _scaled(isub, "sub")
mul_ = _operator(np.multiply, arithmetic.mul_operator, "*")
div_ = _operator(np.divide, arithmetic.div_operator, "/")
ipow = _operator(_power_into, power.pow, "**")


def pow_(input: Tensor, exponent: Any) -> Tensor:
    """`pow`, written into the tensor."""
    result: Tensor = ipow(input, exponent)
    return result


def written_into(input: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Write what `function` makes of a tensor into the tensor itself, which is returned.

    Raises:
        RuntimeError: The result has another shape or kind, or must not be written there.
    """
    if is_recorded(input):
        return write_through(input, function)
    result = function(input.detach())
    check_fits(input, result)
    input._array[...] = result._array
    input._version[0] += 1
    return input


def _unary(out_of_place: Callable[..., Tensor], name: str) -> Any:
    """The in-place form of a function of one tensor (and constants)."""

    def in_place(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return written_into(input, lambda before: out_of_place(before, *args, **kwargs))

    in_place.__doc__ = f"`{name}`, written into the tensor."
    return in_place


relu_ = _unary(pointwise.relu, "relu")
clamp_ = _unary(selection.clamp, "clamp")
exp_ = _unary(pointwise.exp, "exp")
sqrt_ = _unary(pointwise.sqrt, "sqrt")
tanh_ = _unary(pointwise.tanh, "tanh")
sigmoid_ = _unary(pointwise.sigmoid, "sigmoid")
neg_ = _unary(pointwise.neg, "neg")


def copy_(input: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write the values of `src`, broadcast and converted, into the tensor."""
    if not isinstance(src, Tensor):
        src = wrap(np.asarray(src))
    if is_recorded(input, src):
        converted = cast(broadcast_to(src, input._array.shape), input._array.dtype)
        node = CopyBackwards((edge_of(input), edge_of(converted)))
        write(input, wrap(converted._array, node))
    else:
        _check_broadcast(input._array.shape, src._array.shape)
        input._array[...] = src._array
        input._version[0] += 1
    return input


def fill_(input: Tensor, value: Any) -> Tensor:
    """Write one value everywhere."""
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                "fill_ only supports 0-dimension value tensor but got tensor with "
                f"{value._array.ndim} dimensions."
            )
        return copy_(input, value)
    if is_recorded(input):
        write(input, wrap(np.full(input._array.shape, value, input._array.dtype)))
    else:
        input._array[...] = value
        input._version[0] += 1
    return input


def zero_(input: Tensor) -> Tensor:
    """Write zero everywhere."""
    return fill_(input, 0)


def setitem(input: Tensor, index: Any, value: Any) -> None:
    """``input[index] = value``, with every kind of index that reading takes.

    Raises:
        RuntimeError: The value does not fit the place, or recording the write is not allowed.
    """
    given = index if isinstance(index, tuple) else (index,)
    index, basic = index_of(index)
    if not basic and (steps := in_two_steps(index)) is not None:
        _set(getitem(input, steps[0]), steps[1], value, versions_of(given))
    else:
        _set(input, index, value, () if basic else versions_of(given))


def _set(input: Tensor, index: Any, value: Any, versions: tuple[list[int], ...]) -> None:
    source = value if isinstance(value, Tensor) else None
    raw = value if source is None else source._array
    if not is_recorded(input, *([] if source is None else [source])):
        if not input._array.flags.writeable:
            raise refused_write(input, ValueError("read-only"))
        _assign(input._array, index, raw)
        input._version[0] += 1
        return
    after = input._array.copy()
    _assign(after, index, raw)
    edge = None
    if source is not None and source._requires_grad:
        source = cast(source, after.dtype)
        place = after[index].shape
        extra = source._array.ndim - len(place)
        if extra > 0:
            # NumPy lets dimensions of size 1 in front go.
            source = reshape(source, source._array.shape[extra:])
        edge = stretch(edge_of(source), source._array.shape, place)
    write(input, wrap(after, SetItemBackward0((edge_of(input), edge), (index,), versions)))


def _assign(array: Any, index: Any, value: Any) -> None:
    try:
        array[index] = value
    except ValueError as error:
        raise RuntimeError(f"shape mismatch in an indexed assignment: {error}") from None
