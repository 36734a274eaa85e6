"""References among ranks: however they are copied, passed on and dropped, no value is left."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mpi.conftest import RpcWorld
from mpi.served import LIMIT, add, eventually, here, identity
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import rref as rref_module
from tensorplay.distributed.rpc.current import current_agent

pytestmark = pytest.mark.mpi

# -- what references point to --------------------------------------------------------------------

#: One entry for each value that was made here, and for each that has ended.
made: deque[None] = deque()
ended: deque[None] = deque()


class Value:
    """Tells how many of its kind there are on this rank; what travels of it is its content."""

    def __init__(self, content: Any) -> None:
        self.content = content
        made.append(None)

    def __del__(self) -> None:
        ended.append(None)

    def __reduce__(self) -> Any:
        return identity, (self.content,)


class Breaks:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return break_off, ()


def break_off() -> None:
    raise ValueError("cannot be unpickled")


class CannotBePickled:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be pickled")


class Pickled:
    """Runs a function when it is pickled, and another one when it is unpickled."""

    def __init__(self, there: Callable[[], None], when_pickled: Callable[[], None]) -> None:
        self.there = there
        self.when_pickled = when_pickled

    def __reduce__(self) -> Any:
        self.when_pickled()
        return run, (self.there,)


def run(function: Callable[[], None]) -> None:
    function()


class Cycle:
    """Holds things until Python's collector runs."""

    def __init__(self, *held: Any) -> None:
        self.held = held
        self.itself = self


class CallsInTheEnd(Cycle):
    """Its finaliser drops what it holds, makes a reference and a call, and waits for neither."""

    def __del__(self) -> None:
        self.held = ()
        rpc.RRef(Value("of a finaliser"))
        rpc.rpc_async(here(), identity, args=(rpc.RRef(Value("sent by a finaliser")),))


# -- what other ranks call -----------------------------------------------------------------------

#: Held by a thread of this rank that drops references, and by calls that are served here.
users_lock = threading.Lock()
#: References that this rank keeps for others, and drops some time.
kept: deque[Any] = deque()


def content_of(rref: Any) -> Any:
    value = rref.to_here(timeout=LIMIT)
    return value.content if isinstance(value, Value) else value  # the former on its owner


def content_at_home(rref: Any) -> Any:
    assert rref.is_owner()
    return rref.local_value().content


def content_under_lock(rref: Any) -> Any:
    with users_lock:
        pass
    return content_of(rref)


def keep(rref: Any) -> None:
    kept.append(rref)
    while len(kept) > 5:
        kept.popleft()


def pass_round(rref: Any, ranks: list[int]) -> Any:
    """Pass a reference on from rank to rank, each keeping it for a while; the last one answers."""
    keep(rref)
    if ranks:
        return rpc.rpc_sync(ranks[0], pass_round, args=(rref, ranks[1:]))
    return content_of(rref)


def answer_with(rref: Any, *others: Any) -> Any:
    return [rref, *others]


def answer_with_what_breaks(rref: Any) -> Any:
    return [rref, Breaks()]


def answer_with_what_cannot_be_pickled(rref: Any) -> Any:
    return [rref, CannotBePickled()]


def fail_with(rref: Any) -> None:
    raise ValueError("a failed creation", rref)


def collect_youngest() -> None:
    gc.collect(0)


# -- rounds of creating, copying and dropping ----------------------------------------------------


class Dropper:
    """Holds references until a thread of its own drops them."""

    def __init__(self) -> None:
        self._held: deque[Any] = deque()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._drop)
        self._thread.start()

    def take(self, *held: Any) -> None:
        self._held.extend(held)

    def _drop(self) -> None:
        while self._held or not self._ending.is_set():
            while self._held:
                self._held.popleft()
            self._ending.wait(1e-3)

    def end(self) -> None:
        self._ending.set()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()


class Rounds:
    """The rounds of one thread.  In each a value is made, a reference sent about and dropped."""

    def __init__(self, world: RpcWorld, seed: int, dropper: Dropper) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.dropper = dropper
        self.unasked: deque[Any] = deque(maxlen=20)
        self.ways_to_make = [self.make_there, self.make_here, self.make_by_value_there]
        self.ways_to_send = [
            self.send_to_third,
            self.send_home,
            self.send_round,
            self.send_and_get_back,
            self.send_and_not_ask,
            self.send_what_breaks,
            self.get_back_what_breaks,
            self.get_back_what_cannot_be_pickled,
            self.send_what_cannot_be_pickled,
            self.send_with_too_little_time,
            self.refer_to_reference,
            self.fail_to_make,
            self.serialize,
        ]
        self.ways_to_drop = [
            self.drop_at_once,
            self.drop_in_cycle,
            self.drop_on_other_thread,
            self.drop_under_lock,
            self.drop_while_pickling,
            self.drop_by_finaliser,
        ]

    def anybody(self) -> int:
        return self.random.randrange(self.world.size)

    def one_round(self) -> None:
        make = self.random.choice(self.ways_to_make)
        send = self.random.choice(self.ways_to_send)
        drop = self.random.choice(self.ways_to_drop)
        content = self.random.choice([self.random.random(), np.arange(4000)])
        box = [make(content)]
        send(box[0], content)
        drop(box)
        assert not box

    def make_there(self, content: Any) -> Any:
        return rpc.remote(self.anybody(), Value, args=(content,))

    def make_here(self, content: Any) -> Any:
        return rpc.RRef(Value(content))

    def make_by_value_there(self, content: Any) -> Any:
        first = rpc.remote(self.anybody(), Value, args=(content,))
        # What it points to has a life of its own.
        return rpc.remote(self.anybody(), Value, args=(content_of(first),))

    def send_to_third(self, rref: Any, content: Any) -> None:
        got = rpc.rpc_sync(self.anybody(), content_of, args=(rref,))
        assert np.array_equal(got, content)

    def send_home(self, rref: Any, content: Any) -> None:
        got = rpc.rpc_sync(rref.owner(), content_at_home, args=(rref,))
        assert np.array_equal(got, content)

    def send_round(self, rref: Any, content: Any) -> None:
        ranks = [self.anybody() for _ in range(self.random.randrange(4))]
        got = rpc.rpc_sync(self.anybody(), pass_round, args=(rref, ranks))
        assert np.array_equal(got, content)

    def send_and_get_back(self, rref: Any, content: Any) -> None:
        one, other, _ = rpc.rpc_sync(self.anybody(), answer_with, args=(rref, rref, 5))
        assert one is other
        assert np.array_equal(content_of(one), content)

    def send_and_not_ask(self, rref: Any, content: Any) -> None:
        self.unasked.append(rpc.rpc_async(self.anybody(), answer_with, args=(rref,)))

    def send_what_breaks(self, rref: Any, content: Any) -> None:
        with pytest.raises(ValueError, match="cannot be unpickled"):
            rpc.rpc_sync(self.anybody(), identity, args=([rref, Breaks(), rref],))
        with pytest.raises(ValueError, match="cannot be unpickled"):
            rpc.remote(self.anybody(), Value, args=([rref, Breaks()],)).to_here(timeout=LIMIT)

    def get_back_what_breaks(self, rref: Any, content: Any) -> None:
        with pytest.raises(ValueError, match="cannot be unpickled"):
            rpc.rpc_sync(self.anybody(), answer_with_what_breaks, args=(rref,))

    def get_back_what_cannot_be_pickled(self, rref: Any, content: Any) -> None:
        with pytest.raises(ValueError, match="cannot be pickled"):
            rpc.rpc_sync(self.anybody(), answer_with_what_cannot_be_pickled, args=(rref,))

    def send_what_cannot_be_pickled(self, rref: Any, content: Any) -> None:
        with pytest.raises(ValueError, match="cannot be pickled"):
            rpc.rpc_sync(self.anybody(), identity, args=([rref, CannotBePickled()],))
        with pytest.raises(ValueError, match="cannot be pickled"):
            rpc.remote(self.anybody(), identity, args=([rref, CannotBePickled()],))

    def send_with_too_little_time(self, rref: Any, content: Any) -> None:
        # Whether the answer comes in time or too late, nothing of it is left.
        future = rpc.rpc_async(self.anybody(), answer_with, args=(rref,), timeout=1e-4)
        try:
            future.wait()
        except rpc.RpcTimeoutError:
            return

    def refer_to_reference(self, rref: Any, content: Any) -> None:
        outer = rpc.remote(self.anybody(), identity, args=(rref,))
        copy = rpc.rpc_sync(self.anybody(), answer_with, args=(outer,))[0]
        inner = copy.to_here(timeout=LIMIT)
        assert np.array_equal(content_of(inner), content)

    def fail_to_make(self, rref: Any, content: Any) -> None:
        failed = rpc.remote(self.anybody(), fail_with, args=(rref,))
        if self.random.random() < 0.5:
            # The error holds a reference, and so cannot travel as it is.
            with pytest.raises(rpc.RemoteError, match="a failed creation"):
                failed.to_here(timeout=LIMIT)

    def serialize(self, rref: Any, content: Any) -> None:
        copy = rpc.RRef._deserialize(rref._serialize())
        assert np.array_equal(content_of(copy), content)

    def drop_at_once(self, box: list[Any]) -> None:
        box.clear()

    def drop_in_cycle(self, box: list[Any]) -> None:
        Cycle(box.pop())

    def drop_on_other_thread(self, box: list[Any]) -> None:
        self.dropper.take(box.pop())

    def drop_under_lock(self, box: list[Any]) -> None:
        with users_lock:
            CallsInTheEnd(box.pop())
            gc.collect(0)
            self.unasked.append(rpc.rpc_async(self.anybody(), add, args=(1, 2)))
        value = rpc.RRef(Value(5))
        assert rpc.rpc_sync(self.anybody(), content_under_lock, args=(value,)) == 5

    def drop_while_pickling(self, box: list[Any]) -> None:
        Cycle(box[0])
        drops = Pickled(collect_youngest, lambda: (box.clear(), gc.collect(0)))
        rpc.rpc_sync(self.anybody(), identity, args=([drops],))

    def drop_by_finaliser(self, box: list[Any]) -> None:
        CallsInTheEnd(box.pop())


@pytest.fixture
def brisk_collector() -> Iterator[None]:
    """Have the collector run often, in the middle of anything, and look at new objects only."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(40, 5, 20)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.fixture
def no_values() -> Iterator[None]:
    """Count the values of this test; asked for before `rpc_world`, so that none outlives RPC."""
    made.clear()
    ended.clear()
    yield
    kept.clear()
    gc.collect()
    assert len(made) == len(ended)


def what_is_left() -> dict[str, int]:
    statistics = rpc.statistics()
    return {
        "values owned": statistics.values_owned,
        "values known": len(current_agent().rrefs),
        "values alive": len(made) - len(ended),
        "drops pending": statistics.drops_pending,
        "calls outstanding": statistics.calls_outstanding,
    }


def check_nothing_is_left(world: RpcWorld) -> None:
    """Once all ranks have let go of what they hold.  Collective."""
    left: list[dict[str, int]] = []

    def all_gone() -> bool:
        # On all ranks together: what is collected on one may free values on another.
        kept.clear()
        gc.collect()
        left[:] = world.comm.allgather(what_is_left())
        return not any(count for counts in left for count in counts.values())

    try:
        eventually(all_gone)
    except AssertionError:
        pytest.fail(f"left on the ranks: {left}")


@pytest.mark.parametrize(
    "rounds",
    [150, pytest.param(2500, marks=[pytest.mark.soak, pytest.mark.timeout(600)])],
)
@pytest.mark.ranks(4)
def test_rounds_of_remote_copy_and_drop(
    brisk_collector: None, no_values: None, rpc_world: RpcWorld, rounds: int
) -> None:
    """So many on each of four ranks, by two threads."""
    dropper = Dropper()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        mine = Rounds(rpc_world, rpc_world.rank * 10 + number, dropper)
        try:
            for _ in range(rounds // 2):
                mine.one_round()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dropper.end()
    if errors:
        raise errors[0]
    assert len(made) > rounds // 2
    check_nothing_is_left(rpc_world)


# -- single cases --------------------------------------------------------------------------------


def locks_of_the_library() -> list[Any]:
    """Whatever a thread may hold while a finaliser runs on it."""
    agent = current_agent()
    return [
        rref_module._splitting,
        agent.rrefs._lock,
        agent.calls._noting,
        agent.leaving._lock,
        agent.progress._lock,
        agent.transport._lock,
    ]


@pytest.mark.ranks(2)
def test_references_are_dropped_whatever_the_thread_holds(
    no_values: None, rpc_world: RpcWorld
) -> None:
    for lock in locks_of_the_library():
        rrefs = [rpc.remote(rpc_world.next, Value, args=(i,)) for i in range(3)]
        for rref in rrefs:
            rref.to_here()
        del rref
        rrefs.append(rpc.RRef(Value(5)))
        Cycle(*rrefs)
        del rrefs
        with lock:
            gc.collect()
        check_nothing_is_left(rpc_world)


def drop_one_and_have_it_arrive(owner: int) -> None:
    kept.popleft()
    eventually(lambda: rpc.statistics().drops_pending == 0)
    # Messages of one rank to another arrive in order.
    rpc.rpc_sync(owner, here)


@pytest.mark.ranks(4)
@pytest.mark.parametrize("holders", [[2, 3, 0], [2, 1], [3, 2, 3, 2, 0], [3, 3, 1, 3], [1]])
def test_value_ends_with_the_last_copy_wherever_it_is(
    no_values: None, rpc_world: RpcWorld, holders: list[int]
) -> None:
    """The reference that has created the value is dropped first, then the copies one by one."""
    owner = 1
    if rpc_world.rank == 0:
        rref = rpc.remote(owner, Value, args=([7],))
        assert rpc.rpc_sync(holders[0], pass_round, args=(rref, holders[1:])) == [7]
        del rref
        for holder in holders:
            assert rpc.rpc_sync(owner, count_values) == 1
            rpc.rpc_sync(holder, drop_one_and_have_it_arrive, args=(owner,))
    rpc_world.comm.Barrier()
    check_nothing_is_left(rpc_world)


def count_values() -> int:
    assert rpc.statistics().values_owned == len(made) - len(ended)
    return len(made) - len(ended)


def keep_in_cycles(rref: Any) -> None:
    Cycle(rref, rref)


@pytest.mark.ranks(1, 2, 4)
def test_graceful_shutdown_leaves_none(no_values: None, world: RpcWorld) -> None:
    """References held, stuck in cycles here and there, and sent without anybody asking."""
    gc.collect()
    gc.disable()
    try:
        rpc.init_rpc()
        agent = current_agent()
        held = [rpc.remote(to, Value, args=(to,)) for to in world.everybody]
        for to in world.everybody:
            Cycle(rpc.remote(to, Value, args=(to,)), rpc.RRef(Value(5)))
            stuck = rpc.remote(to, identity, args=([rpc.RRef(Value(6)), held[0]],))
            Cycle(stuck)
            rpc.rpc_async(to, keep_in_cycles, args=(stuck,))
            rpc.rpc_async(to, keep, args=(stuck,))
        del stuck
        rpc.shutdown()
        assert len(agent.rrefs) == 0
        assert len(agent.rrefs.dropped) == 0
        assert agent.calls_outstanding == 0
        assert len(made) == len(ended) == 3 * world.size + world.size

        # What is collected later is no concern of those that come then.
        world.comm.Barrier()
        rpc.init_rpc()
        value = rpc.remote(world.next, Value, args=(7,))
        gc.collect()
        kept.clear()
        held.clear()
        assert content_of(value) == 7
        del value
        check_nothing_is_left(world)
        rpc.shutdown()
    finally:
        gc.enable()


@pytest.mark.ranks(2)
def test_drops_reach_the_owner_though_the_dropping_rank_is_silent(
    no_values: None, rpc_world: RpcWorld
) -> None:
    """Nobody calls anything: the serving thread sends the drops, soon."""
    rrefs = [rpc.remote(rpc_world.next, Value, args=(i,)) for i in range(100)]
    for rref in rrefs:
        rref.to_here()
    del rref
    rpc_world.comm.Barrier()
    time.sleep(0.3)  # all are idle by now
    assert rpc.statistics().values_owned == 100
    rrefs.clear()
    eventually(lambda: rpc.statistics().values_owned == 0)
    check_nothing_is_left(rpc_world)
