"""The backward pass by itself: random worlds, and single rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.model import ModelWorker
from distributed.autograd.simulator import RandomProgram, Value, World
from tensorplay.autograd.graph import Node
from tensorplay.distributed.autograd.backward_pass import (
    BackwardPass,
    Closure,
    Instruction,
    SendAnswers,
    SendBegin,
    SendReport,
)
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.tensor import wrap

# -- random worlds ---------------------------------------------------------------------------------


def latest_pass(world: World) -> int:
    workers: list[ModelWorker] = world.workers  # type: ignore[assignment]
    return max([pass_id for worker in workers for pass_id in worker.passes])


def check_cost(world: World, roots: Sequence[Value]) -> None:
    """The latest pass has sent what the design says, and no message more."""
    workers: list[ModelWorker] = world.workers  # type: ignore[assignment]
    pass_id = latest_pass(world)
    marks = frozenset[int]().union(*[root.made_of for root in roots])
    used = [mark for mark in marks if mark in world.ends and len(set(world.ends[mark])) == 2]
    joined = [worker for worker in workers if pass_id in worker.passes]
    assert sum([worker.sent["gradients", pass_id] for worker in workers]) == len(used)
    assert [worker.sent["report", pass_id] for worker in joined] == [1] * len(joined)
    for worker in workers:
        told = [worker.begun[pass_id, rank] for rank in range(world.size)]
        assert max(told) <= 1
        assert not told[worker.rank]
        assert not told[pass_id % 16], "the starting worker knows"


def run_program(seed: int) -> None:
    world = RandomProgram(seed, ModelWorker)
    draw = world.random
    world.write(draw.randrange(5, 25))
    for _ in range(draw.choice([1, 1, 2, 3])):
        rank = draw.randrange(world.size)
        roots = world.roots(rank)
        # The program goes on while the pass runs.
        world.unfinished = draw.choice([0, 0, 3, 8])
        world.backward(rank, roots, retain_graph=draw.random() < 0.4)
        world.check()
        check_cost(world, roots)
        if draw.random() < 0.5:
            world.drain()
        world.write(draw.randrange(8))
    world.drain()
    world.check()


@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_random_programs_get_the_gradients_of_one_process(first: int) -> None:
    for seed in range(first, first + 500):
        try:
            run_program(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}; rerun: run_program({seed})") from error


class Crowd(RandomProgram):
    """Passes of several workers over the same graph at once."""

    waiting = 0

    def act(self) -> None:
        if self.waiting and self.random.random() < 0.3:
            free = [w.rank for w in self.workers if not w.closures]  # type: ignore[attr-defined]
            if free:
                self.waiting -= 1
                rank = self.random.choice(free)
                self.backward(rank, self.roots(rank), retain_graph=True)
                return
        super().act()


@pytest.mark.parametrize("first", range(0, 600, 300))
def test_passes_of_several_workers_at_once_add_up(first: int) -> None:
    for seed in range(first, first + 300):
        world = Crowd(seed, ModelWorker)
        # A model worker runs rules while it receives: of a pass that began within one, it could not
        # hear before that rule has ended, which waits for the pass.
        world.slow = 0.0
        world.write(world.random.randrange(5, 25))
        world.waiting = 3
        world.unfinished = 12
        rank = world.random.randrange(world.size)
        try:
            world.backward(rank, world.roots(rank), retain_graph=True)
            world.drain()
            world.check()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


# -- single rules ----------------------------------------------------------------------------------


class Scene:
    """One worker's part in a pass, its edges to other workers, and what it has emitted."""

    def __init__(self, *, rank: int = 0, known: Sequence[int] = (), retain_graph: bool = True):
        self.rank = rank
        self.known = known
        self.retain_graph = retain_graph
        self.sends: dict[int, SendRpcBackward] = {}
        self.recvs: dict[int, RecvRpcBackward] = {}
        self.emitted: list[Instruction] = []
        self.grads: dict[tp.Tensor, Any] = {}

    def send(self, number: int, to: int, *tensors: tp.Tensor) -> None:
        self.sends[number] = SendRpcBackward(number, to, tensors)

    def recv(self, number: int, source: int, count: int = 1) -> list[tp.Tensor]:
        recv = self.recvs[number] = RecvRpcBackward(number, source, 0, count)
        tensors = [wrap(np.array(1.0)) for _ in range(count)]
        for tensor in tensors:
            tensor.requires_grad = True
        recv.hang(tensors)
        return tensors

    def join(self, *roots: tp.Tensor) -> BackwardPass:
        running = BackwardPass(
            self.rank,
            self.sends,
            self.recvs,
            self.known,
            self.grads.__setitem__,
            self.emitted.append,
            retain_graph=self.retain_graph,
        )
        running.join([(root._node, np.array(1.0)) for root in roots])
        running.advance()
        return running

    def news(self) -> list[Instruction]:
        """What was emitted since last asked."""
        news = self.emitted.copy()
        self.emitted.clear()
        return news


def leaf() -> tp.Tensor:
    return tp.tensor(2.0, dtype=tp.float64, requires_grad=True)


def report(known: Sequence[int] = (), sends: Sequence[int] = (), recvs: Sequence[int] = ()) -> Any:
    return SendReport(set(known), list(sends), list(recvs))


def test_a_worker_without_edges_is_done_at_once() -> None:
    scene = Scene()
    assert scene.join().done
    assert scene.news() == [report()]


def test_a_recv_function_that_nothing_reaches_answers_none_at_once() -> None:
    scene = Scene(known=[1])
    scene.recv(7, 1)
    assert scene.join().done
    assert scene.news() == [SendAnswers(1, [(7, None)]), report([1])]


def test_a_recv_function_that_a_root_reaches_answers_with_gradients() -> None:
    scene = Scene(known=[1])
    _, used = scene.recv(7, 1, count=2)
    assert scene.join(used * 3).done
    assert scene.news() == [SendAnswers(1, [(7, [None, 3.0])]), report([1], recvs=[7])]


def test_none_passes_through_without_running_a_rule() -> None:
    class Untouchable(Node):
        def rule(self, grad: Any) -> tuple[Any, ...]:
            raise AssertionError("ran")

    scene = Scene(known=[1, 2])
    (x,) = scene.recv(7, 1)
    w = leaf()
    scene.send(8, 2, wrap(np.array(1.0), Untouchable((x._node,))), w)
    running = scene.join()
    assert not running.done
    scene.news()
    running.answer([(8, None)])
    running.advance()
    assert running.done
    assert scene.news() == [SendAnswers(1, [(7, None)]), report([1, 2])]
    assert not scene.grads


def test_a_gradient_for_some_tensors_of_a_message_is_none_for_the_others() -> None:
    scene = Scene(known=[1])
    u, v = leaf(), leaf()
    scene.send(8, 1, u * 1, v)
    running = scene.join()
    running.answer([(8, [None, np.array(5.0)])])
    running.advance()
    assert running.done
    assert scene.grads == {v: 5.0}
    assert scene.news()[-1] == report([1], sends=[8])


def test_a_send_function_waits_for_its_own_answer_only() -> None:
    scene = Scene(known=[1, 2])
    w = leaf()
    scene.send(8, 1, w)
    scene.send(9, 2, w)
    running = scene.join()
    running.answer([(9, [np.array(1.0)])])
    running.advance()
    assert not running.done
    assert not scene.grads, "a leaf gets its whole gradient at once"
    running.answer([(8, [np.array(10.0)])])
    running.advance()
    assert running.done
    assert scene.grads == {w: 11.0}


def test_answers_that_are_ready_together_travel_together() -> None:
    scene = Scene(known=[1, 2])
    (a,), (b,), *_ = (scene.recv(number, peer) for number, peer in ((1, 1), (2, 1), (3, 2), (4, 1)))
    scene.join(a + b)
    to_two, to_one, _ = sorted(scene.news(), key=lambda one: getattr(one, "to", 0), reverse=True)
    assert to_two == SendAnswers(2, [(3, None)])
    assert isinstance(to_one, SendAnswers)
    assert sorted(to_one.answers) == [(1, [1.0]), (2, [1.0]), (4, None)]


def test_gradients_leave_before_the_rest_of_the_graph_has_run() -> None:
    class Slow(Node):
        def rule(self, grad: Any) -> tuple[Any, ...]:
            emitted_before.append(scene.emitted.copy())
            return (grad,)

    emitted_before: list[Any] = []
    scene = Scene(known=[1])
    (x,) = scene.recv(7, 1)
    local = leaf()
    for _ in range(5):
        local = wrap(np.array(2.0), Slow((local._node or local,)))
    scene.join(local + x)
    assert emitted_before == [[SendAnswers(1, [(7, [1.0])])]] * 5


def test_who_has_not_heard_is_told_once_when_nothing_is_ready() -> None:
    scene = Scene(known=[0, 1, 2, 3, 4], rank=0)
    (x,) = scene.recv(7, 3)
    scene.send(8, 2, leaf())
    scene.send(9, 4, leaf())
    running = BackwardPass(
        0, scene.sends, scene.recvs, scene.known, scene.grads.__setitem__, scene.emitted.append
    )
    running.heard_from(1)
    running.join([((x * 2)._node, np.array(1.0))])
    running.answer([(9, None)])
    running.advance()
    told = [SendAnswers(3, [(7, [2.0])]), SendBegin(2), SendBegin(4)]
    assert scene.news() == told
    running.advance()
    running.answer([(8, None)])
    running.advance()
    assert scene.news() == [report([1, 2, 3, 4], recvs=[7])]


def test_who_is_to_be_answered_later_is_not_told_unless_it_owes_something() -> None:
    scene = Scene(known=[1, 2, 3])
    (x,), (y,) = scene.recv(7, 1), scene.recv(8, 2)
    scene.send(9, 2, x * 2)
    scene.send(10, 3, y * 2)
    running = scene.join()
    # All three have not heard; 1 will with the answer for 7, and owes nothing.
    assert scene.news() == [SendBegin(2), SendBegin(3)]
    running.answer([(9, [np.array(1.0)]), (10, None)])
    running.advance()
    *answers, last = scene.news()
    assert sorted(answers, key=lambda one: one.to) == [  # type: ignore[union-attr]
        SendAnswers(1, [(7, [2.0])]),
        SendAnswers(2, [(8, None)]),
    ]
    assert last == report([1, 2, 3], sends=[9], recvs=[7])


def test_a_pair_of_a_worker_with_itself_sends_nothing() -> None:
    scene = Scene(known=[0])
    w = leaf()
    scene.send(7, 0, w * 2)
    scene.send(9, 0, leaf())
    (x,) = scene.recv(7, 0)
    scene.recv(9, 0)
    assert scene.join(x * 3).done
    assert scene.news() == [report([], sends=[7], recvs=[7])]
    assert scene.grads == {w: 6.0}


def test_a_chain_of_calls_to_itself_runs_in_one_go() -> None:
    scene = Scene()
    value = w = leaf()
    for number in range(1, 50):
        scene.send(number, 0, value)
        (value,) = scene.recv(number, 0)
        value = value * 1
    assert scene.join(value).done
    assert scene.grads == {w: 1.0}


def test_answers_for_messages_that_the_pass_has_not_counted_are_ignored() -> None:
    scene = Scene(known=[1])
    w = leaf()
    scene.send(8, 1, w)
    running = scene.join()
    running.answer([(99, None)])
    running.answer([(8, [np.array(1.0)])])
    running.answer([(8, None)])
    running.advance()
    assert running.done
    assert scene.grads == {w: 1.0}


@pytest.mark.parametrize("number", [8, 99])
def test_a_gradient_that_nobody_waits_for_raises(number: int) -> None:
    """Its pair has been used up, on the side that counts; or was answered before."""
    scene = Scene(known=[1])
    scene.send(8, 1, leaf())
    running = scene.join()
    running.answer([(8, None)])
    with pytest.raises(RuntimeError, match=rf"second time.*autograd message {number} "):
        running.answer([(number, [np.array(1.0)])])


def test_pairs_that_other_passes_have_used_up_are_answered_none() -> None:
    scene = Scene(known=[1, 2])
    gone = [RecvRpcBackward(7, 1, 0, 1), RecvRpcBackward(9, 2, 0, 1)]
    running = BackwardPass(
        0, {}, {}, scene.known, scene.grads.__setitem__, scene.emitted.append, gone=gone
    )
    running.join()
    running.advance()
    assert running.done
    answers = [SendAnswers(1, [(7, None)]), SendAnswers(2, [(9, None)])]
    assert scene.news() == [*answers, report([1, 2])]


@pytest.mark.parametrize("stopped_before", [True, False])
def test_a_pass_that_was_stopped_does_nothing_more(stopped_before: bool) -> None:
    class Last(Node):
        def rule(self, grad: Any) -> tuple[Any, ...]:
            running.stop()
            return (grad,)

    scene = Scene(known=[1, 2])
    (x,) = scene.recv(7, 1)
    scene.send(8, 2, wrap(np.array(1.0), Last((x._node,))), leaf())
    running = scene.join()
    scene.news()
    if stopped_before:
        running.stop()
    running.answer([(8, [np.array(1.0), np.array(1.0)])])
    running.advance()
    assert not running.done
    assert scene.news() == []


def test_it_reports_once() -> None:
    scene = Scene(known=[1])
    scene.send(8, 1, leaf())
    running = scene.join()
    for _ in range(2):
        running.answer([(8, None)])
        running.advance()
    assert [type(one) for one in scene.news()] == [SendBegin, SendReport]


def test_a_gradient_for_a_pair_that_is_gone_raises() -> None:
    scene = Scene(known=[1])
    (x,) = scene.recv(7, 1)
    del scene.recvs[7]
    with pytest.raises(RuntimeError, match=r"second time.*autograd message 7 .*retain_graph=True"):
        scene.join(x * 2)


def test_none_for_a_pair_that_is_gone_is_nothing() -> None:
    scene = Scene(known=[1, 2])
    (x,) = scene.recv(7, 1)
    del scene.recvs[7]
    scene.send(8, 2, x * 2)
    running = scene.join()
    running.answer([(8, None)])
    running.advance()
    assert running.done


@pytest.mark.parametrize("retain_graph", [True, False])
def test_what_the_rules_saved_is_freed_unless_the_graph_is_retained(retain_graph: bool) -> None:
    scene = Scene(retain_graph=retain_graph)
    w = leaf()
    loss = w * w
    scene.join(loss)
    if retain_graph:
        scene.join(loss)
    else:
        with pytest.raises(RuntimeError, match="second time"):
            scene.join(loss)
    assert scene.grads == {w: 4.0}


def test_two_roots_and_one_root_twice_add_up() -> None:
    scene = Scene()
    w = leaf()
    a, b = w * 3, w * 5
    assert scene.join(a, b, a).done
    assert scene.grads == {w: 11.0}


def test_a_root_may_be_part_of_the_graph_of_another() -> None:
    scene = Scene()
    w = leaf()
    a = w * 3
    assert scene.join(a, a * 5).done
    assert scene.grads == {w: 18.0}


def test_a_root_may_be_what_was_received_itself() -> None:
    scene = Scene(known=[1])
    (x,) = scene.recv(7, 1)
    assert scene.join(x, x).done
    assert scene.news()[0] == SendAnswers(1, [(7, [2.0])])


class TestClosure:
    def test_a_starting_worker_that_knows_nobody_finishes_alone(self) -> None:
        assert Closure(3).report(3, [])

    def test_it_waits_for_all_whom_anybody_knows(self) -> None:
        closure = Closure(0)
        assert closure.missing == {0}
        assert not closure.report(1, [0, 2])
        assert closure.missing == {0, 2}
        assert not closure.report(0, [1])
        assert not closure.report(2, [1, 3])
        assert closure.missing == {3}
        assert closure.report(3, [2])
        assert closure.missing == frozenset()

    def test_in_any_order(self) -> None:
        known = {0: [1, 2], 1: [0, 3], 2: [0], 3: [1]}
        for order in itertools.permutations(known):
            closure = Closure(0)
            finished = [closure.report(rank, known[rank]) for rank in order]
            assert finished == [False, False, False, True], order
