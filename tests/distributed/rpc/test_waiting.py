"""Several futures together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from distributed.rpc.called import LIMIT, Gate, Unloadable, add, identity, on_first, pass_gate
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.futures import Future, collect_all, wait_all


def done(value: Any) -> Future:
    future = Future()
    future.set_result(value)
    return future


def failed(error: BaseException) -> Future:
    future = Future()
    future.set_exception(error)
    return future


def on_a_worker(program: Callable[[], Any]) -> Any:
    return on_first(1, program)


def plain(program: Callable[[], Any]) -> Any:
    return program()


everywhere = pytest.mark.parametrize("where", [plain, on_a_worker])


# -- collect_all -----------------------------------------------------------------------------------


@everywhere
def test_collect_all_gives_the_futures(where: Callable[..., Any]) -> None:
    def program() -> None:
        futures = [Future() for _ in range(3)]
        all_of_them = collect_all(futures)
        for number, future in reversed(list(enumerate(futures))):
            assert not all_of_them.done()
            future.set_result(number)
        collected = all_of_them.wait()
        assert all(one is other for one, other in zip(collected, futures, strict=True))

    where(program)


def test_collect_all_of_nothing_is_done_at_once() -> None:
    nothing = collect_all([])
    assert nothing.done()
    assert nothing.wait() == []


@everywhere
def test_collect_all_waits_for_all_before_it_fails(where: Callable[..., Any]) -> None:
    def program() -> None:
        slow = Future()
        all_of_them = collect_all([failed(KeyError("first")), slow, failed(ValueError("second"))])
        assert not all_of_them.done()
        slow.set_result(None)
        with pytest.raises(KeyError, match="first"):
            all_of_them.wait()

    where(program)


def test_collect_all_takes_one_future_twice() -> None:
    future = done(1)
    assert [f.wait() for f in collect_all([future, future]).wait()] == [1, 1]


def test_collect_all_of_calls_can_be_chained() -> None:
    def program() -> Any:
        calls = [rpc.rpc_async(1, add, args=(number, 0)) for number in range(100)]
        return collect_all(calls).then(lambda f: sum(c.wait() for c in f.wait())).wait()

    assert on_first(2, program) == 4950


# -- wait_all --------------------------------------------------------------------------------------


def test_wait_all_gives_values() -> None:
    def program() -> Any:
        return wait_all([rpc.rpc_async(1, add, args=(number, 1)) for number in range(100)])

    assert on_first(2, program) == list(range(1, 101))
    assert wait_all([]) == []


def test_wait_all_raises_early(gate: Gate) -> None:
    def program() -> None:
        slow = rpc.rpc_async(1, pass_gate, args=(gate.name,))
        with pytest.raises(TypeError):
            wait_all([slow, rpc.rpc_async(1, add, args=("a", 1))])
        assert not slow.done()
        gate.event.set()
        slow.wait()

    on_first(2, program)


def test_wait_all_raises_the_first_error_to_happen() -> None:
    first, second = Future(), Future()
    thread = threading.Thread(target=lambda: second.set_exception(KeyError("happened first")))
    thread.start()
    with pytest.raises(KeyError, match="happened first"):
        wait_all([first, second])
    thread.join(LIMIT)


def test_wait_all_sees_a_result_that_cannot_be_loaded() -> None:
    def program() -> None:
        future = rpc.rpc_async(1, identity, args=(Unloadable(0),))
        with pytest.raises(KeyError, match="cannot be loaded"):
            wait_all([future, Future()])

    on_first(2, program)


@pytest.mark.parametrize("function", [collect_all, wait_all])
def test_only_futures_can_be_waited_for(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="needs a list of futures, got a int"):
        function([done(1), 5])


# -- _wait_all -------------------------------------------------------------------------------------


def has_list() -> bool:
    return hasattr(rpc.api._thread_local_var, "future_list")


def test_block_waits_for_its_calls(gate: Gate) -> None:
    def program() -> None:
        threading.Timer(0.05, gate.event.set).start()
        with rpc.api._wait_all():
            slow = rpc.rpc_async(1, pass_gate, args=(gate.name, 5))
            assert rpc.rpc_async(1, add, args=(1, 2)).wait() == 3
            assert len(rpc.api._thread_local_var.future_list) == 2
        assert slow.done()
        assert not has_list()

    on_first(2, program)


def test_block_raises_what_a_call_raised() -> None:
    def program() -> None:
        with pytest.raises(TypeError), rpc.api._wait_all():
            rpc.rpc_async(1, add, args=("a", 1))
        assert not has_list()

    on_first(2, program)


def test_block_that_raises_waits_too(gate: Gate) -> None:
    def program() -> None:
        threading.Timer(0.05, gate.event.set).start()
        calls = []

        def block() -> None:
            with rpc.api._wait_all():
                calls.append(rpc.rpc_async(1, pass_gate, args=(gate.name, 5)))
                calls.append(rpc.rpc_async(1, add, args=("a", 1)))
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            block()
        assert all(call.done() for call in calls)
        assert not has_list()

    on_first(2, program)


def test_block_does_not_collect_calls_of_other_threads_or_outside_it(gate: Gate) -> None:
    def program() -> None:
        calls = [rpc.rpc_async(1, pass_gate, args=(gate.name, 1))]
        agent = current_agent()

        def other_thread() -> None:
            set_thread_agent(agent)
            calls.append(rpc.rpc_async(1, pass_gate, args=(gate.name, 2)))

        with rpc.api._wait_all():
            thread = threading.Thread(target=other_thread)
            thread.start()
            thread.join(LIMIT)
        assert [call.done() for call in calls] == [False, False]
        gate.event.set()
        assert wait_all(calls) == [1, 2]

    on_first(2, program)


def test_blocks_nest() -> None:
    def program() -> None:
        with rpc.api._wait_all():
            rpc.rpc_async(1, add, args=(1, 1))
            with rpc.api._wait_all():
                rpc.rpc_async(1, add, args=(1, 1))
                assert len(rpc.api._thread_local_var.future_list) == 1
            assert len(rpc.api._thread_local_var.future_list) == 1
        assert not has_list()

    on_first(2, program)
