"""Worlds of workers in one thread, in which everything that may happen next is a choice.

A `World` holds the workers' tensors and the network between them.  Messages of one pair of workers
arrive in order; in all else, any order may happen: which message arrives next, when a received
request gets round to use its tensors, what the program goes on to do while a pass runs.

Every tensor has a *twin*, made by the same operations without any message: gradients of the twins,
in one process, are what the gradients of the world must be.

What a worker's autograd does is not decided here: see `Worker`.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import tensorplay as tp
from tensorplay.autograd.graph import Node
from tensorplay.tensor import wrap

#: Makes a choice among so many possibilities.
Choose = Callable[[int], int]


class Value(NamedTuple):
    """A tensor of a worker; its twin; and what it is made of: marks of operations and messages."""

    tensor: tp.Tensor
    twin: tp.Tensor
    made_of: frozenset[int] = frozenset()


class Worker(Protocol):
    """One worker's autograd, as a `World` uses it."""

    grads: dict[tp.Tensor, tp.Tensor]

    def send(self, to: int, tensors: Sequence[tp.Tensor]) -> Any:
        """Record a message; what is to be put into the network for it."""

    def receive(self, source: int, parcel: Any) -> Callable[[], None] | None:
        """Take what has arrived; what remains to be done, at some later time."""

    def backward(self, roots: Sequence[tp.Tensor], retain_graph: bool) -> None:
        """Run a pass, stepping the world until it has ended."""


class Step(Node):
    """A rule that takes its time: meanwhile other things happen."""

    __slots__ = ("meanwhile",)

    def __init__(self, tensor: tp.Tensor, meanwhile: Callable[[], None]) -> None:
        super().__init__((tensor._node or tensor,))
        self.meanwhile = meanwhile

    def rule(self, grad: Any) -> tuple[Any, ...]:
        self.meanwhile()
        return (grad,)


class Boom(Exception):
    """What a `Trap` raises."""


class Trap(Node):
    """A rule that fails, while it is armed."""

    __slots__ = ("world",)

    def __init__(self, tensor: tp.Tensor, world: World) -> None:
        super().__init__((tensor._node or tensor,))
        self.world = world

    def rule(self, grad: Any) -> tuple[Any, ...]:
        if self.world.armed:
            raise Boom("a rule failed")
        return (grad,)


class Hang(AssertionError):
    """Nothing can happen any more, but somebody still waits."""


class World:
    """Workers, the network between them, and the program that they run.

    Args:
        size: Number of workers.
        choose: Decides whatever is open.
        make_worker: Makes the worker of a rank.
    """

    def __init__(
        self, size: int, choose: Choose, make_worker: Callable[[World, int], Worker]
    ) -> None:
        self.size = size
        self.choose = choose
        self.lanes: dict[tuple[int, int], deque[Any]] = {
            (source, to): deque() for source in range(size) for to in range(size)
        }
        self.tasks: list[deque[Callable[[], None]]] = [deque() for _ in range(size)]
        #: Workers that are taking a message just now; one at a time.
        self.receiving: set[int] = set()
        self.values: list[list[Value]] = [[] for _ in range(size)]
        self.leaves: list[tuple[int, Value]] = []
        self.payloads: dict[int, list[Value]] = {}
        #: Source and destination of each message.
        self.ends: dict[int, tuple[int, int]] = {}
        #: What passes that did not retain the graph have used up.
        self.spent: set[int] = set()
        #: Gradients that all passes together must have given, aligned with `leaves`.
        self.expected: list[Any] = []
        #: Whether traps fail.
        self.armed = False
        #: So many actions the program still takes of its own accord.
        self.unfinished = 0
        self.marks = itertools.count(1)
        self.workers = [make_worker(self, rank) for rank in range(size)]

    # -- what the program does -------------------------------------------------------------------

    def leaf(self, rank: int, number: float) -> Value:
        """A parameter of a worker."""
        value = Value(_leaf(number), _leaf(number))
        self.leaves.append((rank, value))
        self.expected.append(None)
        self.values[rank].append(value)
        return value

    def combine(self, rank: int, parts: Sequence[Value], factors: Sequence[float]) -> Value:
        """A weighted sum of values; of two, their product if the factors are all 0."""
        made_of = frozenset([next(self.marks)]).union(*[part.made_of for part in parts])
        value = Value(
            _combined([part.tensor for part in parts], factors),
            _combined([part.twin for part in parts], factors),
            made_of,
        )
        self.values[rank].append(value)
        return value

    def through(self, rank: int, value: Value, node: Node) -> Value:
        """The same value, made by a node that passes gradients on as they are."""
        tensor = wrap(value.tensor._array, node)
        made_of = value.made_of | {next(self.marks)}
        later = Value(tensor, value.twin, made_of)
        self.values[rank].append(later)
        return later

    def send(self, source: int, to: int, values: Sequence[Value]) -> int:
        """Put a message into the network; its number."""
        number = next(self.marks)
        tensors = [value.tensor for value in values if value.tensor.requires_grad]
        parcel = self.workers[source].send(to, tensors)
        self.payloads[number] = list(values)
        self.ends[number] = (source, to)
        self.lanes[source, to].append(("message", number, parcel))
        return number

    def unpack(self, rank: int, number: int, attach: Callable[[list[tp.Tensor]], None]) -> None:
        """The receiver gets round to use a message: it has copies of the values now."""
        received = []
        for value in self.payloads[number]:
            copy = wrap(value.tensor._array.copy())
            copy._requires_grad = value.tensor.requires_grad
            # Through a constant no gradient comes back.
            made_of = value.made_of | {number} if copy.requires_grad else frozenset()
            received.append(Value(copy, value.twin, made_of))
        attach([value.tensor for value in received if value.tensor.requires_grad])
        self.values[rank].extend(received)

    def usable(self, rank: int) -> list[Value]:
        """The values of a worker whose graph no pass has used up."""
        return [value for value in self.values[rank] if not value.made_of & self.spent]

    def backward(self, rank: int, roots: Sequence[Value], retain_graph: bool = False) -> None:
        """A pass on a worker; adds what it must give to `expected`."""
        if not retain_graph:
            self.spent.update(*[root.made_of for root in roots])
        grads = tp.autograd.grad(
            [root.twin for root in roots],
            [leaf.twin for _, leaf in self.leaves],
            retain_graph=True,
            allow_unused=True,
        )
        for i, grad in enumerate(grads):
            if grad is not None:
                before = self.expected[i]
                array = grad._array.copy()
                self.expected[i] = array if before is None else before + array
        self.workers[rank].backward([root.tensor for root in roots], retain_graph)

    # -- what happens ----------------------------------------------------------------------------

    def step(self) -> bool:
        """Let one thing happen, by choice; whether anything could."""
        lanes = [
            lane
            for lane, parcels in self.lanes.items()
            if parcels and lane[1] not in self.receiving
        ]
        busy = [rank for rank, tasks in enumerate(self.tasks) if tasks]
        options = len(lanes) + len(busy) + (self.unfinished > 0)
        if not options:
            return False
        choice = self.choose(options) if options > 1 else 0
        if choice < len(lanes):
            self.deliver(*lanes[choice])
        elif choice < len(lanes) + len(busy):
            tasks = self.tasks[busy[choice - len(lanes)]]
            # Tasks run on threads of their own.
            index = self.choose(len(tasks)) if len(tasks) > 1 else 0
            task = tasks[index]
            del tasks[index]
            task()
        else:
            self.unfinished -= 1
            self.act()
        return True

    def deliver(self, source: int, to: int) -> None:
        """Let the oldest message from one worker to another arrive."""
        parcel = self.lanes[source, to].popleft()
        self.receiving.add(to)
        try:
            task = self.workers[to].receive(source, parcel)
        finally:
            self.receiving.discard(to)
        if task is not None:
            self.tasks[to].append(task)

    def run_until(self, done: Callable[[], bool]) -> None:
        """Let things happen until `done`; raises `Hang` if it cannot be reached."""
        while not done():
            if not self.step():
                raise Hang("nothing is under way, but the pass has not ended")

    def drain(self) -> None:
        """Let everything happen that is under way."""
        while self.step():
            pass

    def act(self) -> None:
        """The program does something more; see `RandomProgram`."""

    def check(self) -> None:
        """All gradients are those of the twins, and there are no others."""
        for (rank, leaf), expected in zip(self.leaves, self.expected, strict=True):
            found = self.workers[rank].grads.get(leaf.tensor)
            if expected is None:
                assert found is None, f"rank {rank} has {found} where no gradient comes"
            else:
                assert found is not None, f"rank {rank} lacks a gradient {expected}"
                np.testing.assert_allclose(found._array, expected, rtol=1e-12)


def _leaf(number: float) -> tp.Tensor:
    return tp.tensor(number, dtype=tp.float64, requires_grad=True)


def _combined(parts: Sequence[tp.Tensor], factors: Sequence[float]) -> tp.Tensor:
    if len(parts) == 2 and not any(factors):
        return parts[0] * parts[1]
    total = parts[0] * factors[0]
    for part, factor in zip(parts[1:], factors[1:], strict=True):
        total = total + part * factor
    return total


class RandomProgram(World):
    """A world whose program is random."""

    def __init__(self, seed: int, make_worker: Callable[[World, int], Worker]) -> None:
        self.random = random.Random(seed)
        size = self.random.choice([2, 2, 3, 3, 4, 5])
        super().__init__(size, self.random.randrange, make_worker)
        #: How readily messages go to their sender, rules take their time, and are traps.
        self.own = self.random.choice([0.05, 0.2])
        self.slow = self.random.choice([0.0, 0.2])
        self.faulty = 0.0
        self._depth = 0

    def write(self, actions: int) -> None:
        """Take some actions; messages are under way afterwards, more or less many."""
        calm = self.random.choice([0.0, 0.5, 0.9])
        for _ in range(actions):
            self.act()
            while self.random.random() < calm and self.step():
                pass

    def act(self) -> None:
        chance = self.random.random()
        rank = self.random.randrange(self.size)
        if chance < 0.15:
            self.leaf(rank, float(self.random.randint(1, 3)))
        elif chance < 0.5:
            self.compute(rank)
        else:
            self.talk(rank)

    def compute(self, rank: int) -> Value:
        """A new value on a rank, from some of those there."""
        draw = self.random
        here = self.usable(rank) or [self.leaf(rank, 2.0)]
        parts = draw.choices(here[-6:], k=draw.choice([1, 2, 2, 3]))
        factors = [float(draw.choice([-2, -1, 1, 2])) for _ in parts]
        if len(parts) == 2 and draw.random() < 0.1 and len(parts[0].made_of) < 12:
            factors = [0.0, 0.0]
        value = self.combine(rank, parts, factors)
        if value.tensor.requires_grad:
            if draw.random() < self.slow:
                value = self.through(rank, value, Step(value.tensor, self.meanwhile))
            if draw.random() < self.faulty:
                value = self.through(rank, value, Trap(value.tensor, self))
        return value

    def talk(self, rank: int) -> None:
        draw = self.random
        here = self.usable(rank) or [self.leaf(rank, 3.0)]
        values = draw.choices(here[-6:], k=draw.choice([1, 1, 2, 3]))
        if draw.random() < 0.2:
            values.append(Value(tp.tensor(1.0, dtype=tp.float64), tp.tensor(1.0)))
        to = rank if draw.random() < self.own else draw.randrange(self.size)
        # The same tensor twice in a message is one tensor there.
        self.send(rank, to, list({id(value.tensor): value for value in values}.values()))

    def meanwhile(self) -> None:
        """Something may happen between two steps of a thread."""
        if self._depth < 6:
            self._depth += 1
            for _ in range(self.random.randrange(4)):
                self.step()
            self._depth -= 1

    def roots(self, rank: int) -> list[Value]:
        """One or several results on a rank, perhaps the same one twice."""
        here = [
            value
            for value in self.usable(rank)
            if value.tensor.requires_grad and value.tensor._node is not None
        ]
        if not here:
            here = [self.combine(rank, [self.leaf(rank, 2.0)], [3.0])]
        return self.random.choices(here[-5:], k=self.random.choice([1, 1, 2, 3]))
