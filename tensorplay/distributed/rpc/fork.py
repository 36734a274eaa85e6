"""After `os.fork` RPC stays with the parent.

MPI knows nothing of a forked child, and the threads that serve do not exist in it.  So a child of a
process where MPI is up has no agent: what needs one raises at once.  It may compute, and leave in
any way, without ending the job.  The parent does not notice; no call costs anything for it.
"""

from __future__ import annotations

import os

from tensorplay.distributed.rpc import job
from tensorplay.distributed.rpc.current import agent_or_none, forget_agents
from tensorplay.distributed.transport import mpi


def watch() -> None:
    """Have children forked from this process know what they are.  Called once."""
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    agent = agent_or_none()
    if agent is None and not mpi.is_running():
        # Forked before RPC: a process like any other.
        return
    forget_agents()
    if agent is not None:
        agent.abandon()
    job.watch_child()
