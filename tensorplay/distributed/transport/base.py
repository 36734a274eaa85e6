"""What every transport offers to the layers above."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn

from tensorplay.distributed.transport.wire import Message


class TransportClosedError(RuntimeError):
    """A message was handed to a transport that has been closed."""


class Transport(ABC):
    """Carries messages between the workers of one world.

    Order: messages from one worker to another are *announced* (first returned by `poll`) in the
    order in which they were sent.  Between different pairs there is no order.

    Attributes:
        rank: This worker's number, from 0.
        size: The number of workers.
        crowded: Whether workers share cores, so that one that spins holds up another.
        messages_sent: Messages handed to the transport so far.
        bytes_sent: Their frames and bulk buffers, in bytes.
        messages_received: Messages announced so far.
        bytes_received: Their frames and bulk buffers, in bytes; those on their way may count.
    """

    rank: int
    size: int
    crowded: bool = False
    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send `message` to ``message.peer``.  Any thread; returns at once.

        The buffers must stay as they are until the transfer is complete; the transport keeps them
        alive until then.
        """

    @abstractmethod
    def poll(self) -> Message | None:
        """Make one short step of progress; never blocks.  One thread at a time.

        Returns a message when it is announced, and once more when its bulk buffers are there if
        they were not (``ready`` tells).
        """

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether transfers are under way that need polling to go on."""

    def abandon(self) -> None:
        """Refuse to send and receive: this process is a forked child, and must not touch MPI."""
        # On the instance, so that the transports of other processes pay nothing for it.
        self.send = _refuse  # type: ignore[method-assign, assignment]
        self.poll = _refuse  # type: ignore[method-assign]

    @abstractmethod
    def lose(self, peer: int) -> None:
        """Forget the transfers with a worker that has left: they may never be complete."""

    @abstractmethod
    def close(self) -> None:
        """Release what the transport holds.  No message may be under way."""


def _refuse(*arguments: object) -> NoReturn:
    raise TransportClosedError("the transport belongs to the parent of this forked process")
