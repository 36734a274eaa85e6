"""Calls that are answered later, callbacks, threads and proxies: whose context they run in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import HARSH, Thread, on_first
from distributed.autograd.remote import (
    current_context,
    gradient_of,
    number,
    recorded,
    times_parameter,
    twice,
)
from tensorplay import futures
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


# -- functions that answer later -------------------------------------------------------------------


@rpc.functions.async_execution
def later(to: int, x: tp.Tensor, steps: int) -> rpc.Future:
    """Multiply by the parameter of another worker, and by this one's after each answer."""
    context_id = current_context()

    def go_on(future: rpc.Future) -> Any:
        assert current_context() == context_id
        y = times_parameter(future.wait())
        return later(to, y, steps - 1) if steps > 1 else y

    return rpc.rpc_async(to, times_parameter, args=(x,)).then(go_on)


WAYS: dict[str, Callable[..., Any]] = {
    "sync": lambda to, *args: rpc.rpc_sync(to, later, args=args),
    "async": lambda to, *args: rpc.rpc_async(to, later, args=args).wait(),
    "remote": lambda to, *args: rpc.remote(to, later, args=args).to_here(),
}


@pytest.mark.parametrize("weather", [None, HARSH], ids=["fair", "harsh"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("to", [0, 1])
def test_continuations_are_recorded_in_the_caller_s_context(
    to: int, way: str, weather: Any
) -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            loss = WAYS[way](to, 2, x, 2).sum()
            dist_autograd.backward(context_id, loss)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [81.0, 81.0]
            for worker in (to, 2):
                # Its parameter, 3, is a factor twice.
                found = rpc.rpc_sync(worker, gradient_of, args=(context_id,))
                assert found == [2 * 27.0] * 2
        assert rpc.rpc_sync(to, current_context) == -1

    on_first(program, size=3, weather=weather)


# -- callbacks -------------------------------------------------------------------------------------


def test_a_callback_runs_in_its_context_on_any_thread() -> None:
    """Also one of a future that the program itself completes, on a thread of no context."""

    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            given: rpc.Future = rpc.Future()
            contexts: list[int] = []

            def call(future: rpc.Future) -> Any:
                contexts.append(current_context())
                return rpc.rpc_async(1, times_parameter, args=(future.wait(),))

            # Each returns a future, which is flattened.
            result = given.then(call).then(call)
            given.add_done_callback(lambda _: contexts.append(current_context()))
            Thread(lambda: given.set_result(x)).result()
            loss = result.wait().sum()
            assert contexts == [context_id] * 3
            dist_autograd.backward(context_id, loss)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [9.0, 9.0]
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [6.0, 6.0]

    on_first(program)


def test_a_callback_from_outside_does_not_join_the_context_that_it_is_run_in() -> None:
    def program() -> None:
        x = leaf()
        given: rpc.Future = rpc.Future()
        outside = given.then(lambda _: (current_context(), rpc.rpc_sync(1, twice, args=(x,))))
        with dist_autograd.context() as context_id:
            given.set_result(None)
            context, result = outside.wait()
            assert context == -1
            assert result.is_leaf
            assert current_context() == context_id
            assert recorded(context_id) == ({}, {}, set())

    on_first(program)


def test_a_callback_that_comes_after_its_context_s_end_is_told_so() -> None:
    def program() -> None:
        given: rpc.Future = rpc.Future()
        with dist_autograd.context() as context_id:
            late = given.then(lambda _: rpc.rpc_sync(1, number))
        given.set_result(None)
        with pytest.raises(RuntimeError, match=f"context with id: {context_id} .it has been rel"):
            late.wait()

    on_first(program)


def test_results_that_are_collected() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            calls = [rpc.rpc_async(1 + i % 2, times_parameter, args=(x,)) for i in range(4)]
            both = futures.collect_all(calls[:2]).then(
                lambda done: sum([future.wait() for future in done.wait()])
            )
            loss = sum([both.wait(), *futures.wait_all(calls[2:])])
            dist_autograd.backward(context_id, loss.sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [12.0, 12.0]

    on_first(program, size=3)


# -- threads ---------------------------------------------------------------------------------------


def test_a_thread_started_in_the_block_may_use_the_id_but_is_not_in_it() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, twice, args=(x,)).sum()

            def other() -> None:
                assert current_context() == -1
                assert rpc.rpc_sync(1, twice, args=(x,)).is_leaf
                with pytest.raises(RuntimeError, match="doesn't have a valid autograd context"):
                    dist_autograd.get_gradients()
                dist_autograd.backward(context_id, loss, retain_graph=True)
                assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]

            Thread(other).result()
            assert current_context() == context_id
            assert len(recorded(context_id).sends) == 1
            assert dist_autograd.get_gradients()[x].tolist() == [2.0, 2.0]

    on_first(program)


def start_a_thread() -> int:
    contexts: list[int] = []
    thread = threading.Thread(target=lambda: contexts.append(current_context()))
    thread.start()
    thread.join()
    return contexts[0]


def switch_recording_off() -> bool:
    tp.set_grad_enabled(False)
    return tp.is_grad_enabled()


def test_nothing_of_a_call_s_thread_is_left_for_the_next() -> None:
    """Neither its context nor its grad mode; nor do its own threads have the context."""

    def program() -> None:
        x = leaf()
        for _ in range(5):
            with dist_autograd.context():
                assert rpc.rpc_sync(1, start_a_thread) == -1
                assert not rpc.rpc_sync(1, switch_recording_off)
                assert rpc.rpc_sync(1, twice, args=(x,)).requires_grad
                with tp.no_grad():
                    assert rpc.rpc_sync(1, tp.is_grad_enabled)
            assert rpc.rpc_sync(1, current_context) == -1

    on_first(program)


# -- proxies ---------------------------------------------------------------------------------------


class Model:
    def __init__(self) -> None:
        self.weight = leaf(3.0)

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        return self.weight * x

    def __call__(self, x: tp.Tensor) -> tp.Tensor:
        return self.forward(x) * 2

    def gradient(self, context_id: int) -> Any:
        return dist_autograd.get_gradients(context_id)[self.weight].tolist()


@pytest.mark.parametrize("owner", [0, 1])
def test_calls_through_proxies(owner: int) -> None:
    def program() -> None:
        x = leaf()
        model = rpc.remote(owner, Model)
        with dist_autograd.context() as context_id:
            results = [
                model.rpc_sync().forward(x),
                model.rpc_async().forward(x).wait(),
                model.remote().forward(x).to_here(),
                model.rpc_sync()(x),
            ]
            dist_autograd.backward(context_id, sum(results).sum())
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [15.0, 15.0]
            assert model.rpc_sync().gradient(context_id) == [5.0, 5.0]
            # The owner differentiates a value of its own, made by a chain of calls.
            loss = model.remote().forward(x).remote().__mul__(x).remote().sum()
            loss.backward(context_id)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [21.0, 21.0]

    on_first(program)
