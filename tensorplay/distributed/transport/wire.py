"""A message and its frame: fixed header, buffer table, pickle, inline buffers.

Layout of a frame, little-endian::

    header (64 bytes) | table: one 64-bit length a buffer | body | inline buffers, 16-aligned

All behind the header is the *rest*.  A frame of at most `EAGER_LIMIT` bytes is one eager message.
Otherwise the header travels alone and the rest follows as the first bulk transfer.  Buffers longer
than `INLINE_LIMIT` never enter the frame: each is a bulk transfer straight from the sender's memory
into fresh memory at the receiver.  The top bit of a table entry tells the two apart.

Pure: no MPI, no thread, no pickling.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from tensorplay.distributed.transport import memory

#: Longest eager frame, in bytes.  Every worker posts receives of this size.
EAGER_LIMIT = 32 * 1024
#: Longest buffer that is copied into the frame, in bytes.
INLINE_LIMIT = 8 * 1024
#: Changes whenever workers of different versions could not understand one another.
PROTOCOL_VERSION = 1

#: The context number of a message that belongs to none.
NO_CONTEXT = -1

# kind, flags, source, buffers, grad_count, context, call, grad_id, length of the rest, of the body
_HEADER = struct.Struct("<BB2xIIIqQQQQ8x")
HEADER_SIZE = _HEADER.size
_pack_header = _HEADER.pack
_unpack_header = _HEADER.unpack_from
_ALIGNMENT = 16
_BULK_BIT = 1 << 63
_REST_IS_BULK = 1

Buffer = Any  # bytes, bytearray, memoryview or a contiguous uint8 array


class Message:
    """One message, as the layers above see it, on either side.

    Attributes:
        kind: What it is; the layers above number their kinds.
        peer: The other worker's rank: destination when sending, source when received.
        context: Id of the autograd context that it belongs to, or `NO_CONTEXT`.
        call: Number by which an answer finds its call.
        grad_id: Autograd message id of the send/recv pair, 0 if there is none.
        grad_count: How many tensors in it hang from that pair.
        body: The pickle.
        buffers: Its out-of-band buffers, in the pickle's order.
        on_failure: Called (on the thread that sends) with the message and an exception if it cannot
            be sent.
        ready: Received whole.
        announced: Whether the layer above has seen its header.
    """

    # Defaults stand on the class: one is made for every message that comes or goes.
    call: int = 0
    context: int = NO_CONTEXT
    grad_id: int = 0
    grad_count: int = 0
    on_failure: Callable[[Message, Exception], None] | None = None
    ready: bool = True
    announced: bool = False

    def __init__(
        self, kind: int, peer: int, body: Buffer = b"", buffers: Sequence[Buffer] = ()
    ) -> None:
        self.kind = kind
        self.peer = peer
        self.body = body
        self.buffers = buffers

    def __repr__(self) -> str:
        return (
            f"Message(kind={self.kind}, peer={self.peer}, call={self.call}, "
            f"context={self.context}, body={len(self.body)} B, buffers={len(self.buffers)})"
        )


def encode(message: Message, source: int) -> tuple[bytes, list[Buffer]]:
    """The eager frame of a message, and the bulk transfers that follow it, in their order."""
    body = message.body
    buffers = message.buffers
    size = len(body)
    if not buffers and size <= EAGER_LIMIT - HEADER_SIZE:
        # Most messages are like this: as `_header` does, without a call.
        header = _pack_header(
            message.kind,
            0,
            source,
            0,
            message.grad_count,
            message.context,
            message.call,
            message.grad_id,
            size,
            size,
        )
        return header + body, _NO_BULK

    table: list[int] = []
    parts: list[Buffer] = [b"", body]
    bulk: list[Buffer] = []
    length = 8 * len(buffers) + size
    for buffer in buffers:
        nbytes = memoryview(buffer).nbytes
        if nbytes > INLINE_LIMIT:
            table.append(nbytes | _BULK_BIT)
            bulk.append(buffer)
        else:
            table.append(nbytes)
            gap = -length % _ALIGNMENT
            parts.append(bytes(gap))
            parts.append(buffer)
            length += gap + nbytes
    parts[0] = struct.pack(f"<{len(table)}Q", *table)
    if HEADER_SIZE + length <= EAGER_LIMIT:
        head = _header(message, source, 0, len(table), length, size)
        return b"".join([head, *parts]), bulk
    head = _header(message, source, _REST_IS_BULK, len(table), length, size)
    return head, [b"".join(parts), *bulk]


_NO_BULK: list[Buffer] = []


def _header(
    message: Message, source: int, flags: int, n_buffers: int, length: int, body: int
) -> bytes:
    return _pack_header(
        message.kind,
        flags,
        source,
        n_buffers,
        message.grad_count,
        message.context,
        message.call,
        message.grad_id,
        length,
        body,
    )


def bare_message(frame: memoryview) -> Message | None:
    """The message of a frame that holds nothing but header and body; None if it holds more."""
    kind, flags, source, n_buffers, grad_count, context, call, grad_id, length, _ = _unpack_header(
        frame
    )
    if flags or n_buffers:
        return None
    message = Message(kind, source, frame[HEADER_SIZE : HEADER_SIZE + length].tobytes())
    message.call = call
    if context != NO_CONTEXT:
        message.context = context
    if grad_count:
        message.grad_id = grad_id
        message.grad_count = grad_count
    return message


class Arrival:
    """A message that is being received: its header is here, the rest may follow.

    Attributes:
        message: The message; its contents are filled in as they come.
        length: Length of the rest, in bytes.
        rest_is_bulk: The rest does not stand behind the header but comes as a bulk transfer.
    """

    __slots__ = ("_body", "_n_buffers", "length", "message", "rest_is_bulk")

    def __init__(self, frame: Any) -> None:
        kind, flags, source, self._n_buffers, grad_count, context, call, grad_id, length, body = (
            _unpack_header(frame)
        )
        self.message = message = Message(kind, source)
        message.call = call
        if context != NO_CONTEXT:
            message.context = context
        if grad_count:
            message.grad_id = grad_id
            message.grad_count = grad_count
        self.length: int = length
        self._body: int = body
        self.rest_is_bulk = flags & _REST_IS_BULK

    def take_rest(self, rest: memoryview) -> list[Any]:
        """Fill in body and buffers from the rest; returns the bulk buffers, still to be filled."""
        message = self.message
        n_buffers = self._n_buffers
        if not n_buffers:
            message.body = rest
            return []
        table = struct.unpack_from(f"<{n_buffers}Q", rest)
        position = 8 * n_buffers + self._body
        message.body = rest[8 * n_buffers : position]
        buffers: list[Any] = []
        bulk: list[Any] = []
        for size in table:
            if size & _BULK_BIT:
                buffer = memory.take(size & ~_BULK_BIT)
                bulk.append(buffer)
                buffers.append(buffer)
            else:
                position += -position % _ALIGNMENT
                buffers.append(rest[position : position + size])
                position += size
        message.buffers = buffers
        return bulk
