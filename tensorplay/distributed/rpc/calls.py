"""The calls of a worker that have not been answered, and what becomes of those that never are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.rpc.counter import Counter
from tensorplay.distributed.rpc.errors import RpcTimeoutError
from tensorplay.distributed.rpc.futures import Future

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.rref import RRef

_NEVER = float("inf")
#: The callee is asked what it is doing so long before a call expires: this share of the timeout,
#: and at most so many seconds.
_ASK_SHARE = 0.25
_ASK_AHEAD = 1.0

Failure = Callable[[], BaseException]


class Call(Future):
    """The future of a call that has not been answered.

    Attributes:
        worker: Rank of the callee.
        function: What is called there, if a function is.
        context: The autograd context of the call, or `NO_CONTEXT`.
        began: When it was made (monotonic seconds).
        seconds: Its timeout, 0 for none.
        deadline: When it expires (monotonic seconds).
        due: When something has to be done about it: the callee asked, or the call expired.
        pinned: The reference whose value the call uses: it lives at least as long as the call.
        creates: It makes a value that stays on its owner.
        lost: It was not sent, or has expired, or its callee has left: no answer will be taken.
        asked: The callee has been asked what it is doing ...
        state: ... and has said this.
    """

    pinned: RRef[Any] | None = None
    creates = False
    lost = False
    asked = False
    state: str | None = None

    def __init__(
        self, worker: int, function: Callable[..., Any] | None, context: int, seconds: float
    ) -> None:
        self.worker = worker
        self.function = function
        self.context = context
        self.seconds = seconds
        self.began = began = time.monotonic()
        if seconds:
            self.deadline = began + seconds
            self.due = self.deadline - min(seconds * _ASK_SHARE, _ASK_AHEAD)
        else:
            self.deadline = self.due = _NEVER


class Calls:
    """The calls that this worker has made and that have not been answered.

    Args:
        ask: Asks the callee of a call of that number what it is doing.
        name: The name of the worker of a rank.

    Attributes:
        outstanding: They, by number.  Entered before they are sent.
        next_due: Not later than the first `due` among them.
        failed: How many have ended with an error.
        timed_out: How many of these have expired.
    """

    def __init__(self, ask: Callable[[int, Call], None], name: Callable[[int], str]) -> None:
        self._ask = ask
        self._name = name
        self._numbers = Counter()
        self.outstanding: dict[int, Call] = {}
        self.next_due = _NEVER
        self.failed = 0
        self.timed_out = 0
        self._noting = threading.Lock()
        # References whose values are used by calls that have expired but may still be executed.
        self._expired_pins: dict[int, RRef[Any]] = {}

    @property
    def made(self) -> int:
        """How many have been made."""
        return self._numbers.value

    def enter(self, call: Call) -> int:
        """Have a call wait for its answer; its number, which is never 0."""
        number: int = self._numbers.add() + 1
        self.outstanding[number] = call
        if call.due < self.next_due:
            self._note(call.due)
        return number

    def answered(self, number: int) -> Call | None:
        """The call that an answer is for; None if its caller has given up waiting."""
        call = self.outstanding.pop(number, None)
        if call is None:
            self._expired_pins.pop(number, None)
        else:
            call.pinned = None
        return call

    def forget(self, number: int) -> Call | None:
        """Take back a call that has not been sent; None if it has expired already."""
        call = self.answered(number)
        if call is not None:
            call.lost = True
            self.failed += 1
        return call

    def _note(self, due: float) -> None:
        # Nothing is allocated in here: no finaliser can run, which might make a call.
        with self._noting:
            if due < self.next_due:
                self.next_due = due

    def look(self, now: float) -> None:
        """Ask about the calls that will expire soon, and expire those that are due."""
        # Unlike list(items()), a copy is made in one piece: no finaliser can run in between.
        # In the order in which they were made: what waits for a value expires with its creation.
        creations: dict[Future | None, Failure] = {}
        for number, call in self.outstanding.copy().items():
            pinned = call.pinned
            failure = creations.get(pinned._creation) if pinned is not None else None
            if failure is None:
                if call.due > now:
                    continue
                if call.deadline > now:
                    call.asked = True
                    call.due = call.deadline
                    self._ask(number, call)
                    continue
                failure = partial(self._timeout_error, call)
            if self._give_up(number, call, failure):
                self.failed += 1
                self.timed_out += 1
                if call.creates:
                    creations[call] = failure
        # Calls are entered before they are noted.  So what is entered before the look at all of
        # them is noted below, and what is entered later notes its own.
        with self._noting:
            self.next_due = _NEVER
        for call in list(self.outstanding.values()):
            self._note(call.due)

    def _give_up(self, number: int, call: Call, failure: Failure) -> bool:
        if self.outstanding.pop(number, None) is None:
            return False
        if call.pinned is not None:
            self._expired_pins[number] = call.pinned
            call.pinned = None
        call.lost = True
        return call.finish(failure=failure)

    def _timeout_error(self, call: Call) -> RpcTimeoutError:
        name = self._name(call.worker)
        if call.state is not None:
            state = call.state
        elif call.asked:
            state = "it did not say what it is doing either"
        else:
            state = "it was not asked what it is doing"
        text = (
            f"RPC ran for more than set timeout ({call.seconds * 1e3:g} ms) and will now be marked "
            f"with an error: no answer from worker {name!r}; {state}"
        )
        if call.creates:
            text = (
                "RRef creation via rpc.remote() timed out, and it is possible that the RRef on the "
                f"owner node does not exist. {text}"
            )
        return RpcTimeoutError(text)

    def fail_all(self, failure: Failure, worker: int | None = None) -> None:
        """Fail all calls, or those to one worker: no answer will come."""
        for number, call in self.outstanding.copy().items():
            if worker is None or call.worker == worker:
                taken = self.forget(number)
                if taken is not None:
                    taken.finish(failure=failure)
        if worker is None:
            self._expired_pins.clear()
