"""Collects what a worker is doing, for a dump.

Takes no lock that a user's thread, or a thread that is stuck, might hold; copies of dicts and sets
are made in one piece under the interpreter lock.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.dump import ExecutedCall, OutstandingCall, State, ThreadState
from tensorplay.distributed.rpc.naming import name_for_people
from tensorplay.distributed.rpc.statistics import statistics_of
from tensorplay.distributed.transport.wire import NO_CONTEXT

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent

#: Frames shown of each thread, the most recent ones.
_DEPTH = 40


def state_of(agent: Agent, asked_by: str) -> State:
    """What the worker of `agent` is doing now.  Local; any thread of its process."""
    now = time.monotonic()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    executed = list(_executed(agent, now, names))
    return State(
        rank=agent.rank,
        size=len(agent.workers),
        name=agent.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        asked_by=asked_by,
        threads=list(_threads(agent, executed, names)),
        outstanding=list(_outstanding(agent, now)),
        executed=executed,
        queued=agent.waiting_to_run,
        autograd=agent.recorder.report(),
        shutdown=agent.leaving.report(),
        counters=dataclasses.asdict(statistics_of(agent)),
    )


def _name(function: object) -> str | None:
    return None if function is None else name_for_people(function)


def _worker(agent: Agent, rank: int) -> str:
    return f"{agent.workers[rank].name} (rank {rank})"


def _outstanding(agent: Agent, now: float) -> Iterator[OutstandingCall]:
    for number, call in agent.calls.outstanding.copy().items():
        yield OutstandingCall(
            number=number,
            peer=_worker(agent, call.worker),
            function=_name(call.function),
            age=now - call.began,
            left=call.deadline - now if call.seconds else None,
            context=None if call.context == NO_CONTEXT else call.context,
        )


def _executed(agent: Agent, now: float, names: dict[Any, str]) -> Iterator[ExecutedCall]:
    for running in agent.running:
        message = running.message
        yield ExecutedCall(
            number=message.call,
            caller=_worker(agent, message.peer),
            kind=messages.name_of(message.kind),
            function=_name(running.function),
            age=now - running.began,
            thread=names.get(running.thread, str(running.thread)),
        )


def _threads(
    agent: Agent, executed: list[ExecutedCall], names: dict[Any, str]
) -> Iterator[ThreadState]:
    tasks = {call.thread: f"{call.kind} {call.number} of {call.caller}" for call in executed}
    serving = agent.progress.serving_threads
    main = threading.main_thread().ident
    frames = sys._current_frames()
    # The one that looks is of no interest.
    frames.pop(threading.get_ident(), None)
    for ident, frame in sorted(frames.items(), key=lambda item: item[0] != main):
        name = names.get(ident, f"thread {ident}")
        yield ThreadState(name, ident in serving, tasks.get(name), _stack(frame))


def _stack(frame: FrameType) -> list[str]:
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_DEPTH)
    # Every thread begins with the same few calls, which say nothing.
    while stack and stack[-1].filename == threading.__file__:
        stack.pop()
    lines = []
    for entry in reversed(stack):
        lines.append(f'File "{entry.filename}", line {entry.lineno}, in {entry.name}')
        if entry.line:
            lines.append(f"  {entry.line}")
    return lines
