"""Which agent a thread belongs to.

A process has one agent.  Tests run several workers in one process; there each thread names its own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent


class _ThreadAgent(threading.local):
    agent: Agent | None = None


_thread = _ThreadAgent()
_process: list[Agent | None] = [None]


def current_agent() -> Agent:
    """The agent of this thread, or of the process.

    Raises:
        RuntimeError: RPC has not been initialised, or has been shut down.
    """
    agent = _process[0] or _thread.agent
    if agent is None:
        raise RuntimeError(
            "RPC has not been initialized. Call tensorplay.distributed.rpc.init_rpc first."
        )
    return agent


def agent_or_none() -> Agent | None:
    """Like `current_agent`, but None where there is none."""
    return _process[0] or _thread.agent


def set_thread_agent(agent: Agent | None) -> None:
    """Make `agent` the one of this thread, or give that up."""
    _thread.agent = agent


def set_process_agent(agent: Agent | None) -> None:
    """Make `agent` the one of the process, or give that up."""
    _process[0] = agent
