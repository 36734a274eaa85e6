"""A worker whose messages are delivered by a test, one by one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from tensorplay.distributed.transport import Completion, Message, Progress, Transport

LIMIT = 20.0
"""Seconds after which something that should have happened never will."""

Task = Callable[[], None]


class FakeTransport(Transport):
    """Brings what a test delivers: functions, called as the messages they stand for."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1
        self.inbox: deque[Callable[[], Task | None]] = deque()
        self.polls = 0
        self.pollers: set[threading.Thread] = set()
        self.overlaps = 0
        self.endless: Callable[[], Task | None] | None = None
        self.is_busy = False
        self._polling = threading.Lock()

    def send(self, message: Message) -> None:
        raise AssertionError("nothing is sent here")

    def poll(self) -> Message | None:
        if not self._polling.acquire(blocking=False):
            self.overlaps += 1
            return None
        try:
            self.polls += 1
            self.pollers.add(threading.current_thread())
            if self.inbox:
                return Message(1, 0, self.inbox.popleft())
            return None if self.endless is None else Message(1, 0, self.endless)
        finally:
            self._polling.release()

    @property
    def busy(self) -> bool:
        return self.is_busy

    def lose(self, peer: int) -> None:
        pass

    def close(self) -> None:
        pass


class Worker:
    """A progress engine on a `FakeTransport`."""

    def __init__(self) -> None:
        self.transport = FakeTransport()
        self.crashes: list[BaseException] = []
        self.ticks = 0
        self.entered: set[threading.Thread] = set()
        self.receivers: set[threading.Thread] = set()
        self.progress = Progress(
            self.transport, self._receive, self._tick, self.crashes.append, "fake", self._enter
        )
        self._releases: list[threading.Event] = []

    def _receive(self, message: Message) -> Task | None:
        self.receivers.add(threading.current_thread())
        handle: Callable[[], Task | None] = message.body
        return handle()

    def _tick(self, now: float) -> None:
        self.ticks += 1

    def _enter(self) -> None:
        self.entered.add(threading.current_thread())

    def request(self, task: Task) -> None:
        """Deliver a message that asks for `task` to be executed."""
        self.transport.inbox.append(lambda: task)

    def reply(self, completion: Completion) -> None:
        """Deliver a message that completes `completion`."""
        self.transport.inbox.append(completion.complete)

    def blocking_task(self) -> tuple[Task, threading.Event, threading.Event]:
        """A task that blocks; the events that it has begun, and that let it end."""
        begun, release = threading.Event(), threading.Event()
        self._releases.append(release)

        def task() -> None:
            begun.set()
            assert release.wait(3 * LIMIT)

        return task, begun, release

    def release_all(self) -> None:
        for release in self._releases:
            release.set()

    def busy_once(self, count: int) -> None:
        """Have `count` requests run at once, and end; so that many threads there are after."""
        started = [self.blocking_task() for _ in range(count)]
        for task, _, _ in started:
            self.progress.submit(task)
        for _, begun, _ in started:
            assert begun.wait(LIMIT)
        self.release_all()
        eventually(lambda: self.progress.idle_count >= min(count, 2))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(1e-3)


def asleep(worker: Worker) -> None:
    """Give serving threads time to fall into their longest sleep; else the test is easier."""
    time.sleep(0.05)
