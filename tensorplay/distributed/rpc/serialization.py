"""Objects to pickles with out-of-band buffers, and back.

Tensors and remote references are pickled by rules of their own here; anything else by pickle's.
A tensor that requires grad gets a number in the message, by which the receiver attaches it to the
graph.  The same object twice in one message stays one object.

Remote references stand in a table before the pickle.  So the weights that they hold can be given
back even if the message cannot be unpickled, or if nobody asks for what is in it.

*Value semantics.*  A buffer of up to `INLINE_LIMIT` bytes is copied into the frame before the call
returns.  A longer one is sent from where it lies, so it is copied first unless the caller waits.
"""

from __future__ import annotations

import copyreg
import io
import operator
import pickle
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorplay.distributed.rpc.by_value import by_value_maker
from tensorplay.distributed.transport.wire import INLINE_LIMIT
from tensorplay.tensor import Tensor, wrap

#: Shorter arrays of plain numbers travel inside the pickle itself, in bytes.
SMALL = 512
#: Kinds of dtype that their string describes whole.
PLAIN_KINDS = frozenset("biufc")

Reducer = Callable[[Any, "Packed"], tuple[Any, ...]]
_reducers: dict[type, Reducer] = {}


#: First byte of a body that begins with a table of references; pickles begin with another.
REFERENCE_TABLE = 0
# That byte, and the number of references.
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


_reduce_array = operator.methodcaller("__reduce_ex__", 5)


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
        if cls is np.ndarray and cls not in copyreg.dispatch_table:
            # What pickle does without a table; found here once and for all.
            self[cls] = _reduce_array
            return _reduce_array
        return copyreg.dispatch_table[cls]


# What pickle says of something that cannot be found by its name.
_NOT_BY_NAME = (
    "local object",
    "not found as",
    "attribute lookup",
    "import of module",
    "not the same",
)

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
        if dtype.kind not in PLAIN_KINDS:
            return (_tensor_of_array, (array, number))
        if array.nbytes <= SMALL:
            return (_small_tensor, (array.tobytes(), dtype.str, array.shape, number))
        if not (array.flags.c_contiguous and array.flags.writeable):
            # Only the bytes of a slice travel; what arrives can be written to.
            array = array.copy()
        return (_tensor, (pickle.PickleBuffer(array), dtype.str, array.shape, number))


class _Thread(threading.local):
    # On the class: a finaliser that makes a call may run in the middle of an `__init__`.
    packers: list[_Packer] | None = None
    # None outside `unpack`: what is pickled in a message can be loaded by pickle, too.
    tensors: list[tuple[int, Tensor]] | None = None
    references: Sequence[Any] = ()


_thread = _Thread()


def pack(value: Any, *, copy: bool) -> Packed:
    """Pickle `value` for a message.

    Args:
        value: Anything that pickle takes.
        copy: Copy long buffers, since their memory may change before they are sent.
    """
    packers = _thread.packers
    if packers is None:
        packers = _thread.packers = [_Packer()]
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
        if _thread.tensors is not None:
            _thread.tensors.append((number, tensor))
    return tensor
