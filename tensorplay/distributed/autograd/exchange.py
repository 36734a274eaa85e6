"""The messages of backward passes and releases between workers."""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from tensorplay.autograd.elsewhere import gradients_go_elsewhere
from tensorplay.distributed.autograd.answers import Keep, pack_answers, unpack_answers
from tensorplay.distributed.autograd.backward_pass import (
    Answer,
    BackwardPass,
    Instruction,
    SendAnswers,
    SendBegin,
)
from tensorplay.distributed.autograd.container import Container
from tensorplay.distributed.autograd.context import RANK_SHIFT, DistAutogradContext
from tensorplay.distributed.autograd.rules import RunningRules
from tensorplay.distributed.autograd.runner import PassRunner
from tensorplay.distributed.autograd.starting import Started, take_turn
from tensorplay.distributed.autograd.statistics import Counters
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.errors import (
    Failure,
    RpcTimeoutError,
    WorkerLeftError,
    describe,
    rebuild,
)
from tensorplay.distributed.rpc.messages import FIRST_FREE_KIND, name_kinds
from tensorplay.distributed.transport.wire import Message

GRADIENTS = FIRST_FREE_KIND
BEGIN = FIRST_FREE_KIND + 1
LATE = FIRST_FREE_KIND + 2
REPORT = FIRST_FREE_KIND + 3
FAILED = FIRST_FREE_KIND + 4
END = FIRST_FREE_KIND + 5
RELEASE = FIRST_FREE_KIND + 6
name_kinds(
    {
        GRADIENTS: "GRADIENTS",
        BEGIN: "BEGIN",
        LATE: "LATE",
        REPORT: "REPORT",
        FAILED: "FAILED",
        END: "END",
        RELEASE: "RELEASE",
    }
)

_ADVICE = (
    "tensorplay.distributed.autograd.backward adds up gradients in its context. Step a "
    "DistributedOptimizer, or call step_with(get_gradients(context_id))"
)

Task = Callable[[], None]


class Exchange:
    """Starts passes, takes part in those of others, and spreads releases.

    Handlers run on the polling thread; a pass's rules run as its runner's task.

    Attributes:
        counters: Counts what is sent.
    """

    def __init__(self, agent: Agent, container: Container) -> None:
        self._agent = agent
        self._rank = agent.rank
        self._container = container
        self._pass_ids = itertools.count((agent.rank << RANK_SHIFT) + 1)
        self._lock = threading.Lock()
        self._started: dict[int, Started] = {}
        self.counters = Counters()
        for kind, handler in (
            (GRADIENTS, self._on_gradients),
            (BEGIN, self._on_begin),
            (LATE, self._on_late),
            (REPORT, self._on_gradients),
            (FAILED, self._on_failed),
            (END, self._on_end),
            (RELEASE, self._on_release),
        ):
            agent.handle(kind, handler)

    # -- starting --------------------------------------------------------------------------------

    def backward(
        self,
        context: DistAutogradContext,
        roots: Sequence[tuple[Any, Any]],
        retain_graph: bool,
        timeout: float | None,
        create_graph: bool = False,
    ) -> None:
        """Run a pass from `roots` and wait for its end on all workers.

        Raises:
            RpcTimeoutError: It took longer than `timeout` seconds.
            Exception: What a rule raised, on whichever worker.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        take_turn(self._agent, context, timeout)
        try:
            pass_id = next(self._pass_ids)
            started = self._started[pass_id] = Started(self._rank, context._known_worker_ids())
            try:
                keep = (retain_graph, create_graph, context.good)
                runner, begin = self._take_part(context, pass_id, keep, self._rank, (), roots)
                if begin is not None:
                    begin()
                finished = self._agent.wait(
                    started.result,
                    deadline,
                    mine=lambda task: runner is not None and task is runner.task,
                )
                if not finished:
                    started.result.finish(
                        error=RpcTimeoutError(
                            f"the backward pass took longer than {timeout} s; workers that have "
                            f"not finished: {self._names(started.closure.missing)}"
                        )
                    )
                started.result.result_now()
                with context.lock:
                    context.gradients.settle(pass_id, True)
                    context.good = pass_id
            except BaseException:
                self._end(context, pass_id)
                raise
            finally:
                self._started.pop(pass_id, None)
        finally:
            context.starting.release()

    def _names(self, ranks: frozenset[int]) -> str:
        # This worker waits for the others, if there are any.
        others = ranks - {self._rank} or ranks
        return ", ".join(self._agent.workers[rank].name for rank in sorted(others))

    @property
    def running(self) -> int:
        """Passes that this worker has started and not finished."""
        return len(self._started)

    def report(self) -> list[str]:
        """The passes that this worker has started and not finished, a line each."""
        now = time.monotonic()
        return [
            f"pass {pass_id} started here {now - started.began:.1f} s ago, waits for "
            f"{self._names(started.closure.missing) or 'nobody'}"
            for pass_id, started in self._started.copy().items()
        ]

    # -- taking part -----------------------------------------------------------------------------

    def _take_part(
        self,
        context: DistAutogradContext,
        pass_id: int,
        keep: Keep,
        source: int,
        answers: Sequence[Answer],
        roots: Sequence[tuple[Any, Any]] = (),
    ) -> tuple[PassRunner | None, Task | None]:
        """Take what a message of a pass brings; this worker joins the pass on first sight.

        Returns the runner, None if the pass is over here, and what has to be run now, if anything.
        """
        starter = pass_id >> RANK_SHIFT
        with context.lock:
            latest, runner = context.passes.get(starter, (-1, None))
            if latest >= pass_id:
                if latest > pass_id or runner is None or not answers:
                    return None, None
                return runner, runner.post(partial(_answer, source=source, answers=answers))
            if runner is not None:
                runner.stop()  # that pass has ended, though this worker has not heard of it
            if context.released:
                # Since it was looked up.
                self._fail_for_release(context, pass_id)
                return None, None
            if context.known & self._agent.departed:
                # Before anything has run, so that the graph here is not used up.  Who departs
                # later is dealt with by `lose`, which waits for the lock.
                context.passes[starter] = (pass_id, None)
                self._fail_for_lost(context, pass_id)
                return None, None
            if context.gradients.staged:
                context.settle_before(pass_id, keep[2])
            # What is recorded from here on belongs to later passes.
            backward_pass = BackwardPass(
                self._rank,
                context.sends,
                context.recvs,
                context.known,
                partial(context.stage, pass_id),
                partial(self._carry_out, context, pass_id, keep),
                starter=None if starter == self._rank else starter,
                gone=context.dropped_by_others(starter) if context.dropped else (),
                retain_graph=keep[0],
                create_graph=keep[1],
            )
            runner = PassRunner(
                backward_pass,
                partial(self._fail, context.id, pass_id),
                partial(self._finished, context, pass_id),
                RunningRules(context.id, pass_id, recorded=keep[1]),
            )
            context.passes[starter] = (pass_id, runner)
            gradients_go_elsewhere(_ADVICE)
            if context.early:
                early = [(message_id, None) for message_id in context.early.pop(pass_id, ())]
                answers = [*early, *answers]
            # Together: who is answered in consequence need not be told that the pass has begun.
            return runner, runner.post(partial(_join, roots=roots, source=source, answers=answers))

    def _carry_out(
        self,
        context: DistAutogradContext,
        pass_id: int,
        keep: Keep,
        instruction: Instruction,
    ) -> None:
        if isinstance(instruction, SendAnswers):
            self._send_answers(context.id, pass_id, keep, instruction.to, instruction.answers)
        elif isinstance(instruction, SendBegin):
            self.counters.add(notices_sent=1)
            self._send(BEGIN, instruction.to, context.id, (pass_id, keep))
        else:
            if not (keep[0] or keep[1]):
                context.drop_used(pass_id, instruction.used_sends, instruction.used_recvs)
            known = instruction.known
            starter = pass_id >> RANK_SHIFT
            if starter == self._rank:
                self._report(pass_id, self._rank, known)
            else:
                self._send_answers(context.id, pass_id, keep, starter, instruction.answers, known)

    def _submit(self, task: Task | None) -> None:
        if task is not None:
            self._agent.progress.submit(task)

    def _finished(self, context: DistAutogradContext, pass_id: int) -> None:
        starter = pass_id >> RANK_SHIFT
        with context.lock:
            if context.passes[starter][0] == pass_id:
                context.passes[starter] = (pass_id, None)

    def _fail(self, context_id: int, pass_id: int, error: BaseException) -> None:
        starter = pass_id >> RANK_SHIFT
        if starter == self._rank:
            started = self._started.get(pass_id)
            if started is not None:
                started.result.finish(error=error)
        else:
            failure = tuple(describe(error, self._agent.name))
            self._send(FAILED, starter, context_id, (pass_id, failure))

    def _report(self, pass_id: int, rank: int, known: Collection[int]) -> None:
        started = self._started.get(pass_id)
        if started is not None:
            with self._lock:
                finished = started.closure.report(rank, known)
            if finished:
                started.result.finish()

    def _end(self, context: DistAutogradContext, pass_id: int) -> None:
        """Drop a failed pass here, and tell those that this worker knows, once."""
        starter = pass_id >> RANK_SHIFT
        with context.lock:
            if pass_id in context.ended:
                return
            context.ended.add(pass_id)
            context.gradients.settle(pass_id, False)
            context.early.pop(pass_id, None)
            latest, runner = context.passes.get(starter, (-1, None))
            if latest == pass_id and runner is not None:
                runner.stop()
            if latest <= pass_id:
                context.passes[starter] = (pass_id, None)
            restored = context.restore_dropped(pass_id)
            others = [other for other, _ in context.passes.values() if other != pass_id]
            known = context.known - {self._rank}
        for rank in known:
            self._send(END, rank, context.id, pass_id)
        if others:
            # To these passes they are messages that arrive late.
            for recv in restored:
                self.answer_late(context, recv.peer, recv.message_id, others)

    def _send(self, kind: int, to: int, context_id: int, value: Any) -> None:
        message = Message(kind, to, pickle.dumps(value, 5))
        message.context = context_id
        self._agent.send(message)

    def _send_answers(
        self,
        context_id: int,
        pass_id: int,
        keep: Keep,
        to: int,
        answers: Sequence[Answer],
        known: Collection[int] | None = None,
    ) -> None:
        packed = pack_answers(pass_id, keep, answers, known)
        # A report goes with the last answers, if there are any for the starting worker.
        message = Message(GRADIENTS if answers else REPORT, to, packed.body, packed.buffers)
        message.context = context_id
        if packed.tensors:
            # The pass is recorded: its gradients hang from a pair of their own, for later passes.
            message.grad_count = len(packed.tensors)
            self._container.record_send(message, packed.tensors)
        self.counters.add(
            gradients_sent=sum([grads is not None for _, grads in answers]),
            answers_sent=len(answers),
            answer_messages_sent=bool(answers),
            reports_sent=known is not None,
        )
        self._agent.send(message)

    # -- what comes in ---------------------------------------------------------------------------

    def _on_gradients(self, message: Message) -> Task | None:
        pass_id, keep, known, answers, tensors = unpack_answers(message.body, message.buffers)
        # From here on gradients alone hold its memory: who gets them may take it over.
        message.buffers = ()
        if tensors:
            self._container.attach(message, tensors)
        if known is not None:
            self._report(pass_id, message.peer, known)
        return self._event(message, pass_id, keep, answers) if answers else None

    def _on_begin(self, message: Message) -> Task | None:
        pass_id, keep = pickle.loads(message.body)
        return self._event(message, pass_id, keep, ())

    def _event(
        self, message: Message, pass_id: int, keep: Keep, answers: Sequence[Answer]
    ) -> Task | None:
        context = self._container.get(message.context)
        if context is None:
            error = RuntimeError(
                f"autograd context {message.context} was released on worker "
                f"{self._agent.name!r} while a backward pass was running"
            )
            self._fail(message.context, pass_id, error)
            return None
        _, task = self._take_part(context, pass_id, keep, message.peer, answers)
        return task

    def _on_late(self, message: Message) -> Task | None:
        pass_ids, message_id = pickle.loads(message.body)
        context = self._container.get(message.context)
        tasks: list[Task] = []
        if context is not None:
            for pass_id in pass_ids:
                task = self._take_late(context, pass_id, message_id)
                if task is not None:
                    tasks.append(task)
        for task in tasks[1:]:
            self._agent.progress.submit(task)
        return tasks[0] if tasks else None

    def _take_late(
        self, context: DistAutogradContext, pass_id: int, message_id: int
    ) -> Task | None:
        with context.lock:
            latest, runner = context.passes.get(pass_id >> RANK_SHIFT, (-1, None))
            if latest < pass_id:
                # Not joined yet, and perhaps never: kept until then.
                context.early.setdefault(pass_id, []).append(message_id)
                return None
        if latest > pass_id or runner is None:
            return None
        return runner.post(partial(_late_answer, message_id=message_id))

    def answer_late(
        self, context: DistAutogradContext, peer: int, message_id: int, pass_ids: list[int]
    ) -> None:
        """A message arrived after this worker joined these passes: its pair has no part in them."""
        if peer == self._rank:
            for pass_id in pass_ids:
                self._submit(self._take_late(context, pass_id, message_id))
        else:
            self.counters.add(late_answers_sent=1)
            self._send(LATE, peer, context.id, (pass_ids, message_id))

    def retract(self, context: DistAutogradContext, message_id: int) -> None:
        """A message of this worker could not be sent: its send function is taken back."""
        with context.lock:
            context.sends.pop(message_id, None)
            passes = [pass_id for pass_id, _ in context.passes.values()]
        for pass_id in passes:
            self._submit(self._take_late(context, pass_id, message_id))

    def _on_failed(self, message: Message) -> None:
        pass_id, failure = pickle.loads(message.body)
        started = self._started.get(pass_id)
        if started is not None:
            started.result.finish(decode=partial(_raise, Failure(*failure)))

    def _on_end(self, message: Message) -> None:
        pass_id = pickle.loads(message.body)
        context = self._container.get(message.context)
        if context is not None:
            self._end(context, pass_id)

    # -- workers that have left ------------------------------------------------------------------

    def lose(self, context: DistAutogradContext, worker: int) -> None:
        """A worker has left: no pass that needs its answers can come to an end."""
        with context.lock:
            if worker not in context.known:
                return
            running = [
                (pass_id, runner)
                for pass_id, runner in context.passes.values()
                if runner is not None
            ]
        for pass_id, runner in running:
            if pass_id >> RANK_SHIFT == worker:
                runner.stop()
                context.ended.add(pass_id)
                self._finished(context, pass_id)
            else:
                self._fail_for_lost(context, pass_id)
        # Passes that this worker has done its part of wait for that worker's report.
        for pass_id, started in self._started.copy().items():
            if worker in started.closure.missing:
                self._fail_for_lost(context, pass_id)

    def _fail_for_lost(self, context: DistAutogradContext, pass_id: int) -> None:
        left = sorted(context.known & self._agent.departed)
        names = self._names(frozenset(left))
        self._fail(
            context.id,
            pass_id,
            WorkerLeftError(
                f"the backward pass cannot end: {names} took part in autograd context "
                f"{context.id} and has shut down without waiting for the others"
            ),
        )

    # -- release ---------------------------------------------------------------------------------

    def wait_for_calls(self, context_id: int) -> None:
        """Wait until the calls that this worker has made in a context are answered."""
        self._agent.wait_for_calls(context_id)

    def release(self, context_id: int, source: int | None = None) -> None:
        """Forget a context here, and everywhere by way of those that this worker knows.

        `source` is the worker that said so; it has forgotten the context already.
        """
        context = self._container.release(context_id)
        if context is None:
            return
        with context.lock:
            running = [
                (pass_id, runner)
                for pass_id, runner in context.passes.values()
                if runner is not None
            ]
            known = context.known - {self._rank, source}
        for pass_id, runner in running:
            runner.stop()
            self._fail_for_release(context, pass_id)
        for rank in known:
            message = Message(RELEASE, rank)
            message.context = context_id
            self._agent.send(message)

    def _fail_for_release(self, context: DistAutogradContext, pass_id: int) -> None:
        error = RuntimeError(
            f"autograd context {context.id} was released while a backward pass was running"
        )
        self._fail(context.id, pass_id, error)

    def _on_release(self, message: Message) -> None:
        self.release(message.context, message.peer)


def _join(
    backward_pass: BackwardPass,
    roots: Sequence[tuple[Any, Any]],
    source: int,
    answers: Sequence[Answer],
) -> None:
    backward_pass.join(roots)
    _answer(backward_pass, source, answers)


def _answer(backward_pass: BackwardPass, source: int, answers: Sequence[Answer]) -> None:
    backward_pass.heard_from(source)
    backward_pass.answer(answers)


def _late_answer(backward_pass: BackwardPass, message_id: int) -> None:
    backward_pass.answer([(message_id, None)])


def _raise(failure: Failure) -> Any:
    raise rebuild(failure)
