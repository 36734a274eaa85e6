"""Kinds of messages, and the narrow hook by which autograd takes part in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tensorplay.distributed.transport.wire import Message

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent
    from tensorplay.tensor import Tensor

CALL = 1
REPLY = 2
ERROR = 3
CREATE = 4
FETCH = 5
DROP = 6
TERMINATION = 7
#: The sender leaves without waiting for the others.
PARTING = 8
#: What has become of a call?  And the answer, for people.
INQUIRY = 9
STATUS = 10
#: A worker has been asked what it is doing; see `dump_signal`.
DUMP = 11
#: Messages about messages: `shutdown` waits for none of them.
UNCOUNTED = frozenset({TERMINATION, PARTING, INQUIRY, STATUS, DUMP})
#: Kinds from here on belong to the layers above; see `Agent.handle`.
FIRST_FREE_KIND = 16

_names = {
    CALL: "CALL",
    REPLY: "REPLY",
    ERROR: "ERROR",
    CREATE: "CREATE",
    FETCH: "FETCH",
    DROP: "DROP",
    TERMINATION: "TERMINATION",
    PARTING: "PARTING",
    INQUIRY: "INQUIRY",
    STATUS: "STATUS",
    DUMP: "DUMP",
}


def name_kinds(names: Mapping[int, str]) -> None:
    """Give kinds of the layers above names, by which people may know them."""
    _names.update(names)


def name_of(kind: int) -> str:
    """What people call a kind of message.

    >>> name_of(CALL)
    'CALL'
    """
    return _names.get(kind, f"kind {kind}")


class Recorder(Protocol):
    """What autograd adds to messages."""

    def current(self) -> int:
        """Id of the context that a call made by this thread now belongs to, or `NO_CONTEXT`."""

    def enter(self, context: int) -> int:
        """Make `context` this thread's; returns the one it had."""

    def leave(self, before: int) -> None:
        """Give this thread back the context that `enter` returned."""

    def record_send(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """A message of a context is about to be sent; `tensors` in it require grad.

        Raises RuntimeError if the context has been released.
        """

    def retract_send(self, message: Message) -> None:
        """It could not be sent."""

    def announce(self, message: Message) -> None:
        """The header of a message of a context has arrived.  On the polling thread, in order."""

    def check(self, message: Message) -> None:
        """Raise if the context of a message that is about to be served has been released."""

    def attach(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """A message has been unpickled; hang its tensors that require grad from its pair."""

    def lose(self, worker: int) -> None:
        """A worker has left; nothing will come from it, nor reach it.  On the polling thread."""

    def report(self) -> list[str]:
        """What is going on, one line each, for people.  Takes no lock: nobody may be held up."""

    def close(self) -> None:
        """RPC has shut down."""


RecorderFactory = Callable[["Agent"], Recorder]
_factories: list[RecorderFactory] = []


def register_recorder(factory: RecorderFactory) -> None:
    """Have every agent from now on use the recorder that `factory` makes for it."""
    _factories[:] = [factory]


def make_recorder(agent: Agent) -> Recorder:
    """The recorder of a new agent."""
    return _factories[0](agent) if _factories else _NoRecorder()


Backward = Callable[[int, "Tensor", bool], None]
_backward: list[Backward] = []


def register_backward(function: Backward) -> None:
    """Have `backward` call `function`."""
    _backward[:] = [function]


def backward(context: int, root: Tensor, retain_graph: bool) -> None:
    """Differentiate `root`, a tensor of this worker, through all workers of the context."""
    if not _backward:
        raise RuntimeError(
            f"Could not find autograd context with id: {context} (this worker has not imported "
            "tensorplay.distributed.autograd)"
        )
    _backward[0](context, root, retain_graph)


class _NoRecorder:
    """Without autograd there are no contexts."""

    def current(self) -> int:
        return -1

    def enter(self, context: int) -> int:
        return -1

    def leave(self, before: int) -> None:
        pass

    def record_send(self, message: Message, tensors: Sequence[Any]) -> None:
        pass

    def retract_send(self, message: Message) -> None:
        pass

    def announce(self, message: Message) -> None:
        pass

    def check(self, message: Message) -> None:
        pass

    def attach(self, message: Message, tensors: Sequence[Any]) -> None:
        pass

    def lose(self, worker: int) -> None:
        pass

    def report(self) -> list[str]:
        return []

    def close(self) -> None:
        pass
