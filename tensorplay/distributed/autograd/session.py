"""Autograd's part of each RPC agent."""

from __future__ import annotations

import weakref

from tensorplay.distributed.autograd.container import Container
from tensorplay.distributed.autograd.exchange import Exchange
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import agent_or_none, current_agent
from tensorplay.distributed.rpc.messages import Recorder, register_recorder


class Session:
    """Contexts and passes of one agent."""

    def __init__(self, agent: Agent) -> None:
        self.container = Container(agent.rank)
        self.exchange = Exchange(agent, self.container)
        self.container.exchange = self.exchange


_sessions: weakref.WeakKeyDictionary[Agent, Session] = weakref.WeakKeyDictionary()


def _begin(agent: Agent) -> Recorder:
    session = _sessions[agent] = Session(agent)
    return session.container


def current_session() -> Session:
    """The session of this thread's agent.

    Raises:
        RuntimeError: RPC has not been initialised.
    """
    return _sessions[current_agent()]


def session_or_none() -> Session | None:
    """Like `current_session`, but None where RPC is not up."""
    agent = agent_or_none()
    return None if agent is None else _sessions[agent]


register_recorder(_begin)
