"""Every order in which a pass over a small graph can happen: each ends, and is exact."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distributed.autograd.every_order import (
    MOST,
    SIZE,
    Graph,
    Message,
    Search,
    Workers,
    Wrong,
    can_start,
    graphs,
    search_all,
)
from distributed.autograd.model import ModelWorker
from tensorplay.distributed.autograd.backward_pass import BackwardPass, Closure, SendReport

SOAK = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("length", "count"),
    [(0, 1), (1, 16), (2, 282), (3, 5265), pytest.param(4, 117_472, marks=SOAK)],
)
def test_every_order_of_every_graph(length: int, count: int) -> None:
    """Three messages have six functions; any of them may be plain instead, and have none."""
    found = search_all(graphs(length))
    assert found["graphs"] == count
    assert found["orders"] >= found["graphs"]


def sample(length: int, count: int) -> Iterator[Graph]:
    """Some of the graphs of so many messages."""
    draw = random.Random(length)
    while count:
        messages: list[Message] = []
        for _ in range(length):
            source, to = draw.randrange(SIZE), draw.randrange(SIZE)
            plain = draw.random() < 0.15
            there = some(draw, messages, source) if not plain else ()
            messages.append(Message(source, to, plain, there))
        start = draw.randint(0, sum([one.source == 0 for one in messages]))
        graph = Graph(tuple(messages), start, some(draw, messages, 0))
        if can_start(graph):
            count -= 1
            yield graph


def some(draw: random.Random, messages: list[Message], rank: int) -> tuple[int, ...]:
    """Most of the messages that a worker gets."""
    there = [n for n, one in enumerate(messages) if one.to == rank and not one.plain]
    return tuple([number for number in there if draw.random() < 0.7])


@pytest.mark.parametrize(
    ("length", "count"),
    [
        *((4, 300), (5, 120), (6, 40)),
        *(pytest.param(length, count, marks=SOAK) for length, count in ((5, 15_000), (6, 5000))),
    ],
)
def test_every_order_of_some_larger_graphs(length: int, count: int) -> None:
    found = search_all(sample(length, count))
    assert found["orders"] > 20 * count


def test_graphs_are_told_apart_but_for_the_names_of_workers() -> None:
    pair = (Message(0, 1, False), Message(1, 0, False, (0,)))
    graph = Graph(pair, 1, (1,))
    found = list(graphs(2))
    keys = [one.key for one in found]
    assert len(set(keys)) == len(keys)
    assert graph.key in keys
    assert graph.renamed((0, 2, 1)).key not in keys
    assert graph.paths() == [1, 1]


def test_a_root_that_waits_for_what_is_sent_after_it_is_no_graph() -> None:
    pair = (Message(0, 1, False), Message(1, 0, False, (0,)))
    assert can_start(Graph(pair, 1, (1,)))
    assert not can_start(Graph(pair, 0, (1,)))
    # The first message goes before the second, though nothing that the root is made of is in it.
    assert not can_start(Graph((Message(0, 1, True), Message(0, 0, False)), 0, (1,)))


def test_orders_are_counted() -> None:
    """The message may arrive before the pass starts, or after; then the notice follows it."""
    search = Search(Graph((Message(0, 1, False),), 1, ()), Workers())
    assert search.orders == 2


# -- broken rules are found ------------------------------------------------------------------------


def tell_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BackwardPass, "_told_later", lambda running: running._known)


def do_not_tell_those_who_owe(patch: pytest.MonkeyPatch) -> None:
    """The rule about whom an answer will tell, without its exception."""

    def told_later(running: BackwardPass) -> set[int]:
        waiting = running._task.pending.get
        return {recv.peer for recv in running._recvs.values() if waiting(recv)}

    patch.setattr(BackwardPass, "_told_later", told_later)


def tell_those_who_know(patch: pytest.MonkeyPatch) -> None:
    make = BackwardPass.__init__

    def made(running: BackwardPass, *args: Any, **options: Any) -> None:
        make(running, *args, **options)
        running._told.clear()

    patch.setattr(BackwardPass, "__init__", made)
    patch.setattr(BackwardPass, "heard_from", lambda running, rank: None)


def forget_late_answers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModelWorker, "_receive_late", lambda worker, source, pass_id, number: None)


def do_not_keep_early_answers(patch: pytest.MonkeyPatch) -> None:
    take = ModelWorker._receive_late

    def receive_late(worker: ModelWorker, source: int, pass_id: int, number: int) -> None:
        if pass_id in worker.passes:
            take(worker, source, pass_id, number)

    patch.setattr(ModelWorker, "_receive_late", receive_late)


def answer_only_with_gradients(patch: pytest.MonkeyPatch) -> None:
    answer = BackwardPass._answer

    def with_gradients(running: BackwardPass, recv: Any, grads: Any) -> None:
        if grads is not None:
            answer(running, recv, grads)

    patch.setattr(BackwardPass, "_answer", with_gradients)


def do_not_wait_for_all_answers(patch: pytest.MonkeyPatch) -> None:
    """A worker is done when the first answer is in."""
    take = BackwardPass.answer

    def answer(running: BackwardPass, answers: Any) -> None:
        take(running, answers)
        if answers:
            running._owed.clear()

    patch.setattr(BackwardPass, "answer", answer)


def forget_whom_others_know(patch: pytest.MonkeyPatch) -> None:
    report = Closure.report
    patch.setattr(Closure, "report", lambda closure, rank, known: report(closure, rank, ()))


def report_twice(patch: pytest.MonkeyPatch) -> None:
    carry_out = ModelWorker._carry_out

    def twice(worker: ModelWorker, pass_id: int, retain_graph: bool, instruction: Any) -> None:
        carry_out(worker, pass_id, retain_graph, instruction)
        if isinstance(instruction, SendReport):
            carry_out(worker, pass_id, True, instruction)

    patch.setattr(ModelWorker, "_carry_out", twice)


def double_a_gradient(patch: pytest.MonkeyPatch) -> None:
    answer = BackwardPass._answer

    def doubled(running: BackwardPass, recv: Any, grads: Any) -> None:
        if grads is not None and recv.message_id % 2:
            grads = [grad * 2 for grad in grads]
        answer(running, recv, grads)

    patch.setattr(BackwardPass, "_answer", doubled)


@pytest.mark.parametrize(
    "breaking",
    [
        tell_nobody,
        do_not_tell_those_who_owe,
        tell_those_who_know,
        forget_late_answers,
        do_not_keep_early_answers,
        answer_only_with_gradients,
        do_not_wait_for_all_answers,
        forget_whom_others_know,
        report_twice,
        double_a_gradient,
    ],
)
def test_a_broken_rule_is_found(
    breaking: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch)
    with pytest.raises(Wrong, match="after\n"):
        search_all(itertools.chain.from_iterable(map(graphs, range(MOST))))
