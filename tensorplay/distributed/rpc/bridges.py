"""Futures where the standard library expects its own: in asyncio and in `concurrent.futures`.

`concurrent.futures.wait` and `as_completed` use three private attributes of a future: under
``_condition`` they read ``_state`` and, where it is not finished, append to ``_waiters``; they then
rely on being told.  Invariant: a `Handshake` leaves "PENDING" once, under its condition, and tells
in that same step all waiters that are there.  So a waiter either reads "FINISHED", or is told.

The future itself is done a little earlier.  So that nobody who knows that reads "PENDING", asking
for the condition settles the handshake first.  Reading the state must not: it would change between
two looks of one holder of the condition.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.futures import Future

_PENDING = "PENDING"
_FINISHED = "FINISHED"

# Guards that a future gets one handshake only.  Re-entrant: a finaliser may run in between.
_beginning = threading.RLock()


class Handshake:
    """What `concurrent.futures` wants to see of one future.

    Attributes:
        condition: Held by the standard library while it reads or changes the others.
        state: "PENDING" or "FINISHED"; changes only under the condition.
        waiters: Whom to tell.
    """

    __slots__ = ("condition", "state", "waiters")

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.state = _PENDING
        self.waiters: list[Any] = []

    def settle(self, future: Future) -> None:
        """Tell that `future`, which is done, is done; nothing the second time."""
        # Before the condition is taken: the result may be made only now, by user code.
        failed = future.exception() is not None
        with self.condition:
            if self.state == _FINISHED:
                return
            self.state = _FINISHED
            for waiter in self.waiters:
                if failed:
                    waiter.add_exception(future)
                else:
                    waiter.add_result(future)


def handshake(future: Future) -> Handshake:
    """The handshake of `future`; made when first asked for, since few futures need one."""
    with _beginning:
        shake = future._handshake
        new = shake is None
        if shake is None:
            shake = future._handshake = Handshake()
    if new:
        future.add_done_callback(shake.settle)
    return shake


def condition_of(future: Future) -> threading.Condition:
    """The condition of a future's handshake, which is settled if the future is done."""
    shake = handshake(future)
    if shake.state == _PENDING and future.done():
        shake.settle(future)
    return shake.condition


def awaited(future: Future) -> Generator[Any, None, Any]:
    """What ``await future`` does: wait without holding up the event loop.

    The result is made, and its exception raised, on the loop's thread.  Giving up waiting (a
    timeout, a cancelled task) leaves the future as it is.
    """
    if not future.done():
        import asyncio  # takes long to import, and few programs have a loop

        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def tell(_: Future) -> None:
            # A loop that has been closed meanwhile waits for nothing.
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake)

        future.add_done_callback(tell)
        yield from waiter
    return future.value()
