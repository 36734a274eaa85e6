"""Very long messages, very many messages, and everything that NumPy holds."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi.conftest import RpcWorld
from mpi.served import add, digest, hold, identity, open_gate
from tensorplay.distributed import rpc

pytestmark = pytest.mark.mpi

GIB = 1 << 30

# -- long and many -------------------------------------------------------------------------------


def free_memory() -> int:
    """Bytes that programs may still take, on this machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":") for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def look(array: Any) -> tuple[int, list[int]]:
    """Size of a long array, and what stands at a few places of it."""
    places = [0, 1, 2**30, 2**31 - 1, 2**31, len(array) - 1]
    return array.nbytes, [int(array[place]) for place in places]


@pytest.mark.ranks(2)
@pytest.mark.timeout(180)
def test_message_over_two_gibibytes(rpc_world: RpcWorld) -> None:
    enough = rpc_world.comm.bcast(free_memory() >= 8 * GIB)
    if not enough:
        pytest.skip("needs 8 GiB of free memory")
    if rpc_world.rank == 0:
        array = np.zeros(int(2.1 * GIB), np.uint8)
        for value, place in enumerate([0, 1, 2**30, 2**31 - 1, 2**31, len(array) - 1], 1):
            array[place] = value
        size, values = rpc.rpc_sync(1, look, args=(array,), timeout=150)
        assert size == array.nbytes
        assert values == [1, 2, 3, 4, 5, 6]
        assert rpc.statistics().bytes_sent > size


@pytest.mark.mpi(min_size=2)
def test_call_with_ten_thousand_small_arrays(rpc_world: RpcWorld) -> None:
    arrays = [np.full(i % 40, i, np.int32) for i in range(10_000)]
    got = rpc.rpc_sync(rpc_world.next, identity, args=(arrays,))
    assert len(got) == 10_000
    assert all(np.array_equal(a, b) for a, b in zip(arrays, got, strict=True))


@pytest.mark.ranks(2)
def test_call_with_ten_thousand_arrays_outside_the_pickle(rpc_world: RpcWorld) -> None:
    # Some inline in the frame, some in transfers of their own.
    if rpc_world.rank == 0:
        arrays = [np.full(9000 if i % 50 == 0 else 600, i % 256, np.uint8) for i in range(10_000)]
        got = rpc.rpc_sync(1, identity, args=(arrays,))
        assert len(got) == 10_000
        assert all(np.array_equal(a, b) for a, b in zip(arrays, got, strict=True))


@pytest.mark.parametrize(
    "number", [5000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(300)])]
)
@pytest.mark.ranks(2, 4)
def test_calls_in_a_row(rpc_world: RpcWorld, number: int) -> None:
    if rpc_world.rank == 0:
        for i in range(number):
            assert rpc.rpc_sync(1, add, args=(i, 1)) == i + 1
        assert rpc.statistics().calls_made == number


@pytest.mark.ranks(2, 3)
def test_ten_thousand_calls_outstanding_at_once(closed_gate: None, rpc_world: RpcWorld) -> None:
    # One of them blocks, so that answers and questions are under way at the same time.
    if rpc_world.rank == 0:
        blocked = rpc.rpc_async(rpc_world.next, hold, args=("held",))
        futures = [rpc.rpc_async(rpc_world.next, add, args=(i, 1)) for i in range(10_000)]
        assert rpc.statistics().calls_outstanding >= 1
        assert [future.wait() for future in futures] == list(range(1, 10_001))
        assert not blocked.done()
        rpc.rpc_sync(rpc_world.next, open_gate)
        assert blocked.wait() == "held"
        assert rpc.statistics().calls_outstanding == 0


# -- everything that NumPy holds -----------------------------------------------------------------

STRUCTURED = np.dtype(
    [("name", "U4"), ("place", "<f8", (2,)), ("flags", [("a", "?"), ("b", "i1")])]
)
DTYPES = [
    *("?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q"),
    *("e", "f", "d", "g", "F", "D", "G", ">f8", ">i4", ">c16"),
    *("S0", "S7", "U0", "U5", "V3", "M8[ns]", "M8[D]", "m8[us]", "m8"),
]
SHAPES = [(), (0,), (1,), (7,), (0, 5), (3, 0, 2), (3, 5), (2, 3, 4), (1200,)]


def filled(dtype: Any, shape: tuple[int, ...]) -> Any:
    """An array of this dtype with something in all of its bytes."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(5)
    if dtype.kind == "U":
        array = np.empty(shape, dtype)
        array[...] = "aä€𝄞z"[: dtype.itemsize // 4]
        return array
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "fcg":
        return (rng.standard_normal(shape) * 100).astype(dtype)
    nbytes = dtype.itemsize * int(np.prod(shape))
    raw = rng.integers(0, 256, nbytes, dtype=np.uint8)
    return np.ndarray(shape, dtype, raw.tobytes()).copy() if nbytes else np.empty(shape, dtype)


def check_same(got: Any, sent: Any) -> None:
    assert type(got) is type(sent)
    assert got.dtype == sent.dtype
    assert got.shape == sent.shape
    assert got.tobytes() == sent.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.ranks(1, 2)
def test_dtypes_and_shapes(rpc_world: RpcWorld, dtype: str) -> None:
    sent = [filled(dtype, shape) for shape in SHAPES]
    for to in rpc_world.everybody:
        for got, array in zip(rpc.rpc_sync(to, identity, args=(sent,)), sent, strict=True):
            check_same(got, array)
        # A scalar of NumPy is none of Python.
        if np.dtype(dtype).itemsize:
            scalar = filled(dtype, ()).item() if dtype == "V3" else filled(dtype, ())[()]
            got = rpc.rpc_sync(to, identity, args=(scalar,))
            assert np.asarray(got).dtype == np.asarray(scalar).dtype
            assert isinstance(got, np.generic) == isinstance(scalar, np.generic)


def test_structured_arrays(rpc_world: RpcWorld) -> None:
    array = np.zeros(300, STRUCTURED)
    array["name"] = "ä€"
    array["place"] = np.arange(600.0).reshape(300, 2)
    array["flags"]["a"][::3] = True
    for sent in (array, array[:1], array["place"], array["flags"], array[["name", "flags"]]):
        got = rpc.rpc_sync(rpc_world.next, identity, args=(sent,))
        assert got.dtype == sent.dtype
        assert (got == sent).all()
    records = array.view(np.recarray)
    got = rpc.rpc_sync(rpc_world.next, identity, args=(records,))
    assert type(got) is np.recarray
    assert (got.name == "ä€").all()
    aligned = np.zeros(5, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    assert rpc.rpc_sync(rpc_world.next, identity, args=(aligned,)).dtype == aligned.dtype


def object_array() -> Any:
    array = np.empty((2, 2), object)
    array[:] = [[1, "two"], [None, {"four": np.arange(4)}]]
    return array


def test_object_arrays(rpc_world: RpcWorld) -> None:
    array = object_array()
    got = rpc.rpc_sync(rpc_world.next, identity, args=(array,))
    assert got.dtype == object
    assert got.shape == (2, 2)
    assert got[0].tolist() == [1, "two"]
    assert np.array_equal(got[1, 1]["four"], np.arange(4))
    shared = np.array([array, array, None], dtype=object)
    got = rpc.rpc_sync(rpc_world.next, identity, args=(shared,))
    assert got[0] is got[1]


def test_masked_arrays(rpc_world: RpcWorld) -> None:
    for length in (5, 5000):
        array = np.ma.masked_array(np.arange(length), mask=np.arange(length) % 2, fill_value=-7)
        got = rpc.rpc_sync(rpc_world.next, identity, args=(array,))
        assert type(got) is type(array)
        assert (got.mask == array.mask).all()
        assert (got.data == array.data).all()
        assert got.fill_value == -7


def draw(rng: Any) -> Any:
    return rng.standard_normal(3)


@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
@pytest.mark.ranks(1, 2)
def test_random_generators(rpc_world: RpcWorld, bits: str) -> None:
    rng = np.random.Generator(getattr(np.random, bits)(7))
    rng.standard_normal(11)
    there = rpc.rpc_sync(rpc_world.next, draw, args=(rng,))
    back = rpc.rpc_sync(rpc_world.next, identity, args=(rng,))
    expected = rng.standard_normal(3)
    assert np.array_equal(there, expected)
    assert np.array_equal(back.standard_normal(3), expected)
    assert np.array_equal(
        rpc.rpc_sync(rpc_world.next, draw, args=(np.random.RandomState(3),)),
        np.random.RandomState(3).standard_normal(3),
    )


BASE = np.arange(300_000.0).reshape(500, 600)
BASE.flags.writeable = False
LAYOUTS = {
    "fortran": np.asfortranarray(BASE),
    "transposed": BASE.T,
    "backwards": BASE[::-1, ::-2],
    "column": BASE[:, 3],
    "block": BASE[10:400, 5:20],
    "broadcast": np.broadcast_to(np.arange(600.0), (500, 600)),
    "stride 0": np.broadcast_to(3.5, (7, 9)),
    "diagonal": BASE.diagonal(),
    "unaligned": np.zeros(8001, np.uint8)[1:].view("<f8"),
    "field": np.zeros(2000, STRUCTURED)["place"],
    "writable": BASE[3:4].copy(),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.ranks(1, 2)
def test_layouts(rpc_world: RpcWorld, name: str) -> None:
    for array in (LAYOUTS[name], LAYOUTS[name][:1]):
        got = rpc.rpc_sync(rpc_world.next, identity, args=(array,))
        assert np.array_equal(got, array)
        assert rpc.rpc_sync(rpc_world.next, digest, args=(array,)) == digest(array)
        pair = rpc.rpc_sync(rpc_world.next, identity, args=([array, {"again": array}],))
        assert pair[0] is pair[1]["again"]


def fill(array: Any, value: float) -> float:
    array[...] = value
    return float(array.sum())


def test_what_arrives_is_the_receivers_own(rpc_world: RpcWorld) -> None:
    for length in (3, 100, 2000, 100_000):
        array = np.ones(length)
        assert rpc.rpc_sync(rpc_world.next, fill, args=(array, 2.0)) == 2.0 * length
        assert (array == 1).all()
        got = rpc.rpc_sync(rpc_world.next, identity, args=(array,))
        got[...] = 5
        assert (array == 1).all()


def test_read_only_arrays_arrive_read_only(rpc_world: RpcWorld) -> None:
    # As pickle has it.
    for length in (3, 100, 100_000):
        array = np.ones(length)
        array.flags.writeable = False
        expected = pickle.loads(pickle.dumps(array, 5)).flags.writeable
        got = rpc.rpc_sync(rpc_world.next, identity, args=(array,))
        assert np.array_equal(got, array)
        assert got.flags.writeable == expected


@pytest.mark.ranks(2)
def test_only_the_bytes_of_a_slice_travel(rpc_world: RpcWorld) -> None:
    rpc_world.comm.Barrier()
    slices = [BASE[3:5], BASE[:, 3], BASE[::50, ::60], BASE[7, 100:110], BASE[::-1, 5:6]]
    for array in slices if rpc_world.rank == 0 else []:
        before = rpc.statistics().bytes_sent
        rpc.rpc_sync(1, digest, args=(array,))
        sent = rpc.statistics().bytes_sent - before
        assert array.nbytes <= sent <= array.nbytes + 2000


@pytest.mark.ranks(2)
def test_array_that_is_twice_in_a_message_travels_once(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        array = np.ones(100_000)
        before = rpc.statistics().bytes_sent
        assert rpc.rpc_sync(1, are_one, args=(array, [array, {"x": array}]))
        assert rpc.statistics().bytes_sent - before < 1.5 * array.nbytes


def are_one(array: Any, others: Any) -> bool:
    return array is others[0] is others[1]["x"]


def test_dtypes_and_other_things_of_numpy(rpc_world: RpcWorld) -> None:
    for value in (
        np.dtype("f4"),
        STRUCTURED,
        np.float32,
        np.add,
        np.sum,
        np.s_[1:3, ...],
        np.newaxis,
    ):
        assert rpc.rpc_sync(rpc_world.next, identity, args=(value,)) == value
