"""Starts a worker on MPI."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from tensorplay.distributed import settings
from tensorplay.distributed.rpc import job, log
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.backend_registry import register_backend
from tensorplay.distributed.rpc.dump_signal import DumpOnSignal
from tensorplay.distributed.rpc.options import (
    MPIRpcBackendOptions,
    RpcBackendOptions,
    TensorPipeRpcBackendOptions,
)
from tensorplay.distributed.rpc.start import agree
from tensorplay.distributed.transport import mpi


def make_agent(
    store: None = None,
    name: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
    comm: Any = None,
    problem: Exception | None = None,
) -> Agent:
    """The agent of this process, not yet started.  Collective over `comm`.

    Args:
        store: Not used: MPI ranks know each other.
        name: See `init_rpc`.
        rank: See `init_rpc`.
        world_size: See `init_rpc`.
        rpc_backend_options: See `init_rpc`.
        comm: See `init_rpc`.
        problem: What is wrong already with this rank's arguments; raised on all ranks.
    """
    given = MPIRpcBackendOptions() if rpc_backend_options is None else rpc_backend_options
    found, wrong_settings = settings.read(os.environ)
    problem = problem or given.problem()
    if problem is None and wrong_settings:
        problem = ValueError("; ".join(wrong_settings))
    if problem is not None and comm is None and mpi.launched_size() <= 1:
        # There is nobody to tell, so no MPI need be started for it.
        raise type(problem)(f"init_rpc: rank 0: {problem}")
    if isinstance(given, TensorPipeRpcBackendOptions):
        given = given.for_mpi()
    assert isinstance(given, MPIRpcBackendOptions)
    # A copy: the user's own object may be changed, or used again.
    options = replace(given)
    module = mpi.load_mpi(found.thread_level)
    if comm is None:
        comm = module.COMM_WORLD
        mpi.check_launcher(comm.Get_size())
    else:
        mpi.check_communicator(comm)
    job.watch(joins=True)
    transport = mpi.MPITransport(comm, found.tag_limit)
    try:
        workers = agree(transport, name, rank, world_size, options, problem, found)
    except BaseException:
        transport.close()
        raise
    agent = Agent(workers, transport, options, job.crashed)
    agent.at_end.append(log.configure(found.log, transport.rank))
    log.log_messages(transport)
    agent.at_end.append(DumpOnSignal(agent, found.dump_signal).close)
    return agent


def _mpi_options(rpc_timeout: float, init_method: str, **kwargs: Any) -> MPIRpcBackendOptions:
    return MPIRpcBackendOptions(rpc_timeout, init_method, **kwargs)


def _tensorpipe_options(
    rpc_timeout: float, init_method: str, **kwargs: Any
) -> TensorPipeRpcBackendOptions:
    return TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **kwargs)


register_backend("MPI", _mpi_options, make_agent)
register_backend("TENSORPIPE", _tensorpipe_options, make_agent)
