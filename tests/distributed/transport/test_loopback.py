"""The loopback network keeps MPI's promises, and only those."""

from __future__ import annotations

import threading
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorplay.distributed.transport import Message, TransportClosedError
from tensorplay.distributed.transport.loopback import (
    LoopbackTransport,
    LoopbackWorld,
    Weather,
)
from tensorplay.distributed.transport.wire import INLINE_LIMIT

LONG = INLINE_LIMIT + 1
POLLS = 10_000
"""More than any weather used here can hold messages back."""


def numbered(peer: int, call: int, length: int = 0) -> Message:
    message = Message(1, peer, b"body", [bytes(length)])
    message.call = call
    return message


def announced(transport: LoopbackTransport, count: int) -> list[Message]:
    """Poll until `count` messages are announced and complete; in the order of announcement."""
    order: list[Message] = []
    for _ in range(POLLS):
        message = transport.poll()
        if message is not None and not message.announced:
            message.announced = True
            order.append(message)
        if len(order) == count and all(message.ready for message in order):
            return order
    raise AssertionError(f"{len(order)} of {count} messages after {POLLS} polls")


def test_message_arrives_with_its_contents() -> None:
    world = LoopbackWorld(2)
    world.transport(0).send(Message(3, 1, b"body", [b"short", bytes(LONG)]))
    (message,) = announced(world.transport(1), 1)
    assert (message.kind, message.peer) == (3, 0)
    assert bytes(message.body) == b"body"
    assert [bytes(memoryview(buffer)) for buffer in message.buffers] == [b"short", bytes(LONG)]


def test_nothing_to_poll() -> None:
    assert LoopbackWorld(2).transport(0).poll() is None


def test_message_to_oneself() -> None:
    transport = LoopbackWorld(1).transport(0)
    transport.send(Message(1, 0, b"me"))
    (message,) = announced(transport, 1)
    assert bytes(message.body) == b"me"


WEATHERS = st.builds(
    Weather,
    seed=st.integers(0, 1000),
    hold=st.floats(0, 0.9),
    late_bulk=st.floats(0, 0.9),
)


@settings(deadline=None)
@given(weather=WEATHERS, lengths=st.lists(st.sampled_from([0, 10, LONG]), max_size=30))
def test_messages_of_one_pair_are_announced_in_order(weather: Weather, lengths: list[int]) -> None:
    world = LoopbackWorld(3, weather)
    senders = [world.transport(0), world.transport(1)]
    for number, length in enumerate(lengths):
        for sender in senders:
            sender.send(numbered(2, number, length))
    order: dict[int, list[int]] = defaultdict(list)
    for message in announced(world.transport(2), 2 * len(lengths)):
        order[message.peer].append(message.call)
    assert all(numbers == list(range(len(lengths))) for numbers in order.values())


def test_messages_of_different_pairs_overtake_one_another() -> None:
    seen = set()
    for seed in range(50):
        world = LoopbackWorld(3, Weather(seed=seed))
        for sender in (0, 1):
            for _ in range(2):
                world.transport(sender).send(Message(1, 2))
        seen.add(tuple(message.peer for message in announced(world.transport(2), 4)))
    assert seen == {
        (0, 0, 1, 1),
        (0, 1, 0, 1),
        (0, 1, 1, 0),
        (1, 0, 0, 1),
        (1, 0, 1, 0),
        (1, 1, 0, 0),
    }


def test_bulk_arrives_later_than_its_header_and_in_any_order() -> None:
    completions = set()
    for seed in range(50):
        world = LoopbackWorld(2, Weather(seed=seed, late_bulk=0.8))
        for call in range(3):
            world.transport(0).send(numbered(1, call, LONG))
        receiver = world.transport(1)
        complete: list[int] = []
        while len(complete) < 3:
            message = receiver.poll()
            if message is None:
                continue
            if not message.announced:
                assert not message.ready
                message.announced = True
            else:
                assert message.ready
                complete.append(message.call)
        completions.add(tuple(complete))
    assert (0, 1, 2) in completions
    assert (2, 1, 0) in completions


def test_message_without_bulk_is_ready_at_once() -> None:
    world = LoopbackWorld(2, Weather(late_bulk=0.99))
    world.transport(0).send(Message(1, 1, b"", [bytes(INLINE_LIMIT)]))
    message = world.transport(1).poll()
    assert message is not None
    assert message.ready


def test_hold_brings_nothing_for_a_while_and_then_everything() -> None:
    world = LoopbackWorld(2, Weather(seed=1, hold=0.9))
    for _ in range(20):
        world.transport(0).send(Message(1, 1))
    receiver = world.transport(1)
    assert sum(receiver.poll() is None for _ in range(100)) > 50
    announced(receiver, 20 - receiver.messages_received)


def test_memory_may_be_used_again_once_send_has_returned() -> None:
    world = LoopbackWorld(2)
    arrays = [np.zeros(4, np.uint8), np.zeros(LONG, np.uint8)]
    world.transport(0).send(Message(1, 1, b"", arrays))
    for array in arrays:
        array[:] = 1
    (message,) = announced(world.transport(1), 1)
    assert not any(np.frombuffer(buffer, np.uint8).any() for buffer in message.buffers)


def test_busy_while_something_is_under_way() -> None:
    world = LoopbackWorld(2, Weather(late_bulk=0.5))
    receiver = world.transport(1)
    assert not receiver.busy
    world.transport(0).send(Message(1, 1, b"", [bytes(LONG)]))
    assert receiver.busy
    message = receiver.poll()
    assert message is not None
    assert receiver.busy
    while not message.ready:
        receiver.poll()
    assert not receiver.busy


def test_counts_of_messages_and_bytes() -> None:
    world = LoopbackWorld(2)
    sender, receiver = world.transport(0), world.transport(1)
    sender.send(Message(1, 1, b"12345"))
    sender.send(Message(1, 1, b"", [bytes(LONG)]))
    announced(receiver, 2)
    assert (sender.messages_sent, receiver.messages_received) == (2, 2)
    assert sender.bytes_sent > LONG + 5
    assert (receiver.messages_sent, receiver.bytes_sent) == (0, 0)


def test_closed_transport_takes_nothing() -> None:
    world = LoopbackWorld(2)
    transport = world.transport(0)
    transport.close()
    with pytest.raises(TransportClosedError):
        transport.send(Message(1, 1))
    assert world.transport(1).poll() is None


def test_allgather_brings_every_value_to_every_worker_time_and_again() -> None:
    world = LoopbackWorld(3)
    got: list[list[list[int]]] = [[] for _ in range(3)]

    def worker(rank: int) -> None:
        transport = world.transport(rank)
        for round_ in range(20):
            got[rank].append(transport.allgather(100 * round_ + rank))

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [[100 * round_ + rank for rank in range(3)] for round_ in range(20)]
    assert got == [expected] * 3
