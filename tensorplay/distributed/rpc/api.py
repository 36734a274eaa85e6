"""The calls that a program makes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tensorplay.distributed.rpc import job
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.current import agent_or_none, current_agent, set_process_agent
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.options import (
    UNSET_RPC_TIMEOUT,
    BackendType,
    MPIRpcBackendOptions,
)
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.start import agree
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport import Transport, mpi

_switch_interval_before: list[float] = []
#: Kept for good: MPI may still write into their memory.
_abandoned: list[Transport] = []


def is_available() -> bool:
    """Whether RPC can be imported: always.  MPI is needed only by `init_rpc`."""
    return True


def init_rpc(
    name: str | None = None,
    backend: BackendType | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    rpc_backend_options: MPIRpcBackendOptions | None = None,
    *,
    comm: Any = None,
) -> None:
    """Make this process a worker.  Collective over `comm`.

    Args:
        name: This worker's name, unique among all; ``worker<rank>`` if not given.
        backend: `BackendType.MPI`, which is what there is.
        rank: If given, must be this process's rank in `comm`; -1 stands for not given.
        world_size: If given, must be the size of `comm`; -1 and 0 stand for not given.
        rpc_backend_options: Timeouts and such.
        comm: An mpi4py communicator, ``MPI.COMM_WORLD`` by default.

    Raises:
        ValueError: `rank`, `world_size`, the options or a name does not hold.
        RuntimeError: RPC is initialised already, MPI cannot be used, the launcher belongs to
            another MPI, or two workers have one name.  What any worker has to complain of is
            raised on all of them.
    """
    if agent_or_none() is not None:
        raise RuntimeError("RPC is already initialized: call shutdown() before init_rpc()")
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    options = MPIRpcBackendOptions() if rpc_backend_options is None else rpc_backend_options
    if not isinstance(options, MPIRpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of MPIRpcBackendOptions")
    module = mpi.load_mpi()
    if comm is None:
        comm = module.COMM_WORLD
        mpi.check_launcher(comm.Get_size())
    else:
        mpi.check_communicator(comm)
    job.watch()
    transport = mpi.MPITransport(comm)
    try:
        workers = agree(transport, name, rank, world_size, options)
    except BaseException:
        transport.close()
        raise
    agent = Agent(workers, transport, options, job.crashed)
    set_process_agent(agent)
    job.serving()
    if options.switch_interval is not None:
        _switch_interval_before.append(sys.getswitchinterval())
        sys.setswitchinterval(options.switch_interval)
    agent.start()


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Stop being a worker.

    Collective if `graceful`: this worker serves until no worker has calls, answers or drops
    outstanding; then all leave.  Otherwise local and at once; calls that are not answered fail.

    Args:
        graceful: See above.
        timeout: Seconds; 0 for no limit.

    Raises:
        RuntimeError: RPC has not been initialised, or a function that is being served calls this.
        RpcTimeoutError: The others were not ready in time.
    """
    agent = current_agent()
    if agent.progress.serves_here:
        raise RuntimeError(
            f"shutdown() on worker {agent.name!r} was called by a function that is being served, "
            "or by a callback: it would wait for itself. Let the program call it"
        )
    completed = False
    try:
        if graceful:
            agent.join(timeout)
            completed = True
    finally:
        agent.close(graceful=completed)
        set_process_agent(None)
        if _switch_interval_before:
            sys.setswitchinterval(_switch_interval_before.pop())
        if completed:
            agent.transport.close()
        else:
            _abandoned.append(agent.transport)


def rpc_sync(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Any:
    """Call `func` on another worker, and wait for its result.

    Args:
        to: The worker's name, rank or `WorkerInfo`; it may be this one.
        func: Anything callable that pickle can name: a function of a module that both have.
        args: Positional arguments, a tuple or a list.  The callee gets copies.
        kwargs: Keyword arguments.
        timeout: Seconds; -1 for the default of the options, 0 for no limit.

    Returns:
        A copy of the result.

    Raises:
        RpcTimeoutError: There was no answer in time.
        Exception: What `func` raised, with the remote traceback as its cause.

    Local, thread-safe.
    """
    return current_agent().call(to, func, args, kwargs, timeout, waits=True).wait()


def rpc_async(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Future:
    """Like `rpc_sync`, but returns at once, with a `Future` of the result."""
    return current_agent().call(to, func, args, kwargs, timeout, waits=False)


def remote(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> RRef[Any]:
    """Like `rpc_async`, but the result stays where it is made; returns a reference to it."""
    return current_agent().create(to, func, args, kwargs, timeout)


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """Name and rank of a worker, by default of this one.

    Raises:
        RuntimeError: There is no worker of that name.
    """
    agent = current_agent()
    return agent.workers[agent.rank] if worker_name is None else agent.resolve(worker_name)


def get_world_size() -> int:
    """How many workers there are.

    Raises:
        RuntimeError: RPC has not been initialised.
    """
    return len(current_agent().workers)
