"""The log: a line for each message when asked, and nothing at all otherwise."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest

from tensorplay.distributed.rpc import log, messages
from tensorplay.distributed.transport.loopback import LoopbackTransport, LoopbackWorld, Weather
from tensorplay.distributed.transport.wire import Message


@pytest.fixture(autouse=True)
def logger_as_before() -> Iterator[None]:
    """After each test the logger must be as it was before."""
    before = (log.logger.level, log.logger.propagate, list(log.logger.handlers))
    yield
    assert (log.logger.level, log.logger.propagate, list(log.logger.handlers)) == before


def exchange(late: float = 0.0) -> list[LoopbackTransport]:
    """Send a message with a large and a small buffer from worker 1 to worker 0, logging both."""
    world = LoopbackWorld(2, Weather(late_bulk=late))
    transports = [world.transport(rank) for rank in range(2)]
    for transport in transports:
        log.log_messages(transport)
    message = Message(messages.REPLY, 0, b"12345", [np.zeros(20_000, np.uint8), b"123"])
    message.call = 7
    message.context = 3
    message.grad_id = 9
    message.grad_count = 1
    transports[1].send(message)
    while (arrived := transports[0].poll()) is None or not arrived.ready:
        pass
    return transports


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_one_line_for_each_message_and_side(
    capsys: pytest.CaptureFixture[str], late: float
) -> None:
    restore = log.configure("debug", 4)
    exchange(late)
    restore()
    what = "REPLY, call 7, context 3, grad 9, 20008 bytes"
    assert capsys.readouterr().err.splitlines() == [
        f"[rank 4] tensorplay to rank 0: {what}",
        f"[rank 4] tensorplay from rank 1: {what}",
    ]


@pytest.mark.parametrize("level", ["off", "warning", "info"])
def test_nothing_is_in_the_way_of_messages_otherwise(
    capsys: pytest.CaptureFixture[str], level: str
) -> None:
    restore = log.configure(level, 0)
    for transport in exchange():
        assert "send" not in vars(transport)
        assert "poll" not in vars(transport)
    restore()
    assert capsys.readouterr().err == ""


def test_program_may_ask_by_its_own_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="tensorplay"):
        restore = log.configure("warning", 0)
        exchange()
        restore()
    assert len(caplog.messages) == 2


def test_off_writes_not_even_errors(capsys: pytest.CaptureFixture[str]) -> None:
    restore = log.configure("off", 0)
    log.logger.error("an error")
    restore()
    assert capsys.readouterr().err == ""


def test_kinds_of_autograd_have_names_too() -> None:
    from tensorplay.distributed.autograd import exchange

    assert messages.name_of(exchange.GRADIENTS) == "GRADIENTS"
    assert messages.name_of(200) == "kind 200"


def test_message_outside_of_contexts() -> None:
    line = log.describe(Message(messages.DROP, 2, b""), "to")
    assert line == "to rank 2: DROP, call 0, context -, grad -, 0 bytes"
