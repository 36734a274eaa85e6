"""Who polls, who executes, who sleeps; and that nothing a worker has to do waits for ever."""

from __future__ import annotations

import functools
import itertools
import threading
import time

import pytest

from distributed.transport.fakes import LIMIT, Worker, asleep, eventually
from tensorplay.distributed.transport import Completion
from tensorplay.distributed.transport import progress as progress_module

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


def test_quick_requests_need_few_threads(serving: Worker) -> None:
    executed = threading.Semaphore(0)
    for _ in range(300):
        serving.request(executed.release)
        assert executed.acquire(timeout=LIMIT)
    assert len(serving.entered) <= 5


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


def test_what_no_thread_has_got_round_to_can_be_executed_after_stop(worker: Worker) -> None:
    worker.progress.start()
    worker.progress.stop(LIMIT)
    executed: list[threading.Thread] = []

    def task() -> None:
        executed.append(threading.current_thread())
        if len(executed) == 1:
            worker.progress.submit(task)

    worker.progress.submit(task)
    assert executed == []
    worker.progress.run_queue()
    assert executed == [threading.current_thread()] * 2


# -- failing -------------------------------------------------------------------------------------


def test_error_while_receiving_is_reported(worker: Worker) -> None:
    def broken() -> None:
        raise ValueError("broken message")

    worker.progress.start()
    worker.transport.inbox.append(broken)
    eventually(lambda: bool(worker.crashes))
    assert [str(error) for error in worker.crashes] == ["broken message"]
    worker.crashes.clear()


def test_thread_that_polls_must_not_wait_in_the_middle_of_it(serving: Worker) -> None:
    # As a finaliser might, that the collector runs at a bad moment.
    errors: list[str] = []

    def message(done: Completion) -> None:
        try:
            serving.progress.wait(Completion(), time.monotonic() + LIMIT)
        except RuntimeError as error:
            errors.append(str(error))
        done.complete()

    for wait in (serving.progress.rest, serving.progress.wait):
        done = Completion()
        serving.transport.inbox.append(functools.partial(message, done))
        assert wait(done, time.monotonic() + LIMIT)
    assert ["a finaliser waits" in error for error in errors] == [True, True]


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
