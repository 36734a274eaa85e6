"""A worker as the design describes it, around a `BackwardPass`.

What the package does in `exchange` and `context`, written a second time and as plainly as possible:
no threads, no failures, no releases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import tensorplay as tp
from distributed.autograd.simulator import World
from tensorplay.distributed.autograd.backward_pass import (
    Answer,
    BackwardPass,
    Closure,
    Instruction,
    SendAnswers,
    SendBegin,
)
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.tensor import wrap


class ModelWorker:
    """One worker.

    Attributes:
        passes: Passes joined: what is under way, or None if this worker is done.
        early: Answers for passes not joined yet.
        over: Passes started here that have ended.
        sent: What was sent, by kind and pass.
        begun: Who was told that a pass has begun.
    """

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank
        self.sends: dict[int, SendRpcBackward] = {}
        self.recvs: dict[int, RecvRpcBackward] = {}
        self.known: set[int] = set()
        self.grads: dict[tp.Tensor, tp.Tensor] = {}
        self.passes: dict[int, BackwardPass | None] = {}
        self.early: dict[int, list[int]] = {}
        self.closures: dict[int, Closure] = {}
        self.over: set[int] = set()
        self.sent: Counter[tuple[str, int]] = Counter()
        self.begun: Counter[tuple[int, int]] = Counter()

    def send(self, to: int, tensors: Sequence[tp.Tensor]) -> Any:
        self.known.add(to)
        if not tensors:
            return (0, 0)
        number = next(self.world.marks)
        self.sends[number] = SendRpcBackward(number, to, tensors)
        return (number, len(tensors))

    def receive(self, source: int, parcel: Any) -> Callable[[], None] | None:
        kind, first, second = parcel
        if kind == "message":
            return self._receive_message(source, first, *second)
        if kind == "answers":
            retain_graph, answers, known = second
            if known is not None:
                self._receive_report(source, first, known)
            self._event(source, first, retain_graph, answers)
        elif kind == "late":
            self._receive_late(source, first, second)
        else:
            self._receive_report(source, first, second)
        return None

    def _receive_message(
        self, source: int, number: int, grad_id: int, count: int
    ) -> Callable[[], None]:
        self.known.add(source)
        recv = None
        if count:
            recv = self.recvs[grad_id] = RecvRpcBackward(grad_id, source, 0, count)
            for pass_id in self.passes:
                self._post(source, ("late", pass_id, grad_id))

        def attach(tensors: list[tp.Tensor]) -> None:
            if recv is not None:
                recv.hang(tensors)

        return lambda: self.world.unpack(self.rank, number, attach)

    def _receive_late(self, source: int, pass_id: int, number: int) -> None:
        if pass_id not in self.passes:
            self.early.setdefault(pass_id, []).append(number)
            return
        running = self.passes[pass_id]
        if running is not None:
            running.answer([(number, None)])
            running.advance()
            self._retire(pass_id, running)

    def _receive_report(self, source: int, pass_id: int, known: Iterable[int]) -> None:
        if self.closures[pass_id].report(source, known):
            self.over.add(pass_id)

    def _event(self, source: int, pass_id: int, retain_graph: bool, answers: Any) -> None:
        running = self._join(pass_id, retain_graph, ())
        if running is not None:
            running.heard_from(source)
            running.answer(answers)
            running.advance()
            self._retire(pass_id, running)

    def _join(self, pass_id: int, retain_graph: bool, roots: Any) -> BackwardPass | None:
        if pass_id in self.passes:
            return self.passes[pass_id]
        running = self.passes[pass_id] = BackwardPass(
            self.rank,
            self.sends,
            self.recvs,
            self.known,
            self._accumulate,
            lambda instruction: self._carry_out(pass_id, retain_graph, instruction),
            starter=None if pass_id % 16 == self.rank else pass_id % 16,
            retain_graph=retain_graph,
        )
        running.join(roots)
        running.answer([(number, None) for number in self.early.pop(pass_id, ())])
        return running

    def _retire(self, pass_id: int, running: BackwardPass) -> None:
        if running.done:
            self.passes[pass_id] = None

    def _accumulate(self, leaf: tp.Tensor, grad: Any) -> None:
        before = self.grads.get(leaf)
        array = np.array(grad)
        self.grads[leaf] = wrap(array if before is None else before._array + array)

    def _carry_out(self, pass_id: int, retain_graph: bool, instruction: Instruction) -> None:
        starter = pass_id % 16
        if isinstance(instruction, SendAnswers):
            assert instruction.answers
            assert instruction.to != self.rank
            self._post_answers(pass_id, retain_graph, instruction.to, instruction.answers)
        elif isinstance(instruction, SendBegin):
            self.sent["begin", pass_id] += 1
            self.begun[pass_id, instruction.to] += 1
            self._post(instruction.to, ("answers", pass_id, (retain_graph, [], None)))
        else:
            if not retain_graph:
                for number in instruction.used_sends:
                    del self.sends[number]
                for number in instruction.used_recvs:
                    del self.recvs[number]
            self.sent["report", pass_id] += 1
            known = frozenset(instruction.known)
            if starter == self.rank:
                assert not instruction.answers
                self._receive_report(self.rank, pass_id, known)
            elif instruction.answers:
                self._post_answers(pass_id, retain_graph, starter, instruction.answers, known)
            else:
                self._post(starter, ("report", pass_id, known))

    def _post_answers(
        self,
        pass_id: int,
        retain_graph: bool,
        to: int,
        given: Sequence[Answer],
        known: frozenset[int] | None = None,
    ) -> None:
        answers = [
            (number, None if grads is None else [g if g is None else g.copy() for g in grads])
            for number, grads in given
        ]
        self.sent["answers", pass_id] += 1
        self.sent["gradients", pass_id] += sum([grads is not None for _, grads in answers])
        self._post(to, ("answers", pass_id, (retain_graph, answers, known)))

    def _post(self, to: int, parcel: Any) -> None:
        self.world.lanes[self.rank, to].append(parcel)

    def backward(self, roots: Sequence[tp.Tensor], retain_graph: bool) -> None:
        pass_id = next(self.world.marks) * 16 + self.rank
        self.closures[pass_id] = Closure(self.rank)
        seeds = [(root._node, np.ones_like(root._array)) for root in roots]
        running = self._join(pass_id, retain_graph, seeds)
        assert running is not None
        running.advance()
        self._retire(pass_id, running)
        self.world.run_until(lambda: pass_id in self.over)
        missing = self.closures.pop(pass_id).missing
        assert not missing
