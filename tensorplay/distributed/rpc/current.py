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

_NONE = "RPC has not been initialized. Call tensorplay.distributed.rpc.init_rpc first."
_FORKED = (
    "RPC belongs to the parent process: a forked child cannot use it. Start the child with "
    "subprocess or multiprocessing's 'spawn' method, fork before init_rpc, or leave RPC to the "
    "parent"
)
_why_none = [_NONE]


def current_agent() -> Agent:
    """The agent of this thread, or of the process.

    Raises:
        RuntimeError: RPC has not been initialised, or has been shut down, or belongs to the
            process that this one was forked from.
    """
    agent = _process[0] or _thread.agent
    if agent is None:
        raise RuntimeError(_why_none[0])
    return agent


def agent_or_none() -> Agent | None:
    """Like `current_agent`, but None where there is none."""
    return _process[0] or _thread.agent


def forget_agents() -> None:
    """This process is a forked child: none of its threads has an agent, or may get one."""
    _process[0] = None
    _thread.agent = None
    _why_none[0] = _FORKED


def why_forbidden() -> str | None:
    """Why this process must not use RPC: it is a forked child of a worker.  None if it may."""
    return _FORKED if _why_none[0] is _FORKED else None


def set_thread_agent(agent: Agent | None) -> None:
    """Make `agent` the one of this thread, or give that up."""
    _thread.agent = agent


def set_process_agent(agent: Agent | None) -> None:
    """Make `agent` the one of the process, or give that up."""
    _process[0] = agent
