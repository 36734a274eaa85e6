"""Calls among several workers in one process."""

from __future__ import annotations

import contextvars
import functools
import gc
import operator
import random
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.rpc.called import (
    HARSH,
    LIMIT,
    LONG,
    Gate,
    Thing,
    add,
    arguments,
    count_values,
    eventually,
    fill,
    here,
    identity,
    on_first,
    open_gate,
    pass_gate,
    sleep,
)
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.loopback import Weather

# -- calling ---------------------------------------------------------------------------------------


def test_destination_by_name_rank_and_info() -> None:
    def program() -> None:
        info = rpc.get_worker_info("worker1")
        assert info == WorkerInfo("worker1", 1)
        for to in ("worker1", 1, info, True):
            assert rpc.rpc_sync(to, here) == 1
        assert rpc.get_worker_info() == WorkerInfo("worker0", 0)

    on_first(2, program)


def test_worker_info_is_resolved_by_its_name() -> None:
    def program() -> None:
        assert rpc.rpc_sync(WorkerInfo("worker1", 0), here) == 1
        with pytest.raises(RuntimeError, match="could not find destination"):
            rpc.rpc_sync(WorkerInfo("nobody", 1), here)

    on_first(2, program)


def test_worker_info_travels() -> None:
    def program() -> None:
        info = rpc.rpc_sync(1, rpc.get_worker_info)
        assert info == WorkerInfo("worker1", 1)
        assert rpc.rpc_sync(info, here) == 1

    on_first(2, program)


@pytest.mark.parametrize("to", ["worker2", "", "Worker1", 2, -1, 10**6])
def test_unknown_worker(to: Any) -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(RuntimeError, match="could not find destination"):
                call(to, here)
        with pytest.raises(RuntimeError, match="could not find destination"):
            rpc.get_worker_info(to)

    on_first(2, program)


@pytest.mark.parametrize("to", [1.0, None, np.int64(1), ("worker1",), b"worker1"])
def test_destination_of_a_wrong_type(to: Any) -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(ValueError, match="Cannot get WorkerInfo from name"):
                call(to, here)

    on_first(2, program)


def test_arguments_and_results() -> None:
    def program() -> None:
        for to in (1, 0):
            assert rpc.rpc_sync(to, add, args=(1, 2)) == 3
            assert rpc.rpc_sync(to, add, args=[1], kwargs={"b": 5}) == 6
            assert rpc.rpc_sync(to, add, args=(1,)) == 11
            assert rpc.rpc_sync(to, arguments) == ((), {})
            assert rpc.rpc_sync(to, arguments, args=(), kwargs={}) == ((), {})
            assert rpc.rpc_sync(to, arguments, args=[[1, 2]]) == (([1, 2],), {})
            assert rpc.rpc_async(to, add, args=(1, 2)).wait() == 3
            assert rpc.remote(to, add, args=(1, 2)).to_here() == 3

    on_first(2, program)


@pytest.mark.parametrize(
    "args",
    [tp.ones(1), tp.ones(2, 2), np.ones(1), "text", b"bytes", {"a": 1}, {1}, 5, iter([1])],
    ids=lambda value: type(value).__name__,
)
def test_arguments_must_be_a_tuple_or_list(args: Any) -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(TypeError, match=r"args must be a tuple or a list.*args=\(value,\)"):
                call(1, identity, args=args)
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


@pytest.mark.parametrize(
    ("function", "args", "result"),
    [
        (min, (3, 2), 2),
        (len, ("abc",), 3),
        (operator.itemgetter(1), ("abc",), "b"),
        (functools.partial(add, 1), (2,), 3),
        (Thing.static, (2,), 4),
        (Thing.named, (2,), ("Thing", 2)),
        (Thing(3).added, (4,), 7),
        (Thing.added, (Thing(3), 4), 7),
        (np.add, (1, 2), 3),
        (dict, ([("a", 1)],), {"a": 1}),
    ],
)
def test_kinds_of_functions(function: Any, args: Any, result: Any) -> None:
    def program() -> None:
        assert rpc.rpc_sync(1, function, args=args) == result
        assert rpc.remote(1, function, args=args).to_here() == result

    on_first(2, program)


def test_class_as_function() -> None:
    def program() -> None:
        assert rpc.rpc_sync(1, Thing, args=(5,)).value == 5

    on_first(2, program)


def test_each_call_gets_its_own_answer() -> None:
    def program() -> None:
        futures = [rpc.rpc_async(1 + i % 2, add, args=(i, 0)) for i in range(300)]
        assert [future.wait() for future in futures] == list(range(300))

    for weather in (None, HARSH):
        on_first(3, program, weather=weather)


# -- value semantics -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, LONG])
def test_callee_gets_copies(size: int) -> None:
    def program() -> None:
        array = np.zeros(size)
        for value in (array, tp.from_numpy(array)):
            for to in (0, 1):
                rpc.rpc_sync(to, fill, args=(value,))
                rpc.rpc_async(to, fill, args=(value,)).wait()
                rpc.remote(to, fill, args=(value,)).to_here()
        assert not array.any()

    on_first(2, program)


@pytest.mark.parametrize("size", [1, 100, LONG])
def test_what_travels_is_the_value_at_the_time_of_the_call(size: int) -> None:
    def program() -> None:
        array = np.zeros(size)
        for to in (0, 1):
            futures = []
            for i in range(20):
                array[:] = i
                futures.append(rpc.rpc_async(to, identity, args=(array,)))
                rref = rpc.remote(to, identity, args=(array,))
                array[:] = -1
                futures.append(rpc.rpc_async(to, rpc.RRef.to_here, args=(rref,)))
            for i, future in enumerate(futures):
                assert (future.wait() == i // 2).all()

    on_first(2, program)


kept: list[Any] = []


def keep(value: Any) -> Any:
    kept.append(value)
    return value


@pytest.mark.parametrize("size", [1, 100, LONG])
def test_result_is_a_copy_of_the_value_at_the_time_of_return(size: int) -> None:
    def program() -> None:
        for to in (0, 1):
            future = rpc.rpc_async(to, keep, args=(np.zeros(size),))
            eventually(future.done)
            kept.pop()[:] = 1
            result = future.wait()
            assert not result.any()
            assert result.flags.writeable

    on_first(2, program)


def test_same_object_twice_in_a_call_stays_one() -> None:
    def program() -> None:
        shared = np.ones(LONG)
        assert rpc.rpc_sync(1, operator.is_, args=(shared, shared))
        first, second = rpc.rpc_sync(1, identity, args=([shared, shared],))
        assert first is second

    on_first(2, program)


# -- nesting ---------------------------------------------------------------------------------------


def hop(depth: int, size: int, way: list[int]) -> list[int]:
    """Call the next worker, which does the same, `depth` times."""
    way = [*way, here()]
    if depth == 0:
        return way
    return list(rpc.rpc_sync((here() + 1) % size, hop, args=(depth - 1, size, way)))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("weather", [None, HARSH], ids=["calm", "harsh"])
def test_calls_nested_thirty_deep_through_all_workers(size: int, weather: Weather | None) -> None:
    def program(rank: int) -> None:
        assert hop(30, size, []) == [(rank + i) % size for i in range(31)]

    run_world(size, program, weather=weather)


def tree(depth: int, size: int) -> int:
    """Call two workers at once, each of which does the same; the number of calls."""
    if depth == 0:
        return 1
    futures = [
        rpc.rpc_async((here() + i) % size, tree, args=(depth - 1, size)) for i in range(1, 3)
    ]
    return 1 + sum(future.wait() for future in futures)


def test_tree_of_calls() -> None:
    run_world(3, lambda rank: tree(5, 3) == 2**6 - 1 or pytest.fail("wrong count"))


def ping(depth: int) -> int:
    return 0 if depth == 0 else 1 + int(rpc.rpc_sync(1 - here(), ping, args=(depth - 1,)))


def test_mutual_nesting_from_both_sides_at_once() -> None:
    def program(rank: int) -> None:
        threads = [threading.Thread(target=work, args=(current_agent(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert ping(20) == 20
        for thread in threads:
            thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in threads)

    def work(agent: Agent) -> None:
        set_thread_agent(agent)
        for _ in range(5):
            assert ping(10) == 10

    run_world(2, program)


def test_hundred_blocked_calls_wait_for_the_next(gate: Gate) -> None:
    def program() -> None:
        futures = [rpc.rpc_async(1, pass_gate, args=(gate.name, i)) for i in range(100)]
        for _ in range(100):
            assert gate.waiting.acquire(timeout=LIMIT)
        rpc.rpc_sync(1, open_gate, args=(gate.name,))
        assert [future.wait() for future in futures] == list(range(100))

    on_first(2, program)


lock_of_the_user = threading.Lock()


def take_lock(log: str) -> str:
    with lock_of_the_user:
        return log


def call_back_later(name: str) -> Any:
    return rpc.rpc_async(0, take_lock, args=(name,)).done()


def test_waiting_thread_that_holds_a_lock_does_not_serve() -> None:
    def program() -> None:
        for _ in range(50):
            with lock_of_the_user:
                rpc.rpc_sync(1, call_back_later, args=("x",))
                rpc.rpc_sync(1, here)
            assert rpc.rpc_sync(1, take_lock, args=("y",)) == "y"

    on_first(2, program)


def test_threads_call_at_the_same_time() -> None:
    def program(rank: int) -> None:
        errors: list[BaseException] = []

        def work(agent: Agent, number: int) -> None:
            set_thread_agent(agent)
            try:
                for i in range(50):
                    assert rpc.rpc_sync(i % 3, add, args=(number, i)) == number + i
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=work, args=(current_agent(), number)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert errors == []

    run_world(3, program)


# -- callbacks -------------------------------------------------------------------------------------


def test_callbacks_wait_for_other_calls() -> None:
    def program() -> None:
        def more(future: rpc.Future) -> Any:
            return rpc.rpc_sync(1, add, args=(future.wait(), 1)) + rpc.rpc_sync(0, add, args=(0, 1))

        futures = [
            rpc.rpc_async(1, add, args=(i, 0)).then(more).then(more).then(more) for i in range(20)
        ]
        assert [future.wait() for future in futures] == [i + 6 for i in range(20)]

    for weather in (None, HARSH):
        on_first(2, program, weather=weather)


def test_callback_on_an_answered_call_runs_at_once() -> None:
    def program() -> None:
        future = rpc.rpc_async(1, here)
        future.wait()
        threads: list[threading.Thread] = []
        future.add_done_callback(lambda f: threads.append(threading.current_thread()))
        assert threads == [threading.current_thread()]

    on_first(2, program)


def test_callback_of_a_call_that_expires(gate: Gate) -> None:
    def program() -> None:
        future = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=0.02)
        with pytest.raises(rpc.RpcTimeoutError):
            future.then(lambda f: f.wait()).wait()
        gate.event.set()

    on_first(2, program)


def test_callback_that_exits_does_not_end_the_worker() -> None:
    def program() -> None:
        with pytest.raises(SystemExit):
            rpc.rpc_async(1, sleep, args=(0.01,)).then(lambda f: sys.exit(3)).wait()
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


# -- counting and memory ---------------------------------------------------------------------------


def test_statistics() -> None:
    def program() -> None:
        before = rpc.statistics()
        rrefs = []
        for to in (0, 1):
            rpc.rpc_sync(to, here)
            rrefs.append(rpc.remote(to, Thing))
            rrefs[-1].to_here()
        after = rpc.statistics()
        assert after.calls_made - before.calls_made == 2 + 2 + 1
        assert after.calls_served - before.calls_served == 2
        assert after.calls_outstanding == 0
        assert after.messages_sent - before.messages_sent >= 3
        assert after.messages_received - before.messages_received >= 3
        assert after.bytes_sent > before.bytes_sent
        assert after.values_owned == 1
        assert after.serving_threads >= 1
        assert rpc.rpc_sync(1, rpc.statistics).calls_served >= 3

    on_first(2, program)


def test_calls_leave_nothing_in_memory() -> None:
    def program() -> None:
        gc.collect()
        gc.disable()
        try:
            references = []
            for call in (rpc.rpc_sync, rpc.rpc_async):
                array, thing = np.ones(LONG), Thing()
                result = call(1, identity, args=([array, thing],))
                if isinstance(result, rpc.Future):
                    result = result.wait()
                references += [weakref.ref(item) for item in (array, thing, *result)]
                del array, thing, result
            rpc.rpc_sync(1, here)
            assert [reference() for reference in references] == [None] * len(references)
        finally:
            gc.enable()

    on_first(2, program)


def test_finalisers_run_by_the_collector_while_timeouts_are_looked_at() -> None:
    # The collector may run where a list is made of the calls; a finaliser may make calls.
    class Calls:
        def __del__(self) -> None:
            rpc.rpc_async(1, here, timeout=LIMIT)

    def program() -> None:
        agent = current_agent()
        futures = [rpc.rpc_async(1, sleep, args=(0.05,), timeout=LIMIT) for _ in range(50)]
        threshold = gc.get_threshold()
        gc.set_threshold(5)
        try:
            for _ in range(50):
                cycle: list[Any] = [Calls()]
                cycle.append(cycle)
                del cycle
                agent._first_deadline = 0.0
                rpc.rpc_sync(1, here)
        finally:
            gc.set_threshold(*threshold)
        for future in futures:
            future.wait()

    on_first(2, program)


# -- everything at once ----------------------------------------------------------------------------


def work(seed: int, depth: int, size: int, payload: Any) -> float:
    """Do a few random things that a program may do; the sum of all payloads met on the way."""
    chance = random.Random(seed)
    total = float(np.asarray(payload).sum())
    pending: list[Callable[[], float]] = []
    for _ in range(chance.randint(0, 2) if depth else 0):
        to = chance.randrange(size)
        length = chance.choice([0, 1, 50, LONG])
        array = np.full(length, float(chance.randint(0, 9)))
        arguments = (chance.randrange(2**30), depth - 1, size, array)
        way = chance.randrange(4)
        if way == 0:
            total += rpc.rpc_sync(to, work, args=arguments)
        elif way == 1:
            pending.append(rpc.rpc_async(to, work, args=arguments).wait)
        elif way == 2:
            pending.append(rpc.remote(to, work, args=arguments).to_here)
        else:
            rref = rpc.remote(to, work, args=arguments)
            other = chance.randrange(size)
            pending.append(rpc.rpc_async(other, rpc.RRef.to_here, args=(rref,)).wait)
        array[:] = -1e9
    return total + sum(get() for get in pending)


def expected(seed: int, depth: int, size: int, payload: Any) -> float:
    """What `work` returns, computed without calls."""
    chance = random.Random(seed)
    total = float(np.asarray(payload).sum())
    for _ in range(chance.randint(0, 2) if depth else 0):
        chance.randrange(size)
        length = chance.choice([0, 1, 50, LONG])
        array = np.full(length, float(chance.randint(0, 9)))
        seed_of_call = chance.randrange(2**30)
        if chance.randrange(4) == 3:
            chance.randrange(size)
        total += expected(seed_of_call, depth - 1, size, array)
    return total


@pytest.mark.parametrize("seed", range(3))
def test_eight_workers_under_harsh_weather(seed: int) -> None:
    size = 8

    def program(rank: int) -> None:
        for round_ in range(8):
            start = 1000 * seed + 100 * rank + round_
            assert work(start, 5, size, [1.0]) == expected(start, 5, size, [1.0])
        eventually(lambda: rpc.rpc_sync((rank + 1) % size, count_values) == 0)

    weather = Weather(seed=seed, hold=0.5, late_bulk=0.6, pause=1e-3)
    run_world(size, program, weather=weather)


_variable: contextvars.ContextVar[int] = contextvars.ContextVar("_variable", default=0)


def change_the_threads_settings() -> None:
    tp.set_grad_enabled(False)
    np.seterr(divide="raise")
    _variable.set(5)


def settings_of_the_thread() -> tuple[bool, str, int]:
    return tp.is_grad_enabled(), np.geterr()["divide"], _variable.get()


def test_what_a_call_changes_of_its_thread_the_next_does_not_see() -> None:
    def program() -> None:
        before = rpc.rpc_sync(1, settings_of_the_thread)
        for _ in range(3):
            rpc.rpc_sync(1, change_the_threads_settings)
            assert rpc.rpc_sync(1, settings_of_the_thread) == before == (True, "warn", 0)

    on_first(2, program)
