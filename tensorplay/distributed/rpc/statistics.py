"""Counters of a worker."""

from __future__ import annotations

from dataclasses import dataclass

from tensorplay.distributed.rpc.current import current_agent


@dataclass(frozen=True)
class Statistics:
    """What a worker has done since `init_rpc`, and what it is doing.

    Attributes:
        calls_made: Calls, fetches and creations started here, calls to itself included.
        calls_served: The same, executed here.
        calls_outstanding: Those made here that have not been answered.
        messages_sent: Messages handed to MPI, answers and control messages included.
        messages_received: Messages received from MPI.
        bytes_sent: Bytes handed to MPI.
        values_owned: Values here that references may point to.
        serving_threads: Threads that poll and serve.
    """

    calls_made: int
    calls_served: int
    calls_outstanding: int
    messages_sent: int
    messages_received: int
    bytes_sent: int
    values_owned: int
    serving_threads: int


def statistics() -> Statistics:
    """This worker's counters.  Local.

    Raises:
        RuntimeError: RPC has not been initialised.
    """
    agent = current_agent()
    transport = agent.transport
    return Statistics(
        calls_made=agent.calls_made,
        calls_served=agent.calls_served,
        calls_outstanding=agent.calls_outstanding,
        messages_sent=transport.messages_sent,
        messages_received=transport.messages_received,
        bytes_sent=transport.bytes_sent,
        values_owned=len(agent.rrefs),
        serving_threads=agent.progress.thread_count,
    )
