"""Collectives among workers, made of calls.

Each takes place among a set of workers, whose *leader* is the one of the smallest name.  Followers
send the leader what they contribute, in a call that returns at once, and wait; the leader sends
everybody what it has gathered.  No serving thread waits, so a bound on them does no harm.

Rounds of one set are numbered on each worker as they come, so they may overlap, and sets may
overlap too.  Sets and numbers belong to the agent: after another `init_rpc` they start anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.errors import RpcTimeoutError
from tensorplay.distributed.rpc.futures import Future

_log = logging.getLogger("tensorplay")

Names = tuple[str, ...]


class AllGatherStates:
    """One round, as one worker sees it.

    Attributes:
        gathered_objects: At the leader, what has come so far, by worker.
        proceed_signal: Done when all has come; at a follower, its value is what was gathered.
    """

    def __init__(self) -> None:
        self.gathered_objects: dict[str, Any] = {}
        self.proceed_signal = Future()


class _Rounds:
    """The rounds of one agent."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._begun: dict[Names, int] = {}
        self._states: dict[tuple[Names, int], AllGatherStates] = {}

    def begin(self, names: Names) -> tuple[int, AllGatherStates]:
        """This worker takes part in the next round of a set."""
        with self._lock:
            number = self._begun.get(names, 0)
            self._begun[names] = number + 1
            return number, self._states.setdefault((names, number), AllGatherStates())

    def end(self, names: Names, number: int) -> None:
        """This worker is through with a round, one way or another."""
        with self._lock:
            self._states.pop((names, number), None)

    def find(self, names: Names, number: int) -> AllGatherStates | None:
        """A round that this worker is in."""
        return self._states.get((names, number))

    def contribute(self, names: Names, number: int, worker: str, obj: Any) -> bool:
        """At the leader: something has come; False if the leader has given the round up."""
        with self._lock:
            state = self._states.get((names, number))
            if state is None:
                if number < self._begun.get(names, 0):
                    return False
                state = self._states[names, number] = AllGatherStates()
            state.gathered_objects[worker] = obj
            complete = len(state.gathered_objects) == len(names)
        if complete:
            state.proceed_signal.finish()
        return True


# Re-entrant, like those of rounds: a finaliser may run in between.
_rounds_lock = threading.RLock()
_rounds: WeakKeyDictionary[Agent, _Rounds] = WeakKeyDictionary()


def _rounds_of(agent: Agent) -> _Rounds:
    with _rounds_lock:
        return _rounds.setdefault(agent, _Rounds())


def _gather_to_leader(names: Names, number: int, worker: str, obj: Any) -> None:
    """At the leader: what a follower contributes."""
    agent = current_agent()
    if not _rounds_of(agent).contribute(names, number, worker, obj):
        raise RpcTimeoutError(
            f"_all_gather: worker {agent.name!r}, which leads it, has stopped waiting for "
            f"{worker!r}"
        )


def _broadcast_to_followers(names: Names, number: int, gathered: Any, problem: str | None) -> None:
    """At a follower: what has been gathered, or why that failed."""
    state = _rounds_of(current_agent()).find(names, number)
    # Without a state this worker has given up.
    if state is not None and problem is not None:
        state.proceed_signal.finish(error=RpcTimeoutError(problem))
    elif state is not None:
        state.proceed_signal.finish(value=gathered)


def _all_gather(
    obj: Any, worker_names: Iterable[str] | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> dict[str, Any]:
    """What each worker contributes, by name.  Collective over `worker_names`.

    Workers go on serving while they wait.  Threads of one worker that gather among the same set at
    once take part in different rounds of it, in no certain order.

    Args:
        obj: What this worker contributes; the others get copies.
        worker_names: The workers that take part, all by default; the same on all of them.
        timeout: Seconds for the whole and for each message; 0 for no limit.  By default there is
            no limit for the whole, and messages have that of the options.

    Raises:
        RuntimeError: There is no such worker, or this one is not among them.
        RpcTimeoutError: It took longer; names those that did not come.

    >>> _all_gather(5, ["worker0"])
    {'worker0': 5}
    """
    agent = current_agent()
    everybody = [info.name for info in agent.workers] if worker_names is None else worker_names
    names = tuple(sorted({agent.resolve(name).name for name in everybody}))
    if agent.name not in names:
        raise RuntimeError(f"worker {agent.name!r} gathers with others, {list(names)}, not itself")
    seconds = agent.seconds(timeout)
    limited = timeout != UNSET_RPC_TIMEOUT and seconds
    deadline = time.monotonic() + seconds if limited else None
    rounds = _rounds_of(agent)
    number, state = rounds.begin(names)
    part = _Part(agent, names, number, state, seconds, deadline)
    try:
        if agent.name == names[0]:
            return _lead(part, obj)
        return _follow(part, obj)
    finally:
        rounds.end(names, number)


class _Part(NamedTuple):
    """This worker's part in a round.

    Attributes:
        agent: The worker's agent.
        names: The set.
        number: The round's number in it.
        state: What is known of it here.
        seconds: For each message; 0 for no limit.
        deadline: For the whole, monotonic seconds; None for no limit.
    """

    agent: Agent
    names: Names
    number: int
    state: AllGatherStates
    seconds: float
    deadline: float | None


def _follow(part: _Part, obj: Any) -> dict[str, Any]:
    agent, leader, signal = part.agent, part.names[0], part.state.proceed_signal
    contribution = (part.names, part.number, agent.name, obj)
    agent.call(leader, _gather_to_leader, contribution, None, part.seconds, waits=True).wait()
    if not signal.wait_until(part.deadline):
        raise RpcTimeoutError(
            f"worker {agent.name!r} timed out in _all_gather after {part.seconds:.2f} seconds: "
            f"RPC ran for more than set timeout, no answer from its leader {leader!r}"
        )
    gathered: dict[str, Any] = signal.value()
    return gathered


def _lead(part: _Part, obj: Any) -> dict[str, Any]:
    agent, names, state = part.agent, part.names, part.state
    rounds = _rounds_of(agent)
    rounds.contribute(names, part.number, agent.name, obj)
    if not state.proceed_signal.wait_until(part.deadline):
        # From here on nothing more comes.
        rounds.end(names, part.number)
        missing = [name for name in names if name not in state.gathered_objects]
        problem = _timed_out(missing, part.seconds, f"{', '.join(missing)} did not come to it")
        _broadcast(part, None, problem)
        raise RpcTimeoutError(problem)
    gathered = {name: state.gathered_objects[name] for name in names}
    try:
        answers = _broadcast(part, gathered, None)
    except Exception as error:
        _broadcast(part, None, f"worker {agent.name!r} could not send what was gathered: {error}")
        raise
    errors: dict[str, RuntimeError] = {}
    for name, answer in answers.items():
        try:
            answer.wait()
        except RuntimeError as error:
            errors[name] = error
    if errors:
        raise RpcTimeoutError(_timed_out(errors, part.seconds, next(iter(errors.values()))))
    return gathered


def _broadcast(part: _Part, gathered: Any, problem: str | None) -> dict[str, Future]:
    """Tell the followers that have come."""
    agent = part.agent
    outcome = (part.names, part.number, gathered, problem)
    return {
        name: agent.call(name, _broadcast_to_followers, outcome, None, part.seconds, waits=False)
        for name in part.state.gathered_objects
        if name != agent.name
    }


def _timed_out(followers: Iterable[str], seconds: float, first: object) -> str:
    return (
        f"Followers {list(followers)} timed out in _all_gather after {seconds:.2f} seconds. "
        f"The first exception is {first}"
    )


def _barrier(worker_names: Iterable[str]) -> None:
    """Wait until all of `worker_names` have called this.  Collective over them.

    A failure is logged, not raised.
    """
    try:
        _all_gather(None, worker_names)
    except RuntimeError:
        _log.exception("_barrier failed")


def _wait_all_workers(timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Wait until all workers have called this; they go on serving.  Collective.

    Args:
        timeout: Seconds; 0 for no limit.

    Raises:
        RpcTimeoutError: It took longer.
    """
    _all_gather(None, timeout=timeout)
