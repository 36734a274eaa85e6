"""Passes that fail: where, how the starting worker learns of it, and what works afterwards."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import HARSH, LIMIT, Thread, eventually, left_over, on_first, rank
from distributed.autograd.remote import gradient_of, recorded, times_parameter, twice, via
from harness.loopback import run_world
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.rpc.errors import RemoteTraceback


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


class OwnError(Exception):
    """An error of the program's own."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, code)
        self.code = code


class Rule(tp.autograd.Function):
    """The identity, whose rule does as the flags say."""

    #: What the rule raises, if anything.
    error: BaseException | None = None
    #: Called by the rule first.
    meanwhile: Callable[[], None] | None = None
    ran = 0

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        Rule.ran += 1
        if Rule.meanwhile is not None:
            Rule.meanwhile()
        if Rule.error is not None:
            raise Rule.error
        return grad


@pytest.fixture(autouse=True)
def _plain_rule() -> Any:
    yield
    Rule.error = None
    Rule.meanwhile = None
    Rule.ran = 0


def failing(x: Any) -> Any:
    return Rule.apply(x)


def check_usable(context_id: int, size: int) -> None:
    """The context still works: a new loss over all workers is differentiated exactly."""
    Rule.error = None
    Rule.meanwhile = None
    x = leaf()
    loss = rpc.rpc_sync(1, via, args=([*range(2, size), 0], times_parameter, x, "new"))
    dist_autograd.backward(context_id, loss.sum())
    assert dist_autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]
    for other in range(size):
        assert rpc.rpc_sync(other, left_over) == (1, 0)


ROUTES = {"here": [0], "a neighbour": [1], "the end": [1, 2], "in between": [1, 2, 0, 1]}


@pytest.mark.parametrize("weather", [None, HARSH], ids=["fair", "harsh"])
@pytest.mark.parametrize("route", ROUTES)
def test_what_a_rule_raises_arrives_with_its_type_and_traceback(route: str, weather: Any) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, via, args=([2, 1], twice, x)).sum()
            loss = loss * rpc.rpc_sync(ROUTES[route][0], via, args=(ROUTES[route][1:], failing, x))
            Rule.error = OwnError("the rule has failed", 42)
            with pytest.raises(OwnError, match="the rule has failed") as caught:
                dist_autograd.backward(context_id, loss.sum())
            assert caught.value.code == 42
            owner = ROUTES[route][-1]
            if owner:
                trace = caught.value.__cause__
                assert isinstance(trace, RemoteTraceback)
                assert f"worker{owner}" in str(trace)
                assert "in backward" in str(trace)
                assert __file__.rsplit("/", 1)[-1] in str(trace)
            check_usable(context_id, 3)

    on_first(program, size=3, weather=weather)


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("stays here")


@pytest.mark.parametrize(
    ("error", "arrives"),
    [
        (ValueError, ValueError),
        (KeyError, KeyError),
        (MemoryError, MemoryError),
        (Unpicklable, rpc.RemoteError),
        (SystemExit, rpc.RemoteError),
        (KeyboardInterrupt, rpc.RemoteError),
    ],
)
def test_errors_of_all_kinds(error: type[BaseException], arrives: type[Exception]) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, failing, args=(leaf(),)).sum()
            Rule.error = error(7)
            with pytest.raises(arrives):
                dist_autograd.backward(context_id, loss)
            check_usable(context_id, 2)

    on_first(program)


def wrong_number(x: Any) -> Any:
    class Wrong(tp.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, grad, grad

    return Wrong.apply(x)


def test_a_rule_that_returns_nonsense() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, wrong_number, args=(leaf(),)).sum()
            with pytest.raises(RuntimeError, match="incorrect number of gradients"):
                dist_autograd.backward(context_id, loss)
            check_usable(context_id, 2)

    on_first(program)


def written_over(x: Any) -> Any:
    y = x * 1
    result = y * y
    y.mul_(2.0)
    return result


def test_a_saved_tensor_that_was_written_to() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, written_over, args=(leaf(),)).sum()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                dist_autograd.backward(context_id, loss)
            check_usable(context_id, 2)

    on_first(program)


def test_a_second_pass_over_a_graph_that_was_freed_on_another_worker() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, times_parameter, args=(x,)).sum()
            dist_autograd.backward(context_id, loss)
            for _ in range(3):
                with pytest.raises(RuntimeError, match="second time"):
                    dist_autograd.backward(context_id, loss)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]
            check_usable(context_id, 2)

    on_first(program)


def middle(x: tp.Tensor) -> tp.Tensor:
    """A parameter of this worker is reached before the failing rule of the next."""
    return times_parameter(x * rpc.rpc_sync(2, failing, args=(x,)))


@pytest.mark.parametrize("weather", [None, HARSH], ids=["fair", "harsh"])
@pytest.mark.parametrize("read_between", [False, True])
def test_a_pass_that_is_tried_again_counts_once(read_between: bool, weather: Any) -> None:
    """Whatever of it had been done, here or on a worker on the way."""

    def program() -> None:
        with dist_autograd.context() as context_id:
            v, x = leaf(2.0), leaf(5.0)
            loss = (v * rpc.rpc_sync(1, middle, args=(x,))).sum()
            for _ in range(3):
                Rule.error = OwnError("once", 1)
                with pytest.raises(OwnError):
                    dist_autograd.backward(context_id, [loss], retain_graph=True)
                if read_between:
                    assert dist_autograd.get_gradients(context_id) == {}
                Rule.error = None
            for times in (1, 2):
                dist_autograd.backward(context_id, [loss], retain_graph=True)
                grads = dist_autograd.get_gradients(context_id)
                # loss = v x x w, with w = 3 on worker 1
                assert grads[v].tolist() == [times * 75.0] * 2
                assert grads[x].tolist() == [times * 60.0] * 2
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [2 * 50.0] * 2

    on_first(program, size=3, weather=weather)


@pytest.mark.parametrize("retain_graph", [True, False])
@pytest.mark.parametrize("weather", [None, HARSH], ids=["fair", "harsh"])
def test_fifty_failures_and_then_a_success(retain_graph: bool, weather: Any) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x, y = leaf(), leaf()
            retained = rpc.rpc_sync(1, via, args=([2], failing, x)).sum()
            for i in range(50):
                if not retain_graph:
                    retained = rpc.rpc_sync(1, via, args=([2], failing, x)).sum()
                Rule.error = OwnError("again", i)
                with pytest.raises(OwnError):
                    dist_autograd.backward(context_id, [retained], retain_graph=retain_graph)
            Rule.error = None
            assert x not in dist_autograd.get_gradients(context_id)
            last = retained if retain_graph else rpc.rpc_sync(2, failing, args=(x,)).sum()
            other = rpc.rpc_sync(1, times_parameter, args=(y,)).sum()
            dist_autograd.backward(context_id, [last, other])
            grads = dist_autograd.get_gradients(context_id)
            assert {one: grad.tolist() for one, grad in grads.items()} == {x: [1, 1], y: [3, 3]}
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [1.0, 1.0]

    on_first(program, size=3, weather=weather)


def fail_five_times() -> None:
    for _ in range(5):
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, via, args=([2], failing, leaf())).sum()
            with pytest.raises(OwnError):
                dist_autograd.backward(context_id, loss)


def test_failures_on_many_threads_at_once() -> None:
    def program(this: int) -> None:
        if this == 0:
            Rule.error = OwnError("all fail", 1)
            calls = [rpc.rpc_async(to, fail_five_times) for to in (0, 1, 2) * 4]
            for call in calls:
                call.wait()
            for to in range(3):
                eventually(lambda to=to: rpc.rpc_sync(to, left_over) == (0, 0))

    run_world(3, program, weather=HARSH)


# -- timeouts --------------------------------------------------------------------------------------


class Gate:
    """Where rules wait until the test lets them go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        Rule.meanwhile = self

    def __call__(self) -> None:
        self.reached.set()
        assert self.open.wait(LIMIT)


def test_a_pass_that_takes_too_long_names_those_who_are_late() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, twice, args=(x,)) + rpc.rpc_sync(2, failing, args=(x,))
            loss = loss.sum()
            gate = Gate()
            began = time.monotonic()
            late = r"0\.1 s; workers that have not finished: worker2$"
            with pytest.raises(rpc.RpcTimeoutError, match=late) as caught:
                dist_autograd.backward(context_id, loss, timeout=0.1)
            assert isinstance(caught.value, TimeoutError)
            assert 0.1 <= time.monotonic() - began < 5
            # Others go on while that rule still runs.
            Rule.meanwhile = None
            y = leaf()
            other = rpc.rpc_sync(2, times_parameter, args=(y,)).sum()
            dist_autograd.backward(context_id, other, timeout=LIMIT)
            assert dist_autograd.get_gradients(context_id)[y].tolist() == [3.0, 3.0]
            gate.open.set()
            check_usable(context_id, 3)
            assert x not in dist_autograd.get_gradients(context_id)

    on_first(program, size=3)


def test_a_rule_of_the_starting_worker_itself_is_not_cut_short() -> None:
    """It runs on the thread that waits; the pass is found to be late afterwards."""

    def program() -> None:
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, twice, args=(failing(leaf()),)).sum()
            Rule.meanwhile = lambda: time.sleep(0.1)
            with contextlib.suppress(rpc.RpcTimeoutError):
                dist_autograd.backward(context_id, loss, timeout=0.02)
            check_usable(context_id, 2)

    on_first(program)


def test_a_generous_timeout_changes_nothing() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, twice, args=(x,)).sum()
            dist_autograd.backward(context_id, [loss], timeout=LIMIT)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]

    on_first(program)


def test_a_rule_that_outlives_its_pass_says_nothing_more() -> None:
    """Not even when it fails at last, nor to anybody that it knows."""

    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, failing, args=(twice(failing(x)),)).sum()
            gate = Gate()
            with pytest.raises(rpc.RpcTimeoutError):
                dist_autograd.backward(context_id, loss, timeout=0.05)
            eventually(lambda: has_ended(1, context_id))
            Rule.error = OwnError("much too late", 1)
            gate.open.set()
            eventually(lambda: Rule.ran == 1)
            check_usable(context_id, 2)
            assert Rule.ran == 1
            assert x not in dist_autograd.get_gradients(context_id)

    on_first(program)


def has_ended(worker: int, context_id: int) -> bool:
    with tp.no_grad():
        answer: bool = rpc.rpc_sync(worker, ended_here, args=(context_id,))
    return answer


def ended_here(context_id: int) -> bool:
    return bool(current_session().container.retrieve(context_id).ended)


def test_a_rule_that_outlives_the_whole_job() -> None:
    """Shutting down waits for it; it finds nobody to tell, and that is no error."""

    def program(this: int) -> None:
        if this:
            return
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, failing, args=(twice(leaf()),)).sum()
            gate = Gate()
            with pytest.raises(rpc.RpcTimeoutError):
                dist_autograd.backward(context_id, loss, timeout=0.05)
        threading.Timer(0.3, gate.open.set).start()

    run_world(2, program)
    assert Rule.ran == 1


# -- releases --------------------------------------------------------------------------------------


def test_a_context_that_is_left_while_a_pass_runs_ends_it() -> None:
    """A callee differentiates in its caller's context, and the caller leaves."""

    def program() -> None:
        gate = Gate()
        errors: list[str] = []
        with dist_autograd.context() as context_id:
            loss_there = rpc.remote(1, rpc_failing, args=(leaf(),))
            loss_there.to_here()
            rpc.rpc_async(1, differentiate_there, args=(context_id, loss_there))
            assert gate.reached.wait(LIMIT)
            # As when the block is left by an exception: it does not wait for the call.
            current_session().exchange.release(context_id)
        gate.open.set()
        eventually(lambda: bool(_outcomes))
        errors.extend(_outcomes)
        assert len(errors) == 1
        assert "released while a backward pass was running" in errors[0]

    _outcomes.clear()
    on_first(program, size=3)


_outcomes: list[str] = []


def rpc_failing(x: tp.Tensor) -> tp.Tensor:
    result: tp.Tensor = rpc.rpc_sync(2, failing, args=(x,)).sum()
    return result


def differentiate_there(context_id: int, loss: rpc.RRef[tp.Tensor]) -> None:
    try:
        dist_autograd.backward(context_id, loss.local_value())
    except RuntimeError as error:
        _outcomes.append(str(error))


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_release_at_any_worker_during_a_pass_raises_at_the_one_that_started_it(
    worker: int,
) -> None:
    def program() -> None:
        gate = Gate()
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, via, args=([2], failing, leaf())).sum()
            call = rpc.rpc_async(0, release_when, args=(worker, context_id))
            _gates[context_id] = gate
            with pytest.raises(RuntimeError, match="released"):
                dist_autograd.backward(context_id, loss)
            gate.open.set()
            with contextlib.suppress(RuntimeError):
                call.wait()  # its answer may or may not be under way before the release

    on_first(program, size=3)


_gates: dict[int, Gate] = {}


def release_when(worker: int, context_id: int) -> None:
    eventually(lambda: context_id in _gates)
    assert _gates[context_id].reached.wait(LIMIT)
    with tp.no_grad():
        rpc.rpc_sync(worker, release_here, args=(context_id,))


def release_here(context_id: int) -> int:
    current_session().exchange.release(context_id)
    return rank()


def test_a_release_ends_passes_that_wait_for_their_turn_too() -> None:
    def program() -> None:
        gate = Gate()
        x = leaf()
        context = dist_autograd._new_context()
        context_id = context._context_id()
        first, second = failing(x).sum(), (x * x).sum()
        running = Thread(lambda: dist_autograd.backward(context_id, first))
        assert gate.reached.wait(LIMIT)
        begun = threading.Event()
        holds = context.starting

        class Noticed:
            """The context's lock; tells when the second pass has come to it."""

            def acquire(self, **how: Any) -> bool:
                begun.set()
                return holds.acquire(**how)

            def release(self) -> None:
                holds.release()

        context.starting = Noticed()
        waiting = Thread(lambda: dist_autograd.backward(context_id, second))
        assert begun.wait(LIMIT)
        dist_autograd._release_context(context_id)
        gate.open.set()
        for thread in (running, waiting):
            with pytest.raises(RuntimeError, match=f"context {context_id} was released while"):
                thread.result()
        assert not context.gradients.settled

    on_first(program, size=1)


def test_what_one_context_s_failure_leaves_is_nothing_to_another() -> None:
    def program() -> None:
        with dist_autograd.context() as first:
            Rule.error = OwnError("first", 1)
            with pytest.raises(OwnError):
                dist_autograd.backward(first, rpc.rpc_sync(1, failing, args=(leaf(),)).sum())
            Rule.error = None
        with dist_autograd.context() as second:
            x = leaf()
            dist_autograd.backward(second, rpc.rpc_sync(1, failing, args=(x,)).sum())
            assert dist_autograd.get_gradients(second)[x].tolist() == [1.0, 1.0]
            assert recorded(second).known == {1}

    on_first(program)
