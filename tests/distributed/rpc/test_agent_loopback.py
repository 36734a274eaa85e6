"""Calls and remote references among several workers in one process."""

from __future__ import annotations

import functools
import gc
import operator
import random
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.loopback import LoopbackWorld, Weather
from tensorplay.distributed.transport.wire import INLINE_LIMIT

LIMIT = 20.0
"""Seconds after which something that should have happened never will."""

HARSH = Weather(seed=3, hold=0.6, late_bulk=0.7, pause=1e-3)
LONG = INLINE_LIMIT // 8 + 1
"""Elements of an array of doubles that travels out of band."""


def on_first(size: int, program: Callable[[], Any], **options: Any) -> Any:
    """Run `program` on worker 0 of a world; the others only serve."""
    return run_world(size, lambda rank: program() if rank == 0 else None, **options)[0]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(1e-3)


# -- functions that are called -------------------------------------------------------------------


def here() -> int:
    return rpc.get_worker_info().id


def add(a: Any, b: Any = 10) -> Any:
    return a + b


def arguments(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def identity(value: Any) -> Any:
    return value


def fill(array: Any) -> None:
    np.asarray(array)[...] = 7


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def count_values() -> int:
    return len(current_agent().rrefs)


def values_at(worker: int) -> int:
    return int(rpc.rpc_sync(worker, count_values))


class Gate:
    """Holds calls up until it is opened; in one process all workers see it."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.waiting = threading.Semaphore(0)

    def pass_through(self, value: Any = None) -> Any:
        self.waiting.release()
        assert self.event.wait(2 * LIMIT)
        return value


gates: dict[str, Gate] = {}


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Iterator[Gate]:
    gate = gates[request.node.nodeid] = Gate()
    gate.name = request.node.nodeid  # type: ignore[attr-defined]
    yield gate
    gate.event.set()
    del gates[request.node.nodeid]


def pass_gate(name: str, value: Any = None) -> Any:
    return gates[name].pass_through(value)


def open_gate(name: str) -> None:
    gates[name].event.set()


class Thing:
    """Something with state and methods."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value

    def added(self, other: Any) -> Any:
        return self.value + other

    @staticmethod
    def static(value: int) -> int:
        return 2 * value

    @classmethod
    def named(cls, value: int) -> tuple[str, int]:
        return cls.__name__, value


# -- calling -------------------------------------------------------------------------------------


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


# -- value semantics -----------------------------------------------------------------------------


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


# -- nesting -------------------------------------------------------------------------------------


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


# -- what cannot be sent -------------------------------------------------------------------------


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be pickled")


class Unloadable:
    """Can be pickled, and not be loaded where the text says so."""

    def __init__(self, where: int) -> None:
        self.where = where

    def __setstate__(self, state: dict[str, Any]) -> None:
        if here() == state["where"]:
            raise KeyError("cannot be loaded")
        self.__dict__.update(state)


def make_unpicklable() -> Any:
    return Unpicklable()


def make_lambda() -> Any:
    return lambda: 0


def test_arguments_that_cannot_be_pickled_raise_at_the_call() -> None:
    def program() -> None:
        for to in (0, 1):
            for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
                with pytest.raises(ValueError, match="cannot be pickled"):
                    call(to, identity, args=(Unpicklable(),))
                with pytest.raises(Exception, match="pickle"):
                    call(to, lambda: 0)
            assert rpc.rpc_sync(to, here) == to
        assert current_agent().calls_outstanding == 0

    on_first(2, program)


def test_results_that_cannot_be_pickled_raise_at_the_caller() -> None:
    def program() -> None:
        for to in (0, 1):
            with pytest.raises(ValueError, match="cannot be pickled"):
                rpc.rpc_sync(to, make_unpicklable)
            with pytest.raises(Exception, match="pickle"):
                rpc.rpc_async(to, make_lambda).wait()
            rref = rpc.remote(to, make_unpicklable)
            if to == 1:
                with pytest.raises(ValueError, match="cannot be pickled"):
                    rref.to_here()
            else:
                assert isinstance(rref.to_here(), Unpicklable)
            assert rpc.rpc_sync(to, here) == to

    on_first(2, program)


def test_arguments_that_the_callee_cannot_load() -> None:
    def program() -> None:
        with pytest.raises(KeyError, match="cannot be loaded") as info:
            rpc.rpc_sync(1, identity, args=(Unloadable(1),))
        assert "__setstate__" in str(info.value.__cause__)
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def test_results_that_the_caller_cannot_load() -> None:
    def program() -> None:
        future = rpc.rpc_async(1, Unloadable, args=(0,))
        for _ in range(2):
            with pytest.raises(KeyError, match="cannot be loaded"):
                future.wait()
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def function_of_a_lost_module() -> Any:
    """A function that pickle can name and that nobody can find when it is called."""
    module = types.ModuleType("lost_module")
    exec("def lost(*args): return args", module.__dict__)
    sys.modules["lost_module"] = module
    return module.__dict__["lost"]


class Losing:
    """Takes the module away once it has been pickled."""

    def __reduce__(self) -> Any:
        sys.modules.pop("lost_module", None)
        return (int, ())


def test_function_that_the_callee_does_not_have() -> None:
    def program() -> None:
        for _ in range(2):
            with pytest.raises(ModuleNotFoundError, match="lost_module"):
                rpc.rpc_sync(1, function_of_a_lost_module(), args=(Losing(),))
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def test_what_cannot_be_called() -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async):
            with pytest.raises(TypeError, match="callable"):
                call(1, 3).wait()  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="callable"):
            rpc.remote(1, 3).to_here()  # type: ignore[arg-type]

    on_first(2, program)


# -- exceptions ----------------------------------------------------------------------------------


class Trouble(Exception):
    def __init__(self, text: str, number: int) -> None:
        super().__init__(text, number)
        self.number = number


def raise_(error: BaseException) -> None:
    raise error


def raise_trouble(text: str) -> None:
    raise Trouble(text, 5)


def raise_local() -> None:
    class Local(Exception):
        pass

    raise Local("of a class that nobody else has")


def raise_exit() -> None:
    sys.exit(3)


def raise_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("to", [0, 1])
def test_exception_keeps_type_arguments_and_traceback(to: int) -> None:
    def program() -> None:
        for get in (
            lambda: rpc.rpc_sync(to, raise_trouble, args=("text",)),
            lambda: rpc.rpc_async(to, raise_trouble, args=("text",)).wait(),
            lambda: rpc.remote(to, raise_trouble, args=("text",)).to_here(),
        ):
            with pytest.raises(Trouble) as info:
                get()
            assert info.value.args == ("text", 5)
            assert info.value.number == 5
            shown = "".join(traceback.format_exception(info.value))
            assert f"On worker 'worker{to}'" in shown
            assert "in raise_trouble" in shown

    on_first(2, program)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (raise_local, "Local: of a class that nobody else has"),
        (raise_exit, "SystemExit: 3"),
        (raise_interrupt, "KeyboardInterrupt"),
    ],
)
def test_what_cannot_be_raised_here_is_a_remote_error(function: Any, text: str) -> None:
    def program() -> None:
        for to in (0, 1):
            with pytest.raises(rpc.RemoteError, match=text) as info:
                rpc.rpc_sync(to, function)
            assert f"worker{to}" in str(info.value)
            with pytest.raises(rpc.RemoteError, match=text):
                rpc.remote(to, function).to_here()
            assert rpc.rpc_sync(to, here) == to

    on_first(2, program)


def raise_far(depth: int) -> None:
    if depth == 0:
        raise_trouble("deep")
    rpc.rpc_sync(here() + 1, raise_far, args=(depth - 1,))


def test_exception_through_several_workers_names_each() -> None:
    def program() -> None:
        with pytest.raises(Trouble) as info:
            raise_far(3)
        shown = "".join(traceback.format_exception(info.value))
        for worker in ("worker1", "worker2", "worker3"):
            assert f"On worker '{worker}'" in shown

    on_first(4, program)


def test_callee_raises_many_times_and_stays_in_service() -> None:
    def program() -> None:
        for i in range(100):
            with pytest.raises(KeyError, match=str(i)):
                rpc.rpc_sync(1, raise_, args=(KeyError(i),))
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


def test_exception_that_nobody_waits_for_is_forgotten() -> None:
    def program() -> None:
        for _ in range(10):
            rpc.rpc_async(1, raise_trouble, args=("text",))
            rpc.remote(1, raise_trouble, args=("text",))
        assert rpc.rpc_sync(1, here) == 1

    on_first(2, program)


# -- timeouts ------------------------------------------------------------------------------------


def test_call_that_takes_too_long_and_whose_late_answer_is_dropped(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(
            rpc.RpcTimeoutError, match=r"RPC ran for more than set timeout \(50 ms\).*'worker1'"
        ):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=0.05)
        future = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=0.05)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                future.wait()
        assert rpc.rpc_sync(1, here) == 1
        gate.event.set()
        assert rpc.rpc_sync(1, pass_gate, args=(gate.name, 5)) == 5
        with pytest.raises(RuntimeError):
            future.wait()
        assert current_agent().calls_outstanding == 0

    on_first(2, program)


def test_default_timeout_is_that_of_the_options(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError, match="100 ms"):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,))
        with pytest.raises(rpc.RpcTimeoutError, match="100 ms"):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=-1)
        future = rpc.rpc_async(1, pass_gate, args=(gate.name, "value"), timeout=0)
        longer = rpc.rpc_async(1, pass_gate, args=(gate.name, "value"), timeout=LIMIT)
        time.sleep(0.2)
        assert not future.done()
        gate.event.set()
        assert future.wait() == longer.wait() == "value"

    on_first(2, program, rpc_timeout=0.1)


def test_timeout_of_a_call_to_oneself(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError):
            rpc.rpc_sync(0, pass_gate, args=(gate.name,), timeout=0.05)
        gate.event.set()

    on_first(1, program)


def test_negative_timeout_expires_at_once(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(rpc.RpcTimeoutError, match="-5000 ms"):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=-5)
        gate.event.set()

    on_first(2, program)


@pytest.mark.parametrize("timeout", [None, "5", True, [1]])
def test_timeout_must_be_a_number(timeout: Any) -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(TypeError, match="timeout must be a number of seconds"):
                call(1, here, timeout=timeout)
        with pytest.raises(TypeError, match="timeout must be a number of seconds"):
            rpc.remote(1, here).to_here(timeout=timeout)

    on_first(2, program)


def test_timeouts_expire_while_answers_to_others_keep_coming(gate: Gate) -> None:
    def program() -> None:
        late = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=0.1)
        deadline = time.monotonic() + LIMIT
        while not late.done():
            assert time.monotonic() < deadline
            rpc.rpc_sync(1, here)
        gate.event.set()

    on_first(2, program)


def test_short_timeout_among_long_ones_is_never_missed(gate: Gate) -> None:
    # Threads with long and short timeouts: each sets the time at which to look next.
    rounds = 300

    def program() -> None:
        agent = current_agent()
        stop = threading.Event()

        def long() -> None:
            set_thread_agent(agent)
            while not stop.is_set():
                rpc.rpc_async(1, here, timeout=10 * LIMIT).wait()

        threads = [threading.Thread(target=long) for _ in range(2)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for _ in range(rounds):
                future = rpc.rpc_async(1, pass_gate, args=(gate.name,), timeout=1e-3)
                assert future.wait_until(time.monotonic() + LIMIT)
        finally:
            sys.setswitchinterval(interval)
            stop.set()
            gate.event.set()
        for thread in threads:
            thread.join(LIMIT)

    on_first(2, program)


def test_fetch_that_takes_too_long_may_be_tried_again(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, pass_gate, args=(gate.name, "value"))
        for _ in range(3):
            with pytest.raises(rpc.RpcTimeoutError):
                rref.to_here(timeout=0.02)
        gate.event.set()
        assert rref.to_here() == "value"

    on_first(2, program)


def test_fetch_on_the_owner_that_takes_too_long(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(0, pass_gate, args=(gate.name, "value"))
        with pytest.raises(rpc.RpcTimeoutError):
            rref.to_here(timeout=0.02)
        gate.event.set()
        assert rref.to_here() == "value"

    on_first(1, program)


@pytest.mark.parametrize("to", [0, 1])
def test_creation_that_takes_too_long_is_the_cause_at_every_use(gate: Gate, to: int) -> None:
    def program() -> None:
        rref = rpc.remote(to, pass_gate, args=(gate.name, "value"), timeout=0.05)
        eventually(rref.confirmed_by_owner)
        for late in (False, True):
            for _ in range(2):
                with pytest.raises(rpc.RpcTimeoutError, match="50 ms"):
                    rref.to_here()
            with pytest.raises(rpc.RpcTimeoutError, match="50 ms"):
                rpc.rpc_sync(1, identity, args=(rref,))
            if not late:
                gate.event.set()
                rpc.rpc_sync(to, pass_gate, args=(gate.name,))
        del rref
        eventually(lambda: values_at(to) == 0)

    on_first(2, program)


def test_reference_dropped_after_a_fetch_that_took_too_long(gate: Gate) -> None:
    def program() -> None:
        rref = rpc.remote(1, pass_gate, args=(gate.name, np.ones(LONG)))
        with pytest.raises(rpc.RpcTimeoutError):
            rref.to_here(timeout=0.02)
        del rref
        # Nobody holds the reference; the late fetch still uses the value.
        rpc.rpc_sync(1, here)
        gate.event.set()
        eventually(lambda: values_at(1) == 0)

    on_first(2, program, weather=HARSH)


# -- remote references ---------------------------------------------------------------------------


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
        with pytest.raises(RuntimeError, match="can't call localValue.. on user .*worker0.*owner"):
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
        rref = rpc.remote(1, raise_trouble, args=("text",))
        early = rpc.rpc_async(2, rpc.RRef.to_here, args=(rref,))
        for _ in range(2):
            with pytest.raises(Trouble):
                rref.to_here()
        with pytest.raises(Trouble):
            early.wait()
        eventually(rref.confirmed_by_owner)
        with pytest.raises(Trouble):
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


# -- when values end -----------------------------------------------------------------------------


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


# -- callbacks -----------------------------------------------------------------------------------


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


# -- shutdown ------------------------------------------------------------------------------------

reached: list[int] = []


def chain(depth: int, size: int) -> None:
    """Send a call that nobody waits for, which does the same."""
    time.sleep(0.002)
    reached.append(depth)
    if depth:
        rpc.rpc_async((here() + 1) % size, chain, args=(depth - 1, size))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_chain_of_calls_that_nobody_waits_for_ends_before_anybody_leaves(size: int) -> None:
    for weather in (Weather(), HARSH):
        reached.clear()
        on_first(size, lambda: chain(30, size), weather=weather)
        assert reached == list(range(30, -1, -1))


def test_callbacks_that_call_end_before_anybody_leaves() -> None:
    ran: list[int] = []

    def program() -> None:
        def more(future: rpc.Future) -> None:
            time.sleep(0.01)
            ran.append(rpc.rpc_sync(1, here))

        for _ in range(5):
            rpc.rpc_async(1, here).add_done_callback(more)

    on_first(2, program)
    assert ran == [1] * 5


def test_worker_that_has_finished_serves_until_all_have() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            for _ in range(20):
                time.sleep(0.005)
                assert [rpc.rpc_sync(to, here) for to in range(4)] == [0, 1, 2, 3]

    run_world(4, program)


def test_call_without_an_agent() -> None:
    for call in (
        lambda: rpc.rpc_sync(0, here),
        lambda: rpc.rpc_async("worker0", here),
        lambda: rpc.remote(0, here),
        lambda: rpc.RRef(1),
        rpc.get_worker_info,
        rpc.shutdown,
    ):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            call()


class Cluster:
    """Workers that a test shuts down in its own way."""

    def __init__(self, size: int) -> None:
        world = LoopbackWorld(size)
        options = MPIRpcBackendOptions(rpc_timeout=LIMIT, switch_interval=None)
        infos = [WorkerInfo(f"worker{rank}", rank) for rank in range(size)]
        self.crashes: list[BaseException] = []
        self.agents = [
            Agent(infos, world.transport(rank), options, self.crashes.append)
            for rank in range(size)
        ]
        for agent in self.agents:
            agent.start()

    def become(self, rank: int) -> Agent:
        set_thread_agent(self.agents[rank])
        return self.agents[rank]

    def close(self) -> None:
        for agent in self.agents:
            agent.close(graceful=False)
        set_thread_agent(None)
        assert self.crashes == []


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(3)
    yield cluster
    cluster.close()


def test_shutdown_that_takes_too_long_names_who_is_missing(cluster: Cluster) -> None:
    thread = threading.Thread(target=suppressed(cluster.agents[1].join), args=(0.2,))
    thread.start()
    with pytest.raises(rpc.RpcTimeoutError, match=r"longer than 0.2 s; not there yet: worker2"):
        cluster.agents[0].join(0.2)
    thread.join(LIMIT)


def suppressed(function: Callable[..., Any]) -> Callable[..., None]:
    def run(*args: Any) -> None:
        try:
            function(*args)
        except rpc.RpcTimeoutError:
            return

    return run


def test_shutdown_that_takes_too_long_because_somebody_works(cluster: Cluster, gate: Gate) -> None:
    cluster.become(0)
    rpc.rpc_async(1, pass_gate, args=(gate.name,))
    assert gate.waiting.acquire(timeout=LIMIT)
    threads = [
        threading.Thread(target=suppressed(agent.join), args=(0.2,)) for agent in cluster.agents[1:]
    ]
    for thread in threads:
        thread.start()
    with pytest.raises(rpc.RpcTimeoutError, match=r"longer than 0.2 s; others still work"):
        cluster.agents[0].join(0.2)
    for thread in threads:
        thread.join(LIMIT)
    gate.event.set()


def test_calls_unanswered_at_an_abrupt_end_fail_with_all_that_hangs_on_them(
    cluster: Cluster, gate: Gate
) -> None:
    agent = cluster.become(0)
    future = rpc.rpc_async(1, pass_gate, args=(gate.name,))
    then = future.then(lambda f: f.wait())
    later = then.then(lambda f: f.wait())
    raised: list[BaseException] = []

    def wait() -> None:
        set_thread_agent(agent)
        try:
            later.wait()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert gate.waiting.acquire(timeout=LIMIT)
    agent.close(graceful=False)
    for unanswered in (future, then, later):
        with pytest.raises(RuntimeError, match="RPC was shut down before this call was answered"):
            unanswered.wait()
    thread.join(LIMIT)
    assert len(raised) == 1
    gate.event.set()


def test_agent_that_is_closed_takes_no_calls(cluster: Cluster) -> None:
    agent = cluster.become(0)
    rref = rpc.remote(1, Thing)
    own = rpc.RRef(1)
    rref.to_here()
    agent.close(graceful=False)
    for call in (lambda: rpc.rpc_sync(1, here), lambda: rpc.remote(0, here), rref.to_here):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            call()
    assert own.is_owner()


def test_reference_after_shutdown_raises() -> None:
    rrefs: list[Any] = []

    def program() -> None:
        rref = rpc.remote(1, Thing)
        rref.to_here()
        rrefs.append(rref)
        rrefs.append(rpc.RRef(1))

    on_first(2, program)
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rrefs[0].to_here()
    for rref in rrefs:
        assert "RRef" in repr(rref)


# -- counting and memory -------------------------------------------------------------------------


def test_statistics() -> None:
    def program() -> None:
        before = rpc.statistics()
        for to in (0, 1):
            rpc.rpc_sync(to, here)
            rref = rpc.remote(to, Thing)
            rref.to_here()
        after = rpc.statistics()
        assert after.calls_made - before.calls_made == 2 + 2 + 1
        assert after.calls_served - before.calls_served == 2
        assert after.calls_outstanding == 0
        assert after.messages_sent - before.messages_sent >= 3
        assert after.messages_received - before.messages_received >= 3
        assert after.bytes_sent > before.bytes_sent
        assert after.values_owned == 1
        assert 1 <= after.serving_threads <= 6
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


# -- everything at once --------------------------------------------------------------------------


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
