"""What the error of a call that has expired tells about its callee."""

from __future__ import annotations

import threading

import pytest

from distributed.rpc.called import LIMIT, Gate, here, on_first, pass_gate
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.calls import Call, Calls


def wait_for(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_error_tells_what_the_callee_is_doing(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError) as info:
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=0.6)
        text = str(info.value)
        assert text.startswith("RPC ran for more than set timeout (600 ms)")
        assert "worker 'worker1' has been executing distributed.rpc.called.pass_gate for" in text
        assert "and is in 'pass_through'" in text
        gate.event.set()

    on_first(2, program)


@pytest.mark.parametrize("worker", [0, 1])
def test_of_remote_creations_and_calls_to_oneself(gate: Gate, worker: int) -> None:
    def program() -> None:
        rref = rpc.remote(worker, pass_gate, args=(gate.name,), timeout=0.6)
        assert gate.waiting.acquire(timeout=LIMIT)
        with pytest.raises(rpc.RpcTimeoutError, match=r"RRef creation via rpc.remote") as info:
            rref._wait_for_creation()
        assert f"worker 'worker{worker}' has been executing" in str(info.value)
        gate.event.set()

    on_first(2, program)


def nested(name: str) -> None:
    rpc.rpc_sync(2, pass_gate, args=(name,))


def test_the_users_own_frame_is_named(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError, match="is in 'nested'"):
            rpc.rpc_sync(1, nested, args=(gate.name,), timeout=0.6)
        gate.event.set()

    on_first(3, program)


class Table:
    """A table of calls whose questions are noted."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.calls = Calls(lambda number, call: self.asked.append(number), "worker{}".format)

    def new(self, seconds: float) -> tuple[int, Call]:
        call = Call(1, here, -1, seconds)
        return self.calls.enter(call), call


@pytest.fixture
def table() -> Table:
    return Table()


def test_callee_is_asked_once_before_the_call_expires(table: Table) -> None:
    number, call = table.new(8.0)
    assert table.calls.next_due == call.began + 7.0
    table.calls.look(call.began + 6.9)
    assert table.asked == []
    table.calls.look(call.began + 7.1)
    assert table.asked == [number]
    assert table.calls.next_due == call.deadline
    table.calls.look(call.began + 7.2)
    assert table.asked == [number]
    call.state = "it sleeps"
    table.calls.look(call.began + 8.1)
    with pytest.raises(rpc.RpcTimeoutError, match="no answer from worker 'worker1'; it sleeps"):
        call.wait()
    assert table.calls.outstanding == {}
    assert table.calls.next_due == float("inf")


@pytest.mark.parametrize("worker", [0, 1])
def test_negative_timeouts_expire_at_once(worker: int) -> None:
    def program() -> None:
        for _ in range(20):
            with pytest.raises(rpc.RpcTimeoutError, match="RPC ran for more than"):
                rpc.rpc_sync(worker, here, timeout=-5)
        assert rpc.rpc_sync(worker, here, timeout=-1) == worker

    on_first(2, program)


def test_what_is_not_callable_is_refused_at_the_call() -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(TypeError, match=r"function should be callable\. Got 3"):
                call(1, 3)

    on_first(2, program)


def test_callee_that_says_nothing(table: Table) -> None:
    _, call = table.new(0.4)
    table.calls.look(call.began + 0.35)
    table.calls.look(call.began + 0.45)
    with pytest.raises(rpc.RpcTimeoutError, match="it did not say what it is doing either"):
        call.wait()


def test_calls_without_a_limit_are_never_due(table: Table) -> None:
    _, call = table.new(0.0)
    table.calls.look(call.began + 1e9)
    assert not call.done()
    assert table.asked == []


def test_late_answer_finds_no_call(table: Table) -> None:
    number, call = table.new(0.1)
    table.calls.look(call.began + 0.2)
    table.calls.look(call.began + 0.3)
    assert table.calls.answered(number) is None
    assert table.calls.timed_out == 1
    assert call.lost


def test_calls_to_one_worker_or_to_all_can_be_failed(table: Table) -> None:
    _, first = table.new(5.0)
    first.worker = 2
    _, second = table.new(5.0)
    table.calls.fail_all(lambda: KeyError("two"), 2)
    assert first.done()
    assert not second.done()
    table.calls.fail_all(lambda: KeyError("all"))
    with pytest.raises(KeyError, match="all"):
        second.wait()
    assert table.calls.outstanding == {}
