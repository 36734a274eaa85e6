"""Who polls, who executes, who sleeps; and that nothing a worker has to do waits for ever."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from tensorplay.distributed.transport import Completion, Message, Progress, Transport
from tensorplay.distributed.transport import progress as progress_module
from tensorplay.distributed.transport.loopback import LoopbackWorld

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


@pytest.fixture(autouse=True)
def no_second_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that nobody wakes though somebody should, sleeps on: too long for its test."""
    monkeypatch.setattr(progress_module, "_PARK_LIMIT", 10 * LIMIT)
    monkeypatch.setattr(progress_module, "_SPARE_PATIENCE", 10 * LIMIT)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.release_all()
    worker.progress.stop(LIMIT)
    assert worker.progress.thread_count == 0
    assert worker.crashes == []
    assert worker.transport.overlaps == 0


@pytest.fixture
def serving(worker: Worker) -> Worker:
    worker.progress.start()
    return worker


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the standby sleep until woken as soon as it may."""
    monkeypatch.setattr(progress_module, "_STANDBY_PATIENCE", 0.0)


# -- waiting -------------------------------------------------------------------------------------


def test_waiting_thread_polls_by_itself(worker: Worker) -> None:
    completion = Completion()
    worker.reply(completion)
    assert worker.progress.wait(completion)
    assert worker.receivers == {threading.current_thread()}


def test_wait_for_what_is_done_does_not_poll(worker: Worker) -> None:
    completion = Completion()
    completion.complete()
    assert worker.progress.wait(completion, deadline=0.0)
    assert worker.transport.polls == 0


def test_wait_ends_at_its_deadline(worker: Worker) -> None:
    deadline = time.monotonic() + 0.02
    assert not worker.progress.wait(Completion(), deadline)
    assert time.monotonic() >= deadline
    assert worker.transport.polls > 0


def test_wait_ends_at_its_deadline_while_another_thread_polls(serving: Worker) -> None:
    other = Completion()
    thread = threading.Thread(target=serving.progress.wait, args=(other,))
    thread.start()
    for _ in range(5):
        deadline = time.monotonic() + 0.01
        assert not serving.progress.wait(Completion(), deadline)
        assert time.monotonic() >= deadline
    serving.reply(other)
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_deadline_and_ticks_hold_however_many_messages_come(worker: Worker) -> None:
    completion = Completion()
    messages = itertools.count()

    def message() -> None:
        if next(messages) > 1_000_000:
            completion.complete()

    worker.transport.endless = message
    assert not worker.progress.wait(completion, time.monotonic() + 0.02)
    assert worker.ticks > 0


def test_wait_goes_on_after_its_deadline_has_been_missed(serving: Worker) -> None:
    completion = Completion()
    assert not serving.progress.wait(completion, time.monotonic() + 0.001)
    serving.reply(completion)
    assert serving.progress.wait(completion, time.monotonic() + LIMIT)


def test_many_threads_wait_and_each_gets_its_own_reply(serving: Worker) -> None:
    completions = [Completion() for _ in range(20)]
    done: list[int] = []

    def wait(number: int) -> None:
        assert serving.progress.wait(completions[number], time.monotonic() + LIMIT)
        done.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for number in reversed(range(20)):
        serving.reply(completions[number])
        threads[number].join(LIMIT)
        assert not threads[number].is_alive()
    assert done == list(reversed(range(20)))


def test_completion_by_a_thread_that_does_not_poll_wakes_the_waiting_one(worker: Worker) -> None:
    completion = Completion()
    threading.Timer(0.05, completion.complete).start()
    assert worker.progress.wait(completion, time.monotonic() + LIMIT)


def test_rest_does_not_poll(worker: Worker) -> None:
    assert not worker.progress.rest(Completion(), time.monotonic() + 0.01)
    assert worker.transport.polls == 0


def test_rest_is_woken_by_serving_threads(serving: Worker) -> None:
    completion = Completion()
    serving.reply(completion)
    assert serving.progress.rest(completion, time.monotonic() + LIMIT)
    assert threading.current_thread() not in serving.receivers


@pytest.mark.parametrize("threads_before", [0, 1, 2, 3, 4, 6])
def test_serving_goes_on_after_a_wait(
    serving: Worker, no_patience: None, threads_before: int
) -> None:
    serving.busy_once(threads_before)
    for _ in range(20):
        asleep(serving)
        completion = Completion()
        serving.reply(completion)
        assert serving.progress.wait(completion, time.monotonic() + LIMIT)
        served = threading.Event()
        serving.request(served.set)
        assert served.wait(LIMIT)


def test_serving_goes_on_after_a_long_wait(
    serving: Worker, no_patience: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_LONG_WAIT", 0)
    test_serving_goes_on_after_a_wait(serving, no_patience, 3)


# -- executing -----------------------------------------------------------------------------------


def test_request_is_executed_on_a_serving_thread(serving: Worker) -> None:
    executed: list[threading.Thread] = []
    done = threading.Event()

    def task() -> None:
        executed.append(threading.current_thread())
        done.set()

    serving.request(task)
    assert done.wait(LIMIT)
    assert executed[0] in serving.entered


def test_waiting_thread_never_executes_a_request(serving: Worker) -> None:
    executed: set[threading.Thread] = set()
    for _ in range(200):
        completion = Completion()

        def task(completion: Completion = completion) -> None:
            executed.add(threading.current_thread())
            completion.complete()

        serving.request(task)
        assert serving.progress.wait(completion, time.monotonic() + LIMIT)
    assert threading.current_thread() not in executed


def test_waiting_thread_executes_what_it_calls_its_own(worker: Worker) -> None:
    # Nobody else is there to do it.
    completion = Completion()
    executed: list[threading.Thread] = []

    def mine() -> None:
        executed.append(threading.current_thread())
        completion.complete()

    worker.request(mine)
    assert worker.progress.wait(
        completion, time.monotonic() + LIMIT, mine=lambda task: task is mine
    )
    assert executed == [threading.current_thread()]


def test_others_poll_while_a_waiting_thread_executes_its_own(serving: Worker) -> None:
    completion = Completion()
    served = threading.Event()

    def mine() -> None:
        serving.request(served.set)
        assert served.wait(LIMIT)
        completion.complete()

    serving.request(mine)
    assert serving.progress.wait(
        completion, time.monotonic() + 2 * LIMIT, mine=lambda task: task is mine
    )
    assert served.is_set()


def test_what_a_waiting_thread_executes_may_wait_in_turn(serving: Worker) -> None:
    outer, inner = Completion(), Completion()

    def mine() -> None:
        serving.reply(inner)
        assert serving.progress.wait(inner, time.monotonic() + LIMIT)
        serving.reply(outer)

    serving.request(mine)
    assert serving.progress.wait(
        outer, time.monotonic() + 2 * LIMIT, mine=lambda task: task is mine
    )
    assert inner.is_done


def test_executing_thread_may_wait(serving: Worker) -> None:
    completion = Completion()
    done = threading.Event()

    def task() -> None:
        serving.reply(completion)
        assert serving.progress.wait(completion, time.monotonic() + LIMIT)
        done.set()

    serving.request(task)
    assert done.wait(LIMIT)


# -- blocked requests ----------------------------------------------------------------------------


def test_standby_takes_over_from_a_blocked_request(serving: Worker) -> None:
    blocked, begun, _ = serving.blocking_task()
    serving.request(blocked)
    assert begun.wait(LIMIT)
    served = threading.Event()
    serving.request(served.set)
    assert served.wait(LIMIT)


def test_standby_takes_over_when_all_have_been_asleep(serving: Worker, no_patience: None) -> None:
    for count in (1, 2, 3, 4):
        serving.busy_once(count)
        asleep(serving)
        test_standby_takes_over_from_a_blocked_request(serving)
        serving.release_all()


@pytest.mark.parametrize("threads_before", [0, 1, 2, 3, 5])
def test_hundred_blocked_requests_wait_for_the_next(
    serving: Worker, no_patience: None, threads_before: int
) -> None:
    serving.busy_once(threads_before)
    asleep(serving)
    open_all = threading.Event()
    ended = threading.Semaphore(0)

    def blocked() -> None:
        assert open_all.wait(3 * LIMIT)
        ended.release()

    for _ in range(100):
        serving.request(blocked)
    serving.request(open_all.set)
    assert open_all.wait(LIMIT)
    for _ in range(100):
        assert ended.acquire(timeout=LIMIT)


@pytest.mark.parametrize("pause", [0.0, 0.03])
@pytest.mark.parametrize("threads_before", [0, 2, 3, 5])
def test_each_request_is_begun_though_all_before_it_block(
    serving: Worker, no_patience: None, threads_before: int, pause: float
) -> None:
    serving.busy_once(threads_before)
    asleep(serving)
    for _ in range(10):
        blocked, begun, _ = serving.blocking_task()
        serving.request(blocked)
        assert begun.wait(LIMIT)
        time.sleep(pause)


@pytest.mark.parametrize("threads_before", [0, 2, 3, 5])
def test_each_task_is_begun_though_all_before_it_block(
    serving: Worker, no_patience: None, threads_before: int
) -> None:
    serving.busy_once(threads_before)
    asleep(serving)
    for _ in range(10):
        blocked, begun, _ = serving.blocking_task()
        serving.progress.submit(blocked)
        assert begun.wait(LIMIT)


@pytest.mark.parametrize("order", list(itertools.product("mq", repeat=5)), ids="".join)
def test_requests_and_queued_tasks_block_in_any_order(
    serving: Worker, no_patience: None, order: tuple[str, ...]
) -> None:
    # "m": comes as a message; "q": is put into the queue, as a waiting thread does.
    serving.busy_once(3)
    asleep(serving)
    for way in order:
        blocked, begun, _ = serving.blocking_task()
        if way == "m":
            serving.request(blocked)
        else:
            serving.progress.submit(blocked)
        assert begun.wait(LIMIT)
    served = threading.Event()
    serving.request(served.set)
    assert served.wait(LIMIT)


def test_polling_goes_on_when_a_waiting_thread_has_passed_on_blocking_requests(
    serving: Worker, no_patience: None
) -> None:
    for count in range(1, 6):
        started = [serving.blocking_task() for _ in range(count)]
        completion = Completion()
        for task, _, _ in started:
            serving.request(task)
        serving.reply(completion)
        assert serving.progress.wait(completion, time.monotonic() + LIMIT)
        for _, begun, _ in started:
            assert begun.wait(LIMIT)
        # This thread goes on to compute; nobody waits.
        served = threading.Event()
        serving.request(served.set)
        assert served.wait(LIMIT)


def test_threads_beyond_the_spare_ones_end(
    serving: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "_SPARE_PATIENCE", 0.01)
    serving.busy_once(50)
    eventually(lambda: serving.progress.thread_count <= 6)


# -- stopping ------------------------------------------------------------------------------------


def test_stop_ends_all_threads(worker: Worker, no_patience: None) -> None:
    worker.progress.start()
    worker.busy_once(5)
    asleep(worker)
    worker.progress.stop(LIMIT)
    assert worker.progress.thread_count == 0


def test_stop_right_after_start(worker: Worker) -> None:
    worker.progress.start()
    worker.progress.stop(LIMIT)
    assert worker.progress.thread_count == 0


def test_stop_does_not_wait_longer_than_told_for_a_blocked_request(worker: Worker) -> None:
    worker.progress.start()
    blocked, begun, release = worker.blocking_task()
    worker.request(blocked)
    assert begun.wait(LIMIT)
    began = time.monotonic()
    worker.progress.stop(0.05)
    assert time.monotonic() - began < LIMIT
    assert worker.progress.thread_count == 1
    release.set()
    eventually(lambda: worker.progress.thread_count == 0)


def test_thread_that_waits_through_stop_is_woken_by_completion(serving: Worker) -> None:
    completion = Completion()
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(serving.progress.wait(completion)))
    thread.start()
    eventually(lambda: thread in serving.transport.pollers)
    serving.progress.stop(LIMIT)
    completion.complete()
    thread.join(LIMIT)
    assert results == [True]


# -- failing -------------------------------------------------------------------------------------


def test_error_while_receiving_is_reported(worker: Worker) -> None:
    def broken() -> None:
        raise ValueError("broken message")

    worker.progress.start()
    worker.transport.inbox.append(broken)
    eventually(lambda: bool(worker.crashes))
    assert [str(error) for error in worker.crashes] == ["broken message"]
    worker.crashes.clear()


def test_error_of_a_task_is_reported(worker: Worker) -> None:
    def broken() -> None:
        raise SystemExit("broken task")

    worker.progress.start()
    worker.request(broken)
    eventually(lambda: bool(worker.crashes))
    assert [str(error) for error in worker.crashes] == ["broken task"]
    worker.crashes.clear()


def test_error_while_receiving_reaches_the_waiting_thread_and_frees_the_token(
    worker: Worker,
) -> None:
    def broken() -> None:
        raise ValueError("broken message")

    worker.transport.inbox.append(broken)
    with pytest.raises(ValueError, match="broken message"):
        worker.progress.wait(Completion(), time.monotonic() + LIMIT)
    completion = Completion()
    worker.reply(completion)
    assert worker.progress.wait(completion, time.monotonic() + LIMIT)


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


@pytest.fixture
def fast_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


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
