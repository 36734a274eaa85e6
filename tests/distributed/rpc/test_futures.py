"""Futures by themselves, and on a worker whose serving threads run their callbacks."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from distributed.rpc.called import add
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import Future
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.loopback import LoopbackWorld

LIMIT = 20.0


def on_a_worker(program: Callable[[], Any]) -> Any:
    return run_world(1, lambda rank: program())[0]


def plain(program: Callable[[], Any]) -> Any:
    return program()


everywhere = pytest.mark.parametrize("where", [plain, on_a_worker])
"""With and without an agent on the thread."""


def failed(error: BaseException) -> Future:
    future = Future()
    future.set_exception(error)
    return future


def done(value: Any) -> Future:
    future = Future()
    future.set_result(value)
    return future


@everywhere
def test_result(where: Callable[..., Any]) -> None:
    def program() -> None:
        future = Future()
        assert not future.done()
        future.set_result(5)
        assert future.done()
        assert future.wait() == future.wait() == future.value() == 5

    where(program)


@everywhere
def test_exception_is_raised_each_time(where: Callable[..., Any]) -> None:
    def program() -> None:
        error = KeyError("k")
        future = failed(error)
        assert future.done()
        for _ in range(3):
            for get in (future.wait, future.value):
                with pytest.raises(KeyError) as info:
                    get()
                assert info.value is error

    where(program)


def test_value_of_an_unfinished_future() -> None:
    with pytest.raises(RuntimeError, match="before the future was done"):
        Future().value()


def test_completed_only_once() -> None:
    for future in (done(1), failed(KeyError())):
        with pytest.raises(RuntimeError, match="Future can only be marked completed once"):
            future.set_result(2)
        with pytest.raises(RuntimeError, match="Future can only be marked completed once"):
            future.set_exception(KeyError())
    assert done(1).wait() == 1


def test_exception_must_be_one() -> None:
    future = Future()
    with pytest.raises(AssertionError, match=r"is of type <class 'str'>, not an Exception."):
        future.set_exception("text")  # type: ignore[arg-type]
    assert not future.done()


@everywhere
def test_other_thread_completes(where: Callable[..., Any]) -> None:
    def program() -> None:
        future = Future()
        threading.Timer(0.01, future.set_result, [1]).start()
        assert future.wait() == 1
        future = Future()
        threading.Timer(0.01, future.set_exception, [ValueError("v")]).start()
        with pytest.raises(ValueError, match="v"):
            future.wait()

    where(program)


@everywhere
def test_many_threads_wait(where: Callable[..., Any]) -> None:
    def program() -> None:
        future = Future()
        got: list[int] = []
        threads = [threading.Thread(target=lambda: got.append(future.wait())) for _ in range(10)]
        for thread in threads:
            thread.start()
        future.set_result(3)
        for thread in threads:
            thread.join(LIMIT)
        assert got == [3] * 10

    where(program)


@everywhere
def test_bounded_wait(where: Callable[..., Any]) -> None:
    def program() -> None:
        future = Future()
        deadline = time.monotonic() + 0.01
        assert not future.wait_until(deadline)
        assert time.monotonic() >= deadline
        future.set_result(1)
        assert future.wait_until(deadline)

    where(program)


# -- callbacks -----------------------------------------------------------------------------------


@everywhere
def test_then_before_and_after_completion(where: Callable[..., Any]) -> None:
    def program() -> None:
        future = Future()
        before = future.then(lambda f: f.wait() + 1)
        assert not before.done()
        future.set_result(1)
        after = future.then(lambda f: f.wait() + 2)
        assert (before.wait(), after.wait()) == (2, 3)

    where(program)


@everywhere
def test_then_gets_the_future_itself(where: Callable[..., Any]) -> None:
    def program() -> None:
        future = done(1)
        assert future.then(lambda f: f is future and f.done()).wait()

    where(program)


@everywhere
def test_chain_of_callbacks(where: Callable[..., Any]) -> None:
    def program() -> None:
        first = last = Future()
        for _ in range(100):
            last = last.then(lambda f: f.wait() + 1)
        first.set_result(0)
        assert last.wait() == 100

    where(program)


@everywhere
def test_exception_passes_through_a_chain(where: Callable[..., Any]) -> None:
    def program() -> None:
        first = Future()
        last = first.then(lambda f: f.wait() + 1).then(lambda f: f.wait() + 1)
        first.set_exception(KeyError("k"))
        with pytest.raises(KeyError, match="k"):
            last.wait()

    where(program)


@everywhere
def test_callback_may_turn_an_exception_into_a_value(where: Callable[..., Any]) -> None:
    def rescue(future: Future) -> str:
        try:
            return str(future.wait())
        except KeyError:
            return "rescued"

    def program() -> None:
        assert failed(KeyError()).then(rescue).wait() == "rescued"

    where(program)


@everywhere
@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(3), KeyboardInterrupt()])
def test_callback_that_raises_fails_its_own_future(
    where: Callable[..., Any], error: BaseException
) -> None:
    def callback(future: Future) -> None:
        raise error

    def program() -> None:
        future = Future()
        before = future.then(callback)
        future.set_result(1)
        with pytest.raises(type(error)):
            before.wait()
        assert future.wait() == 1

    where(program)


@everywhere
def test_callback_of_wrong_arity(where: Callable[..., Any]) -> None:
    def program() -> None:
        result = done(1).then(lambda: 0)  # type: ignore[misc, arg-type]
        with pytest.raises(TypeError, match="takes 0 positional arguments but 1 was given"):
            result.wait()
        result = done(1).then(lambda a, b: 0)  # type: ignore[misc, arg-type]
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            result.wait()

    where(program)


def test_callback_must_be_callable() -> None:
    with pytest.raises(TypeError, match="callable"):
        Future().then(None)  # type: ignore[arg-type]


@everywhere
def test_error_in_a_done_callback_is_logged_and_others_run(
    where: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    all_ran = threading.Event()

    def program() -> None:
        future = Future()
        future.add_done_callback(lambda f: ran.append("before"))
        future.add_done_callback(lambda f: 1 / 0)
        future.add_done_callback(lambda f: sys.exit(3))
        future.add_done_callback(lambda f: all_ran.set())
        future.set_result(1)
        assert all_ran.wait(LIMIT)
        future.add_done_callback(lambda f: 1 / 0)

    with caplog.at_level(logging.ERROR, "tensorplay"):
        where(program)
    assert ran == ["before"]
    errors = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert sorted(map(str, errors)) == sorted(
        map(str, [ZeroDivisionError, ZeroDivisionError, SystemExit])
    )


def test_callback_on_a_worker_runs_on_a_serving_thread_and_may_wait() -> None:
    def program() -> None:
        first, second = Future(), Future()
        threads: list[threading.Thread] = []

        def callback(future: Future) -> Any:
            threads.append(threading.current_thread())
            return second.wait()

        result = first.then(callback)
        first.set_result(0)
        second.set_result(7)
        assert result.wait() == 7
        assert threads[0] is not threading.current_thread()
        assert "serving" in threads[0].name

    on_a_worker(program)


def test_hundred_callbacks_wait_for_one_another() -> None:
    def program() -> None:
        first = Future()
        links = [Future() for _ in range(101)]

        def callback(number: int) -> Callable[[Future], None]:
            # Each waits for the next one.
            return lambda f: links[number].set_result(links[number + 1].wait())

        for number in range(100):
            first.add_done_callback(callback(number))
        first.set_result(0)
        links[100].set_result("end")
        assert links[0].wait() == "end"

    on_a_worker(program)


# -- values made when they are asked for ---------------------------------------------------------


def test_value_is_made_once_by_whoever_asks_first() -> None:
    made: list[threading.Thread] = []

    def make() -> object:
        made.append(threading.current_thread())
        time.sleep(0.01)
        return object()

    future = Future()
    assert future.finish(decode=make)
    assert future.done()
    assert made == []
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(future.wait())) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(made) == 1
    assert len(got) == 5
    assert len(set(map(id, got))) == 1


def test_error_while_making_the_value_is_the_result() -> None:
    def make() -> None:
        raise KeyError("k")

    future = Future()
    future.finish(decode=make)
    for _ in range(2):
        with pytest.raises(KeyError):
            future.wait()


def test_making_the_value_may_look_at_the_future() -> None:
    future = Future()
    future.finish(decode=lambda: (future.done(), 5))
    assert future.wait() == (True, 5)


def test_first_completion_counts() -> None:
    future = Future()
    assert future.finish(value=1)
    assert not future.finish(value=2)
    assert not future.finish(error=KeyError())
    assert future.wait() == 1


# -- races and memory ----------------------------------------------------------------------------


def test_no_callback_and_no_waiting_thread_is_lost() -> None:
    rounds = 2000
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    futures = [Future() for _ in range(rounds)]
    called = threading.Semaphore(0)
    turn = threading.Barrier(2)

    def complete() -> None:
        for future in futures:
            turn.wait(LIMIT)
            future.set_result(1)

    thread = threading.Thread(target=complete)
    thread.start()
    try:
        for future in futures:
            turn.wait(LIMIT)
            future.add_done_callback(lambda f: called.release())
            assert future.wait_until(time.monotonic() + LIMIT)
            assert called.acquire(timeout=LIMIT)
    finally:
        thread.join(LIMIT)
        sys.setswitchinterval(interval)


def test_of_threads_that_complete_at_once_one_wins() -> None:
    for _ in range(200):
        future = Future()
        start = threading.Barrier(3)
        won: list[int] = []

        def complete(number: int, future: Future = future, start: Any = start) -> None:
            start.wait(LIMIT)
            if future.finish(value=number):
                won.append(number)  # noqa: B023

        threads = [threading.Thread(target=complete, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert [future.wait()] == won


def test_done_future_holds_its_value_only() -> None:
    class Thing:
        pass

    gc.collect()
    gc.disable()
    try:
        thing, captured = Thing(), Thing()
        references = [weakref.ref(thing), weakref.ref(captured)]
        future = Future()
        future.add_done_callback(lambda f, captured=captured: None)
        future.finish(decode=lambda thing=thing: None)
        future.wait()
        del thing, captured
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_callback_pending_at_shutdown_is_called() -> None:
    # Shutdown waits for what runs; so it does for a callback of a callback.
    called: list[int] = []

    def program() -> None:
        future = Future()

        def slow(f: Future) -> None:
            time.sleep(0.05)
            called.append(1)

        future.then(lambda f: f.wait()).then(slow).add_done_callback(lambda f: called.append(2))
        future.set_result(0)
        assert current_agent().progress.thread_count > 0

    on_a_worker(program)
    assert called == [1, 2]


# -- results that are futures ----------------------------------------------------------------------


@everywhere
def test_future_that_a_callback_returns_is_followed(where: Callable[..., Any]) -> None:
    def program() -> None:
        inner = Future()
        outer = done(1).then(lambda future: inner)
        assert not outer.done()
        inner.set_result(5)
        assert outer.wait() == 5
        assert done(1).then(lambda future: done(6)).wait() == 6
        with pytest.raises(KeyError):
            done(1).then(lambda future: failed(KeyError("k"))).wait()

    where(program)


@everywhere
def test_future_that_is_a_result_stays_one(where: Callable[..., Any]) -> None:
    def program() -> None:
        inner = Future()
        future = Future()
        future.set_result(inner)
        assert future.wait() is inner

    where(program)


@everywhere
def test_callback_that_returns_its_own_result(where: Callable[..., Any]) -> None:
    def program() -> None:
        start = Future()
        loop: list[Future] = []
        loop.append(start.then(lambda future: loop[0]))
        start.set_result(None)
        with pytest.raises(RuntimeError, match="returned the future of its result"):
            loop[0].wait()

    where(program)


def test_result_that_was_set_by_hand_before_the_callback_returned() -> None:
    start = Future()
    result = start.then(lambda future: 1)
    result.set_result(2)
    start.set_result(None)
    assert result.wait() == 2


def test_exception_as_a_value() -> None:
    error = KeyError("k")
    assert failed(error).exception() is error
    assert done(1).exception() is None
    assert not done(1).cancelled()
    with pytest.raises(RuntimeError, match="before the future was done"):
        Future().exception()


@pytest.mark.parametrize("devices", [None, [], ["cpu"]])
def test_devices_of_the_host(devices: Any) -> None:
    future = Future(devices=devices)
    future.set_result(1)
    assert future.wait() == 1


def test_other_devices() -> None:
    with pytest.raises(ValueError, match="on the cpu"):
        Future(devices=["cuda:0"])


# -- long chains -----------------------------------------------------------------------------------


@everywhere
def test_long_chain(where: Callable[..., Any]) -> None:
    def program() -> None:
        start = last = Future()
        for _ in range(2000):
            last = last.then(lambda future: future.wait() + 1)
        start.set_result(0)
        assert last.wait() == 2000

    where(program)


def test_long_chain_of_a_call_that_is_never_answered() -> None:
    world = LoopbackWorld(2)
    workers = [WorkerInfo("worker0", 0), WorkerInfo("worker1", 1)]
    options = MPIRpcBackendOptions(switch_interval=None)
    agent = Agent(workers, world.transport(0), options, lambda error: None)
    set_thread_agent(agent)
    try:
        agent.start()
        last = agent.call(1, len, ((),), None, 0, waits=False)
        for _ in range(2000):
            last = last.then(lambda future: future.wait())
        agent.close(graceful=False)
    finally:
        set_thread_agent(None)
    assert last.done()
    with pytest.raises(RuntimeError, match="RPC was shut down"):
        last.wait()


def test_chain_whose_callbacks_make_calls() -> None:
    def program(rank: int) -> Any:
        if rank:
            return None
        last = done(0)
        for _ in range(50):
            last = last.then(lambda future: rpc.rpc_sync(1, add, args=(future.wait(), 1)))
            last = last.then(lambda future: rpc.rpc_async(1, add, args=(future.wait(), 1)))
        return last.wait()

    assert run_world(2, program)[0] == 100


@pytest.mark.parametrize("future", [Future(), done(1)])
def test_future_cannot_be_sent(future: Future) -> None:
    def program(rank: int) -> None:
        with pytest.raises(TypeError, match=r"Can not pickle torch.futures.Future"):
            rpc.rpc_sync(0, len, args=([future],))

    run_world(1, program)


def test_exception_of_a_future_makes_no_cycle() -> None:
    class Marker(Exception):
        pass

    gc.disable()
    try:
        future = failed(Marker())
        gone = weakref.ref(future)
        assert isinstance(future.exception(), Marker)
        del future
        assert gone() is None
    finally:
        gc.enable()
