"""What a backward pass costs in worlds of up to 10,000 workers, counted in one process.

Every worker has the package's own `Container` and `Exchange`; the network between them is a list.
What is sent in one round arrives in the next.  Each world computes a sum to which every worker
contributes its parameter, and the gradients are checked.

    OPENBLAS_NUM_THREADS=1 python benchmarks/worlds.py [workers ...]
"""

import random
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tensorplay as tp
from tensorplay.distributed.autograd.container import Container
from tensorplay.distributed.autograd.exchange import BEGIN, GRADIENTS, REPORT, Exchange
from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.wire import HEADER_SIZE, Message
from tensorplay.tensor import wrap

SIZES = (10, 100, 1_000, 10_000)
CONTEXT = 5
STARTER = 0


class Agent:
    """What an `Exchange` needs of an agent: it hands messages to the world."""

    def __init__(self, world: "World", rank: int) -> None:
        self.world = world
        self.rank = rank
        self.name = world.infos[rank].name
        self.workers = world.infos
        self.handlers: dict[int, Callable[[Message], Any]] = {}
        self.handle = self.handlers.__setitem__
        self.progress = self
        self.departed: set[int] = set()

    def send(self, message: Message) -> None:
        self.world.post(self.rank, message)

    def submit(self, task: Callable[[], None]) -> None:
        self.world.tasks.append(task)

    def wait(self, completion: Any, _deadline: Any, mine: Any) -> bool:
        while not completion.is_done:
            self.world.next_round()
        return True


class World:
    """So many workers in one context.

    Attributes:
        pairs: Send/recv pairs recorded between them.
        kinds: Messages of passes so far, by kind.
        handled: Messages that each worker has sent or received.
        bytes: Bytes that each worker has sent or received, headers included.
        rounds: How many rounds it took.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.infos = [WorkerInfo(f"worker{rank}", rank) for rank in range(size)]
        self.containers: list[Container] = []
        self.agents: list[Agent] = []
        self.under_way: list[tuple[int, Message]] = []
        self.tasks: list[Callable[[], None]] = []
        self.pairs = 0
        self.rounds = 0
        self.kinds: Counter[int] = Counter()
        self.handled: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        for rank in range(size):
            agent, container = Agent(self, rank), Container(rank)
            container.exchange = Exchange(agent, container)  # type: ignore[arg-type]  # a stand-in
            container.get(CONTEXT)
            self.agents.append(agent)
            self.containers.append(container)
        self.parameters = [
            wrap(np.array([float(rank % 3 + 1)])).requires_grad_() for rank in range(size)
        ]

    # -- forward ---------------------------------------------------------------------------------

    def send(self, source: int, to: int, value: tp.Tensor) -> tp.Tensor:
        """Send a value of one worker to another; what arrives there."""
        message = Message(messages.CALL, to)
        message.context = CONTEXT
        tensors = [value] if value.requires_grad else []
        message.grad_count = len(tensors)
        self.containers[source].record_send(message, tensors)
        message.peer = source
        self.containers[to].announce(message)
        received = wrap(value.numpy(force=True).copy())
        if tensors:
            self.pairs += 1
            self.containers[to].attach(message, [received.requires_grad_()])
        return received

    # -- backward --------------------------------------------------------------------------------

    def backward(self, loss: tp.Tensor) -> None:
        """Run a pass, to the last message, and check what it gives."""
        container = self.containers[STARTER]
        assert container.exchange is not None
        root = (loss._node, np.ones_like(loss._array))
        container.exchange.backward(container.retrieve(CONTEXT), [root], False, None)
        while self.under_way or self.tasks:
            self.next_round()
        # The loss is a sum of parameters, so it is what the gradients say.
        total = 0.0
        for rank, parameter in enumerate(self.parameters):
            grad = self.containers[rank].gradients(CONTEXT).get(parameter)
            total += 0.0 if grad is None else (grad * parameter).item()
        np.testing.assert_allclose(total, loss.item(), rtol=1e-12)
        assert not any(container.passes_running for container in self.containers)

    def post(self, source: int, message: Message) -> None:
        nbytes = (
            HEADER_SIZE + len(message.body) + sum(memoryview(b).nbytes for b in message.buffers)
        )
        self.kinds[message.kind] += 1
        for rank in (source, message.peer):
            self.handled[rank] += 1
            self.bytes[rank] += nbytes
        self.under_way.append((source, message))

    def next_round(self) -> None:
        """Deliver what was sent in the last round, then run what can run."""
        assert self.under_way or self.tasks, "nothing can happen any more"
        arriving, self.under_way = self.under_way, []
        self.rounds += bool(arriving)
        for source, sent in arriving:
            message = Message(sent.kind, source, bytes(sent.body), _copies(sent.buffers))
            message.context = sent.context
            task = self.agents[sent.peer].handlers[sent.kind](message)
            if task is not None:
                self.tasks.append(task)
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task()


def _copies(buffers: Sequence[Any]) -> list[memoryview]:
    return [memoryview(bytearray(buffer)) for buffer in buffers]


# -- shapes of worlds ------------------------------------------------------------------------------


def pipeline(world: World) -> tp.Tensor:
    """Nested calls: each worker calls the next with a value, which comes back the same way."""
    w = world.parameters
    value = w[0] * 1.0
    for rank in range(1, world.size):
        value = world.send(rank - 1, rank, value) + w[rank]
    for rank in range(world.size - 1, 0, -1):
        value = world.send(rank, rank - 1, value) + w[rank - 1]
    return value


def star(world: World) -> tp.Tensor:
    """The first worker calls all others, and adds up what they return."""
    w = world.parameters
    value = w[0] * 1.0
    for rank in range(1, world.size):
        value = value + world.send(rank, 0, world.send(0, rank, w[0]) + w[rank])
    return value


def star_half_plain(world: World) -> tp.Tensor:
    """Like `star`, but every second worker returns a plain number: no answer is due to it."""
    w = world.parameters
    value = w[0] * 1.0
    for rank in range(1, world.size):
        result = world.send(0, rank, w[0]) + w[rank]
        value = value + world.send(rank, 0, result if rank % 2 else tp.zeros(1, dtype=tp.float64))
    return value


def tree(world: World) -> tp.Tensor:
    """Each worker calls two others, and adds up what they return."""
    w = world.parameters
    given = [w[0] * 1.0]
    for rank in range(1, world.size):
        parent = (rank - 1) // 2
        given.append(world.send(parent, rank, given[parent]) + w[rank])
    for rank in range(world.size - 1, 0, -1):
        parent = (rank - 1) // 2
        given[parent] = given[parent] + world.send(rank, parent, given[rank])
    return given[0]


def exchange(world: World) -> tp.Tensor:
    """All to all, of bounded degree: each worker sends to four others drawn at random, twice.

    Then the values of every second worker are added up along a tree; the others are not used.
    """
    w, size = world.parameters, world.size
    rounds = random.Random(size)
    values = [one * 1.0 for one in w]
    for _ in range(2):
        received = [one * 0.5 for one in values]
        for _ in range(4):
            order = rounds.sample(range(size), size)
            # Along a circle through all workers: each sends one value and receives one.
            for source, to in zip(order, [*order[1:], order[0]], strict=True):
                received[to] = received[to] + world.send(source, to, values[source]) * 0.1
        values = received
    sums = [value if rank % 2 == 0 else w[rank] * 1.0 for rank, value in enumerate(values)]
    for rank in range(size - 1, 0, -1):
        parent = (rank - 1) // 2
        sums[parent] = sums[parent] + world.send(rank, parent, sums[rank])
    return sums[0]


SHAPES: dict[str, Callable[[World], tp.Tensor]] = {
    "pipeline": pipeline,
    "star": star,
    "star, half plain": star_half_plain,
    "tree": tree,
    "exchange": exchange,
}


# -- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What one pass has cost.

    Attributes:
        pairs: Send/recv pairs between workers.
        answers: Messages with answers for them.
        notices: Messages that say that the pass has begun.
        reports: Workers' words that they are done; with their last answers, or alone.
        rounds: How many messages follow one another at most.
        bytes: Bytes of all messages.
        busiest: Messages that a worker other than the starting one sends and receives, at most.
        busiest_bytes: The same in bytes.
        memory: Most bytes allocated at any time of the pass beyond those before, a worker.
    """

    pairs: int
    answers: int
    notices: int
    reports: int
    rounds: int
    bytes: int
    busiest: int
    busiest_bytes: int
    memory: int
    others: int = field(default=0, repr=False)


def measure(shape: Callable[[World], tp.Tensor], size: int, *, memory: bool = True) -> Cost:
    """The cost of the pass of a world; `memory` is 0 if it is not asked for, which is faster."""
    world = World(size)
    loss = shape(world)
    if memory:
        tracemalloc.start()
    world.backward(loss)
    peak = 0
    if memory:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    known = {GRADIENTS, BEGIN, REPORT}
    return Cost(
        pairs=world.pairs,
        answers=world.kinds[GRADIENTS],
        notices=world.kinds[BEGIN],
        reports=sum(
            container.exchange.counters.read().reports_sent
            for container in world.containers
            if container.exchange is not None
        ),
        rounds=world.rounds,
        bytes=sum(world.bytes.values()) // 2,
        busiest=max(world.handled[rank] for rank in range(size) if rank != STARTER),
        busiest_bytes=max(world.bytes[rank] for rank in range(size) if rank != STARTER),
        memory=peak // size,
        others=sum(count for kind, count in world.kinds.items() if kind not in known),
    )


def main() -> None:
    """Print the table."""
    measure(star, 2)  # what is made once only is no cost of the first world
    sizes = [int(argument) for argument in sys.argv[1:]] or SIZES
    columns = (
        "world | workers | pairs | answers | notices | reports | bytes a pair | rounds | "
        "busiest worker: messages | its bytes | memory a worker, bytes"
    )
    print("|", columns, "|")
    print("|", " | ".join("---" for _ in columns.split("|")), "|")
    for name, shape in SHAPES.items():
        for size in sizes:
            cost = measure(shape, size)
            figures = (
                *(size, cost.pairs, cost.answers, cost.notices, cost.reports),
                *(cost.bytes // cost.pairs, cost.rounds, cost.busiest, cost.busiest_bytes),
                cost.memory,
            )
            print(f"| {name} |", " | ".join(f"{figure:,}" for figure in figures), "|", flush=True)


if __name__ == "__main__":
    main()
