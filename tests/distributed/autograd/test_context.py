"""The life of a context: entered, known to others, left; and what is left of it then."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import (
    HARSH,
    Thread,
    context_of,
    eventually,
    left_over,
    on_first,
)
from distributed.autograd.remote import (
    add,
    current_context,
    gradient_of,
    mul,
    number,
    times_parameter,
    twice,
    via,
)
from harness.loopback import run_world
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.autograd.context import DistAutogradContext
from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent


def leaf(*shape: int) -> tp.Tensor:
    return tp.ones(*(shape or (2,)), requires_grad=True)


# -- entering --------------------------------------------------------------------------------------


def test_ids_have_the_worker_s_rank_in_the_top_bits_and_count_below() -> None:
    def program(rank: int) -> None:
        for i in range(3):
            with dist_autograd.context() as context_id:
                assert context_id == (rank << 48) + i

    run_world(3, program)


def test_it_needs_rpc() -> None:
    assert not dist_autograd.is_initialized()
    with (
        pytest.raises(RuntimeError, match="RPC has not been initialized"),
        dist_autograd.context(),
    ):
        pass


def test_contexts_cannot_be_nested() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            with (
                pytest.raises(RuntimeError, match="Already have an autograd context id"),
                dist_autograd.context(),
            ):
                pass
            assert current_context() == context_id
            assert context_of(context_id) is not None

    on_first(program, size=1)


def open_a_context() -> int:
    with dist_autograd.context() as context_id:
        return context_id


def test_nor_within_a_call_that_is_made_in_one() -> None:
    def program() -> None:
        with (
            dist_autograd.context(),
            pytest.raises(RuntimeError, match="Already have an autograd context id"),
        ):
            rpc.rpc_sync(1, open_a_context)
        assert rpc.rpc_sync(1, open_a_context) >> 48 == 1

    on_first(program)


def differentiate_here(x: tp.Tensor) -> Any:
    """A context of the callee's own: a pass that it starts, over a call back to the caller."""
    w = leaf()
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, rpc.rpc_sync(0, mul, args=(w, x)).sum())
        return dist_autograd.get_gradients(context_id)[w].tolist()


def test_a_callee_without_one_may_open_its_own() -> None:
    def program() -> None:
        assert rpc.rpc_sync(1, differentiate_here, args=(tp.full((2,), 5.0),)) == [5.0, 5.0]

    on_first(program)


def test_one_block_object_may_be_entered_again() -> None:
    def program() -> None:
        block = dist_autograd.context()
        with block as first:
            pass
        with block as second:
            assert second == first + 1

    on_first(program, size=1)


def test_each_thread_has_its_own() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            assert Thread(current_context).result() == -1
            assert Thread(lambda: rpc.rpc_sync(1, current_context)).result() == -1
            other = Thread(open_a_context).result()
            assert other != context_id
            assert rpc.rpc_sync(1, current_context) == context_id

    on_first(program)


def test_it_travels_with_calls_of_all_kinds() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            assert rpc.rpc_async(1, current_context).wait() == context_id
            assert rpc.remote(1, current_context).to_here() == context_id
            assert rpc.rpc_sync(0, current_context) == context_id
            assert rpc.rpc_sync(1, via, args=([2, 1], current_context)) == context_id
        assert rpc.rpc_sync(1, current_context) == -1

    on_first(program, size=3)


def test_a_callback_runs_in_the_context_of_the_thread_that_registered_it() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            future = rpc.rpc_async(1, number).then(lambda _: current_context())
            assert future.wait() == context_id
        assert rpc.rpc_async(1, number).then(lambda _: current_context()).wait() == -1

    on_first(program)


# -- leaving ---------------------------------------------------------------------------------------


def test_leaving_by_an_exception_releases_it_as_well() -> None:
    def program() -> None:
        with contextlib.suppress(ValueError), dist_autograd.context():
            rpc.rpc_sync(1, via, args=([2], add, leaf(), leaf()))
            raise ValueError("of the block")
        assert current_context() == -1

    on_first(program, size=3)  # which sees to it that none is left


def test_a_context_is_released_on_workers_that_only_others_know() -> None:
    def program() -> None:
        with dist_autograd.context():
            rpc.rpc_sync(1, via, args=([2, 3, 4], add, leaf(), leaf()))
            assert rpc.rpc_sync(4, left_over) == (1, 0)

    on_first(program, size=5, weather=HARSH)


def wait_and_call(to: int) -> None:
    """Call on after the context of this call has been released."""
    eventually(lambda: not left_over()[0])
    _late_calls.append("made")
    try:
        rpc.rpc_sync(to, number)
    except RuntimeError as error:
        _late_calls.append(str(error))


_late_calls: list[str] = []


def test_a_late_call_in_a_released_context_raises_and_does_not_revive_it() -> None:
    def program() -> None:
        _late_calls.clear()
        with contextlib.suppress(KeyError), dist_autograd.context() as context_id:
            rpc.rpc_async(1, wait_and_call, args=(2,))
            rpc.rpc_sync(2, number)
            eventually(lambda: rpc.rpc_sync(1, left_over)[0] == 1)
            raise KeyError  # or the block would wait for the call
        eventually(lambda: len(_late_calls) == 2)
        assert f"Could not find autograd context with id: {context_id}" in _late_calls[1]
        assert "released" in _late_calls[1]
        for rank in range(3):
            assert rpc.rpc_sync(rank, left_over) == (0, 0)

    on_first(program, size=3)


def forget(context_id: int) -> None:
    current_session().container.release(context_id)


def count_values() -> int:
    gc.collect()
    return rpc.statistics().values_owned


def test_references_in_a_call_that_comes_too_late_for_its_context_are_dropped() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            rref = rpc.RRef(5)
            with pytest.raises(RuntimeError, match="released"):
                rpc.rpc_sync(1, forget, args=(context_id,))  # it cannot even answer
            with pytest.raises(RuntimeError, match="released"):
                rpc.rpc_sync(1, type, args=(rref,))
            with pytest.raises(RuntimeError, match="released"):
                rpc.remote(1, type, args=(rref,)).to_here()
            del rref
        eventually(lambda: count_values() + rpc.rpc_sync(1, count_values) == 0)

    on_first(program)


def slowly(x: Any) -> Any:
    time.sleep(0.1)
    return x * 2


def test_leaving_waits_for_calls_that_are_not_answered() -> None:
    def program() -> None:
        with dist_autograd.context():
            futures = [rpc.rpc_async(1, slowly, args=(leaf(),)) for _ in range(3)]
            reference = rpc.remote(1, slowly, args=(leaf(),))
        assert all(future.done() for future in futures)
        assert reference.confirmed_by_owner()

    on_first(program)


def test_leaving_does_not_wait_for_calls_of_other_contexts() -> None:
    def program() -> None:
        release = threading.Event()
        outside = rpc.rpc_async(1, _hold, args=(id(release),))
        _events[id(release)] = release
        with dist_autograd.context():
            rpc.rpc_sync(1, number)
        assert not outside.done()
        release.set()
        outside.wait()

    on_first(program)


_events: dict[int, threading.Event] = {}


def _hold(key: int) -> None:
    eventually(lambda: key in _events)
    assert _events[key].wait(20)


def test_a_result_that_is_fetched_after_the_block_is_a_leaf() -> None:
    def program() -> None:
        with dist_autograd.context():
            future = rpc.rpc_async(1, twice, args=(leaf(),))
        result = future.wait()
        assert result.is_leaf
        assert result.tolist() == [2.0, 2.0]

    on_first(program)


# -- gradients -------------------------------------------------------------------------------------


def loss_of(x: tp.Tensor, to: int = 1) -> tp.Tensor:
    result: tp.Tensor = rpc.rpc_sync(to, times_parameter, args=(x,)).sum()
    return result


def test_gradients_are_read_on_the_worker_that_has_the_leaf() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            assert dist_autograd.get_gradients(context_id) == {}
            dist_autograd.backward(context_id, loss_of(x))
            grads = dist_autograd.get_gradients(context_id)
            assert list(grads) == [x]
            assert grads[x].tolist() == [3.0, 3.0]
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [1.0, 1.0]
            assert Thread(lambda: dist_autograd.get_gradients(context_id)).result().keys() == {x}

    on_first(program)


def gradients_without_id() -> int:
    return len(dist_autograd.get_gradients())


def test_within_the_context_the_id_may_be_left_out() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            dist_autograd.backward(context_id, loss_of(x))
            assert dist_autograd.get_gradients().keys() == {x}
            assert rpc.rpc_sync(1, gradients_without_id) == 1
        with pytest.raises(RuntimeError, match="doesn't have a valid autograd context"):
            dist_autograd.get_gradients()

    on_first(program)


def test_the_dict_is_a_copy_but_the_gradients_are_the_context_s_own() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = loss_of(x)
            dist_autograd.backward(context_id, loss, retain_graph=True)
            grads = dist_autograd.get_gradients(context_id)
            grads[x].mul_(10.0)
            grads.clear()
            grads = dist_autograd.get_gradients(context_id)
            assert grads[x].tolist() == [30.0, 30.0]
            dist_autograd.backward(context_id, loss)
            assert grads[x].tolist() == [33.0, 33.0]
            assert dist_autograd.get_gradients(context_id)[x] is grads[x]

    on_first(program)


def test_after_the_block_its_own_thread_s_gradients_can_be_read_until_its_next() -> None:
    def program() -> None:
        with dist_autograd.context() as first:
            x = leaf()
            dist_autograd.backward(first, loss_of(x))
        assert dist_autograd.get_gradients(first)[x].tolist() == [3.0, 3.0]
        assert Thread(lambda: dist_autograd.get_gradients(first)).result()[x].tolist() == [3.0, 3.0]
        # Other threads' contexts do not matter.
        Thread(open_a_context).result()
        assert dist_autograd.get_gradients(first).keys() == {x}
        # On the other worker all is gone.
        eventually(lambda: rpc.rpc_sync(1, left_over) == (0, 0))
        with pytest.raises(RuntimeError, match=f"id: {first} .it has been released"):
            rpc.rpc_sync(1, gradient_of, args=(first,))
        with dist_autograd.context() as second:
            with pytest.raises(RuntimeError, match=f"id: {first} .it has been released"):
                dist_autograd.get_gradients(first)
            assert dist_autograd.get_gradients(second) == {}
        assert dist_autograd.get_gradients(second) == {}

    on_first(program)


def test_a_leaf_s_gradients_can_be_read_after_an_exception_left_the_block() -> None:
    def program() -> None:
        x = leaf()
        with contextlib.suppress(KeyError), dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, loss_of(x))
            raise KeyError
        assert dist_autograd.get_gradients(context_id).keys() == {x}

    on_first(program)


def test_a_thread_that_ends_leaves_nothing_behind() -> None:
    def program() -> None:
        def differentiate() -> weakref.ref[tp.Tensor]:
            x = leaf()
            with dist_autograd.context() as context_id:
                dist_autograd.backward(context_id, (x * 2).sum())
            assert dist_autograd.get_gradients(context_id).keys() == {x}
            return weakref.ref(dist_autograd.get_gradients(context_id)[x])

        ended = [Thread(differentiate).result() for _ in range(5)]
        gc.collect()
        assert [ref() for ref in ended] == [None] * 5

    on_first(program, size=1)


@pytest.mark.parametrize("unknown", [99, -1, -5, 1 << 48, 1 << 70])
def test_an_id_that_does_not_exist(unknown: int) -> None:
    def program() -> None:
        for ask in (
            lambda: dist_autograd.get_gradients(unknown),
            lambda: rpc.rpc_sync(1, gradient_of, args=(unknown,)),
        ):
            with pytest.raises(RuntimeError, match=f"autograd context with id: {unknown} "):
                ask()

    on_first(program)


def test_after_shutdown_gradients_are_gone() -> None:
    ids = []
    agents = []

    def program(rank: int) -> None:
        agents.append(current_agent())
        with dist_autograd.context() as context_id:
            x = leaf()
            dist_autograd.backward(context_id, (x * x).sum())
        ids.append(context_id)

    run_world(1, program)
    set_thread_agent(agents[0])
    try:
        with pytest.raises(RuntimeError, match="Could not find autograd context"):
            dist_autograd.get_gradients(ids[0])
    finally:
        set_thread_agent(None)


# -- many ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weather", [None, HARSH], ids=["fair", "harsh"])
def test_many_threads_of_several_workers_against_one(weather: Any) -> None:
    """Twenty threads on each of three workers; each context sees its own gradients only."""

    def trainer(number: int) -> None:
        for step in range(3):
            scale = float(number * 10 + step + 1)
            x = tp.full((2,), scale, requires_grad=True)
            with dist_autograd.context() as context_id:
                loss = (loss_of(x, to=3) + rpc.rpc_sync(3, mul, args=(x, x))).sum()
                dist_autograd.backward(context_id, loss)
                grads = dist_autograd.get_gradients(context_id)
                assert grads[x].tolist() == [6.0 + 2 * scale] * 2
                assert len(grads) == 1
                there = rpc.rpc_sync(3, gradient_of, args=(context_id,))
                assert there == [2 * scale] * 2

    def program(rank: int) -> None:
        if rank < 3:
            threads = [Thread(lambda n=n: trainer(n)) for n in range(rank * 20, rank * 20 + 20)]
            for thread in threads:
                thread.result()
            eventually(lambda: rpc.rpc_sync(rank, left_over) == (0, 0))

    run_world(4, program, weather=weather)


def test_one_leaf_in_two_contexts_at_once() -> None:
    def program() -> None:
        x = leaf()
        both_open = threading.Barrier(2)

        def differentiate(factor: float) -> Any:
            with dist_autograd.context() as context_id:
                loss = loss_of(x) * factor
                both_open.wait(20)
                dist_autograd.backward(context_id, loss)
                both_open.wait(20)
                return dist_autograd.get_gradients(context_id)[x].tolist()

        one, two = Thread(lambda: differentiate(1.0)), Thread(lambda: differentiate(2.0))
        assert one.result() == [3.0, 3.0]
        assert two.result() == [6.0, 6.0]
        assert x.grad is None

    on_first(program)


def count_contexts() -> int:
    gc.collect()
    return sum([isinstance(one, DistAutogradContext) for one in gc.get_objects()])


def test_two_thousand_contexts_leave_nothing_behind() -> None:
    def program() -> None:
        before = count_contexts()
        leaves = []
        largest = 0
        for i in range(2000):
            x = leaf()
            with dist_autograd.context() as context_id:
                loss = loss_of(x)
                dist_autograd.backward(context_id, loss)
            leaves.append(weakref.ref(x))
            if i % 100 == 99:
                largest = max(largest, rpc.rpc_sync(1, left_over)[0])
        # Releases keep up, also while contexts are made in a tight loop.
        assert largest < 50
        del x, loss
        eventually(lambda: rpc.rpc_sync(1, left_over) == (0, 0))
        with dist_autograd.context():
            pass
        assert count_contexts() - before <= 2
        assert not any(ref() for ref in leaves)
        assert len(current_session().exchange._started) == 0

    on_first(program)


def test_a_worker_that_has_shut_down_is_not_kept_alive() -> None:
    agents: list[weakref.ref[Any]] = []

    def program(rank: int) -> None:
        agents.append(weakref.ref(current_agent()))
        with dist_autograd.context() as context_id:
            x = leaf()
            dist_autograd.backward(context_id, loss_of(x, to=1 - rank))

    run_world(2, program)

    def all_gone() -> bool:
        gc.collect()
        return not any(agent() for agent in agents)

    eventually(all_gone)


def test_contexts_and_passes_leave_no_garbage_in_cycles() -> None:
    def program(rank: int) -> None:
        if rank:
            return
        x = tp.ones(2, requires_grad=True)

        def once() -> None:
            with dist_autograd.context() as context_id:
                dist_autograd.backward(context_id, [loss_of(x)])

        for _ in range(3):
            once()
        gc.collect()
        gc.disable()
        try:
            once()
            assert gc.collect() == 0
        finally:
            gc.enable()

    run_world(2, program)
