"""Counters of a worker, under the names that PyTorch gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.rpc.current import current_agent

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.agent import Agent

Counts = Callable[["Agent"], dict[str, int]]
_of_layers_above: list[Counts] = []


def register_counts(counts: Counts) -> None:
    """Have `_get_debug_info` show what `counts` returns, too."""
    _of_layers_above[:] = [counts]


def _rref_context_get_debug_info() -> dict[str, str]:
    """Counters of this worker's remote references, as strings.

    ``num_owner_rrefs`` and ``num_forks``: values here to which references exist (how many there
    are of each, weighted counting does not tell).  ``num_pending_users``: references made here
    whose owner has not acknowledged them.  ``num_pending_futures``: values here that are still to
    be made.
    """
    agent = current_agent()
    return {
        "num_owner_rrefs": str(len(agent.rrefs)),
        "num_forks": str(len(agent.rrefs)),
        "num_pending_users": str(agent.creations_outstanding),
        "num_pending_futures": str(agent.rrefs.unmade),
    }


def _get_debug_info() -> dict[str, Any]:
    """This worker's counters; those of autograd are ints, the others strings.  Local; any thread.

    Raises:
        RuntimeError: RPC has not been initialised.
    """
    agent = current_agent()
    info: dict[str, Any] = _rref_context_get_debug_info()
    info.update(agent.get_debug_info())
    for counts in _of_layers_above:
        info.update(counts(agent))
    return info
