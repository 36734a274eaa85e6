"""What is packed on one side is unpacked on the other, and nothing of it stays behind."""

from __future__ import annotations

import collections
import copy as copy_module
import datetime
import enum
import functools
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tensorplay as tp
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.serialization import Packed, pack, register_reducer, unpack
from tensorplay.distributed.transport import Message
from tensorplay.distributed.transport.loopback import LoopbackWorld
from tensorplay.distributed.transport.wire import INLINE_LIMIT
from tensorplay.nn import Parameter


def travel(value: Any, *, copy: bool = True) -> Any:
    """Send a value from one worker to another."""
    return travel_with_tensors(value, copy=copy)[0]


def travel_with_tensors(value: Any, *, copy: bool = True) -> tuple[Any, Sequence[tp.Tensor]]:
    packed = pack(value, copy=copy)
    world = LoopbackWorld(2)
    world.transport(0).send(Message(1, 1, packed.body, packed.buffers))
    message = world.transport(1).poll()
    assert message is not None
    return unpack(message.body, message.buffers)


# -- arrays and tensors --------------------------------------------------------------------------

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
SHAPES = [(), (0,), (1,), (3, 0, 2), (7,), (3, 4), (2, 3, 4), (40, 50), (3000, 2)]


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape, dtype=int)) % 100).astype(dtype).reshape(shape)


def check_same(got: np.ndarray[Any, Any], sent: np.ndarray[Any, Any]) -> None:
    assert isinstance(got, np.ndarray)
    assert got.dtype == sent.dtype
    assert got.shape == sent.shape
    assert np.array_equal(got, sent)
    assert not np.shares_memory(got, sent)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_and_tensors_of_every_dtype(dtype: str, shape: tuple[int, ...], copy: bool) -> None:
    array = sample(dtype, shape)
    check_same(travel(array, copy=copy), array)
    tensor = travel(tp.from_numpy(array), copy=copy)
    assert type(tensor) is tp.Tensor
    check_same(tensor.numpy(), array)


@settings(deadline=None)
@given(
    array=hnp.arrays(
        st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, min_side=0), fill=st.nothing()
    ),
    axes=st.integers(0, 3),
    step=st.sampled_from([1, -1, 2]),
)
def test_views_travel_as_what_they_show(array: np.ndarray[Any, Any], axes: int, step: int) -> None:
    view = array.transpose(np.roll(np.arange(array.ndim), axes)) if array.ndim else array
    view = view[::step] if view.ndim else view
    for got in (travel(view), travel(tp.from_numpy(view)).numpy()):
        assert got.dtype == view.dtype
        assert np.array_equal(got, view, equal_nan=view.dtype.kind in "fc")


BIG = (300, 40)
"""Of doubles: longer than what travels inside the frame."""

LAYOUTS = {
    "Fortran order": np.asfortranarray(sample("float64", BIG)),
    "transposed": sample("float64", BIG).T,
    "every second": sample("float64", (600, 40))[::2],
    "backwards": sample("float64", BIG)[::-1],
    "one column": sample("float64", BIG)[:, 3],
    "expanded": np.broadcast_to(np.arange(40.0), BIG),
    "big-endian": sample(">f8", BIG),
    "not aligned": np.frombuffer(bytes(1 + 96_000), np.uint8)[1:].view(np.float64).reshape(BIG),
}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, copy: bool) -> None:
    array = LAYOUTS[layout]
    check_same(travel(array, copy=copy), array)
    if array.dtype.isnative:  # tensors are
        check_same(travel(tp.from_numpy(array), copy=copy).numpy(), array)


def test_only_the_bytes_of_a_slice_travel() -> None:
    base = np.zeros((1000, 1000))
    for value in (base[:20, :20], tp.from_numpy(base)[:20, :20]):
        packed = pack(value, copy=True)
        size = len(packed.body) + sum(memoryview(buffer).nbytes for buffer in packed.buffers)
        assert size < 20 * 20 * 8 + 500


@pytest.mark.parametrize("size", [3, 100, 5000])
def test_received_tensors_can_be_written_to(size: int) -> None:
    array = np.ones(size)
    array.flags.writeable = False
    for sent in (array, np.ones(size)):
        tensor = travel(tp.from_numpy(sent))
        tensor.numpy()[:] = 2
        assert tensor.numpy().sum() == 2 * size


@pytest.mark.parametrize("size", [3, 100, 5000])
def test_received_arrays_can_be_written_to_as_they_could_before(size: int) -> None:
    for writeable in (True, False):
        array = np.ones(size)
        array.flags.writeable = writeable
        assert travel(array).flags.writeable == writeable


def test_arrays_of_objects() -> None:
    array = np.array([1, "two", {"three": 3}, None, np.arange(3)], dtype=object)
    got = travel(array)
    assert got.dtype == object
    assert list(got[:4]) == list(array[:4])
    assert list(got[4]) == [0, 1, 2]


def test_structured_arrays() -> None:
    dtype = np.dtype([("name", "U5"), ("place", "f4", (2,)), ("inner", [("a", "i2")])])
    array = np.zeros(2000, dtype)
    array["name"][7] = "seven"
    array["place"][1] = [1, 2]
    array["inner"]["a"] = np.arange(2000)
    check_same(travel(array), array)


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[s]", "U3", "S3", "V4"])
def test_arrays_of_other_kinds(dtype: str) -> None:
    array = np.zeros(5000, dtype)
    check_same(travel(array), array)


def test_subclass_of_array_stays_one() -> None:
    got = travel(np.ma.masked_array([1.0, 2.0], mask=[False, True]))
    assert isinstance(got, np.ma.MaskedArray)
    assert list(got.mask) == [False, True]


def test_numpy_scalar_stays_one() -> None:
    got = travel(np.float32(1.5))
    assert isinstance(got, np.float32)
    assert got == 1.5


# -- identity and containers ---------------------------------------------------------------------


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Record:
    name: str
    content: Any


class Colour(enum.Enum):
    RED = 1


def test_same_object_twice_stays_one_object() -> None:
    for thing in (tp.ones(3), tp.ones(5000), np.ones(5000), [1], Record("r", 1)):
        first, second, third = travel([thing, {"again": thing}, Record("other", thing)])
        assert second["again"] is first
        assert third.content is first


def test_equal_objects_stay_two() -> None:
    first, second = travel([tp.ones(5000), tp.ones(5000)])
    first.numpy()[0] = 7
    assert second.numpy()[0] == 1


def test_nested_containers() -> None:
    tensor = tp.ones(2)
    deep: Any = tensor
    for _ in range(50):
        deep = [deep]
    value = {
        "point": Point(tensor, [tensor]),
        "record": Record("r", {1: tensor}),
        (1, Colour.RED): {"set": {1, 2}, "frozen": frozenset("ab")},
        "ordered": collections.OrderedDict(a=1),
        "deque": collections.deque([1, 2], maxlen=5),
        "date": datetime.date(2024, 2, 29),
        "path": PurePosixPath("/a/b"),
        "slice": slice(1, None, 2),
        "big": 1 << 3000,
        "text": "ж漢\0\n\ud800",
        "deep": deep,
    }
    got = travel(value)
    assert got["point"].y[0] is got["point"].x
    assert got["record"].content[1] is got["point"].x
    for _ in range(50):
        (got["deep"],) = got["deep"]
    assert got["deep"] is got["point"].x
    for key in ((1, Colour.RED), "ordered", "deque", "date", "path", "slice", "big", "text"):
        assert got[key] == value[key]


def test_tensor_as_key_of_a_dictionary() -> None:
    tensor = tp.ones(2)
    got = travel({"tensor": tensor, "table": {tensor: 5}})
    assert got["table"][got["tensor"]] == 5


def test_cycle() -> None:
    value: list[Any] = [1]
    value.append(value)
    got = travel(value)
    assert got[1] is got


@pytest.mark.parametrize("function", [len, np.linalg.norm, tp.matmul, Record, dict.fromkeys])
def test_functions_by_name(function: Any) -> None:
    assert travel(function) == function


def test_partial_functions_and_bound_methods() -> None:
    assert travel(functools.partial(max, 3))(2) == 3
    assert travel(Point(1, 2)._asdict)() == {"x": 1, "y": 2}


def test_ten_thousand_small_arrays() -> None:
    arrays = [np.full(100, i) for i in range(10_000)]
    got = travel(arrays)
    assert all((array == i).all() for i, array in enumerate(got))


# -- tensors that require grad -------------------------------------------------------------------


def leaf(*shape: int) -> tp.Tensor:
    return tp.ones(*shape).requires_grad_()


def test_tensors_that_require_grad_are_numbered_in_the_order_of_the_message() -> None:
    a, b, plain, big = leaf(1), leaf(2), tp.ones(3), leaf(5000)
    value = [big, plain, {"a": a}, b, a]
    packed = pack(value, copy=True)
    assert [id(tensor) for tensor in packed.tensors] == [id(big), id(a), id(b)]
    got, tensors = travel_with_tensors(value)
    assert [id(tensor) for tensor in tensors] == [id(got[0]), id(got[2]["a"]), id(got[3])]
    assert [tensor.requires_grad for tensor in (got[0], got[1], got[3])] == [True, False, True]
    assert all(tensor.is_leaf for tensor in tensors)


def test_parameter_arrives_as_a_tensor() -> None:
    parameter = Parameter(tp.ones(3))
    packed = pack(parameter, copy=True)
    assert packed.tensors[0] is parameter
    got, tensors = travel_with_tensors(parameter)
    assert type(got) is tp.Tensor
    assert got.requires_grad
    assert tensors[0] is got


def test_result_of_an_operation_arrives_as_a_leaf() -> None:
    got = travel(leaf(3) * 2)
    assert got.grad_fn is None
    assert got.requires_grad
    assert got.tolist() == [2, 2, 2]


class Shared:
    """Not plain data: counts how often it has been pickled."""

    def __init__(self) -> None:
        self.pickled = 0
        self.tensor = leaf(2)

    def __getstate__(self) -> dict[str, Any]:
        self.pickled += 1
        # As a class may do that carries a message of its own.
        inner = pack([leaf(3), tp.ones(4)], copy=True)
        assert len(inner.tensors) == 1
        return {"tensor": self.tensor, "inner": (bytes(inner.body), inner.buffers == [])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        value, tensors = unpack(state["inner"][0], [])
        assert len(tensors) == 1
        assert value[0] is tensors[0]
        self.tensor = state["tensor"]


def test_packing_and_unpacking_within_packing_and_unpacking() -> None:
    shared, before, after = Shared(), leaf(5), leaf(6)
    packed = pack([before, shared, after], copy=True)
    assert [id(t) for t in packed.tensors] == [id(before), id(shared.tensor), id(after)]
    got, tensors = unpack(packed.body, packed.buffers)
    assert [id(t) for t in tensors] == [id(got[0]), id(got[1].tensor), id(got[2])]
    assert shared.pickled == 1


class PacksInTheEnd:
    """Its finaliser, which the collector may run in the middle of anything, packs a message."""

    packed: list[Any] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        PacksInTheEnd.packed.append(travel(["of the finaliser"]))


def test_finaliser_that_packs_in_the_middle_of_a_threads_first_packing() -> None:
    got: list[Any] = []

    def collect_after(allocations: int) -> None:
        PacksInTheEnd()
        gc.set_threshold(allocations)
        gc.enable()
        try:
            got.append(travel(["first"]))
        finally:
            gc.disable()

    before = gc.get_threshold()
    PacksInTheEnd.packed.clear()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for allocations in range(1, 80):
            thread = threading.Thread(target=collect_after, args=(allocations,))
            thread.start()
            thread.join()
            gc.collect()
    finally:
        gc.set_threshold(*before)
        gc.enable()
        gc.unfreeze()
    assert got == [["first"]] * 79
    assert PacksInTheEnd.packed == [["of the finaliser"]] * 79


# -- value semantics -----------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [INLINE_LIMIT + 1, 1 << 20])
def test_long_buffers_are_copied_on_request_and_otherwise_not(nbytes: int) -> None:
    array = np.zeros(nbytes, np.uint8)
    for value in (array, tp.from_numpy(array)):
        copied = pack(value, copy=True)
        shared = pack(value, copy=False)
        assert not any(np.shares_memory(np.asarray(b), array) for b in copied.buffers)
        assert any(np.shares_memory(np.asarray(b), array) for b in shared.buffers)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("nbytes", [1, 511, 512, 513, INLINE_LIMIT])
def test_short_buffers_have_been_copied_once_the_message_is_sent(nbytes: int, copy: bool) -> None:
    array = np.zeros(nbytes, np.uint8)
    packed = pack([array, tp.from_numpy(array)], copy=copy)
    world = LoopbackWorld(2)
    world.transport(0).send(Message(1, 1, packed.body, packed.buffers))
    array[:] = 1
    message = world.transport(1).poll()
    assert message is not None
    first, second = unpack(message.body, message.buffers)[0]
    assert not first.any()
    assert not second.numpy().any()


# -- what cannot be packed -----------------------------------------------------------------------


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be pickled")


class Unloadable:
    def __reduce__(self) -> Any:
        return (int, ("not a number",))


def test_error_while_packing_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="cannot be pickled"):
        pack([leaf(2), Unpicklable()], copy=True)


@pytest.mark.parametrize("thing", [lambda: 0, threading.Lock(), (i for i in ())])
def test_things_that_pickle_refuses(thing: Any) -> None:
    # Which error it is depends on the version of Python.
    errors = (AttributeError, TypeError, pickle.PicklingError)
    with pytest.raises(errors, match=r"[Cc]an.t (pickle|get)|cannot pickle"):
        pack(thing, copy=True)


def test_failed_packing_leaves_nothing_for_the_next_one() -> None:
    thing = [tp.ones(2)]
    with pytest.raises(ValueError, match="cannot"):
        pack([thing, leaf(2), np.ones(5000), Unpicklable()], copy=True)
    packed = pack([thing, leaf(3)], copy=True)
    assert [tensor.shape for tensor in packed.tensors] == [(3,)]
    assert packed.buffers == []
    assert unpack(packed.body, packed.buffers)[0][0][0].tolist() == [1, 1]


def test_failed_unpacking_leaves_nothing_for_the_next_one() -> None:
    packed = pack([leaf(2), Unloadable()], copy=True)
    with pytest.raises(ValueError, match="invalid literal"):
        unpack(packed.body, packed.buffers)
    _, tensors = travel_with_tensors(leaf(3))
    assert [tensor.shape for tensor in tensors] == [(3,)]


class Marked:
    """Pickled by a rule of this file."""

    def __init__(self) -> None:
        self.log: list[str] = []


def _reduce_marked(marked: Marked, packed: Packed) -> tuple[Any, ...]:
    marked.log.append("packed")
    packed.on_discard(lambda: marked.log.append("taken back"))
    return (Marked, ())


register_reducer(Marked, _reduce_marked)


def test_failed_packing_takes_back_what_it_has_done() -> None:
    first, second = Marked(), Marked()
    with pytest.raises(ValueError, match="cannot"):
        pack([first, second, Unpicklable()], copy=True)
    assert first.log == second.log == ["packed", "taken back"]


def test_discarded_message_takes_back_once() -> None:
    marked = Marked()
    packed = pack([marked, marked], copy=True)
    assert marked.log == ["packed"]
    packed.discard()
    packed.discard()
    assert marked.log == ["packed", "taken back"]


# -- memory --------------------------------------------------------------------------------------


@pytest.fixture
def no_collector() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_packing_keeps_nothing_alive(no_collector: None) -> None:
    array = np.ones(5000)
    tensor = leaf(2)
    array_ref, tensor_ref = weakref.ref(array), weakref.ref(tensor)
    packed = pack([array, tensor], copy=False)
    del array, tensor, packed
    assert tensor_ref() is None
    assert array_ref() is None


def test_unpacking_keeps_nothing_alive(no_collector: None) -> None:
    value, tensors = travel_with_tensors([np.ones(5000), leaf(2)])
    references = [weakref.ref(value[0]), weakref.ref(value[1])]
    del value, tensors
    assert [reference() for reference in references] == [None, None]


# -- remote references ---------------------------------------------------------------------------


def one_worker(program: Any) -> None:
    run_world(1, lambda rank: program())


def test_reference_travels_within_messages_only() -> None:
    def program() -> None:
        rref = rpc.RRef(5)
        for refused in (pickle.dumps, copy_module.deepcopy, copy_module.copy):
            with pytest.raises(RuntimeError, match="rref can only be pickled when using RPC"):
                refused(rref)
        packed = pack({"rref": rref, "twice": [rref, rref]}, copy=True)
        got, _ = unpack(packed.body, packed.buffers)
        assert got["rref"] is got["twice"][0] is got["twice"][1]
        assert got["rref"] is not rref
        assert got["rref"].local_value() == 5

    one_worker(program)


def settled(expected: int) -> int:
    """Give back what has been dropped; how many values are left.

    A serving thread may be giving something back at the same time: waits for it.
    """
    agent = current_agent()
    agent.send_drops()
    deadline = time.monotonic() + 10
    while len(agent.rrefs) != expected and time.monotonic() < deadline:
        time.sleep(1e-3)
    return len(agent.rrefs)


def test_failed_packing_takes_copies_of_references_back() -> None:
    def program() -> None:
        rref = rpc.RRef(5)
        for _ in range(3):
            with pytest.raises(ValueError, match="cannot"):
                pack([rref, [rref], Unpicklable()], copy=True)
        assert settled(1) == 1
        del rref
        assert settled(0) == 0

    one_worker(program)


def test_references_of_a_message_that_cannot_be_unpacked_are_dropped() -> None:
    def program() -> None:
        rref, other = rpc.RRef(5), rpc.RRef(6)
        for value in ([rref, Unloadable(), other], [Unloadable(), rref, other]):
            packed = pack(value, copy=True)
            with pytest.raises(ValueError, match="invalid literal"):
                unpack(packed.body, packed.buffers)
        del rref, other, value, packed
        assert settled(0) == 0

    one_worker(program)


def test_thousands_of_references_in_one_message() -> None:
    def program() -> None:
        packed = pack([rpc.RRef(number) for number in range(5000)], copy=True)
        assert settled(5000) == 5000
        got, _ = unpack(packed.body, packed.buffers)
        assert [rref.local_value() for rref in got] == list(range(5000))
        del got
        assert settled(0) == 0

    one_worker(program)


def test_reference_of_a_session_that_has_ended_cannot_be_packed() -> None:
    old: list[rpc.RRef[int]] = []
    one_worker(lambda: old.append(rpc.RRef(1)))

    def program() -> None:
        with pytest.raises(RuntimeError, match="has been shut down"):
            pack(old[0], copy=True)

    one_worker(program)


# -- several threads -----------------------------------------------------------------------------


def test_threads_pack_independently() -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for round_ in range(200):
                value = [leaf(number), np.full(5000, round_), {"n": number}]
                got, tensors = travel_with_tensors(value)
                assert tensors[0].shape == (number,)
                assert (got[1] == round_).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_generator_travels_by_value() -> None:
    generator = tp.Generator().manual_seed(5)
    tp.rand(2, generator=generator)
    arrived = travel({"g": generator})["g"]
    assert arrived is not generator
    assert tp.equal(tp.rand(4, generator=arrived), tp.rand(4, generator=generator))
