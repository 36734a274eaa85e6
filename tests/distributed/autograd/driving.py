"""Worlds for the tests here: worker 0 runs the test, all serve, and nothing may be left over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.autograd.context import DistAutogradContext
from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.distributed.transport.loopback import Weather

#: Seconds after which something that should have happened never will.
LIMIT = 20.0

HARSH = Weather(seed=1, hold=0.5, late_bulk=0.7, pause=1e-3)


def on_first(program: Callable[[], Any], size: int = 2, **options: Any) -> Any:
    """Run `program` on worker 0; then all contexts and passes must be gone everywhere."""

    def worker(rank: int) -> Any:
        if rank:
            return None
        result = program()
        for other in range(size):
            eventually(lambda other=other: rpc.rpc_sync(other, left_over) == (0, 0))
        return result

    return run_world(size, worker, seconds=40.0, **options)[0]


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds; not for ever."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(1e-3)


def left_over() -> tuple[int, int]:
    """How many contexts this worker keeps, and how many passes of its own are running."""
    session = current_session()
    return len(session.container), session.exchange.running


def context_of(context_id: int) -> DistAutogradContext:
    """This worker's part of a context."""
    return current_session().container.retrieve(context_id)


def rank() -> int:
    return current_agent().rank


class Thread(threading.Thread):
    """A thread of the same worker; what its target returns or raises comes out of `result`."""

    def __init__(self, target: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._program = target
        self._agent = current_agent()
        self._outcome: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        set_thread_agent(self._agent)
        try:
            self._outcome = self._program()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error
        return self._outcome
