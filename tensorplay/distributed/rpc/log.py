"""What a worker says on the logger ``tensorplay``, and a line for each message when asked.

Messages are logged by a transport whose `send` and `poll` have been replaced.  That is done only
where the level is debug: otherwise a message costs nothing here, not even a test.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.transport import Message, Transport
from tensorplay.distributed.transport.wire import NO_CONTEXT

logger = logging.getLogger("tensorplay")

_SILENT = logging.CRITICAL + 1


def configure(level: str, rank: int) -> Callable[[], None]:
    """Have the logger write what `level` says; returns what puts it back as it was.

    "warning" leaves the logger to the program: Python prints warnings by itself.  "info" and
    "debug" write to stderr, each line with the rank; "off" writes nothing.
    """
    before = (logger.level, logger.propagate)
    handler: logging.Handler | None = None
    if level == "off":
        logger.setLevel(_SILENT)
    elif level in ("info", "debug"):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(f"[rank {rank}] tensorplay %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        # Else a program that logs by itself would print each line twice.
        logger.propagate = False

    def restore() -> None:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        if handler is not None:
            logger.removeHandler(handler)

    return restore


def log_messages(transport: Transport) -> None:
    """Log each message that `transport` carries from now on, if the logger's level is debug."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    plain_send = transport.send
    plain_poll = transport.poll

    def send(message: Message) -> None:
        logger.debug(describe(message, "to"))
        plain_send(message)

    def poll() -> Message | None:
        message = plain_poll()
        # One whose buffers are late comes twice, and is whole the second time.
        if message is not None and message.ready:
            logger.debug(describe(message, "from"))
        return message

    # On the instance: a transport that logs nothing looks up nothing.
    transport.send = send  # type: ignore[method-assign]
    transport.poll = poll  # type: ignore[method-assign]


def describe(message: Message, direction: str) -> str:
    """The line of a message that goes "to" its peer, or comes "from" it.

    >>> describe(Message(messages.CALL, 1, b"123"), "to")
    'to rank 1: CALL, call 0, context -, grad -, 3 bytes'
    """
    context = "-" if message.context == NO_CONTEXT else message.context
    size = len(message.body) + sum(memoryview(buffer).nbytes for buffer in message.buffers)
    return (
        f"{direction} rank {message.peer}: {messages.name_of(message.kind)}, "
        f"call {message.call}, context {context}, grad {message.grad_id or '-'}, {size} bytes"
    )
