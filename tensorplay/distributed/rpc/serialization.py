"""Objects to pickles with out-of-band buffers, and back.

Tensors and remote references are pickled by rules of their own here; anything else by pickle's.
A tensor that requires grad gets a number in the message, by which the receiver attaches it to the
graph.  The same object twice in one message stays one object.

Remote references stand in a table before the pickle.  So the weights that they hold can be given
back even if the message cannot be unpickled, or if nobody asks for what is in it.

*Value semantics.*  A buffer of up to `INLINE_LIMIT` bytes is copied into the frame before the call
returns.  A longer one is sent from where it lies, so it is copied first unless the caller waits, or
nobody else holds it.

A call's body begins with the name of its function, if it has one (see `naming`)::

    length of the name (2 bytes; bit 14: in flat form) | name | table of references | pickle

*Flat form.*  Most arguments and results are plain values and tensors.  A sequence of these is
pickled with a tuple in each tensor's place, which needs no rules of our own and takes a third of
the time.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorplay.distributed.rpc.by_value import by_value_maker
from tensorplay.distributed.rpc.naming import function_not_found, name_of, named
from tensorplay.distributed.transport import memory
from tensorplay.distributed.transport.wire import INLINE_LIMIT
from tensorplay.tensor import Tensor, wrap

#: Shorter arrays of plain numbers travel inside the pickle itself, in bytes.
_SMALL = 512
#: Values of exactly these types hold nothing else.
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
#: Kinds of dtype that their string describes whole.
_PLAIN_KINDS = frozenset("biufc")

Reducer = Callable[[Any, "Packed"], tuple[Any, ...]]
_reducers: dict[type, Reducer] = {}


#: First byte of a body that begins with a table of references; pickles begin with another.
REFERENCE_TABLE = 0
#: First byte of a result in flat form.
_FLAT_RESULT = b"\x01"
# The first of these bytes, and the number of references.
_TABLE_HEAD = struct.Struct("<BI")
# Owner, creator, the count there, exponent of the weight.
_REFERENCE = struct.Struct("<IIQI")

ReferenceMaker = Callable[[int, int, int, int], Any]
_reference_makers: list[ReferenceMaker] = []


def register_reducer(cls: type, reducer: Reducer) -> None:
    """Pickle instances of `cls` in messages by ``reducer(object, packed)``."""
    _reducers[cls] = reducer


def register_reference_maker(maker: ReferenceMaker) -> None:
    """Have `maker` make a reference of what was given to `Packed.refer`."""
    _reference_makers[:] = [maker]


def reducer_of(cls: type) -> Reducer | None:
    """The reducer registered for `cls` or a base of it."""
    return next((reducer for base, reducer in _reducers.items() if issubclass(cls, base)), None)


class Packed:
    """A pickled object, and what the pickling found in it.

    Attributes:
        body: The pickle.
        buffers: Its out-of-band buffers.
        tensors: The tensors in it that require grad, in the order of their numbers.
        undo: What takes back the pickling's side effects.
    """

    body: bytes
    buffers: Sequence[Any] = ()
    tensors: Sequence[Tensor] = ()
    undo: list[Callable[[], None]] | None = None
    _references: list[bytes] | None = None

    def refer(
        self, owner: int, created_on: int, local_id: int, exponent: int
    ) -> tuple[Callable[[int], Any], tuple[int]]:
        """Enter a remote reference into the table; what to pickle in its place."""
        self._references = self._references or []
        self._references.append(_REFERENCE.pack(owner, created_on, local_id, exponent))
        return (_nth_reference, (len(self._references) - 1,))

    def finish(self, pickled: bytes) -> None:
        """Put table and pickle together."""
        if self._references:
            head = _TABLE_HEAD.pack(REFERENCE_TABLE, len(self._references))
            pickled = b"".join([head, *self._references, pickled])
        self.body = pickled

    def on_discard(self, undo: Callable[[], None]) -> None:
        """Have `undo` called if the message is not sent."""
        self.undo = self.undo or []
        self.undo.append(undo)

    def discard(self) -> None:
        """Take back what the pickling has done."""
        undo, self.undo = self.undo, None
        for function in undo or ():
            function()


class _Table(dict[type, Any]):
    """The dispatch table of one pickler: our own rules first, then those of `copyreg`."""

    def __init__(self, packer: _Packer) -> None:
        super().__init__()
        self._packer = packer

    def __missing__(self, cls: type) -> Any:
        packer = self._packer
        reducer = reducer_of(cls)
        if reducer is not None:
            reduce = packer.bind(reducer)
            self[cls] = reduce
            return reduce
        if issubclass(cls, Tensor):
            self[cls] = packer.reduce_tensor
            return packer.reduce_tensor
        return copyreg.dispatch_table[cls]


# What pickle says of something that cannot be found by its name.
_NOT_BY_NAME = ("local object", "not found as", "attribute lookup", "import of module")

# What a pickler holds between messages.
_nothing = Packed()
_none: list[Any] = []


class _Packer:
    """A pickler that is used again and again by one thread."""

    def __init__(self) -> None:
        self.free = True
        self._packed = _nothing
        self._buffers: list[Any] = _none
        self._tensors: list[Tensor] = _none
        self._copy = False
        self._file = io.BytesIO()
        self._pickler = pickle.Pickler(self._file, protocol=5, buffer_callback=self._take_buffer)
        self._pickler.dispatch_table = _Table(self)

    def bind(self, reducer: Reducer) -> Callable[[Any], tuple[Any, ...]]:
        return lambda value: reducer(value, self._packed)

    def pack(self, value: Any, copy: bool) -> Packed:
        # First of all: a finaliser that makes a call may run at any moment.
        self.free = False
        packed = self._packed = Packed()
        self._copy = copy
        packed.buffers = self._buffers = []
        packed.tensors = self._tensors = []
        file = self._file
        pickler = self._pickler
        by_value = by_value_maker()
        try:
            if by_value is not None:
                pickler = by_value(file, self._take_buffer, _Table(self))
            pickler.dump(value)
            packed.finish(file.getvalue())
        except (AttributeError, pickle.PicklingError) as error:
            packed.discard()
            text = str(error)
            if any(sign in text for sign in _NOT_BY_NAME) and by_value is None:
                raise pickle.PicklingError(
                    f"Can't pickle what other workers could not find by its name: {text}. Define "
                    "functions and classes that are sent at the top level of a module, or send "
                    "them by value: MPIRpcBackendOptions(cloudpickle=True)"
                ) from error
            raise
        except BaseException:
            packed.discard()
            raise
        finally:
            # Nothing of the message stays here.
            self._packed = _nothing
            self._buffers = self._tensors = _none
            file.seek(0)
            file.truncate()
            self._pickler.clear_memo()
            self.free = True
        return packed

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> None:
        view = buffer.raw()
        if self._copy and view.nbytes > INLINE_LIMIT:
            view = memoryview(bytearray(view))
        self._buffers.append(view)

    def reduce_tensor(self, tensor: Tensor) -> tuple[Any, ...]:
        array: Any = tensor._array
        if tensor._requires_grad:
            tensors = self._tensors
            number = len(tensors)
            tensors.append(tensor)
        else:
            number = -1
        dtype = array.dtype
        if dtype.kind not in _PLAIN_KINDS:
            return (_tensor_of_array, (array, number))
        if array.nbytes <= _SMALL:
            return (_small_tensor, (array.tobytes(), dtype.str, array.shape, number))
        if not (array.flags.c_contiguous and array.flags.writeable):
            # Only the bytes of a slice travel; what arrives can be written to.
            array = array.copy()
        return (_tensor, (pickle.PickleBuffer(array), dtype.str, array.shape, number))


class _Thread(threading.local):
    def __init__(self) -> None:
        self.packers: list[_Packer] = [_Packer()]
        self.tensors: list[tuple[int, Tensor]] = []
        self.references: Sequence[Any] = ()


_thread = _Thread()


def pack(value: Any, *, copy: bool) -> Packed:
    """Pickle `value` for a message.

    Args:
        value: Anything that pickle takes.
        copy: Copy long buffers, since their memory may change before they are sent.
    """
    packers = _thread.packers
    packer = packers[-1]
    if packer.free:
        return packer.pack(value, copy)
    # A user's __getstate__ packs again while it is being packed.
    inner = _Packer()
    packers.append(inner)
    try:
        return inner.pack(value, copy)
    finally:
        packers.pop()


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
    array = view.obj
    while type(array) is np.ndarray:
        if array.flags.owndata:
            return True
        if _references_to_base(array) > _SOLE_BASE:
            return False
        array = array.base
    return memory.is_own(array)


def _references_to_shown(view: memoryview) -> int:
    shown = view.obj
    return sys.getrefcount(shown)


def _references_to_base(array: np.ndarray[Any, Any]) -> int:
    base = array.base
    return sys.getrefcount(base)


# Measured, since they depend on how this Python passes arguments.
_SOLE_SHOWN = _references_to_shown(memoryview(np.empty(2)))
_SOLE_BASE = _references_to_base(np.empty(2)[:1])


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
        array: Any = value._array
        dtype = array.dtype
        if dtype.kind not in _PLAIN_KINDS:
            return False
        number = -1
        if value._requires_grad:
            number = len(tensors)
            tensors.append(value)
        if array.nbytes <= _SMALL:
            flat.append((array.tobytes(), dtype.str, array.shape, number))
            continue
        if not (array.flags.c_contiguous and array.flags.writeable) or (
            copy and array.nbytes > INLINE_LIMIT
        ):
            array = array.copy()
        buffers.append(memoryview(array).cast("B"))
        flat.append((None, dtype.str, array.shape, number))
    packed.body = pickle.dumps(flat, 5)
    if tensors:
        packed.tensors = tensors
    if buffers:
        packed.buffers = buffers
    return True


def unpack_flat(body: Any, buffers: Sequence[Any]) -> tuple[list[Any], Sequence[Tensor]]:
    """The values of a flat form, and the tensors among them that require grad."""
    values = pickle.loads(body)
    tensors: list[Tensor] = []
    used = 0
    for index, entry in enumerate(values):
        if type(entry) is tuple:
            data, dtype, shape, number = entry
            if data is None:
                buffer = buffers[used]
                used += 1
            else:
                buffer = bytearray(data)
            tensor = values[index] = wrap(np.ndarray(shape, dtype, buffer))
            if number >= 0:
                tensor._requires_grad = True
                tensors.append(tensor)
    return values, tensors


def receive_references(body: Any) -> Sequence[Any]:
    """The references in a message, by number; they hold their weights from now on."""
    if body[0] != REFERENCE_TABLE:
        return ()
    _, count = _TABLE_HEAD.unpack_from(body)
    table = body[_TABLE_HEAD.size : _TABLE_HEAD.size + count * _REFERENCE.size]
    make = _reference_makers[0]
    return [make(*entry) for entry in _REFERENCE.iter_unpack(table)]


def unpack(
    body: Any, buffers: Any, references: Sequence[Any] | None = None
) -> tuple[Any, list[Tensor]]:
    """The object of a message, and its tensors that require grad in the order of their numbers.

    Args:
        body: The message's body ...
        buffers: ... and its buffers.
        references: What `receive_references` has returned for it, if it has been called.
    """
    if references is None:
        references = receive_references(body)
    if references:
        body = body[_TABLE_HEAD.size + len(references) * _REFERENCE.size :]
    thread = _thread
    before = thread.tensors, thread.references
    found: list[tuple[int, Tensor]] = []
    thread.tensors, thread.references = found, references
    try:
        value = pickle.loads(body, buffers=buffers)
    finally:
        thread.tensors, thread.references = before
    if len(found) > 1:
        found.sort(key=_number)
    return value, [tensor for _, tensor in found]


def _nth_reference(number: int) -> Any:
    return _thread.references[number]


def _number(entry: tuple[int, Tensor]) -> int:
    return entry[0]


def _small_tensor(data: bytes, dtype: str, shape: tuple[int, ...], number: int) -> Tensor:
    return _received(np.ndarray(shape, dtype, bytearray(data)), number)


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...], number: int) -> Tensor:
    return _received(np.ndarray(shape, dtype, buffer), number)


def _tensor_of_array(array: np.ndarray[Any, Any], number: int) -> Tensor:
    return _received(array, number)


def _received(array: np.ndarray[Any, Any], number: int) -> Tensor:
    tensor = wrap(array)
    if number >= 0:
        tensor._requires_grad = True
        _thread.tensors.append((number, tensor))
    return tensor
