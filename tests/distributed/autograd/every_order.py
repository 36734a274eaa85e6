"""Small graphs on three workers, and every order in which a pass over them can happen.

A `Graph` says which messages the workers send, what each is made of, and where worker 0 starts a
pass.  `Search` runs it in every order: a step is a worker's next own action (it sends a message, or
starts the pass) or the arrival of the oldest message from one worker to another.  The pass itself
is the package's `BackwardPass`, in the plain driver of `model`.

A worker's state changes by its own steps only, and states are compared as values.  So each change
of one worker's state is computed once (`Workers`), by running the steps that led to it, and all
else is a search over tuples: there are few states of single workers, and very many of the world.

No gradient's number is part of a state.  Answers arrive as unit vectors, one dimension for each
message, and what a worker makes of them tells how often each went into it.  That is compared with
the number of paths from the roots: by induction along the graph all gradients are those of one
process if each is that for the right ones before it.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import tensorplay as tp
from distributed.autograd.model import ModelWorker
from tensorplay.distributed.autograd.backward_pass import Closure
from tensorplay.tensor import wrap

SIZE = 3
#: Of the one pass; worker 0 has started it.
PASS = 16
#: Messages that a graph has at most, and with them the dimensions of a gradient.
MOST = 6
#: Changes of single workers that are kept; some 4 kB each.
MOST_CHANGES = 50_000


class Message(NamedTuple):
    """One message; of a plain one nothing requires grad, so it has no pair of functions."""

    source: int
    to: int
    plain: bool
    #: Numbers of the messages before it that its tensor is made of, besides a leaf of the sender.
    parts: tuple[int, ...] = ()


class Graph(NamedTuple):
    """Messages, and a pass that worker 0 starts between two of those that it sends.

    Each worker sends in the order of the messages, as soon as what they are made of is there.
    """

    messages: tuple[Message, ...]
    #: Worker 0 has sent so many messages when it starts the pass.
    start: int
    #: Numbers of the messages to it that the root is made of, besides a leaf.
    roots: tuple[int, ...]

    def renamed(self, names: Sequence[int]) -> Graph:
        """The same graph, were the workers' ranks these."""
        messages = [
            one._replace(source=names[one.source], to=names[one.to]) for one in self.messages
        ]
        return self._replace(messages=tuple(messages))

    @property
    def key(self) -> Any:
        """What tells it from graphs that are not the same but for the order in which it is told."""
        numbers = [
            sum([one.source == message.source for one in self.messages[:number]])
            for number, message in enumerate(self.messages)
        ]
        places = [(one.source, n) for one, n in zip(self.messages, numbers, strict=True)]
        sent = sorted(
            (place, one.to, one.plain, tuple(sorted([places[part] for part in one.parts])))
            for place, one in zip(places, self.messages, strict=True)
        )
        return tuple(sent), self.start, tuple(sorted([places[root] for root in self.roots]))

    def paths(self) -> list[int]:
        """For each message, how many paths lead from the root to it."""
        counts = [int(number in self.roots) for number in range(len(self.messages))]
        for number, message in reversed(list(enumerate(self.messages))):
            for part in message.parts:
                counts[part] += counts[number]
        return counts

    def program(self, rank: int) -> list[tuple[Any, ...]]:
        """The own actions of a worker, in order; see `_Local.take`."""
        steps: list[tuple[Any, ...]] = [
            ("send", number, *message)
            for number, message in enumerate(self.messages)
            if message.source == rank
        ]
        if rank == 0:
            steps.insert(self.start, ("start", self.roots))
        return steps


def graphs(length: int, *, plain: int = MOST) -> Iterator[Graph]:
    """All graphs of so many messages, of which at most `plain` are plain.

    The same graph under other names of workers 1 and 2 comes once: the rules know the starting
    worker, but do not otherwise look at ranks.
    """
    seen = set()
    for messages in _messages((), length, plain):
        here = [number for number, one in enumerate(messages) if one.to == 0 and not one.plain]
        own = sum([one.source == 0 for one in messages])
        for roots in _subsets(here):
            for start in range(own + 1):
                graph = Graph(messages, start, roots)
                key = min(graph.key, graph.renamed((0, 2, 1)).key)
                if key not in seen:
                    seen.add(key)
                    if can_start(graph):
                        yield graph


def _messages(
    before: tuple[Message, ...], length: int, plain: int
) -> Iterator[tuple[Message, ...]]:
    if len(before) == length:
        yield before
        return
    for source, to in itertools.product(range(SIZE), repeat=2):
        if plain:
            yield from _messages((*before, Message(source, to, True)), length, plain - 1)
        there = [n for n, one in enumerate(before) if one.to == source and not one.plain]
        for parts in _subsets(there):
            yield from _messages((*before, Message(source, to, False, parts)), length, plain)


def _subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(len(numbers) + 1):
        yield from itertools.combinations(numbers, count)


def can_start(graph: Graph) -> bool:
    """Whether the root needs nothing that worker 0 sends only after it."""
    needed = set(graph.roots)
    for number, message in reversed(list(enumerate(graph.messages))):
        if number in needed:
            needed.update(message.parts)
            # Before it, its sender has sent all that is older.
            for older, one in enumerate(graph.messages[:number]):
                if one.source == message.source:
                    needed.add(older)
    own = [number for number, one in enumerate(graph.messages) if one.source == 0]
    return not needed & set(own[graph.start :])


# -- one worker ------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """What one step of a worker sends: the receiver, and the parcel."""

    to: int
    parcel: tuple[Any, ...]


class _Local:
    """One worker by itself, as the `World` of its `ModelWorker`: keeps what that sends."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lanes: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self.marks: Iterator[int] = iter(())
        self.worker = ModelWorker(self, rank)  # type: ignore[arg-type]
        self.leaf = tp.ones(MOST + 1, dtype=tp.float64, requires_grad=True)
        self.received: dict[int, tp.Tensor] = {}
        self.heard: set[Any] = set()
        self.own: list[Any] = []
        self.answered: set[Any] = set()

    def take(self, step: tuple[Any, ...]) -> list[Sent]:
        """Do one step; what it sends."""
        worker = self.worker
        match step:
            case ("send", number, _, to, plain, parts):
                self.own.append(step)
                self.marks = iter([number])
                value = self._sum(parts, 100.0**number)
                grad_id, _ = worker.send(to, [] if plain else [value])
                assert grad_id == (0 if plain else number)
                return [Sent(to, ("message", number, plain))]
            case ("start", roots):
                self.own.append(step)
                root = self._sum(roots, 100.0**MOST)
                worker.closures[PASS] = Closure(0)
                running = worker._join(PASS, False, [(root._node, unit(0))])
                assert running is not None
                running.advance()
                worker._retire(PASS, running)
            case ("message", source, number, plain):
                self.heard.add(step)
                content = (number, 0 if plain else 1)
                task = worker.receive(source, ("message", number, content))
                assert task is not None
                task()
            case ("answers", source, answers, known):
                self.answered.update(answers)
                grads = [(n, None if none else [unit(n + 1)]) for n, none in answers]
                worker.receive(source, ("answers", PASS, (False, grads, known)))
            case (kind, source, content):
                if kind == "late":
                    self.answered.add((content, True))
                worker.receive(source, (kind, PASS, content))
        return list(self._emitted())

    def unpack(self, rank: int, number: int, attach: Callable[[list[tp.Tensor]], None]) -> None:
        copy = wrap(np.ones(MOST + 1))
        copy._requires_grad = True
        attach([copy])
        self.received[number] = copy

    def _sum(self, parts: Sequence[int], weight: float) -> tp.Tensor:
        total: tp.Tensor = self.leaf * weight
        for part in parts:
            total = total + self.received[part]
        return total

    def _emitted(self) -> Iterator[Sent]:
        for (_, to), parcels in self.lanes.items():
            for kind, pass_id, content in parcels:
                assert pass_id == PASS
                if kind == "answers":
                    answers = [
                        (number, None if grads is None else tuple(grads[0]))
                        for number, grads in content[1]
                    ]
                    yield Sent(to, (kind, tuple(answers), content[2]))
                else:
                    yield Sent(to, (kind, content))
            parcels.clear()

    @property
    def key(self) -> Any:
        """All that what comes next depends on, and what is looked at in the end."""
        worker = self.worker
        running = worker.passes.get(PASS)
        control: Any = PASS in worker.passes
        if running is not None:
            control = (
                frozenset(running._owed),
                frozenset(running._recvs),
                frozenset(running._told),
                frozenset(running._known),
                running._begun,
                frozenset(self.answered),
            )
        closure = worker.closures.get(PASS)
        grad = worker.grads.get(self.leaf)
        return (
            tuple(self.own),
            frozenset(self.heard),
            frozenset(worker.known),
            tuple(sorted(worker.early.get(PASS, ()))),
            control,
            None if closure is None else (closure.missing, frozenset(closure._reported)),
            PASS in worker.over,
            None if grad is None else tuple(grad._array),
            frozenset(worker.begun.items()),
            frozenset(worker.sent.items()),
        )


def unit(dimension: int) -> np.ndarray[Any, Any]:
    vector = np.zeros(MOST + 1)
    vector[dimension] = 1.0
    return vector


class Local(NamedTuple):
    """One state of one worker, as a search reads it."""

    rank: int
    joined: bool
    done: bool
    over: bool
    #: What the leaf's gradient is made of.
    grad: tuple[float, ...] | None
    received: frozenset[int]
    begun: tuple[tuple[int, int], ...]
    reports: int
    gradients: int


class Workers:
    """The states of single workers and their changes, computed when first needed."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._histories: list[tuple[int, tuple[Any, ...]]] = []
        self._changes: dict[tuple[int, Any], tuple[int, list[Sent]]] = {}
        self.states: list[Local] = []
        self.first = [self._enter(_Local(rank), ()) for rank in range(SIZE)]

    def change(self, state: int, step: tuple[Any, ...]) -> tuple[int, list[Sent]]:
        """The state after a step, and what it sends."""
        found = self._changes.get((state, step))
        if found is None:
            rank, history = self._histories[state]
            local = _Local(rank)
            for earlier in history:
                local.take(earlier)
            sent = local.take(step)
            found = self._changes[state, step] = self._enter(local, (*history, step)), sent
        return found

    def _enter(self, local: _Local, history: tuple[Any, ...]) -> int:
        key = (local.rank, local.key)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.states)
            self._histories.append((local.rank, history))
            worker = local.worker
            grad = worker.grads.get(local.leaf)
            self.states.append(
                Local(
                    local.rank,
                    PASS in worker.passes,
                    PASS in worker.passes and worker.passes[PASS] is None,
                    PASS in worker.over,
                    None if grad is None else tuple(grad._array),
                    frozenset(local.received),
                    tuple([(to, count) for (_, to), count in worker.begun.items()]),
                    worker.sent["report", PASS],
                    worker.sent["gradients", PASS],
                )
            )
        return number

    @property
    def changes(self) -> int:
        return len(self._changes)


# -- the world -------------------------------------------------------------------------------------

#: The workers' states, how far each is in its own program, and the lanes between them.
World = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[Any, ...], ...]]
Step = tuple[int, tuple[Any, ...], int]


class Wrong(AssertionError):
    """An order in which a pass hangs, or is not exact."""


class Search:
    """Every order of a graph.

    Attributes:
        orders: How many there are, from the first step to the end.
        states: How many states of the world there are in them.
    """

    def __init__(self, graph: Graph, workers: Workers) -> None:
        self._graph = graph
        self._workers = workers
        self._paths = graph.paths()
        self._programs = [graph.program(rank) for rank in range(SIZE)]
        self._orders: dict[World, int] = {}
        self._trace: list[tuple[Any, ...]] = []
        #: How often each gradient goes into what it reaches, for `_value`.
        self._weights = np.array([1, *self._paths, *[0] * (MOST - len(graph.messages))])
        self._leaves = [self._leaf(rank) for rank in range(SIZE)]
        begin = (tuple(workers.first), (0,) * SIZE, ((),) * SIZE**2)
        try:
            self.orders = self._explore(begin)
        except Exception as error:
            lines = "\n  ".join(map(str, self._trace))
            raise Wrong(f"{error}\n{graph}\nafter\n  {lines}") from error
        self.states = len(self._orders)

    def _leaf(self, rank: int) -> int:
        total = 100**MOST if rank == 0 else 0
        for number, message in enumerate(self._graph.messages):
            if message.source == rank:
                total += 100**number * self._paths[number]
        return total

    def _explore(self, world: World) -> int:
        known = self._orders.get(world)
        if known is not None:
            return known
        steps = list(self._steps(world))
        if not steps:
            self._check_end(world)
        orders = 0 if steps else 1
        for step in steps:
            self._trace.append(step[:2])
            orders += self._explore(self._after(world, step))
            self._trace.pop()
        self._orders[world] = orders
        return orders

    def _steps(self, world: World) -> Iterator[Step]:
        """All that can happen next: the worker, what it does, and the lane that it is from."""
        states, places, lanes = world
        for rank, program in enumerate(self._programs):
            if places[rank] < len(program):
                step = program[places[rank]]
                if self._workers.states[states[rank]].received.issuperset(step[-1]):
                    yield rank, step, -1
        for lane, parcels in enumerate(lanes):
            if parcels:
                kind, *content = parcels[0]
                yield lane % SIZE, (kind, lane // SIZE, *content), lane

    def _after(self, world: World, step: Step) -> World:
        rank, what, lane = step
        states, places, lanes = world
        state, sent = self._workers.change(states[rank], what)
        new_states = list(states)
        new_states[rank] = state
        new_lanes = list(lanes)
        if lane < 0:
            new_places = list(places)
            new_places[rank] += 1
            places = tuple(new_places)
        else:
            new_lanes[lane] = lanes[lane][1:]
        for to, parcel in sent:
            self._check_sent(parcel)
            if parcel[0] == "answers":
                _, answers, known = parcel
                parcel = ("answers", tuple([(n, grad is None) for n, grad in answers]), known)
            new_lanes[rank * SIZE + to] = (*new_lanes[rank * SIZE + to], parcel)
        after = (tuple(new_states), places, tuple(new_lanes))
        if self._workers.states[state].over and not self._workers.states[states[rank]].over:
            self._check_gradients(after)
        return after

    # -- what must hold --------------------------------------------------------------------------

    def _check_sent(self, parcel: tuple[Any, ...]) -> None:
        if parcel[0] == "answers":
            for number, grad in parcel[1]:
                paths = self._paths[number]
                if paths:
                    assert grad is not None, f"message {number} gets no gradient"
                    found = self._weights @ grad
                    assert found == paths, f"message {number} gets {found} for {paths}"
                else:
                    assert grad is None, f"message {number} gets a gradient"

    def _check_gradients(self, world: World) -> None:
        """When the pass is over for the one who started it, all gradients are there."""
        for rank, state in enumerate(world[0]):
            grad, expected = self._workers.states[state].grad, self._leaves[rank]
            found = 0 if grad is None else self._weights @ grad
            assert found == expected, f"worker {rank}: leaf has {found} for {expected}"

    def _check_end(self, world: World) -> None:
        ends = [self._workers.states[state] for state in world[0]]
        assert all(
            place == len(program) for place, program in zip(world[1], self._programs, strict=True)
        ), "the program cannot go on"
        assert ends[0].over, "the pass has not ended, but nothing is under way"
        self._check_gradients(world)
        used = [
            number
            for number, message in enumerate(self._graph.messages)
            if self._paths[number] and message.source != message.to
        ]
        assert sum([end.gradients for end in ends]) == len(used), "gradients were sent again"
        for end in ends:
            assert end.done == end.joined, f"worker {end.rank} is not done"
            assert end.reports == int(end.joined), f"worker {end.rank}: reports"
            for to, count in end.begun:
                assert count == 1, f"worker {end.rank} told worker {to} again"
                assert to not in (0, end.rank), f"worker {end.rank} told worker {to}"


def search_all(graphs: Iterator[Graph]) -> Counter[str]:
    """Search every order of all graphs; how many there were of what."""
    workers = Workers()
    total: Counter[str] = Counter()
    for graph in graphs:
        if workers.changes > MOST_CHANGES:
            total["changes"] += workers.changes
            workers = Workers()
        search = Search(graph, workers)
        total["graphs"] += 1
        total["orders"] += search.orders
        total["states"] += search.states
    total["changes"] += workers.changes
    return total
