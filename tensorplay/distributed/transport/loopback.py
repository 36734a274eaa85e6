"""Several workers in one process, for tests: delivery can be delayed and reordered at will.

What MPI guarantees is kept, and nothing more: messages of one pair are announced in order; between
pairs any order may happen; bulk buffers may arrive much later than their header.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tensorplay.distributed.transport.base import Transport, TransportClosedError
from tensorplay.distributed.transport.wire import HEADER_SIZE, Arrival, Message, encode


@dataclass
class Weather:
    """How the network of a `LoopbackWorld` behaves.

    Attributes:
        seed: Makes the choices repeatable as far as thread timing allows.
        hold: Probability that a poll brings nothing although something is there.
        late_bulk: Probability that a poll does not yet complete a message whose bulk is pending.
        pause: A poll sleeps up to this long (seconds) now and then.
    """

    seed: int = 0
    hold: float = 0.0
    late_bulk: float = 0.0
    pause: float = 0.0


@dataclass
class LoopbackWorld:
    """The network between `size` workers of one process."""

    size: int
    weather: Weather = field(default_factory=Weather)

    def __post_init__(self) -> None:
        self._lanes: list[list[deque[tuple[bytes, list[bytes]]]]] = [
            [deque() for _ in range(self.size)] for _ in range(self.size)
        ]
        self._gathering: dict[int, list[Any]] = {}
        self._barrier = threading.Barrier(self.size)

    def transport(self, rank: int) -> LoopbackTransport:
        """The transport of one worker."""
        return LoopbackTransport(self, rank)

    def lane(self, source: int, destination: int) -> deque[tuple[bytes, list[bytes]]]:
        """Messages on their way from one worker to another, oldest first."""
        return self._lanes[source][destination]

    def allgather(self, rank: int, value: Any) -> list[Any]:
        """One value from every worker; blocks until all have called."""
        slots = self._gathering.setdefault(0, [None] * self.size)
        slots[rank] = value
        self._barrier.wait(timeout=60)
        values = list(slots)
        self._barrier.wait(timeout=60)
        return values


class LoopbackTransport(Transport):
    """One worker's end of a `LoopbackWorld`."""

    crowded = True

    def __init__(self, world: LoopbackWorld, rank: int) -> None:
        self.rank = rank
        self.size = world.size
        self._world = world
        self._random = random.Random(f"{world.weather.seed} {rank}")
        self._late: list[Message] = []
        self._closed = False

    def allgather(self, value: Any) -> list[Any]:
        """One value from every worker, in the order of ranks."""
        return self._world.allgather(self.rank, value)

    def send(self, message: Message) -> None:
        if self._closed:
            raise TransportClosedError("the transport is closed")
        frame, bulk = encode(message, self.rank)
        copies = [memoryview(buffer).tobytes() for buffer in bulk]
        self.messages_sent += 1
        self.bytes_sent += len(frame) + sum(map(len, copies))
        self._world.lane(self.rank, message.peer).append((frame, copies))

    def poll(self) -> Message | None:
        weather = self._world.weather
        chance = self._random.random
        if weather.pause and chance() < 0.02:
            time.sleep(chance() * weather.pause)
        if self._late and chance() >= weather.late_bulk:
            message = self._late.pop(self._random.randrange(len(self._late)))
            message.ready = True
            return message
        if weather.hold and chance() < weather.hold:
            return None
        lanes = [
            lane for source in range(self.size) if (lane := self._world.lane(source, self.rank))
        ]
        if not lanes:
            return None
        frame, bulk = self._random.choice(lanes).popleft()
        return self._take(frame, bulk)

    def _take(self, frame: bytes, bulk: list[bytes]) -> Message:
        arrival = Arrival(frame)
        self.messages_received += 1
        self.bytes_received += len(frame) + sum(map(len, bulk))
        incoming = deque(bulk)
        if arrival.rest_is_bulk:
            rest = memoryview(bytearray(incoming.popleft()))
        else:
            rest = memoryview(bytearray(frame[HEADER_SIZE : HEADER_SIZE + arrival.length]))
        for buffer in arrival.take_rest(rest):
            memoryview(buffer)[:] = incoming.popleft()
        message = arrival.message
        if bulk and self._world.weather.late_bulk:
            message.ready = False
            self._late.append(message)
        return message

    @property
    def busy(self) -> bool:
        return bool(self._late) or any(
            self._world.lane(source, self.rank) for source in range(self.size)
        )

    def lose(self, peer: int) -> None:
        # What has come from it is whole, and nothing that was sent to it is kept here.
        pass

    def close(self) -> None:
        self._closed = True
