"""Frames: what goes in on one side comes out on the other, whichever way each part travels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorplay.distributed.transport.wire import (
    EAGER_LIMIT,
    HEADER_SIZE,
    INLINE_LIMIT,
    NO_CONTEXT,
    Arrival,
    Message,
    encode,
)

ROOM = EAGER_LIMIT - HEADER_SIZE
"""What an eager frame holds behind its header."""


def make(kind: int, peer: int, **fields: int) -> Message:
    message = Message(kind, peer, b"body")
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def pattern(size: int, start: int = 0) -> bytes:
    """Return bytes that tell their own place."""
    return ((np.arange(size) * 7 + start) % 251).astype(np.uint8).tobytes()


def receive(frame: bytes, bulk: Sequence[Any]) -> Message:
    """Do with a frame and its bulk transfers what a transport does at the receiver."""
    # Transports receive into a slot of their own, longer than most frames.
    slot = memoryview(bytearray(EAGER_LIMIT))
    slot[: len(frame)] = frame
    arrival = Arrival(slot)
    incoming = [memoryview(buffer).cast("B") for buffer in bulk]
    if arrival.rest_is_bulk:
        rest = memoryview(bytearray(incoming.pop(0)))
        assert len(rest) == arrival.length
    else:
        rest = memoryview(bytearray(slot[HEADER_SIZE : HEADER_SIZE + arrival.length]))
    empty = arrival.take_rest(rest)
    assert [len(buffer) for buffer in empty] == [len(buffer) for buffer in incoming]
    for memory, content in zip(empty, incoming, strict=True):
        memoryview(memory)[:] = content
    return arrival.message


def transfer(message: Message, source: int = 5) -> Message:
    frame, bulk = encode(message, source)
    assert HEADER_SIZE <= len(frame) <= EAGER_LIMIT
    return receive(frame, bulk)


def contents(message: Message) -> tuple[bytes, list[bytes]]:
    return bytes(message.body), [bytes(memoryview(buffer)) for buffer in message.buffers]


def check_round_trip(body: bytes, buffers: Sequence[Any]) -> None:
    received = transfer(Message(3, 1, body, buffers))
    assert contents(received) == (body, [bytes(memoryview(buffer)) for buffer in buffers])


# -- header --------------------------------------------------------------------------------------


def test_header_fields_arrive() -> None:
    sent = make(9, 2, call=17, context=1 << 48, grad_id=23, grad_count=4)
    got = transfer(sent, source=6)
    assert (got.kind, got.peer) == (9, 6)
    assert (got.call, got.context, got.grad_id, got.grad_count) == (17, 1 << 48, 23, 4)


def test_header_fields_hold_their_largest_values() -> None:
    sent = make(255, 0, call=2**64 - 1, context=2**63 - 1, grad_id=2**64 - 1, grad_count=2**32 - 1)
    got = transfer(sent, source=2**32 - 1)
    assert (got.kind, got.peer) == (255, 2**32 - 1)
    assert (got.call, got.grad_id) == (2**64 - 1, 2**64 - 1)
    assert (got.context, got.grad_count) == (2**63 - 1, 2**32 - 1)


def test_context_of_a_high_rank_fits() -> None:
    # The creator's rank is in the top 16 bits of an id.
    highest_rank_of_a_signed_id = (1 << 15) - 1
    context = (highest_rank_of_a_signed_id << 48) + 5
    assert transfer(make(1, 0, context=context)).context == context


def test_no_context_is_the_default() -> None:
    received = transfer(Message(1, 0))
    assert received.context == NO_CONTEXT
    assert (received.call, received.grad_id, received.grad_count) == (0, 0, 0)


def test_repr_names_what_matters() -> None:
    message = make(4, 2, call=7, context=9)
    message.buffers = [b""]
    for part in ("kind=4", "peer=2", "call=7", "context=9", "body=4 B", "buffers=1"):
        assert part in repr(message)


# -- every way a part can travel -----------------------------------------------------------------


def test_empty_message_is_a_header() -> None:
    frame, bulk = encode(Message(1, 0), 0)
    assert (len(frame), bulk) == (HEADER_SIZE, [])
    check_round_trip(b"", [])


@pytest.mark.parametrize("size", [1, ROOM - 1, ROOM])
def test_short_body_travels_in_the_frame(size: int) -> None:
    body = pattern(size)
    frame, bulk = encode(Message(1, 0, body), 0)
    assert (len(frame), bulk) == (HEADER_SIZE + size, [])
    check_round_trip(body, [])


@pytest.mark.parametrize("size", [ROOM + 1, ROOM + 2, 3 * EAGER_LIMIT, 1 << 20])
def test_long_body_follows_its_header(size: int) -> None:
    body = pattern(size)
    frame, bulk = encode(Message(1, 0, body), 0)
    assert len(frame) == HEADER_SIZE
    assert [len(part) for part in bulk] == [size]
    check_round_trip(body, [])


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, INLINE_LIMIT - 1, INLINE_LIMIT])
def test_short_buffer_travels_in_the_frame(size: int) -> None:
    buffer = pattern(size)
    _, bulk = encode(Message(1, 0, b"body", [buffer]), 0)
    assert bulk == []
    check_round_trip(b"body", [buffer])


@pytest.mark.parametrize("size", [INLINE_LIMIT + 1, INLINE_LIMIT + 2, 1 << 20])
def test_long_buffer_is_sent_from_where_it_lies(size: int) -> None:
    array = np.frombuffer(bytearray(pattern(size)), np.uint8)
    frame, bulk = encode(Message(1, 0, b"body", [array]), 0)
    assert len(frame) < INLINE_LIMIT
    assert len(bulk) == 1
    assert np.shares_memory(np.asarray(bulk[0]), array)
    check_round_trip(b"body", [array])


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_inline_buffers_up_to_the_frame_limit(excess: int) -> None:
    # Table and body are chosen so that no padding is needed.
    buffers = [pattern(INLINE_LIMIT, i) for i in range(3)]
    table = 8 * (len(buffers) + 1)
    body = bytes(16 - table % 16)
    last = ROOM - table - len(body) - 3 * INLINE_LIMIT + excess
    buffers.append(pattern(last))
    frame, bulk = encode(Message(1, 0, body, buffers), 0)
    assert len(frame) == (HEADER_SIZE if excess > 0 else EAGER_LIMIT + excess)
    assert len(bulk) == (1 if excess > 0 else 0)
    check_round_trip(body, buffers)


def test_ten_thousand_small_buffers() -> None:
    buffers = [pattern(i % 40, i) for i in range(10_000)]
    frame, bulk = encode(Message(1, 0, b"body", buffers), 0)
    assert len(frame) == HEADER_SIZE
    assert len(bulk) == 1
    check_round_trip(b"body", buffers)


def test_rest_and_buffers_both_in_bulk_keep_their_order() -> None:
    buffers = [
        pattern(size, i)
        for i, size in enumerate([0, 9000, 3, INLINE_LIMIT, 20_000, INLINE_LIMIT + 1, 0, 7000])
    ]
    frame, bulk = encode(Message(1, 0, pattern(ROOM), buffers), 0)
    assert len(frame) == HEADER_SIZE
    assert [len(part) for part in bulk[1:]] == [9000, 20_000, INLINE_LIMIT + 1]
    check_round_trip(pattern(ROOM), buffers)


@pytest.mark.parametrize("size", [24, INLINE_LIMIT + 8])
def test_kinds_of_buffers(size: int) -> None:
    content = pattern(size)
    kinds: list[Any] = [
        content,
        bytearray(content),
        memoryview(content),
        memoryview(bytearray(content)),
        np.frombuffer(content, np.uint8),
    ]
    received = transfer(Message(1, 0, b"", kinds))
    assert contents(received) == (b"", [content] * len(kinds))


# -- what the receiver gets ----------------------------------------------------------------------


def test_received_buffers_can_be_written_to_without_touching_others() -> None:
    received = transfer(Message(1, 0, b"body", [bytes(16), bytes(16), bytes(INLINE_LIMIT + 1)]))
    for number, buffer in enumerate(received.buffers, start=1):
        np.frombuffer(buffer, np.uint8)[:] = number
    for number, buffer in enumerate(received.buffers, start=1):
        assert set(bytes(memoryview(buffer))) == {number}
    assert bytes(received.body) == b"body"


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 100), max_size=20), body=st.integers(0, 100))
def test_inline_buffers_are_aligned_for_any_element(sizes: list[int], body: int) -> None:
    received = transfer(Message(1, 0, bytes(body), [bytes(size) for size in sizes]))
    for buffer in received.buffers:
        if len(buffer):
            assert np.frombuffer(buffer, np.uint8).ctypes.data % 16 == 0


SIZES = st.one_of(
    st.integers(0, 64),
    st.integers(INLINE_LIMIT - 2, INLINE_LIMIT + 2),
    st.integers(ROOM - 40, ROOM + 2),
)


@settings(deadline=None)
@given(body=SIZES, sizes=st.lists(SIZES, max_size=12))
def test_any_mixture_arrives_whole(body: int, sizes: list[int]) -> None:
    check_round_trip(pattern(body), [pattern(size, i) for i, size in enumerate(sizes)])


@settings(deadline=None)
@given(body=SIZES, sizes=st.lists(SIZES, max_size=12))
def test_bulk_holds_long_buffers_and_nothing_else(body: int, sizes: list[int]) -> None:
    frame, bulk = encode(Message(1, 0, bytes(body), [bytes(size) for size in sizes]), 0)
    long = [size for size in sizes if size > INLINE_LIMIT]
    rest_is_bulk = Arrival(frame).rest_is_bulk
    assert [len(part) for part in bulk[int(rest_is_bulk) :]] == long
    if rest_is_bulk:
        assert HEADER_SIZE + len(bulk[0]) > EAGER_LIMIT
        assert len(frame) == HEADER_SIZE
