"""Futures in asyncio and in `concurrent.futures`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import Any

import pytest

from distributed.rpc.called import LIMIT, Gate, add, on_first, pass_gate
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import Future


def done(value: Any) -> Future:
    future = Future()
    future.set_result(value)
    return future


def failed(error: BaseException) -> Future:
    future = Future()
    future.set_exception(error)
    return future


def later(future: Future, value: Any) -> threading.Thread:
    thread = threading.Thread(target=future.set_result, args=(value,))
    thread.start()
    return thread


@pytest.fixture
def hasty() -> Iterator[None]:
    """Have threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# -- asyncio ---------------------------------------------------------------------------------------


def test_await() -> None:
    async def program() -> Any:
        future = Future()
        later(future, 5)
        return await future, await done(6), await future

    assert asyncio.run(program()) == (5, 6, 5)


def test_await_of_an_exception() -> None:
    async def program(future: Future) -> Any:
        asyncio.get_running_loop().call_later(0, future.set_exception, KeyError("k"))
        with pytest.raises(KeyError, match="k"):
            await future
        with pytest.raises(KeyError, match="k"):
            await future

    asyncio.run(program(Future()))


def test_calls_are_awaited_together_on_the_loops_thread() -> None:
    async def program() -> list[Any]:
        threads = []

        async def one(number: int) -> Any:
            value = await rpc.rpc_async(1, add, args=(number, 1))
            threads.append(threading.current_thread())
            return value

        values = await asyncio.gather(*(one(number) for number in range(20)))
        assert set(threads) == {threading.current_thread()}
        with pytest.raises(TypeError):
            await rpc.rpc_async(1, add, args=("a", 1))
        return values

    assert on_first(2, lambda: asyncio.run(program())) == list(range(1, 21))


def test_loop_goes_on_while_a_call_is_awaited(gate: Gate) -> None:
    async def program() -> Any:
        task = asyncio.ensure_future(rpc.rpc_async(1, pass_gate, args=(gate.name, 7)))
        while not gate.waiting.acquire(blocking=False):
            await asyncio.sleep(1e-3)
        assert not task.done()
        gate.event.set()
        return await task

    assert on_first(2, lambda: asyncio.run(program())) == 7


def test_await_that_is_given_up() -> None:
    future = Future()

    async def program() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(future), 0.01)
        task = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        task.cancel()
        later(future, 5).join(LIMIT)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await future == 5

    asyncio.run(program())


def test_loop_that_ends_before_the_future() -> None:
    future = Future()

    async def program() -> None:
        asyncio.ensure_future(future)  # noqa: RUF006
        await asyncio.sleep(0)

    asyncio.run(program())
    future.set_result(5)
    assert future.wait() == 5


# -- concurrent.futures ----------------------------------------------------------------------------


def test_wait_for_all() -> None:
    futures = [Future() for _ in range(3)]
    threads = [later(future, number) for number, future in enumerate(futures)]
    finished, open_ones = concurrent.futures.wait(futures, LIMIT, ALL_COMPLETED)  # type: ignore
    assert finished == set(futures)
    assert not open_ones
    for thread in threads:
        thread.join(LIMIT)


def test_wait_for_the_first() -> None:
    never, soon = Future(), Future()
    later(soon, 1)
    outcome = concurrent.futures.wait([never, soon], LIMIT, FIRST_COMPLETED)  # type: ignore
    assert outcome == ({soon}, {never})


@pytest.mark.parametrize("before", [False, True])
def test_wait_for_the_first_exception(before: bool) -> None:
    never, good, bad = Future(), done(1), Future()
    if before:
        bad.set_exception(KeyError())
    else:
        threading.Thread(target=bad.set_exception, args=(KeyError(),)).start()
    outcome = concurrent.futures.wait([never, good, bad], LIMIT, FIRST_EXCEPTION)  # type: ignore
    assert outcome == ({good, bad}, {never})


def test_wait_sees_what_is_done_at_once() -> None:
    futures = [done(1), failed(KeyError())]
    assert concurrent.futures.wait(futures, 0).not_done == set()  # type: ignore


def test_wait_sees_what_has_become_done_since() -> None:
    """Also before a serving thread has got round to telling it."""

    def program() -> None:
        for number in range(50):
            future = rpc.rpc_async(1, add, args=(number, 1))
            concurrent.futures.wait([future], 0)  # type: ignore
            future.wait()
            assert concurrent.futures.wait([future], 0).done == {future}  # type: ignore

    on_first(2, program)


def test_wait_mixes_with_futures_of_the_standard_library() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ours = Future()
        theirs = pool.submit(ours.set_result, 5)
        finished, _ = concurrent.futures.wait([ours, theirs], LIMIT)  # type: ignore
        assert finished == {ours, theirs}


def test_as_completed_gives_each_as_it_comes() -> None:
    futures = [Future() for _ in range(3)]
    order = []
    futures[1].set_result(1)
    for future in concurrent.futures.as_completed(futures, LIMIT):  # type: ignore
        order.append(futures.index(future))  # type: ignore
        if len(order) == 1:
            futures[2].set_exception(KeyError())
        elif len(order) == 2:
            later(futures[0], 0)
    assert order == [1, 2, 0]


def test_as_completed_that_takes_too_long() -> None:
    never = Future()
    with pytest.raises(concurrent.futures.TimeoutError):
        list(concurrent.futures.as_completed([never], 0.01))  # type: ignore
    assert never._waiters == []


def test_calls_as_they_complete() -> None:
    def program() -> list[Any]:
        calls = [rpc.rpc_async(1, add, args=(number, 1)) for number in range(200)]
        return sorted(f.wait() for f in concurrent.futures.as_completed(calls, LIMIT))  # type: ignore

    assert on_first(2, program) == list(range(1, 201))


@pytest.mark.usefixtures("hasty")
def test_no_completion_is_missed() -> None:
    for _ in range(200):
        futures = [Future() for _ in range(4)]
        go = threading.Barrier(3)

        def complete(some: list[Future], go: threading.Barrier = go) -> None:
            go.wait(LIMIT)
            for future in some:
                future.set_result(1)

        threads = [
            threading.Thread(target=complete, args=(some,)) for some in (futures[:2], futures[2:])
        ]
        for thread in threads:
            thread.start()
        go.wait(LIMIT)
        finished, open_ones = concurrent.futures.wait(futures, LIMIT)  # type: ignore
        assert (len(finished), len(open_ones)) == (4, 0)
        for thread in threads:
            thread.join(LIMIT)
        assert all(future._waiters == [] for future in futures)


@pytest.mark.usefixtures("hasty")
def test_two_threads_wait_for_the_same_futures() -> None:
    for _ in range(100):
        futures = [Future() for _ in range(3)]
        outcomes = []

        def look(futures: list[Future] = futures, outcomes: list[Any] = outcomes) -> None:
            outcomes.append(concurrent.futures.wait(futures, LIMIT))  # type: ignore

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for future in futures:
            future.set_result(1)
        for thread in threads:
            thread.join(LIMIT)
        assert [len(outcome.not_done) for outcome in outcomes] == [0, 0]


def test_future_that_nobody_bridges_has_no_handshake() -> None:
    future = done(1)
    future.wait()
    assert future._handshake is None
