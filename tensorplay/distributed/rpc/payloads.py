"""What the bodies of calls and results look like.

A call's body begins with the name of its function, if it has one (see `naming`)::

    length of the name (2 bytes; bit 14: in flat form) | name | table of references | pickle

*Flat form.*  Most arguments and results are plain values and tensors.  A sequence of these is
pickled with a tuple in each tensor's place, which needs no rules of our own and takes a third of
the time.  Anything else goes through `serialization`.

*Value semantics.*  A result is what it was when the function returned.  Others on the callee may
hold its memory and change it; if nobody does, it is sent from where it lies.
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tensorplay.distributed.rpc.by_value import by_value_maker
from tensorplay.distributed.rpc.naming import function_not_found, name_of, named
from tensorplay.distributed.rpc.serialization import PLAIN_KINDS, SMALL, Packed, pack, unpack
from tensorplay.distributed.transport import memory
from tensorplay.distributed.transport.wire import INLINE_LIMIT
from tensorplay.tensor import Tensor, wrap

#: Its bytes, None for a long one; the type's name; the shape; its number among the tensors that
#: require grad, -1 if it does not.
FlatArray = tuple[bytes | None, str, tuple[int, ...], int]
#: Values of exactly these types hold nothing else.
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
#: First byte of a result in flat form.
_FLAT_RESULT = b"\x01"
_FLAT_ARGS = 1 << 14
_NAME_LENGTH = struct.Struct("<H")
_LENGTH_BITS = _FLAT_ARGS - 1


def pack_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, copy: bool
) -> Packed:
    """Pickle a call for a message."""
    # By value, what a script or notebook defines must not go by its name.
    name = name_of(function) if by_value_maker() is None else b""
    if name and not kwargs:
        packed = Packed()
        if pack_flat(args, packed, copy):
            packed.body = _NAME_LENGTH.pack(len(name) | _FLAT_ARGS) + name + packed.body
            return packed
    packed = pack((args, kwargs) if name else (args, kwargs, function), copy=copy)
    packed.body = _NAME_LENGTH.pack(len(name)) + name + packed.body
    return packed


def unpack_call(
    body: Any, buffers: Any, start: int
) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any], Sequence[Tensor]]:
    """Function, arguments and tensors that require grad of what `pack_call` has packed.

    Args:
        body: The message's body ...
        buffers: ... and its buffers.
        start: Where in the body the call begins.

    Raises:
        FunctionNotFoundError, MissingModuleError: A name in it means nothing here.
    """
    (length,) = _NAME_LENGTH.unpack_from(body, start)
    start += _NAME_LENGTH.size
    rest = start + (length & _LENGTH_BITS)
    name = bytes(body[start:rest])
    if length & _FLAT_ARGS:
        args, tensors = unpack_flat(body[rest:], buffers)
        return named(name), args, {}, tensors
    try:
        value, tensors = unpack(body[rest:], buffers)
    except (AttributeError, ModuleNotFoundError) as error:
        if "Can't get attribute" in str(error) or isinstance(error, ModuleNotFoundError):
            raise function_not_found(error) from error
        raise
    args, kwargs, *pickled = value
    return pickled[0] if pickled else named(name), args, kwargs, tensors


def pack_result(box: list[Any]) -> Packed:
    """Pickle a call's result, which the caller has put into `box` and holds no more.

    It may go on changing if others hold it; then long buffers are copied.
    """
    if box[0] is None:
        return _packed_none
    packed = Packed()
    if pack_flat(box, packed, copy=False):
        packed.body = _FLAT_RESULT + packed.body
        box.clear()
    else:
        packed = pack(box.pop(), copy=False)
    if packed.buffers:
        packed.buffers = [
            memoryview(bytearray(view))
            if view.nbytes > INLINE_LIMIT and not _is_sole_holder(view)
            else view
            for view in packed.buffers
        ]
    return packed


#: The result None, which most calls have that have no other.
NONE = _FLAT_RESULT + pickle.dumps([None], 5)
_packed_none = Packed()
_packed_none.body = NONE


def unpack_result(
    body: Any, buffers: Any, references: Sequence[Any] | None = None
) -> tuple[Any, Sequence[Tensor]]:
    """A call's result, and its tensors that require grad in the order of their numbers."""
    if body[0] == _FLAT_RESULT[0]:
        (value,), tensors = unpack_flat(body[1:], buffers)
        return value, tensors
    return unpack(body, buffers, references)


def _is_sole_holder(view: memoryview) -> bool:
    """Whether nothing but `view` refers to the memory that it shows."""
    if _references_to_shown(view) > _SOLE_SHOWN:
        return False
    shown: Any = view.obj
    return isinstance(shown, np.ndarray) and memory.is_sole_user(shown)


def _references_to_shown(view: memoryview) -> int:
    shown = view.obj
    return sys.getrefcount(shown)


# Measured, since it depends on how this Python passes arguments.
_SOLE_SHOWN = _references_to_shown(np.empty(2).data)


_EMPTY = pickle.dumps([], 5)


def pack_flat(values: Sequence[Any], packed: Packed, copy: bool) -> bool:
    """Fill `packed` with the flat form of `values`; False if they have none."""
    if not values:
        packed.body = _EMPTY
        return True
    flat: list[Any] = []
    tensors: list[Tensor] = []
    buffers: list[Any] = []
    seen: set[int] = set()
    for value in values:
        if type(value) in _ATOMS:
            flat.append(value)
            continue
        if not isinstance(value, Tensor) or id(value) in seen:
            return False
        seen.add(id(value))
        number = -1
        if value._requires_grad:
            number = len(tensors)
            tensors.append(value)
        entry = flat_array(value._array, buffers, number, copy)
        if entry is None:
            return False
        flat.append(entry)
    packed.body = pickle.dumps(flat, 5)
    if tensors:
        packed.tensors = tensors
    if buffers:
        packed.buffers = buffers
    return True


def flat_array(
    array: Any, buffers: list[Any], number: int = -1, copy: bool = False
) -> FlatArray | None:
    """What stands for an array in flat form; None if its elements are not plain numbers.

    A long one is put into `buffers`.  `number` is its place among the tensors that require grad.
    """
    dtype = array.dtype
    if dtype.kind not in PLAIN_KINDS:
        return None
    nbytes = array.nbytes
    if nbytes <= SMALL:
        return (array.tobytes(), dtype.str, array.shape, number)
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable) or (copy and nbytes > INLINE_LIMIT):
        array = array.copy()
    buffers.append(memoryview(array).cast("B"))
    return (None, dtype.str, array.shape, number)


def unpack_flat(body: Any, buffers: Iterable[Any]) -> tuple[list[Any], Sequence[Tensor]]:
    """The values of a flat form, and the tensors among them that require grad."""
    values = pickle.loads(body)
    tensors: list[Tensor] = []
    rest = iter(buffers)
    for index, entry in enumerate(values):
        if type(entry) is tuple:
            tensor = values[index] = wrap(array_of(entry, rest))
            if entry[3] >= 0:
                tensor._requires_grad = True
                tensors.append(tensor)
    return values, tensors


def array_of(entry: FlatArray, buffers: Iterator[Any]) -> np.ndarray[Any, Any]:
    """The array that `flat_array` has packed; a long one lies in the next of `buffers`."""
    data, dtype, shape, _ = entry
    return np.ndarray(shape, dtype, next(buffers) if data is None else bytearray(data))
