"""An idle worker hardly polls, a busy one looks at the clock, and no wake-up is lost."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from distributed.transport.fakes import LIMIT, Task, Worker, asleep, eventually
from tensorplay.distributed.transport import Completion, Message, Progress
from tensorplay.distributed.transport.loopback import LoopbackWorld

# -- ticks and idleness --------------------------------------------------------------------------


def test_ticks_while_idle(serving: Worker) -> None:
    for _ in range(3):
        before = serving.ticks
        eventually(lambda before=before: serving.ticks > before)


def test_ticks_while_serving_without_a_pause(serving: Worker) -> None:
    serving.transport.endless = lambda: lambda: None
    test_ticks_while_idle(serving)
    serving.transport.endless = None


def test_ticks_while_a_thread_waits(worker: Worker) -> None:
    assert not worker.progress.wait(Completion(), time.monotonic() + 0.05)
    assert worker.ticks > 0


def test_ticks_while_a_request_blocks(serving: Worker) -> None:
    blocked, begun, _ = serving.blocking_task()
    serving.request(blocked)
    assert begun.wait(LIMIT)
    test_ticks_while_idle(serving)


SECONDS = 0.4
SPINNING = 100_000
"""Polls that a thread which never sleeps makes in a fraction of that time."""


def test_idle_worker_hardly_polls(serving: Worker) -> None:
    serving.busy_once(3)
    asleep(serving)
    before = serving.transport.polls
    time.sleep(SECONDS)
    # With sleeps of up to 2 ms: some 200 polls.
    assert serving.transport.polls - before < 1000


def test_idle_worker_sleeps_but_for_the_polling_thread(
    serving: Worker, no_patience: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.busy_once(3)
    asleep(serving)
    sleepers: list[threading.Thread] = []
    stand_by = Progress._stand_by

    def counted(self: Progress, lock: object) -> int | None:
        sleepers.append(threading.current_thread())
        return stand_by(self, lock)

    monkeypatch.setattr(Progress, "_stand_by", counted)
    time.sleep(SECONDS)
    assert len(sleepers) <= 3


def test_waiting_for_long_does_not_spin(worker: Worker) -> None:
    assert not worker.progress.wait(Completion(), time.monotonic() + SECONDS)
    # Two milliseconds of spinning, then sleeps of up to 0.25 ms.
    assert worker.transport.polls < 20_000


def test_worker_with_transfers_under_way_polls_often(serving: Worker) -> None:
    asleep(serving)
    serving.transport.is_busy = True
    eventually(lambda: serving.transport.polls > 2000)
    serving.transport.is_busy = False


# -- no wake-up is lost --------------------------------------------------------------------------


REQUEST, REPLY = 1, 2


class Peer:
    """A worker of a `LoopbackWorld` whose requests are answered by a task that sends a reply."""

    def __init__(self, world: LoopbackWorld, rank: int) -> None:
        self.transport = world.transport(rank)
        self.crashes: list[BaseException] = []
        self._numbers = itertools.count()
        self._calls: dict[int, Completion] = {}
        self.progress = Progress(
            self.transport,
            self._receive,
            lambda now: None,
            self.crashes.append,
            str(rank),
            lambda: None,
        )

    def _receive(self, message: Message) -> Task | None:
        if message.kind == REPLY:
            self._calls.pop(message.call).complete()
            return None
        return lambda: self._send(REPLY, message.peer, message.call)

    def _send(self, kind: int, peer: int, call: int) -> None:
        message = Message(kind, peer)
        message.call = call
        self.transport.send(message)

    def ask(self, peer: int) -> bool:
        number = next(self._numbers)
        completion = self._calls[number] = Completion()
        self._send(REQUEST, peer, number)
        return self.progress.wait(completion, time.monotonic() + LIMIT)


@pytest.mark.parametrize("callers", [(1, 0), (1, 1), (3, 2)])
def test_no_wake_up_is_lost_between_workers(callers: tuple[int, int], fast_switching: None) -> None:
    world = LoopbackWorld(2)
    peers = [Peer(world, rank) for rank in range(2)]
    for peer in peers:
        peer.progress.start()
    lost: list[int] = []
    rounds = 3000 // sum(callers)

    def call(rank: int) -> None:
        for round_ in range(rounds):
            if not peers[rank].ask(1 - rank):
                lost.append(round_)
                return

    threads = [
        threading.Thread(target=call, args=(rank,), daemon=True)
        for rank in range(2)
        for _ in range(callers[rank])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * LIMIT)
    for peer in peers:
        peer.progress.stop(LIMIT)
    assert lost == []
    assert not any(thread.is_alive() for thread in threads)
    assert [peer.crashes for peer in peers] == [[], []]


def test_no_wake_up_is_lost_between_completion_and_waiting(fast_switching: None) -> None:
    completions = [Completion() for _ in range(3000)]
    turn = threading.Semaphore(0)

    def complete() -> None:
        for completion in completions:
            turn.acquire()
            completion.complete()

    thread = threading.Thread(target=complete, daemon=True)
    thread.start()
    lock = threading.Lock()
    lock.acquire()
    for completion in completions:
        turn.release()
        began = time.monotonic()
        while not completion.is_done:
            completion.park(lock, LIMIT)
        assert time.monotonic() - began < LIMIT
    thread.join(LIMIT)


def test_no_queued_task_is_lost(worker: Worker, fast_switching: None) -> None:
    worker.progress.start()
    executed = threading.Semaphore(0)
    submitters = 3

    def submit() -> None:
        for _ in range(1000):
            worker.progress.submit(executed.release)

    threads = [threading.Thread(target=submit) for _ in range(submitters)]
    for thread in threads:
        thread.start()
    for _ in range(submitters * 1000):
        assert executed.acquire(timeout=LIMIT)
    for thread in threads:
        thread.join(LIMIT)


def test_no_task_is_lost_when_each_is_submitted_after_the_last_has_run(
    worker: Worker, fast_switching: None
) -> None:
    worker.progress.start()
    executed = threading.Semaphore(0)
    for _ in range(3000):
        worker.progress.submit(executed.release)
        assert executed.acquire(timeout=LIMIT)
