"""One worker's part in a pass, fed by many threads and run by one at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tensorplay.distributed.autograd.runner import PassRunner


class Part:
    """Stands in for a `BackwardPass`: notes what is done to it, and by how many at once."""

    def __init__(self, events_until_done: int = 1 << 30) -> None:
        self.events: list[Any] = []
        self.advances = 0
        self.stopped = False
        self.releases = 0
        self.most_at_once = 0
        self._left = events_until_done
        self._inside = 0

    @property
    def done(self) -> bool:
        return self._left <= 0

    def release(self) -> None:
        assert self._inside == 0
        self.releases += 1

    def take(self, event: Any) -> None:
        self._inside += 1
        self.most_at_once = max(self.most_at_once, self._inside)
        self.events.append(event)
        self._left -= 1
        self._inside -= 1

    def advance(self) -> None:
        self.advances += 1

    def stop(self) -> None:
        self.stopped = True


class Outcome:
    """What a runner has told about its end."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.finished = 0

    def finish(self) -> None:
        self.finished += 1


def runner_of(part: Part) -> tuple[PassRunner, Outcome]:
    outcome = Outcome()
    runner = PassRunner(
        part,  # type: ignore[arg-type]
        outcome.failures.append,
        outcome.finish,
        contextlib.nullcontext(),
    )
    return runner, outcome


def taking(event: Any) -> Callable[[Any], None]:
    return lambda part: part.take(event)


def test_the_first_event_brings_work_and_further_ones_join_it() -> None:
    part = Part()
    runner, _ = runner_of(part)
    assert runner.post(taking("a")) is runner.task
    assert runner.post(taking("b")) is None
    runner.task()
    assert part.events == ["a", "b"]
    assert runner.post(taking("c")) is runner.task
    runner.task()
    assert part.events == ["a", "b", "c"]


def test_events_that_come_together_are_taken_before_anything_follows_from_them() -> None:
    part = Part()
    runner, _ = runner_of(part)
    for event in range(5):
        runner.post(taking(event))
    runner.task()
    assert part.events == list(range(5))
    assert part.advances == 1


def test_an_event_that_comes_while_it_runs_is_run_as_well() -> None:
    part = Part()
    runner, _ = runner_of(part)

    def meanwhile(part: Any) -> None:
        part.take("first")
        assert runner.post(taking("second")) is None

    runner.post(meanwhile)
    runner.task()
    assert part.events == ["first", "second"]


def test_it_finishes_once() -> None:
    part = Part(events_until_done=2)
    runner, outcome = runner_of(part)
    for event in "ab":
        runner.post(taking(event))
    runner.task()
    assert outcome.finished == 1
    assert runner.post(taking("late")) is None
    runner.task()
    assert (part.events, outcome.finished, outcome.failures) == (["a", "b"], 1, [])


@pytest.mark.parametrize("error", [ValueError("v"), KeyboardInterrupt(), SystemExit(1)])
def test_what_an_event_raises_ends_it(error: BaseException) -> None:
    part = Part()
    runner, outcome = runner_of(part)

    def fail(part: Any) -> None:
        raise error

    runner.post(fail)
    runner.post(taking("never"))
    runner.task()
    assert outcome.failures == [error]
    assert part.stopped
    assert part.events == []
    assert runner.post(taking("late")) is None


def test_once_stopped_it_takes_nothing_and_says_nothing() -> None:
    part = Part()
    runner, outcome = runner_of(part)
    runner.post(taking("never"))
    runner.stop()
    runner.task()
    assert runner.post(taking("late")) is None
    assert part.stopped
    assert (part.events, outcome.finished, outcome.failures) == ([], 0, [])


def test_what_a_rule_raises_after_the_end_is_nobody_s_concern() -> None:
    part = Part()
    runner, outcome = runner_of(part)

    def stopped_meanwhile(part: Any) -> None:
        runner.stop()
        raise ValueError("too late")

    runner.post(stopped_meanwhile)
    runner.task()
    assert outcome.failures == []


def test_many_threads_post_and_one_at_a_time_runs() -> None:
    part = Part()
    runner, _ = runner_of(part)
    begin = threading.Barrier(8)

    def post(name: int) -> None:
        begin.wait()
        for i in range(500):
            task = runner.post(taking((name, i)))
            if task is not None:
                task()

    threads = [threading.Thread(target=post, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert part.most_at_once == 1
    assert sorted(part.events) == [(name, i) for name in range(8) for i in range(500)]
    for name in range(8):
        assert [i for who, i in part.events if who == name] == list(range(500))
