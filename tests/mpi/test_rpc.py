"""Calls among the ranks of an MPI job."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from mpi.conftest import RpcWorld
from mpi.served import LIMIT, add, digest, eventually, here, identity
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import agent
from tensorplay.distributed.transport import mpi
from tensorplay.distributed.transport.wire import EAGER_LIMIT, INLINE_LIMIT

pytestmark = pytest.mark.mpi

MIB = 1 << 20


# -- functions that are called -------------------------------------------------------------------


def pattern(nbytes: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.resize(np.roll(np.arange(251, dtype=np.uint8), seed), nbytes)


class Trouble(Exception):
    def __init__(self, text: str, number: int) -> None:
        super().__init__(text, number)
        self.number = number


def raise_trouble(text: str) -> None:
    raise Trouble(text, 5)


def leave() -> None:
    sys.exit(3)


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be pickled")


events: dict[str, threading.Event] = {}


@pytest.fixture
def event() -> Iterator[None]:
    """Have an event on this rank for the calls of others to wait for, or to set."""
    events["event"] = threading.Event()
    yield
    events["event"].set()


def wait_for_event(value: Any = None) -> Any:
    assert events["event"].wait(LIMIT)
    return value


def set_event() -> None:
    events["event"].set()


# -- calling -------------------------------------------------------------------------------------


def test_every_worker_calls_every_worker(rpc_world: RpcWorld) -> None:
    for to in rpc_world.everybody:
        assert rpc.rpc_sync(to, here) == to
        assert rpc.rpc_sync(f"worker{to}", add, args=(1, rpc_world.rank)) == 1 + rpc_world.rank
        assert rpc.rpc_async(rpc.get_worker_info(f"worker{to}"), here).wait() == to
        assert rpc.remote(to, here).to_here() == to


def test_two_hundred_calls_to_every_worker_at_once(rpc_world: RpcWorld) -> None:
    futures = [
        rpc.rpc_async(to, add, args=(np.full(1 + 13 * i, i), rpc_world.rank))
        for i in range(200)
        for to in rpc_world.everybody
    ]
    for number, future in enumerate(futures):
        i = number // rpc_world.size
        result = future.wait()
        assert result.shape == (1 + 13 * i,)
        assert (result == i + rpc_world.rank).all()


def test_threads_call_at_the_same_time(rpc_world: RpcWorld) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(60):
                array = pattern(100 * number * i, seed=i)
                got = rpc.rpc_sync(i % rpc_world.size, identity, args=(array,))
                assert np.array_equal(got, array)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)


def hop(depth: int, size: int) -> int:
    return 0 if depth == 0 else 1 + int(rpc.rpc_sync((here() + 1) % size, hop, (depth - 1, size)))


def test_calls_nested_thirty_deep_through_all_workers(rpc_world: RpcWorld) -> None:
    assert hop(30, rpc_world.size) == 30


def test_hundred_blocked_calls_wait_for_the_next(event: None, rpc_world: RpcWorld) -> None:
    # All ranks have their event by now: init_rpc is collective.
    futures = [rpc.rpc_async(rpc_world.next, wait_for_event, args=(i,)) for i in range(100)]
    rpc.rpc_sync(rpc_world.next, set_event)
    assert [future.wait() for future in futures] == list(range(100))


# -- arrays --------------------------------------------------------------------------------------

LIMITS = [
    *(0, 1, 511, 512, 513),
    *(INLINE_LIMIT - 1, INLINE_LIMIT, INLINE_LIMIT + 1),
    *(EAGER_LIMIT - 1, EAGER_LIMIT, EAGER_LIMIT + 1),
    *(MIB - 1, 3 * MIB + 1),
]


def test_arrays_of_all_lengths(rpc_world: RpcWorld) -> None:
    for nbytes in LIMITS:
        array = pattern(nbytes, seed=rpc_world.rank)
        for value in (array, tp.from_numpy(array)):
            for got in (
                rpc.rpc_sync(rpc_world.next, identity, args=(value,)),
                rpc.rpc_async(rpc_world.next, identity, args=(value,)).wait(),
                rpc.remote(rpc_world.next, identity, args=(value,)).to_here(),
            ):
                assert type(got) is type(value)
                assert np.array_equal(np.asarray(got), array)
        assert rpc.rpc_sync(rpc_world.next, digest, args=(array,)) == digest(array)


def test_array_of_forty_mebibytes(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    array = pattern(40 * MIB, seed=rpc_world.rank)
    got = rpc.rpc_sync(rpc_world.next, identity, args=(array,))
    assert np.array_equal(got, array)
    got[:] = 0
    assert array.any()


def test_layouts_of_long_arrays(rpc_world: RpcWorld) -> None:
    base = np.arange(300_000.0).reshape(300, 1000)
    read_only = base.copy()
    read_only.flags.writeable = False
    for array in (base.T, base[::2], base[:, ::-3], np.asfortranarray(base), read_only):
        got = rpc.rpc_sync(rpc_world.next, identity, args=(array,))
        assert np.array_equal(got, array)
        got = rpc.rpc_sync(rpc_world.next, identity, args=(tp.from_numpy(array),))
        assert np.array_equal(got.numpy(), array)


def test_many_long_arrays_in_one_message(rpc_world: RpcWorld) -> None:
    arrays = [pattern(INLINE_LIMIT + 1 + 1000 * i, seed=i) for i in range(100)]
    small = [pattern(i, seed=i) for i in range(2000)]
    got = rpc.rpc_sync(rpc_world.next, identity, args=([arrays, small],))
    for sent, received in zip([*arrays, *small], [*got[0], *got[1]], strict=True):
        assert np.array_equal(sent, received)


def test_many_messages_with_long_arrays_at_once(rpc_world: RpcWorld) -> None:
    futures = [
        rpc.rpc_async(to, identity, args=(pattern(10_000 + 5000 * i, seed=i),))
        for i in range(60)
        for to in rpc_world.everybody
    ]
    for number, future in enumerate(futures):
        i = number // rpc_world.size
        assert np.array_equal(future.wait(), pattern(10_000 + 5000 * i, seed=i))


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send long buffers in pieces that are much shorter than usual."""
    monkeypatch.setattr(mpi, "_CHUNK", 1000)


@pytest.mark.parametrize("nbytes", [10_000, 99_999, 100_000, 100_001])
def test_long_arrays_in_pieces(short_pieces: None, rpc_world: RpcWorld, nbytes: int) -> None:
    arrays = [pattern(nbytes, seed=i) for i in range(5)]
    for got in (
        rpc.rpc_sync(rpc_world.next, identity, args=(arrays,)),
        [rpc.rpc_async(rpc_world.next, identity, args=(a,)) for a in arrays],
    ):
        for sent, received in zip(arrays, got, strict=True):
            result = received.wait() if isinstance(received, rpc.Future) else received
            assert np.array_equal(result, sent)
    # A pickle that is itself longer than a piece.
    text = "long text " * nbytes
    assert rpc.rpc_sync(rpc_world.next, identity, args=(text,)) == text


def test_few_messages_with_long_arrays_may_be_under_way(
    monkeypatch: pytest.MonkeyPatch, rpc_world: RpcWorld
) -> None:
    # The others are held back in the sender, and nothing overtakes them.
    monkeypatch.setattr(mpi, "_MAX_BULK_IN_FLIGHT", 2)
    futures = []
    for i in range(50):
        futures.append(rpc.rpc_async(rpc_world.next, identity, args=(pattern(100_000, seed=i),)))
        futures.append(rpc.rpc_async(rpc_world.next, identity, args=(i,)))
    for i in range(50):
        assert np.array_equal(futures[2 * i].wait(), pattern(100_000, seed=i))
        assert futures[2 * i + 1].wait() == i


def test_what_travels_is_the_value_at_the_time_of_the_call(rpc_world: RpcWorld) -> None:
    for nbytes in (8, 800, INLINE_LIMIT, 100_000, 2 * MIB):
        array = np.zeros(nbytes, np.uint8)
        for to in rpc_world.everybody:
            futures = []
            for i in range(10):
                array[:] = i
                futures.append(rpc.rpc_async(to, identity, args=(array,)))
                futures.append(rpc.rpc_async(to, identity, args=(tp.from_numpy(array),)))
                rref = rpc.remote(to, identity, args=(array,))
                array[:] = 255
                assert (rref.to_here() == i).all()
            for number, future in enumerate(futures):
                assert (np.asarray(future.wait()) == number // 2).all()


kept: list[Any] = []


def keep(nbytes: int) -> Any:
    kept.append(np.zeros(nbytes, np.uint8))
    return kept[-1]


def change_kept() -> None:
    kept.pop()[:] = 1


def test_result_is_the_value_at_the_time_of_return(rpc_world: RpcWorld) -> None:
    # One after the other: the kept array is that of the only caller.
    for caller in rpc_world.everybody:
        rpc_world.comm.Barrier()
        if caller != rpc_world.rank:
            continue
        for nbytes in (8, INLINE_LIMIT + 1, 2 * MIB):
            future = rpc.rpc_async(rpc_world.next, keep, args=(nbytes,))
            eventually(future.done)
            rpc.rpc_sync(rpc_world.next, change_kept)
            assert not future.wait().any()


# -- failures ------------------------------------------------------------------------------------


def test_exceptions(rpc_world: RpcWorld) -> None:
    for to in rpc_world.everybody:
        for get in (
            lambda: rpc.rpc_sync(to, raise_trouble, args=("text",)),  # noqa: B023
            lambda: rpc.rpc_async(to, raise_trouble, args=("text",)).wait(),  # noqa: B023
            lambda: rpc.remote(to, raise_trouble, args=("text",)).to_here(),  # noqa: B023
        ):
            with pytest.raises(Trouble) as info:
                get()
            assert info.value.args == ("text", 5)
            shown = "".join(traceback.format_exception(info.value))
            assert f"On worker 'worker{to}'" in shown
            assert "in raise_trouble" in shown
        with pytest.raises(rpc.RemoteError, match="SystemExit: 3"):
            rpc.rpc_sync(to, leave)
        with pytest.raises(ValueError, match="cannot be pickled"):
            rpc.rpc_sync(to, identity, args=(Unpicklable(),))
        with pytest.raises(ValueError, match="cannot be pickled"):
            rpc.rpc_sync(to, Unpicklable)
        with pytest.raises(TypeError, match="args must be a tuple or a list"):
            rpc.rpc_sync(to, identity, args=np.ones(3))  # type: ignore[arg-type]
        assert rpc.rpc_sync(to, here) == to


def test_unknown_worker(rpc_world: RpcWorld) -> None:
    for to in ("nobody", -1, rpc_world.size):
        with pytest.raises(RuntimeError, match="could not find destination"):
            rpc.rpc_sync(to, here)
    with pytest.raises(ValueError, match="Cannot get WorkerInfo"):
        rpc.rpc_sync(1.5, here)  # type: ignore[arg-type]


def test_timeouts(event: None, rpc_world: RpcWorld) -> None:
    to = rpc_world.next
    for _ in range(3):
        with pytest.raises(rpc.RpcTimeoutError, match=r"RPC ran for more than.*50 ms"):
            rpc.rpc_sync(to, wait_for_event, args=(pattern(MIB),), timeout=0.05)
    future = rpc.rpc_async(to, wait_for_event, args=(5,), timeout=LIMIT)
    rref = rpc.remote(to, wait_for_event, args=(pattern(MIB),))
    with pytest.raises(rpc.RpcTimeoutError):
        rref.to_here(timeout=0.05)
    assert rpc.rpc_sync(to, here) == to
    rpc_world.comm.Barrier()
    rpc.rpc_sync(to, set_event)
    assert future.wait() == 5
    assert np.array_equal(rref.to_here(), pattern(MIB))


# -- references ----------------------------------------------------------------------------------


def value_of(rref: Any) -> Any:
    return rref.to_here()


def pass_on(rref: Any, size: int, hops: int) -> Any:
    if not hops:
        return rref
    return rpc.rpc_sync((here() + 1) % size, pass_on, args=(rref, size, hops - 1))


def test_references_are_passed_on_and_end(rpc_world: RpcWorld) -> None:
    for to in rpc_world.everybody:
        rref = rpc.remote(to, pattern, args=(100_000, rpc_world.rank))
        expected = pattern(100_000, rpc_world.rank)
        for user in rpc_world.everybody:
            got = rpc.rpc_sync(user, value_of, args=(rref,))
            assert np.array_equal(got, expected)
        back = pass_on(rref, rpc_world.size, 5)
        del rref
        assert back.owner().id == to
        assert np.array_equal(back.to_here(), expected)
        del back
    eventually(lambda: rpc.statistics().values_owned == 0)


def test_reference_that_comes_home_is_to_the_live_value(rpc_world: RpcWorld) -> None:
    array = pattern(100_000)
    rref = rpc.RRef(array)
    assert pass_on(rref, rpc_world.size, 3).local_value() is array


# -- a rank whose main thread is busy ------------------------------------------------------------


def compute_until_event() -> int:
    steps = 0
    while not events["event"].is_set():
        steps += sum(range(50))
    return steps


def sleep_until_event() -> None:
    while not events["event"].is_set():
        time.sleep(0.02)


@pytest.mark.parametrize("occupation", [compute_until_event, sleep_until_event])
@pytest.mark.mpi(min_size=2)
def test_busy_rank_serves(event: None, rpc_world: RpcWorld, occupation: Callable[[], Any]) -> None:
    if rpc_world.rank == 1:
        occupation()
    else:
        for i in range(30):
            assert rpc.rpc_sync(1, add, args=(i, 1)) == i + 1
        array = pattern(MIB)
        assert np.array_equal(rpc.rpc_sync(1, identity, args=(array,)), array)
        rpc.rpc_sync(1, set_event)


@pytest.mark.mpi(min_size=2)
def test_rank_in_a_barrier_of_the_user_serves(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        for i in range(10):
            for to in range(1, rpc_world.size):
                assert rpc.rpc_sync(to, add, args=(i, 1)) == i + 1
        array = pattern(MIB)
        assert np.array_equal(rpc.rpc_sync(1, identity, args=(array,)), array)
    rpc_world.comm.Barrier()


def test_messages_of_the_user_are_not_taken(rpc_world: RpcWorld) -> None:
    comm = rpc_world.comm
    source = (rpc_world.rank - 1) % rpc_world.size
    for tag in (0, 1, 5):
        requests = [comm.isend(("mine", tag), dest=rpc_world.next, tag=tag)]
        assert rpc.rpc_sync(rpc_world.next, here) == rpc_world.next
        assert comm.recv(source=source, tag=tag) == ("mine", tag)
        for request in requests:
            request.wait()


# -- starting and ending -------------------------------------------------------------------------


def check_calls(world: RpcWorld) -> None:
    for to in world.everybody:
        assert rpc.rpc_sync(to, here) == to
    assert np.array_equal(
        rpc.rpc_sync(world.next, identity, args=(pattern(50_000),)), pattern(50_000)
    )


def check_not_initialised() -> None:
    for call in (
        lambda: rpc.rpc_sync(0, here),
        lambda: rpc.rpc_async("worker0", here),
        lambda: rpc.remote(0, here),
        rpc.get_worker_info,
        rpc.shutdown,
    ):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            call()
    with pytest.raises(RuntimeError, match="Current RPC agent is not set"):
        rpc.RRef(1)


def test_calls_before_and_after(world: RpcWorld) -> None:
    check_not_initialised()
    rpc.init_rpc()
    rref = rpc.remote(world.next, here)
    assert rref.to_here() == world.next
    rpc.shutdown()
    check_not_initialised()
    if world.size > 1:
        with pytest.raises(RuntimeError, match=r"Cannot call to_here\(\) on it after deletion"):
            rref.to_here()


def test_init_and_shutdown_time_and_again(world: RpcWorld) -> None:
    for round_ in range(5):
        rpc.init_rpc(f"round{round_}-{world.rank}", rank=world.rank, world_size=world.size)
        assert rpc.get_worker_info().name == f"round{round_}-{world.rank}"
        assert rpc.rpc_sync(f"round{round_}-{world.next}", here) == world.next
        rref = rpc.remote(world.next, here)
        rpc.shutdown()
    del rref


def test_second_init_is_refused(rpc_world: RpcWorld) -> None:
    with pytest.raises(RuntimeError, match="RPC is already initialized"):
        rpc.init_rpc()
    check_calls(rpc_world)


@pytest.mark.mpi(min_size=2)
def test_equal_names_are_refused_on_all_ranks(world: RpcWorld) -> None:
    with pytest.raises(RuntimeError, match=r"'same' is not unique: ranks \[0, 1\]"):
        rpc.init_rpc("same" if world.rank < 2 else None)
    check_not_initialised()
    rpc.init_rpc()
    check_calls(world)
    rpc.shutdown()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rank": 7}, "rank 0: rank=7 was given, but MPI says 0"),
        ({"world_size": 9}, "rank 0: world_size=9 was given, but MPI says"),
        ({"name": "no spaces"}, "rank 0: Worker name must match"),
        ({"rpc_backend_options": rpc.MPIRpcBackendOptions(rpc_timeout=-3)}, "rank 0: rpc_timeout"),
    ],
)
def test_problem_of_one_rank_is_raised_on_all(
    world: RpcWorld, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        rpc.init_rpc(**arguments if world.rank == 0 else {})
    check_not_initialised()
    rpc.init_rpc()
    check_calls(world)
    rpc.shutdown()


def test_switch_interval_is_set_and_restored(world: RpcWorld) -> None:
    before = sys.getswitchinterval()
    rpc.init_rpc()
    assert sys.getswitchinterval() == pytest.approx(1e-4)
    rpc.shutdown()
    assert sys.getswitchinterval() == before
    rpc.init_rpc(rpc_backend_options=rpc.MPIRpcBackendOptions(switch_interval=None))
    assert sys.getswitchinterval() == before
    rpc.shutdown()
    assert sys.getswitchinterval() == before


def test_timeout_of_the_options(event: None, world: RpcWorld) -> None:
    rpc.init_rpc(rpc_backend_options=rpc.MPIRpcBackendOptions(rpc_timeout=0.05))
    with pytest.raises(rpc.RpcTimeoutError, match="50 ms"):
        rpc.rpc_sync(world.next, wait_for_event)
    world.comm.Barrier()
    set_event()
    rpc.shutdown()


def test_workers_of_a_part_of_the_world(world: RpcWorld) -> None:
    part = world.comm.Split(world.rank % 2, key=-world.rank)
    rpc.init_rpc(comm=part)
    assert rpc.get_world_size() == part.Get_size()
    assert rpc.get_worker_info().id == part.Get_rank()
    for to in range(part.Get_size()):
        assert rpc.rpc_sync(to, here) == to
    ranks = {rpc.rpc_sync(to, world_rank) for to in range(part.Get_size())}
    assert ranks == set(range(world.rank % 2, world.size, 2))
    rpc.shutdown()
    part.Free()


def world_rank() -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.Get_rank())


def test_worker_alone(world: RpcWorld) -> None:
    from mpi4py import MPI

    rpc.init_rpc(comm=MPI.COMM_SELF)
    assert rpc.rpc_sync("worker0", here) == 0
    rpc.shutdown()


def later(depth: int, size: int) -> None:
    time.sleep(0.002)
    reached.append(depth)
    if depth:
        rpc.rpc_async((here() + 1) % size, later, args=(depth - 1, size))


reached: list[int] = []


def test_chain_of_calls_that_nobody_waits_for_ends_before_anybody_leaves(world: RpcWorld) -> None:
    reached.clear()
    rpc.init_rpc()
    if world.rank == 0:
        later(20, world.size)
    rpc.shutdown()
    gathered = world.comm.allgather(reached)
    assert sorted(depth for depths in gathered for depth in depths) == list(range(21))


def test_shutdown_while_an_exception_is_handled(world: RpcWorld) -> None:
    try:
        rpc.init_rpc()
        raise KeyError("of the user")
    except KeyError:
        rpc.shutdown()
    check_not_initialised()
    rpc.init_rpc()
    check_calls(world)
    rpc.shutdown()


def test_abrupt_shutdown_of_all(
    event: None, world: RpcWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread that serves the call below does not end by itself.
    monkeypatch.setattr(agent, "_STOP_PATIENCE", 0.1)
    rpc.init_rpc()
    future = rpc.rpc_async(world.next, wait_for_event)
    then = future.then(lambda f: f.wait())
    world.comm.Barrier()
    rpc.shutdown(graceful=False)
    set_event()
    # Either this rank was first or the other one.
    ended = "RPC was shut down before this call was answered|has left"
    for unanswered in (future, then):
        with pytest.raises(RuntimeError, match=ended):
            unanswered.wait()
    check_not_initialised()
    world.comm.Barrier()
    rpc.init_rpc()
    check_calls(world)
    rpc.shutdown()


@pytest.mark.mpi(min_size=2)
def test_shutdown_that_takes_too_long(world: RpcWorld) -> None:
    rpc.init_rpc()
    if world.rank == world.size - 1:
        world.comm.Barrier()
        # The others have left without this one, and do not hold it up.
        rpc.shutdown(timeout=30)
    else:
        problem = rf"shutdown took longer than 0.2 s; not there yet: .*worker{world.size - 1}"
        with pytest.raises(rpc.RpcTimeoutError, match=problem):
            rpc.shutdown(timeout=0.2)
        world.comm.Barrier()
    check_not_initialised()
    world.comm.Barrier()
    rpc.init_rpc()
    check_calls(world)
    rpc.shutdown()


def test_statistics(rpc_world: RpcWorld) -> None:
    check_calls(rpc_world)
    statistics = rpc.statistics()
    assert statistics.calls_made == rpc_world.size + 1
    assert statistics.calls_outstanding == 0
    if rpc_world.size > 1:
        assert statistics.messages_sent >= rpc_world.size
        assert statistics.bytes_sent > 50_000
        assert statistics.messages_received >= rpc_world.size
    eventually(lambda: rpc.statistics().calls_served == rpc_world.size + 1)
