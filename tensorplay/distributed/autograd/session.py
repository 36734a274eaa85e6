"""Autograd's part of each RPC agent."""

from __future__ import annotations

from typing import NamedTuple

from tensorplay.distributed.autograd.container import Container
from tensorplay.distributed.autograd.exchange import Exchange
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import agent_or_none, current_agent
from tensorplay.distributed.rpc.debug_info import register_counts
from tensorplay.distributed.rpc.messages import Recorder, register_recorder


class Session(NamedTuple):
    """Contexts and passes of one agent."""

    container: Container
    exchange: Exchange


def _begin(agent: Agent) -> Recorder:
    container = Container(agent.rank)
    container.exchange = Exchange(agent, container)
    return container


def _session_of(agent: Agent) -> Session:
    container = agent.recorder
    assert isinstance(container, Container)
    assert container.exchange is not None
    return Session(container, container.exchange)


def current_session() -> Session:
    """The session of this thread's agent.

    Raises:
        RuntimeError: RPC has not been initialised.
    """
    return _session_of(current_agent())


def session_or_none() -> Session | None:
    """Like `current_session`, but None where RPC is not up."""
    agent = agent_or_none()
    return None if agent is None else _session_of(agent)


def counts(agent: Agent) -> dict[str, int]:
    """How many contexts and passes a worker has, under the names that PyTorch gives them."""
    container = agent.recorder
    if not isinstance(container, Container):
        return {}
    return {
        "num_autograd_contexts": len(container),
        "num_current_backward_passes": container.passes_running,
    }


register_recorder(_begin)
register_counts(counts)
