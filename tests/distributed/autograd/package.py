"""The package's own `Container` and `Exchange` as a worker of a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorplay as tp
from distributed.autograd.simulator import RandomProgram, World
from tensorplay.distributed.autograd.container import Container
from tensorplay.distributed.autograd.exchange import Exchange
from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport import Message

#: The context that all that happens in a simulated world belongs to.
CONTEXT = 5


class PackageWorker:
    """One worker.

    Its agent hands every message to the world, where it may be under way for long; and lets other
    things happen whenever it is asked to send one, as other threads do.
    """

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.agent = SimulatedAgent(world, rank)
        self.container = Container(rank)
        self.exchange = Exchange(self.agent, self.container)  # type: ignore[arg-type]
        self.container.exchange = self.exchange
        context = self.container.get(CONTEXT)
        assert context is not None
        self.context = context

    @property
    def grads(self) -> dict[tp.Tensor, tp.Tensor]:  # type: ignore[override]  # looked up anew
        return self.container.gradients(CONTEXT)

    def send(self, to: int, tensors: Sequence[tp.Tensor]) -> Any:
        message = Message(messages.CALL, to)
        message.context = CONTEXT
        message.grad_count = len(tensors)
        self.container.record_send(message, tensors)
        return message

    def receive(self, source: int, parcel: Any) -> Callable[[], None] | None:
        if isinstance(parcel, Message):
            return self.agent.handlers[parcel.kind](_arrived(parcel, source))
        _, number, sent = parcel
        message = _arrived(sent, source)
        self.container.announce(message)

        def attach(tensors: list[tp.Tensor]) -> None:
            if tensors:
                self.container.attach(message, tensors)

        return lambda: self.world.unpack(self.rank, number, attach)

    def backward(self, roots: Sequence[tp.Tensor], retain_graph: bool) -> None:
        seeds = [(root._node, np.ones_like(root._array)) for root in roots]
        timeout = None if self.agent.patience is None else 1.0
        context = self.container.retrieve(CONTEXT)
        self.exchange.backward(context, seeds, retain_graph, timeout)


def _arrived(sent: Message, source: int) -> Message:
    """What comes out of the network; memory is read as late as that."""
    message = Message(
        sent.kind, source, bytes(sent.body), [memoryview(bytearray(b)) for b in sent.buffers]
    )
    message.context = sent.context
    message.grad_id = sent.grad_id
    message.grad_count = sent.grad_count
    return message


class SimulatedAgent:
    """What an `Exchange` needs of an agent, and of its progress engine.

    Attributes:
        patience: So many steps of the world a wait takes at most; None for no limit.
    """

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.name = f"worker{rank}"
        self.workers = [WorkerInfo(f"worker{other}", other) for other in range(world.size)]
        self.handlers: dict[int, Callable[[Message], Callable[[], None] | None]] = {}
        self.handle = self.handlers.__setitem__
        self.progress = self
        self.departed: set[int] = set()
        self.patience: int | None = None

    def send(self, message: Message) -> None:
        if isinstance(self.world, RandomProgram):
            self.world.meanwhile()
        self.world.lanes[self.rank, message.peer].append(message)

    def submit(self, task: Callable[[], None]) -> None:
        self.world.tasks[self.rank].append(task)

    def wait(self, completion: Any, deadline: float | None, mine: Callable[[Any], bool]) -> bool:
        left = self.patience

        def over() -> bool:
            nonlocal left
            if left is not None:
                left -= 1
            return completion.is_done or (left is not None and left < 0)

        self.world.run_until(over)
        return bool(completion.is_done)
