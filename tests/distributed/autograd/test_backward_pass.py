"""The backward pass by itself: random worlds, all orders of small ones, and single rules."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorplay as tp
from distributed.autograd.model import ModelWorker, shape
from distributed.autograd.simulator import RandomProgram, Value, World
from tensorplay.autograd.graph import Node
from tensorplay.distributed.autograd.backward_pass import (
    BackwardPass,
    Closure,
    Instruction,
    SendAnswers,
    SendBegin,
    SendReport,
)
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.tensor import wrap

# -- random worlds ---------------------------------------------------------------------------------


def latest_pass(world: World) -> int:
    workers: list[ModelWorker] = world.workers  # type: ignore[assignment]
    return max([pass_id for worker in workers for pass_id in worker.passes])


def check_cost(world: World, roots: Sequence[Value]) -> None:
    """The latest pass has sent what the design says, and no message more."""
    workers: list[ModelWorker] = world.workers  # type: ignore[assignment]
    pass_id = latest_pass(world)
    marks = frozenset[int]().union(*[root.made_of for root in roots])
    used = [mark for mark in marks if mark in world.ends and len(set(world.ends[mark])) == 2]
    joined = [worker for worker in workers if pass_id in worker.passes]
    assert sum([worker.sent["gradients", pass_id] for worker in workers]) == len(used)
    assert [worker.sent["report", pass_id] for worker in joined] == [1] * len(joined)
    for worker in workers:
        told = [worker.begun[pass_id, rank] for rank in range(world.size)]
        assert max(told) <= 1
        assert not told[worker.rank]
        assert not told[pass_id % 16], "the starting worker knows"


def run_program(seed: int) -> None:
    world = RandomProgram(seed, ModelWorker)
    draw = world.random
    world.write(draw.randrange(5, 25))
    for _ in range(draw.choice([1, 1, 2, 3])):
        rank = draw.randrange(world.size)
        roots = world.roots(rank)
        # The program goes on while the pass runs.
        world.unfinished = draw.choice([0, 0, 3, 8])
        world.backward(rank, roots, retain_graph=draw.random() < 0.4)
        world.check()
        check_cost(world, roots)
        if draw.random() < 0.5:
            world.drain()
        world.write(draw.randrange(8))
    world.drain()
    world.check()


@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_random_programs_get_the_gradients_of_one_process(first: int) -> None:
    for seed in range(first, first + 500):
        try:
            run_program(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}; rerun: run_program({seed})") from error


class Crowd(RandomProgram):
    """Passes of several workers over the same graph at once."""

    waiting = 0

    def act(self) -> None:
        if self.waiting and self.random.random() < 0.3:
            free = [w.rank for w in self.workers if not w.closures]  # type: ignore[attr-defined]
            if free:
                self.waiting -= 1
                rank = self.random.choice(free)
                self.backward(rank, self.roots(rank), retain_graph=True)
                return
        super().act()


@pytest.mark.parametrize("first", range(0, 600, 300))
def test_passes_of_several_workers_at_once_add_up(first: int) -> None:
    for seed in range(first, first + 300):
        world = Crowd(seed, ModelWorker)
        world.write(world.random.randrange(5, 25))
        world.waiting = 3
        world.unfinished = 12
        rank = world.random.randrange(world.size)
        try:
            world.backward(rank, world.roots(rank), retain_graph=True)
            world.drain()
            world.check()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


# -- all orders of delivery in small worlds --------------------------------------------------------


class Message(NamedTuple):
    """One message of a small program.

    What it carries is a new leaf, made of all that the sender has, or nothing that needs a gradient.
    """

    source: int
    to: int
    carries: str
    under_way: bool


class Program(NamedTuple):
    """Messages in their order; then rank 0 starts a pass from all that it has, or from the last."""

    messages: tuple[Message, ...]
    from_all: bool

    @property
    def canonical(self) -> bool:
        """Not the same as another program but for the names of ranks 1, 2, ..."""
        ranks = [rank for message in self.messages for rank in (message.source, message.to)]
        first_seen = [rank for rank in dict.fromkeys(ranks) if rank]
        return first_seen == sorted(first_seen)

    def write(self, world: World) -> list[Value]:
        """Run it up to the pass, whose roots it returns."""
        for message in self.messages:
            source, to = message.source, message.to
            here = world.usable(source) or [world.leaf(source, 2.0)]
            if message.carries == "all":
                value = world.combine(source, here, [1.0] * len(here))
            elif message.carries == "leaf":
                value = world.leaf(source, 3.0)
            else:
                value = Value(tp.tensor(1.0), tp.tensor(1.0))
            world.send(source, to, [value])
            while world.lanes[source, to] and not message.under_way:
                world.deliver(source, to)
        here = [value for value in world.values[0] if value.tensor.requires_grad]
        parts = [world.leaf(0, 5.0), *(here if self.from_all else here[-1:])]
        return [world.combine(0, parts, [2.0] * len(parts))]


def programs(length: int) -> Iterator[Program]:
    """All small programs of so many messages among three ranks, up to the names of the ranks."""
    one = list(
        itertools.starmap(
            Message,
            itertools.product(range(3), range(3), ("leaf", "all", "plain"), (False, True)),
        )
    )
    for messages in itertools.product(one, repeat=length):
        for from_all in (False, True):
            program = Program(messages, from_all)
            if program.canonical:
                yield program


def sample(length: int, count: int) -> Iterator[Program]:
    """Some of the larger programs; half of them with little under way, and so with many pairs."""
    draw = random.Random(length)
    for _ in range(count):
        under_way = draw.choice([0.2, 0.6])
        messages = [
            Message(
                draw.randrange(3),
                draw.randrange(3),
                draw.choice(["leaf", "all", "all", "plain"]),
                draw.random() < under_way,
            )
            for _ in range(length)
        ]
        yield Program(tuple(messages), draw.random() < 0.7)


class Seen(Exception):
    """What follows from this state is known."""


class Run:
    """One way in which the choices of a run turn out: first those given, then always the first."""

    def __init__(self, given: list[int], seen: set[Any]) -> None:
        self._given = given
        self._seen = seen
        self.made: list[int] = []
        self.options: list[int] = []
        #: What tells states apart.
        self.state: Callable[[], Any]

    def choose(self, options: int) -> int:
        choice = 0
        if len(self.made) < len(self._given):
            choice = self._given[len(self.made)]
        else:
            state = self.state()
            if state in self._seen:
                raise Seen
            self._seen.add(state)
        self.made.append(choice)
        self.options.append(options)
        return choice

    def branches(self) -> Iterator[list[int]]:
        """The choices that lead away from this run where it went on by itself."""
        for i in range(len(self._given), len(self.made)):
            for other in range(1, self.options[i]):
                yield [*self.made[:i], other]


class Eager(World):
    """A world in which requests are run as soon as they arrive."""

    def deliver(self, source: int, to: int) -> None:
        super().deliver(source, to)
        while self.tasks[to]:
            self.tasks[to].popleft()()


def state_of(world: World) -> Any:
    """What has come to each worker, and what is on its way.

    In which order it came need not be known: all that could depend on it was sent on, and so is to
    be found elsewhere.
    """
    return (
        tuple([frozenset(worker.taken) for worker in world.workers]),  # type: ignore[attr-defined]
        tuple([tuple(map(shape, parcels)) for parcels in world.lanes.values()]),
    )


def check_all_orders(program: Program) -> int:
    """Run a program with every order of delivery; how many of them led to an end of their own."""
    seen: set[Any] = set()
    stack: list[list[int]] = [[]]
    ends = 0
    while stack:
        run = Run(stack.pop(), seen)
        world = Eager(3, run.choose, ModelWorker)
        roots = program.write(world)
        run.state = partial(state_of, world)
        try:
            world.backward(0, roots)
            world.drain()
            world.check()
            check_cost(world, roots)
            ends += 1
        except Seen:
            pass
        except Exception as error:
            raise AssertionError(f"{program}, choices {run.made}") from error
        stack.extend(run.branches())
    return ends


@pytest.mark.parametrize("length", [0, 1, 2])
def test_all_orders_of_all_small_programs(length: int) -> None:
    assert sum(map(check_all_orders, programs(length))) > length * 50


@pytest.mark.parametrize(("length", "count"), [(3, 300), (4, 200), (5, 80), (6, 30)])
def test_all_orders_of_some_larger_programs(length: int, count: int) -> None:
    assert sum(map(check_all_orders, sample(length, count))) > 2 * count
