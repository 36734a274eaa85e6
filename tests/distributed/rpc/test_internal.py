"""Pickling by hand, and the small types of `rpc.internal`."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import tensorplay as tp
from distributed.rpc.called import Unpicklable, identity, on_first
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import internal, serialization
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.internal import PythonUDF, RPCExecMode, deserialize, serialize


class Handle:
    """Something that pickle would refuse."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        raise TypeError("a handle does not travel by itself")


def test_tensors_are_left_out_of_the_pickle() -> None:
    one, two = tp.ones(1000), tp.zeros(2, requires_grad=True)
    data, tensors = serialize({"a": one, "b": [two, one], "c": 5})
    assert isinstance(data, bytes)
    assert len(data) < 1000
    assert tensors[0] is one
    assert tensors[1] is two
    value = deserialize(data, tensors)
    assert value["a"] is value["b"][1] is one
    assert value["b"][0] is two
    assert value["c"] == 5


def test_other_tensors_can_be_put_in() -> None:
    data, tensors = serialize((tp.ones(1), tp.zeros(1)))
    assert len(tensors) == 2
    new = [tp.full((1,), 5.0), tp.full((1,), 6.0)]
    assert deserialize(data, new) == tuple(new)


def test_references_keep_their_values() -> None:
    def program() -> None:
        rref = rpc.RRef(5)
        data, tensors = serialize([rref])
        del rref
        (again,) = deserialize(data, tensors)
        assert again.to_here() == 5
        with pytest.raises(ValueError, match="cannot be pickled"):
            serialize([again, Unpicklable()])
        del again
        current_agent().send_drops()
        assert len(current_agent().rrefs) == 0

    on_first(1, program)


def test_reducer_of_a_class() -> None:
    def program() -> None:
        with pytest.raises(TypeError, match="does not travel by itself"):
            rpc.rpc_sync(1, identity, args=(Handle(1),))
        reducer = lambda handle: (Handle, (handle.number + 1,))  # noqa: E731
        internal._internal_rpc_pickler._register_reducer(Handle, reducer)
        try:
            assert rpc.rpc_sync(1, identity, args=(Handle(5),)).number == 7
            assert deserialize(*serialize(Handle(5))).number == 6
        finally:
            del serialization._reducers[Handle]

    on_first(2, program)


def test_ways_of_calling() -> None:
    values = [mode.value for mode in RPCExecMode]
    assert values == ["sync", "async", "async_jit", "remote"]
    assert pickle.loads(pickle.dumps(RPCExecMode.SYNC)) is RPCExecMode.SYNC


def test_tuples() -> None:
    assert PythonUDF(min, (1,), {}) == (min, (1,), {})
    assert PythonUDF(min, (1,), {}).func is min
    failure = internal.RemoteException("text", KeyError)
    assert (failure.msg, failure.exception_type) == ("text", KeyError)


def test_profiling_key() -> None:
    key = internal._build_rpc_profiling_key(RPCExecMode.REMOTE, "f", "a", "b")
    assert key == "rpc_remote#f(a -> b)"
