"""Counters of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorplay.distributed.rpc.current import current_agent

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent


@dataclass(frozen=True)
class Statistics:
    """What a worker has done since `init_rpc`, and what it is doing.

    Attributes:
        calls_made: Calls, fetches and creations started here, calls to itself included.
        calls_failed: Those made here that have ended with an error, timeouts included.
        calls_timed_out: Those made here that had no answer in time.
        calls_outstanding: Those made here that have not been answered.
        calls_served: Calls, fetches and creations of other workers, and its own, executed here.
        calls_executing: Those that are being executed here.
        messages_sent: Messages handed to MPI, answers and control messages included.
        messages_received: Messages received from MPI.
        bytes_sent: Bytes handed to MPI.
        bytes_received: Bytes received from MPI.
        values_owned: Values here that references may point to.
        drops_pending: References that are gone, which this worker has not told the owners yet.
        serving_threads: Threads that poll and serve.
        idle_threads: Those of them that wait for work.
    """

    calls_made: int
    calls_failed: int
    calls_timed_out: int
    calls_outstanding: int
    calls_served: int
    calls_executing: int
    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    values_owned: int
    drops_pending: int
    serving_threads: int
    idle_threads: int


def statistics() -> Statistics:
    """This worker's counters.  Local; any thread.

    Raises:
        RuntimeError: RPC has not been initialised.

    >>> from tensorplay.distributed import rpc
    >>> rpc.statistics().calls_outstanding
    0
    >>> rpc.rpc_sync("worker1", rpc.statistics).calls_executing
    1
    """
    return statistics_of(current_agent())


def statistics_of(agent: Agent) -> Statistics:
    """The counters of the worker of `agent`; any thread."""
    transport = agent.transport
    return Statistics(
        calls_made=agent.calls_made,
        calls_failed=agent.calls.failed,
        calls_timed_out=agent.calls.timed_out,
        calls_outstanding=agent.calls_outstanding,
        calls_served=agent.calls_served,
        calls_executing=len(agent.running),
        messages_sent=transport.messages_sent,
        messages_received=transport.messages_received,
        bytes_sent=transport.bytes_sent,
        bytes_received=transport.bytes_received,
        values_owned=len(agent.rrefs),
        drops_pending=len(agent.rrefs.dropped),
        serving_threads=agent.progress.thread_count,
        idle_threads=agent.progress.idle_count,
    )
