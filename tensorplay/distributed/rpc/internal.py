"""Objects to bytes and tensors by hand, and names that tools built on PyTorch's RPC import."""

from __future__ import annotations

import enum
import io
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorplay.distributed.rpc.serialization import (
    Packed,
    reducer_of,
    register_reducer,
    unpack,
)
from tensorplay.tensor import Tensor


class RPCExecMode(enum.Enum):
    """The ways of calling."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


class PythonUDF(NamedTuple):
    """A call: what is called, and with what."""

    func: Any
    args: Any
    kwargs: Any


class RemoteException(NamedTuple):
    """An exception on another worker: its text and its class."""

    msg: str
    exception_type: type[BaseException]


class _Received(threading.local):
    tensors: Sequence[Tensor] = ()


_received = _Received()


def _nth_tensor(number: int) -> Tensor:
    return _received.tensors[number]


class _TensorsApart(pickle.Pickler):
    """Leaves tensors out of the pickle, in a list; keeps the other rules of messages."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.packed = Packed()
        self.tensors: list[Tensor] = []

    def reducer_override(self, value: Any) -> Any:
        reducer = reducer_of(type(value))
        if reducer is not None:
            return reducer(value, self.packed)
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return (_nth_tensor, (len(self.tensors) - 1,))
        return NotImplemented


class _InternalRPCPickler:
    """Pickles as messages are pickled, but for tensors, which it leaves as they are."""

    def serialize(self, obj: Any) -> tuple[bytes, list[Tensor]]:
        """The pickle of `obj`, and the tensors in it."""
        file = io.BytesIO()
        pickler = _TensorsApart(file)
        try:
            pickler.dump(obj)
        except BaseException:
            pickler.packed.discard()
            raise
        pickler.packed.finish(file.getvalue())
        return pickler.packed.body, pickler.tensors

    def deserialize(self, binary_data: bytes, tensor_table: list[Tensor]) -> Any:
        """The object that `serialize` has made into these; once, if there are RRefs in it."""
        before, _received.tensors = _received.tensors, tensor_table
        try:
            return unpack(binary_data, ())[0]
        finally:
            _received.tensors = before

    def _register_reducer(self, obj_class: type, reducer: Callable[[Any], Any]) -> None:
        """Pickle instances of `obj_class` in messages by ``reducer(object)``."""
        register_reducer(obj_class, lambda value, packed: reducer(value))


_internal_rpc_pickler = _InternalRPCPickler()
serialize = _internal_rpc_pickler.serialize
deserialize = _internal_rpc_pickler.deserialize


def _build_rpc_profiling_key(
    exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str
) -> str:
    """The name of a call in profiles.

    >>> _build_rpc_profiling_key(RPCExecMode.SYNC, "add", "worker0", "worker1")
    'rpc_sync#add(worker0 -> worker1)'
    """
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"
