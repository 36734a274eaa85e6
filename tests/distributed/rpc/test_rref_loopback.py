"""Remote references among several workers in one process, and the ends of their values."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from distributed.rpc.called import (
    HARSH,
    LIMIT,
    LONG,
    Gate,
    Losing,
    Thing,
    Unloadable,
    Unpicklable,
    add,
    arguments,
    count_values,
    eventually,
    function_of_a_lost_module,
    here,
    identity,
    on_first,
    pass_gate,
    values_at,
)
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.loopback import Weather

# -- remote references -----------------------------------------------------------------------------


def test_reference_to_a_value_on_another_worker() -> None:
    def program() -> None:
        rref = rpc.remote(1, Thing, args=(5,))
        assert not rref.is_owner()
        assert rref.owner() == WorkerInfo("worker1", 1)
        assert rref.owner_name() == "worker1"
        assert isinstance(rref, rpc.RRef)
        first, second = rref.to_here(), rref.to_here()
        assert first.value == second.value == 5
        assert first is not second
        assert rref.confirmed_by_owner()
        assert repr(rref).startswith("UserRRef(RRefId = GloballyUniqueId(created_on=0, local_id=")
        with pytest.raises(
            RuntimeError, match=r"can't call localValue\(\) on user .*worker0.*owner"
        ):
            rref.local_value()

    on_first(2, program)


def test_reference_to_a_value_of_ones_own() -> None:
    def program() -> None:
        thing = Thing(5)
        rref = rpc.RRef(thing)
        assert rref.is_owner()
        assert rref.owner_name() == "worker0"
        assert rref.to_here() is rref.local_value() is thing
        assert rref.confirmed_by_owner()
        assert repr(rref) == "OwnerRRef(GloballyUniqueId(created_on=0, local_id=0))"
        assert rpc.RRef(None).local_value() is None
        with pytest.raises(TypeError):
            rpc.RRef()  # type: ignore[call-arg]

    on_first(1, program)


def test_remote_to_oneself() -> None:
    def program() -> None:
        rref = rpc.remote(0, Thing, args=(5,))
        assert rref.is_owner()
        assert rref.local_value() is rref.to_here()
        assert rref.local_value().value == 5

    on_first(1, program)


def test_references_are_compared_by_identity() -> None:
    def program() -> None:
        first, second = rpc.RRef(1), rpc.RRef(1)
        assert first == first
        assert first != second
        assert len({first, second}) == 2
        assert weakref.ref(first)() is first
        with pytest.raises(AttributeError):
            first.anything = 1  # type: ignore[attr-defined]

    on_first(1, program)


held: dict[str, Any] = {}


def hold(name: str, value: Any) -> None:
    held[name] = value


def let_go(name: str) -> None:
    del held[name]


def value_of(rref: Any) -> Any:
    return rref.to_here().value


def local_identity(rref: Any) -> int:
    return id(rref.local_value())


def pass_on(rref: Any, way: list[int]) -> Any:
    if not way:
        return rref
    return rpc.rpc_sync(way[0], pass_on, args=(rref, way[1:]))


def test_reference_passed_on_and_returned() -> None:
    def program() -> None:
        rref = rpc.remote(1, Thing, args=(5,))
        assert rpc.rpc_sync(2, value_of, args=(rref,)) == 5
        assert rpc.rpc_sync(1, value_of, args=(rref,)) == 5
        back = pass_on(rref, [2, 1, 0, 2, 1])
        assert back.to_here().value == 5
        assert back.owner_name() == "worker1"
        del rref
        assert back.to_here().value == 5

    for weather in (None, HARSH):
        on_first(3, program, weather=weather)


def test_reference_that_comes_home_is_to_the_live_value() -> None:
    def program() -> None:
        thing = Thing()
        rref = rpc.RRef(thing)
        back = pass_on(rref, [1, 2, 1])
        assert back.is_owner()
        assert back.local_value() is thing
        remote = rpc.remote(1, Thing)
        identity = rpc.rpc_sync(1, local_identity, args=(remote,))
        assert rpc.rpc_sync(2, pass_on, args=(remote, [1])).owner_name() == "worker1"
        assert rpc.rpc_sync(1, local_identity, args=(remote,)) == identity

    on_first(3, program)


def make_rref(value: Any) -> Any:
    return rpc.RRef(value)


def make_rrefs(count: int) -> list[Any]:
    return [rpc.RRef(i) for i in range(count)]


def test_reference_to_a_reference_and_lists_of_references() -> None:
    def program() -> None:
        outer = rpc.remote(1, make_rref, args=(5,))
        assert outer.to_here().to_here() == 5
        rrefs = rpc.rpc_sync(1, make_rrefs, args=(20,))
        assert [rref.to_here() for rref in rrefs] == list(range(20))
        copies = rpc.rpc_sync(2, identity, args=({"list": rrefs},))["list"]
        assert [rref.to_here() for rref in copies] == list(range(20))

    on_first(3, program)


def test_value_may_be_asked_for_before_it_exists(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, pass_gate, args=(gate.name, 7))
        assert not rref.confirmed_by_owner()
        futures = [rpc.rpc_async(2, rpc.RRef.to_here, args=(rref,)) for _ in range(5)]
        assert gate.waiting.acquire(timeout=LIMIT)
        assert not any(future.done() for future in futures)
        gate.event.set()
        assert [future.wait() for future in futures] == [7] * 5

    on_first(3, program)


def test_failed_creation_raises_at_every_use_everywhere() -> None:
    def program() -> None:
        rref = rpc.remote(1, add, args=(1, "text"))
        early = rpc.rpc_async(2, rpc.RRef.to_here, args=(rref,))
        for _ in range(2):
            with pytest.raises(TypeError, match="unsupported operand"):
                rref.to_here()
        with pytest.raises(TypeError, match="unsupported operand"):
            early.wait()
        eventually(rref.confirmed_by_owner)
        with pytest.raises(TypeError, match="unsupported operand"):
            rpc.rpc_async(2, rpc.RRef.to_here, args=(rref,))

    on_first(3, program)


@pytest.mark.parametrize("to", [0, 1])
def test_creation_whose_request_cannot_be_loaded_raises_at_every_use(to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, function_of_a_lost_module(), args=(Losing(),))
        for _ in range(2):
            with pytest.raises(ModuleNotFoundError, match="lost_module"):
                rref.to_here()
        rref = rpc.remote(to, identity, args=(Unloadable(to),))
        with pytest.raises(KeyError, match="cannot be loaded"):
            rref.to_here()
        if to == 0:
            with pytest.raises(KeyError, match="cannot be loaded"):
                rref.local_value()
        del rref
        eventually(lambda: values_at(to) == 0)

    on_first(2, program, seconds=LIMIT)


def test_third_worker_learns_that_a_creation_could_not_be_loaded(gate: Gate) -> None:
    def program() -> None:
        # Worker 2 asks before the request has failed.
        blocked = rpc.rpc_async(1, pass_gate, args=(gate.name,))
        rref = rpc.remote(1, function_of_a_lost_module(), args=(Losing(),))
        early = None
        if not rref.confirmed_by_owner():
            early = rpc.rpc_async(2, rpc.RRef.to_here, args=(rref,))
        gate.event.set()
        blocked.wait()
        if early is not None:
            with pytest.raises(ModuleNotFoundError, match="lost_module"):
                early.wait()

    for seed in range(5):
        on_first(3, program, seconds=LIMIT, weather=Weather(seed=seed, hold=0.5))


# -- when values end -------------------------------------------------------------------------------


def test_values_end_with_their_last_reference() -> None:
    def program() -> None:
        rref = rpc.remote(1, Thing)
        own = rpc.RRef(Thing())
        rref.to_here()
        assert values_at(1) == count_values() == 1
        rpc.rpc_sync(2, hold, args=("both", [rref, own]))
        del rref, own
        rpc.rpc_sync(1, here)
        assert values_at(1) == count_values() == 1
        rpc.rpc_sync(2, let_go, args=("both",))
        eventually(lambda: values_at(1) == count_values() == 0)

    on_first(3, program)


def test_many_references_leave_nothing() -> None:
    def program(rank: int) -> None:
        chance = random.Random(rank)
        mine: list[Any] = []
        for i in range(60):
            mine.append(rpc.remote(chance.randrange(4), Thing, args=(i,)))
            if chance.random() < 0.5:
                rref = chance.choice(mine)
                mine.append(pass_on(rref, [chance.randrange(4) for _ in range(3)]))
            if chance.random() < 0.4:
                mine.pop(chance.randrange(len(mine)))
            if mine and chance.random() < 0.3:
                assert isinstance(chance.choice(mine).to_here().value, int)
        mine.clear()
        del rref
        # References of others are dropped as time goes by; polling does that.
        eventually(lambda: rpc.rpc_sync((rank + 1) % 4, count_values) == 0)

    for weather in (None, HARSH):
        run_world(4, program, weather=weather)


@pytest.mark.parametrize("to", [0, 1])
def test_reference_dropped_before_its_value_is_made(gate: Gate, to: int) -> None:
    def program() -> None:
        for _ in range(5):
            rpc.remote(to, pass_gate, args=(gate.name, np.ones(LONG)))
        for _ in range(5):
            assert gate.waiting.acquire(timeout=LIMIT)
        eventually(lambda: not current_agent().rrefs.dropped)
        rpc.rpc_sync(to, here)
        gate.event.set()
        eventually(lambda: values_at(to) == 0)

    on_first(2, program, weather=HARSH)


def test_thousand_results_dropped_at_once() -> None:
    def program() -> None:
        for _ in range(1000):
            rpc.remote(1, Thing)
        eventually(lambda: values_at(1) == 0)

    on_first(2, program)


def test_references_in_a_result_that_nobody_asks_for_are_dropped() -> None:
    def program() -> None:
        for _ in range(3):
            rpc.rpc_async(1, make_rrefs, args=(5,))
            future = rpc.rpc_async(1, make_rref, args=(Unloadable(0),))
        del future
        eventually(lambda: values_at(1) == 0)

    on_first(2, program)


def make_rref_at_gate(name: str) -> Any:
    pass_gate(name)
    return rpc.RRef(1)


def test_references_in_an_answer_that_comes_too_late_are_dropped(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError):
            rpc.rpc_sync(1, make_rref_at_gate, args=(gate.name,), timeout=0.02)
        gate.event.set()
        eventually(lambda: values_at(1) == 0 and not current_agent().calls_outstanding)

    on_first(2, program)


def test_references_in_a_message_that_cannot_be_loaded_are_dropped() -> None:
    def program() -> None:
        for _ in range(3):
            rref = rpc.RRef(1)
            with pytest.raises(ModuleNotFoundError):
                rpc.rpc_sync(1, function_of_a_lost_module(), args=(Losing(), rref))
            with pytest.raises(KeyError):
                rpc.rpc_sync(1, identity, args=([Unloadable(1), rref],))
            with pytest.raises(KeyError):
                rpc.rpc_sync(1, arguments, args=(Unloadable(0), rref))
        del rref
        eventually(lambda: count_values() == 0)

    on_first(2, program)


def test_references_in_a_call_that_cannot_be_pickled_are_not_lost() -> None:
    def program() -> None:
        rref = rpc.remote(1, Thing)
        for _ in range(3):
            with pytest.raises(ValueError, match="cannot be pickled"):
                rpc.rpc_sync(1, identity, args=(rref, Unpicklable()))
            with pytest.raises(ValueError, match="cannot be pickled"):
                rpc.rpc_sync(1, list_with_unpicklable, args=(rref,))
        assert rref.to_here().value == 0
        del rref
        eventually(lambda: values_at(1) == 0)

    on_first(2, program)


def list_with_unpicklable(value: Any) -> list[Any]:
    return [value, Unpicklable()]


def test_references_in_cycles_end_with_the_collector() -> None:
    def program() -> None:
        cycle: list[Any] = [rpc.remote(1, Thing)]
        cycle.append(cycle)
        del cycle
        gc.collect()
        eventually(lambda: values_at(1) == 0)

    on_first(2, program)


def test_references_in_values_end_with_them() -> None:
    def program() -> None:
        chain = rpc.RRef(0)
        for i in range(10):
            chain = rpc.remote(i % 3, identity, args=([chain],))
        del chain
        for worker in range(3):
            eventually(lambda worker=worker: values_at(worker) == 0)  # type: ignore[misc]

    on_first(3, program)


ended: list[tuple[threading.Thread, Any]] = []


class CallsWhenItEnds:
    """A value whose finaliser makes a call and waits for it."""

    def __init__(self, to: int) -> None:
        self.to = to

    def __del__(self) -> None:
        ended.append((threading.current_thread(), rpc.rpc_sync(self.to, here)))


@pytest.mark.parametrize("owner", [0, 1])
def test_finaliser_of_a_value_may_call(owner: int) -> None:
    def program() -> None:
        ended.clear()
        rref = rpc.remote(owner, CallsWhenItEnds, args=(1 - owner,))
        rpc.rpc_sync(owner, here)
        eventually(rref.confirmed_by_owner)
        del rref
        eventually(lambda: len(ended) == 1)
        assert ended[0][1] == 1 - owner
        assert ended[0][0] is not threading.current_thread()

    on_first(2, program, seconds=LIMIT)
