"""Indexing: every kind that NumPy has, with tensors as indices too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.graph import Node
from tensorplay.ops.aliasing import viewed
from tensorplay.ops.recording import edge_of, recorded, wanted
from tensorplay.tensor import Tensor, wrap

_BYTES = dtypes.uint8
#: NumPy adds several times faster with one index on a vector than with any other kind; for so few
#: elements, making that index costs more.
_FEW = 500
_BASIC = (int, slice, type(None), type(Ellipsis))
_PLAIN = frozenset(_BASIC)


class SliceBackward0(Node):
    """Integers, slices, None and ``...``: a view, each element at most once."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (scatter(grad, index, shape, False),)


class IndexBackward0(Node):
    """Arrays among the indices: a copy, in which an element may stand several times."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (scatter(grad, index, shape, True),)


class ScatterBackward0(Node):
    """The gradient of an indexing, recorded."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any) -> tuple[Any, ...]:
        return (grad[index],)


def scatter(value: Any, index: Any, shape: tuple[int, ...], repeated: bool) -> Any:
    """Zeros of `shape` with `value` added at `index`; the adjoint of indexing."""
    array = value._array if isinstance(value, Tensor) else value
    out = np.zeros(shape, array.dtype)
    if repeated and _may_repeat(index):
        add_at(out, index, array)
    else:
        out[index] = array
    if not isinstance(value, Tensor):
        return out
    return wrap(out, ScatterBackward0((edge_of(value),), (index,)) if wanted(value) else None)


def add_at(out: np.ndarray[Any, Any], index: Any, values: Any) -> None:
    """Add `values` to `out` at `index`, all of them where an element is named several times."""
    places = None
    if np.size(values) > _FEW and out.flags.c_contiguous:
        places = _positions(out.shape, index)
    if places is None:
        np.add.at(out, index, values)
        return
    spread = np.broadcast_to(values, places.shape).reshape(-1)
    np.add.at(out.reshape(-1), places.reshape(-1), spread)


def _positions(shape: tuple[int, ...], index: Any) -> np.ndarray[Any, Any] | None:
    """Where in memory, in row order, the elements lie that an index names.

    Only for arrays of integers side by side, and whole dimensions before and behind; else None.
    """
    parts: list[Any] = []
    given = index if isinstance(index, tuple) else (index,)
    for i, part in enumerate(given):
        if part is not Ellipsis:
            parts.append(part)
        elif whole := len(shape) - len(given) + 1:
            parts += [slice(None)] * whole
        elif 0 < i < len(given) - 1:
            # It stands for nothing, and yet parts what is beside it.
            return None
    kinds = [isinstance(part, np.ndarray) and part.dtype.kind in "iu" for part in parts]
    if True not in kinds:
        return None
    first = kinds.index(True)
    last = first + kinds.count(True)
    if not all(kinds[first:last]):
        return None
    others = parts[:first] + parts[last:]
    if not all(isinstance(part, slice) and part == slice(None) for part in others):
        return None
    within: Any = 0
    for size, part in zip(shape[first:last], parts[first:last], strict=True):
        negative = part < 0
        within = within * size + (np.where(negative, part + size, part) if negative.any() else part)
    before, behind = math.prod(shape[:first]), math.prod(shape[last:])
    places = within.reshape(1, -1, 1) * behind + np.arange(behind)
    if first:
        step = behind * math.prod(shape[first:last])
        places = np.arange(before).reshape(-1, 1, 1) * step + places
    found: np.ndarray[Any, Any] = places.reshape(shape[:first] + within.shape + shape[last:])
    return found


def _may_repeat(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return not all(
        isinstance(part, _BASIC) or (isinstance(part, np.ndarray) and part.dtype.kind == "b")
        for part in parts
    )


def _as_numpy(part: Any) -> Any:
    if isinstance(part, Tensor):
        part = part._array
        if part.dtype is _BYTES:
            raise IndexError(
                "a uint8 tensor as an index would be a mask to PyTorch, and numbers to NumPy: "
                "convert it with .bool() or .long()"
            )
        if part.dtype.kind not in "biu":
            raise IndexError(
                f"tensors used as indices must be long, int, byte or bool tensors, not {part.dtype}"
            )
        return part
    if isinstance(part, (list, range)):
        return np.asarray(part) if len(part) else np.zeros(0, np.int64)
    return part


def index_of(index: Any) -> tuple[tuple[Any, ...], bool]:
    """An index as NumPy takes it, and whether it makes a view."""
    parts = index if isinstance(index, tuple) else (index,)
    basic = True
    own = []
    for part in parts:
        if part.__class__ not in _PLAIN:
            part = _as_numpy(part)
            if isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu":
                part = int(part)
            elif (
                not isinstance(part, bool)
                and hasattr(part, "__index__")
                and not isinstance(part, np.ndarray)
            ):
                part = part.__index__()
            else:
                basic = False
        own.append(part)
    if basic and Ellipsis not in own:
        # So that NumPy gives a view of one element too, rather than a number.
        own.append(Ellipsis)
    return tuple(own), basic


def in_two_steps(index: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """An index with integers apart from its arrays, as one of the integers and one of the rest.

    NumPy takes an integer beside arrays for an array too, and moves the dimensions of arrays that
    are not neighbours to the front.  PyTorch picks what the integers say first.  None if that makes
    no difference.
    """
    places = [i for i, part in enumerate(index) if isinstance(part, (int, np.ndarray))]
    if not places or places[-1] - places[0] == len(places) - 1:
        return None
    if not any(isinstance(part, int) and not isinstance(part, bool) for part in index):
        return None
    first: list[Any] = []
    rest: list[Any] = []
    for part in index:
        if isinstance(part, int) and not isinstance(part, bool):
            first.append(part)
            continue
        rest.append(part)
        if part is Ellipsis:
            first.append(part)
        elif isinstance(part, np.ndarray) and part.dtype.kind == "b":
            first += [slice(None)] * part.ndim
        elif part is not None and not isinstance(part, bool):
            first.append(slice(None))
    return tuple(first), tuple(rest)


def getitem(input: Tensor, index: Any) -> Tensor:
    """``input[index]``: a view for integers, slices, None and ``...``; a copy with arrays.

    Integers pick first; the rest is as in NumPy.

    Raises:
        IndexError: As NumPy.
    """
    x = input._array
    given = index
    # The commonest kinds at once.
    if index.__class__ is int or index.__class__ is slice:
        index, basic = (index, ...), True
    else:
        index, basic = index_of(index)
    if not basic and (steps := in_two_steps(index)) is not None:
        versions = versions_of(given if isinstance(given, tuple) else (given,))
        return _picked(getitem(input, steps[0]), steps[1], versions)
    if not basic:
        return _picked(input, index, versions_of(given if isinstance(given, tuple) else (given,)))
    saved = (index, x.shape)
    return viewed(input, x[index], SliceBackward0, saved, lambda base: getitem(base, index))


def _picked(input: Tensor, index: Any, versions: tuple[list[int], ...]) -> Tensor:
    x = input._array
    if len(versions) == 1:
        return recorded(x[index], IndexBackward0, input, (index, x.shape), versions[0])
    if not wanted(input):
        return wrap(x[index])
    return wrap(x[index], IndexBackward0((edge_of(input),), (index, x.shape), versions))


def versions_of(parts: Sequence[Any]) -> tuple[list[int], ...]:
    """The version counters of the tensors in an index, apart from single numbers."""
    return tuple([part._version for part in parts if isinstance(part, Tensor) and part._array.ndim])
