"""Functions that return a future are answered when it is done, and hold no thread meanwhile."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from distributed.rpc.called import LIMIT, Gate, add, eventually, gates, here, on_first
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.functions import async_execution

CALLS: dict[str, Callable[..., Any]] = {
    "sync": lambda to, function, *args: rpc.rpc_sync(to, function, args=args),
    "async": lambda to, function, *args: rpc.rpc_async(to, function, args=args).wait(),
    "remote": lambda to, function, *args: rpc.remote(to, function, args=args).to_here(),
}
call_kinds = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@async_execution
def add_elsewhere(to: int, x: Any, y: Any) -> rpc.Future:
    return rpc.rpc_async(to, add, args=(x, y)).then(lambda future: future.wait() + 1)


@async_execution
def add_through(to: int, via: int, x: Any, y: Any) -> rpc.Future:
    return rpc.rpc_async(via, add_elsewhere, args=(to, x, y)).then(lambda f: f.wait() + 100)


@async_execution
def chain(length: int) -> rpc.Future:
    future = rpc.rpc_async(here(), add, args=(0, 1))
    for _ in range(length):
        future = future.then(lambda f: f.wait() + 1)
    return future


@async_execution
def fan_out(to: int, number: int) -> rpc.Future:
    result = rpc.Future()
    lock = threading.Lock()
    values: list[int] = []

    def gather(future: rpc.Future) -> None:
        with lock:
            values.append(future.value())
            if len(values) == number:
                result.set_result(sum(values))

    for k in range(number):
        rpc.rpc_async(to, add, args=(k, 1)).add_done_callback(gather)
    return result


class Async:
    def __init__(self) -> None:
        self.base = 1000

    @staticmethod
    @async_execution
    def static(x: int) -> rpc.Future:
        return rpc.rpc_async(2, add, args=(x, 1))

    @classmethod
    @async_execution
    def of_class(cls, x: int) -> rpc.Future:
        return rpc.rpc_async(2, add, args=(x, 2))

    @async_execution
    def bound(self, x: int) -> rpc.Future:
        return rpc.rpc_async(2, add, args=(self.base, x))


@call_kinds
def test_results_of_futures(call: Callable[..., Any]) -> None:
    def program() -> None:
        assert call(1, add_elsewhere, 2, 1, 2) == 4
        assert call(1, add_elsewhere, 1, 1, 2) == 4
        assert call(1, add_elsewhere, 0, 1, 2) == 4
        assert call(0, add_elsewhere, 1, 1, 2) == 4
        assert call(1, add_through, 0, 2, 1, 2) == 104
        assert call(1, chain, 20) == 21
        assert call(1, fan_out, 2, 20) == sum(range(20)) + 20
        assert call(1, Async.static, 1) == 2
        assert call(1, Async.of_class, 1) == 3
        assert call(1, Async().bound, 1) == 1001
        assert call(1, functools.partial(add_elsewhere, 2), 1, 2) == 4
        array = call(1, add_elsewhere, 2, np.ones(5000), 1)
        assert array.tolist() == [3.0] * 5000

    on_first(3, program)


@async_execution
def raises() -> rpc.Future:
    raise KeyError("before")


@async_execution
def fails_later() -> rpc.Future:
    def fail(future: rpc.Future) -> None:
        raise IndexError("later")

    return rpc.rpc_async(2, here).then(fail)


@async_execution
def returns_no_future() -> Any:
    return 5


@async_execution
def returns_what_cannot_be_sent() -> rpc.Future:
    return rpc.rpc_async(2, here).then(lambda _: threading.Lock())


@call_kinds
def test_errors(call: Callable[..., Any]) -> None:
    def program() -> None:
        with pytest.raises(KeyError, match="before"):
            call(1, raises)
        with pytest.raises(IndexError, match="later"):
            call(1, fails_later)
        with pytest.raises(RuntimeError, match=r"must return a torch.futures.Future object, but"):
            call(1, returns_no_future)
        if call is not CALLS["remote"]:
            with pytest.raises(TypeError, match="pickle"):
                call(1, returns_what_cannot_be_sent)
        assert call(1, add, 1, 2) == 3

    on_first(3, program)


_promises: dict[str, rpc.Future] = {}


@async_execution
def promise(name: str) -> rpc.Future:
    future = _promises[name] = rpc.Future()
    gates[name].waiting.release()
    return future


def test_no_thread_waits_meanwhile(gate: Gate) -> None:
    def program() -> None:
        future = rpc.rpc_async(1, promise, args=(gate.name,))
        assert gate.waiting.acquire(timeout=LIMIT)
        first = _promises.pop(gate.name)
        rref = rpc.remote(1, promise, args=(gate.name,))
        assert gate.waiting.acquire(timeout=LIMIT)
        # The only slot is free.
        assert rpc.rpc_sync(1, here) == 1
        assert not future.done()
        first.set_result("kept")
        _promises.pop(gate.name).set_result("made")
        assert future.wait() == "kept"
        assert rref.to_here() == "made"

    on_first(2, program, num_worker_threads=1)


def test_a_future_that_is_never_done_ends_with_the_callers_timeout(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError, match="waits for a future"):
            rpc.rpc_sync(1, promise, args=(gate.name,), timeout=0.3)
        _promises.pop(gate.name).set_result(None)
        eventually(lambda: rpc.rpc_sync(1, rpc.statistics).calls_served >= 1)

    on_first(2, program)


def test_called_without_rpc_it_returns_its_future() -> None:
    def program() -> None:
        future = add_elsewhere(1, 1, 2)
        assert isinstance(future, rpc.Future)
        assert future.wait() == 4

    on_first(2, program)


@async_execution
def scale_elsewhere(to: int, x: tp.Tensor) -> rpc.Future:
    return rpc.rpc_async(to, add, args=(x, x)).then(lambda f: f.wait() * 3)


@call_kinds
def test_gradients_flow_through(call: Callable[..., Any]) -> None:
    def program() -> None:
        x = tp.tensor([1.0, 2.0], dtype=tp.float64, requires_grad=True)
        with dist_autograd.context() as context_id:
            loss = call(1, scale_elsewhere, 2, x).sum()
            dist_autograd.backward(context_id, [loss])
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [6.0, 6.0]

    on_first(3, program)


def test_a_future_in_arguments_or_results_cannot_be_sent() -> None:
    def program() -> None:
        with pytest.raises(TypeError, match=r"Can not pickle torch.futures.Future"):
            rpc.rpc_sync(1, add, args=(rpc.Future(), 1))
        with pytest.raises(TypeError, match=r"Can not pickle torch.futures.Future"):
            rpc.rpc_sync(1, rpc.Future)

    on_first(2, program)


def test_a_future_that_is_never_done_does_not_hold_up_shutdown(gate: Gate) -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, lambda *args, **kwargs: rpc.remote(*args, **kwargs).to_here()):
            with pytest.raises(rpc.RpcTimeoutError):
                call(1, promise, args=(gate.name,), timeout=0.1)

    # The harness shuts down all workers in good order.
    on_first(2, program, seconds=LIMIT)
    del _promises[gate.name]
