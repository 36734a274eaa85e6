"""Putting values into places that a NumPy index names; what scatter and its kin consist of.

The gradient of such an operation is an indexing, whose gradient is such an operation again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops.aliasing import is_recorded
from tensorplay.ops.gathering import in_bounds
from tensorplay.ops.indexing import add_at
from tensorplay.ops.inplace import SetItemBackward0, write_through
from tensorplay.ops.recording import cast, edge_of, wanted
from tensorplay.ops.shape import broadcast_to
from tensorplay.ops.writing import refused_write
from tensorplay.tensor import Tensor, wrap


class Place(NamedTuple):
    """Elements of a tensor.

    Attributes:
        index: Their index, as NumPy takes it.
        shape: The shape of what the index gives.
        versions: The version counters of the tensors that the index was made of: if one of these
            has been written to, the gradient would be that of other elements.
    """

    index: Any
    shape: tuple[int, ...]
    versions: tuple[list[int], ...]


class PutBackward0(SetItemBackward0):
    """New values at a place.  If it names an element twice, each value gets the gradient."""

    __slots__ = ()


class PutAddBackward0(Node):
    """Values added at an index."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any) -> tuple[Any, ...]:
        return (grad, None if self.edges[1] is None else grad[index])


def _source(input: Tensor, place: Place, source: Any) -> Tensor:
    """The values to put, as a tensor that has the shape of the place."""
    if not isinstance(source, Tensor):
        return wrap(np.broadcast_to(np.array(source, input._array.dtype), place.shape))
    source = cast(source, input._array.dtype)
    return source if source._array.shape == place.shape else broadcast_to(source, place.shape)


def put(input: Tensor, place: Place, source: Any) -> Tensor:
    """A copy of `input` with other values at a place.

    Args:
        source: A number or a tensor that broadcasts to the shape of the place.
    """
    source = _source(input, place, source)
    out = input._array.copy()
    out[place.index] = source._array
    return wrap(out, _node(PutBackward0, input, place, source))


def put_(input: Tensor, place: Place, source: Any) -> Tensor:
    """`put`, written into the tensor."""
    source = _source(input, place, source)
    if is_recorded(input, source):
        return write_through(input, put, place, source)
    input._array[place.index] = source._array
    input._version[0] += 1
    return input


def put_add(input: Tensor, place: Place, source: Any) -> Tensor:
    """A copy of `input` with values added at a place; arguments as for `put`."""
    source = _source(input, place, source)
    out = np.array(input._array, order="C")
    add_at(out, place.index, source._array)
    return wrap(out, _node(PutAddBackward0, input, place, source))


def put_add_(input: Tensor, place: Place, source: Any) -> Tensor:
    """`put_add`, written into the tensor."""
    source = _source(input, place, source)
    if is_recorded(input, source):
        return write_through(input, put_add, place, source)
    if not input._array.flags.writeable:
        # NumPy would write all the same.
        raise refused_write(input, ValueError("read-only"))
    add_at(input._array, place.index, source._array)
    input._version[0] += 1
    return input


def _node(kind: type[Node], input: Tensor, place: Place, source: Tensor) -> Node | None:
    if not wanted(input, source):
        return None
    return kind((edge_of(input), edge_of(source)), (place.index,), place.versions)


def checked(index: Any, size: int, what: str) -> np.ndarray[Any, Any]:
    """The array of a tensor of indices into a dimension of the given size.

    Raises:
        TypeError: It is not a tensor.
        RuntimeError: Its elements are not integers.
        IndexError: One is negative or too large.
    """
    if not isinstance(index, Tensor):
        raise TypeError(f"{what}: index must be a Tensor, not {type(index).__name__}")
    indices = index._array
    if indices.dtype.kind not in "iu":
        raise RuntimeError(f"{what}: expected integers as index, not {indices.dtype}")
    in_bounds(indices, size, what)
    return indices
