"""Nobody leaves while anything is under way anywhere, and everybody does once nothing is.

Workers that have departed without waiting do not hold up the others.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorplay.distributed.rpc.termination import Counts, Outgoing, Payload, Termination


@dataclass
class Worker:
    """A worker that sends and executes messages; each execution may send more."""

    sent: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)
    executing: list[int] = field(default_factory=list)
    joined: bool = False
    departed: bool = False


class World:
    """Workers whose messages, and those of the protocol, are delivered in an order drawn by lot.

    A message carries how many messages may still follow from it, so that all activity ends.  Up to
    `departures` workers leave without waiting, at any moment; one stays.
    """

    def __init__(self, size: int, seed: int, ordered: bool, departures: int = 0) -> None:
        self.size = size
        self.departures = min(departures, size - 1)
        self.random = random.Random(seed)
        self.workers = [Worker() for _ in range(size)]
        self.detectors = [Termination(rank, size, self._counter(rank)) for rank in range(size)]
        #: Under way between two workers: activity is a number, the protocol has payloads, None
        #: tells that the sender has departed.
        self.lanes: dict[tuple[int, int], deque[int | Payload | None]] = {}
        self.ordered = ordered
        self.now = 0.0
        self.protocol_messages = 0

    def _counter(self, rank: int):  # type: ignore[no-untyped-def]
        def counts(departed: int) -> Counts:
            worker = self.workers[rank]
            sent, received = (
                sum(count for peer, count in counter.items() if not departed >> peer & 1)
                for counter in (worker.sent, worker.received)
            )
            return Counts(sent, received, bool(worker.executing))

        return counts

    def send(self, source: int, more: int) -> None:
        destination = self.random.randrange(self.size)
        if destination == source:
            # A call to oneself is executed without a message.
            self.workers[source].executing.append(more)
            return
        self.workers[source].sent[destination] += 1
        self.lanes.setdefault((source, destination), deque()).append(more)

    def emit(self, source: int, outgoing: list[Outgoing]) -> None:
        for destination, payload in outgoing:
            self.protocol_messages += 1
            self.lanes.setdefault((source, destination), deque()).append(payload)

    @property
    def remaining(self) -> list[int]:
        return [rank for rank in range(self.size) if not self.workers[rank].departed]

    @property
    def quiet(self) -> bool:
        """Whether nothing goes on among the workers that remain."""
        remaining = set(self.remaining)
        under_way = any(
            isinstance(item, int)
            for ends, lane in self.lanes.items()
            if remaining.issuperset(ends)
            for item in lane
        )
        return not under_way and not any(self.workers[rank].executing for rank in remaining)

    @property
    def stopped(self) -> list[int]:
        return [rank for rank in self.remaining if self.detectors[rank].stopped]

    def step(self) -> None:
        """Something happens somewhere: a delivery, the end of an execution, a tick, a join."""
        choices = []
        remaining = self.remaining
        if lanes := [key for key, lane in self.lanes.items() if lane and key[1] in remaining]:
            choices += [lambda: self._deliver(*self.random.choice(lanes))] * 3
        if active := [w for w in remaining if self.workers[w].executing]:
            choices += [lambda: self._execute(self.random.choice(active))] * 2
        if waiting := [w for w in remaining if not self.workers[w].joined]:
            choices.append(lambda: self._join(self.random.choice(waiting)))
        if self.departures and not self.stopped:
            choices.append(lambda: self._depart(self.random.choice(remaining)))
        choices.append(self._tick)
        self.random.choice(choices)()
        if self.stopped:
            assert self.quiet, f"stopped too early: {self.workers}"
            assert all(self.workers[rank].joined for rank in self.remaining)

    def _depart(self, rank: int) -> None:
        self.departures -= 1
        self.workers[rank].departed = True
        for other in self.remaining:
            self.lanes.setdefault((rank, other), deque()).append(None)

    def _deliver(self, source: int, destination: int) -> None:
        lane = self.lanes[source, destination]
        if not self.ordered:
            lane.rotate(self.random.randrange(len(lane)))
        item = lane.popleft()
        if item is None:
            self.emit(destination, self.detectors[destination].depart(source))
        elif isinstance(item, int):
            self.workers[destination].received[source] += 1
            self.workers[destination].executing.append(item)
        else:
            self.emit(destination, self.detectors[destination].receive(source, item))

    def _execute(self, rank: int) -> None:
        """Send the next message of an execution, or end it."""
        executing = self.workers[rank].executing
        position = self.random.randrange(len(executing))
        if executing[position] and self.random.random() < 0.7:
            executing[position] -= 1
            # What remains is shared between this execution and the one that the message starts.
            share = self.random.randint(0, executing[position])
            executing[position] -= share
            self.send(rank, share)
        else:
            executing.pop(position)

    def _join(self, rank: int) -> None:
        self.workers[rank].joined = True
        self.emit(rank, self.detectors[rank].join())

    def _tick(self) -> None:
        self.now += self.random.random() * 0.03
        rank = self.random.choice(self.remaining)
        self.emit(rank, self.detectors[rank].tick(self.now))


@settings(deadline=None, max_examples=300)
@given(
    size=st.integers(1, 5),
    seed=st.integers(0, 2**32),
    calls=st.integers(0, 30),
    ordered=st.booleans(),
    departures=st.sampled_from([0, 0, 1, 2, 4]),
)
def test_stops_after_everything_and_not_before(
    size: int, seed: int, calls: int, ordered: bool, departures: int
) -> None:
    world = World(size, seed, ordered, departures)
    for _ in range(3):
        world.workers[world.random.randrange(size)].executing.append(calls)
    for _ in range(100_000):
        world.step()
        if world.stopped == world.remaining:
            return
    raise AssertionError(f"not stopped: {world.workers}")


def test_cost_of_a_quiet_world_is_two_waves() -> None:
    size = 10
    world = World(size, 0, ordered=True)
    while len(world.stopped) < size:
        world.step()
    # Joining, two waves of a question and an answer each, and leaving.
    assert world.protocol_messages == (size - 1) * (1 + 2 + 2 + 1)


def test_world_of_one_stops_when_it_joins() -> None:
    alone = Termination(0, 1, lambda _: Counts(0, 0, False))
    assert alone.join() == []
    assert alone.stopped


def test_active_world_of_one_stops_at_a_later_tick() -> None:
    active = [True]
    alone = Termination(0, 1, lambda _: Counts(0, 0, active[0]))
    alone.join()
    assert not alone.stopped
    now = 0.0
    for _ in range(20):
        now += 1.0
        alone.tick(now)
    assert not alone.stopped
    active[0] = False
    for _ in range(2):
        now += 1.0
        alone.tick(now)
    assert alone.stopped


class Pair:
    """Two workers whose counts a test sets, with every message delivered at once."""

    def __init__(self) -> None:
        self.counts = [Counts(0, 0, False), Counts(0, 0, False)]
        self.detectors = [Termination(rank, 2, lambda _, r=rank: self.counts[r]) for rank in (0, 1)]
        self.asked = 0

    def run(self, source: int, outgoing: list[Outgoing]) -> None:
        for destination, payload in outgoing:
            if payload[0] == "count":
                self.asked += 1
                self.before_answer()
            self.run(destination, self.detectors[destination].receive(source, payload))

    def before_answer(self) -> None:
        pass

    def join(self) -> None:
        for rank in (1, 0):
            self.run(rank, self.detectors[rank].join())

    @property
    def stopped(self) -> bool:
        return all(detector.stopped for detector in self.detectors)


def test_message_under_way_holds_everybody() -> None:
    pair = Pair()
    pair.counts[1] = Counts(1, 0, False)
    pair.join()
    assert not pair.stopped


def test_activity_between_two_waves_holds_everybody() -> None:
    class Busy(Pair):
        def before_answer(self) -> None:
            if self.asked == 2:
                # A message has gone there and back since the first wave.
                self.counts = [Counts(1, 1, False), Counts(1, 1, False)]

    pair = Busy()
    pair.join()
    assert pair.stopped
    assert pair.asked == 4


def test_nothing_is_asked_before_all_have_joined() -> None:
    leader = Termination(0, 3, lambda _: Counts(0, 0, False))
    assert leader.join() == []
    assert leader.receive(2, ("joined", 0, 0, 0, False)) == []
    leader.ask()
    assert leader.missing == [1]
    asked = leader.receive(1, ("joined", 0, 0, 0, False))
    assert sorted(rank for rank, _ in asked) == [1, 2]
    assert all(payload[0] == "count" for _, payload in asked)


def test_worker_that_has_waited_too_long_is_told_who_is_missing() -> None:
    detectors = [Termination(rank, 4, lambda _: Counts(0, 0, False)) for rank in range(4)]
    for rank in (0, 2):
        for destination, payload in detectors[rank].join():
            detectors[destination].receive(rank, payload)
    ((leader, question),) = detectors[2].ask()
    ((asker, answer),) = detectors[leader].receive(2, question)
    assert (leader, asker) == (0, 2)
    assert detectors[2].receive(0, answer) == []
    assert detectors[2].missing == [1, 3]


def test_leader_that_has_waited_too_long_tells_all_who_wait() -> None:
    detectors = [Termination(rank, 4, lambda _: Counts(0, 0, False)) for rank in range(4)]
    for rank in (0, 2):
        for destination, payload in detectors[rank].join():
            detectors[destination].receive(rank, payload)
    ((told, answer),) = detectors[0].ask()
    assert detectors[0].missing == [1, 3]
    detectors[told].receive(0, answer)
    assert detectors[2].missing == [1, 3]


@pytest.mark.parametrize("seconds", [1.0, 100.0])
def test_waves_over_an_active_world_grow_rarer(seconds: float) -> None:
    pair = Pair()
    pair.counts[1] = Counts(0, 0, True)
    pair.join()
    steps = int(seconds * 1000)
    for step in range(steps):
        pair.run(0, pair.detectors[0].tick(step * 1e-3))
    # At first every fraction of a millisecond, in the end every 20.
    assert seconds / 0.022 - 1 <= pair.asked <= seconds / 0.020 + 20
    assert not pair.stopped
