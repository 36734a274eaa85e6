"""The calls that a program makes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorplay.distributed.rpc import by_value, job, mpi_backend
from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.backend_registry import BackendType, choose, init_backend
from tensorplay.distributed.rpc.compatibility import (
    _default_pickler,
    _get_current_rpc_agent,
    _rref_typeof_on_owner,
    _rref_typeof_on_user,
    _to_worker_info,
    _use_rpc_pickler,
)
from tensorplay.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.current import (
    agent_or_none,
    current_agent,
    set_process_agent,
    why_forbidden,
)
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.gathering import (
    _all_gather,
    _barrier,
    _broadcast_to_followers,
    _gather_to_leader,
    _wait_all_workers,
)
from tensorplay.distributed.rpc.options import RpcBackendOptions, timeout_problem
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.waiting import (
    _thread_local_var,
    _wait_all,
    note,
)
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport import Transport

#: False: `shutdown` complains of values here that references still point to.
_ignore_rref_leak = True
_switch_interval_before: list[float] = []


def is_available() -> bool:
    """Whether RPC can be imported: always.  MPI is needed only by `init_rpc`.  Local.

    >>> from tensorplay.distributed import rpc
    >>> rpc.is_available()
    True
    """
    return True


def init_rpc(
    name: str | None = None,
    backend: BackendType | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
    *,
    comm: Any = None,
) -> None:
    """Make this process a worker.  Collective over `comm`.

    Returns when all ranks of `comm` have called it.  From then on this worker serves calls, on
    threads of the library.  May be called again after `shutdown`, on another communicator too.

    Args:
        name: This worker's name, unique among all; ``worker<rank>`` if not given.
        backend: `BackendType.MPI`, or one added by `backend_registry.register_backend`.
        rank: If given, must be this process's rank in `comm`; -1 stands for not given.
        world_size: If given, must be the size of `comm`; -1 and 0 stand for not given.
        rpc_backend_options: Timeouts and such: `MPIRpcBackendOptions`, or
            `TensorPipeRpcBackendOptions`.
        comm: An mpi4py intracommunicator, ``MPI.COMM_WORLD`` by default.  Messages travel on
            duplicates of it.

    What any worker's arguments, or the settings in its environment, have wrong is raised on all of
    them.

    Raises:
        ValueError: `rank`, `world_size`, the options or a name does not hold.
        TypeError: An argument is not what it should be.
        ImportError: The options ask for a package that is not installed.
        RuntimeError: RPC is initialised already, MPI cannot be used, the launcher belongs to
            another MPI, two workers have one name, settings of the ranks differ, or this process
            was forked from a worker.

    ::

        rpc.init_rpc()                       # started by mpiexec -n 2: worker0 and worker1
        if rpc.get_worker_info().id == 0:
            print(rpc.rpc_sync("worker1", pow, args=(2, 10)))
        rpc.shutdown()
    """
    forbidden = why_forbidden()
    if forbidden is not None:
        raise RuntimeError(forbidden)
    if agent_or_none() is not None:
        raise RuntimeError("RPC is already initialized: call shutdown() before init_rpc()")
    extra: dict[str, Any] = {} if comm is None else {"comm": comm}
    try:
        backend, options = choose(backend, rpc_backend_options)
    except TypeError as error:
        # The other ranks must hear of it, and wait on MPI.
        mpi_backend.make_agent(None, name, rank, world_size, problem=error, **extra)
        raise
    job.watch(joins=True)
    agent = init_backend(
        backend,
        store=None,
        name=name,
        rank=rank,
        world_size=world_size,
        rpc_backend_options=options,
        **extra,
    )
    if not isinstance(agent, Agent):
        raise TypeError(
            f"the init handler of {backend} must return an RpcAgent, got {type(agent).__name__}"
        )
    set_process_agent(agent)
    job.serving()
    interval = agent.options.switch_interval
    if interval is not None:
        _switch_interval_before.append(sys.getswitchinterval())
        sys.setswitchinterval(interval)
    if agent.options.cloudpickle:
        by_value.send_by_value(by_value.make_pickler)
    agent.start()


def _init_rpc_backend(
    backend: BackendType = BackendType.TENSORPIPE,
    store: object = None,
    name: str | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """As `init_rpc`, whose ranks need no `store` to find each other.  Collective."""
    init_rpc(name, backend, rank, world_size, rpc_backend_options)


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Stop being a worker.

    Collective if `graceful`: this worker serves until no worker has calls, answers or drops
    outstanding; then all leave.  Otherwise local and at once; calls that are not answered fail.

    A worker that leaves without the others, so or by an error of this, tells them: their calls to
    it raise `WorkerLeftError`, and they can shut down together without it.

    Args:
        graceful: See above.
        timeout: Seconds to wait for the others; 0 for no limit.

    Raises:
        RuntimeError: RPC has not been initialised, or a function that is being served, or a
            callback, calls this.
        RpcTimeoutError: The others were not ready in time; names those that have not called it.

    ::

        rpc.shutdown(timeout=60)
    """
    agent = current_agent()
    if agent.progress.serves_here:
        raise RuntimeError(
            f"shutdown() on worker {agent.name!r} was called by a function that is being served, "
            "or by a callback: it would wait for itself. Let the program call it"
        )
    completed = hurried = False
    leaking = 0
    try:
        if graceful:
            agent.join(timeout)
            completed = True
            leaking = 0 if _ignore_rref_leak else len(agent.rrefs)
    except Exception:
        raise
    except BaseException:
        # Ctrl-C: the job is to end now.
        hurried = True
        raise
    finally:
        agent.close(graceful=completed, hurried=hurried)
        set_process_agent(None)
        by_value.send_by_value(None)
        while agent.at_end:
            agent.at_end.pop()()
        if _switch_interval_before:
            sys.setswitchinterval(_switch_interval_before.pop())
        if completed and not agent.departed:
            agent.transport.close()
        else:
            _keep_for_good(agent.transport)
    if leaking:
        raise RuntimeError(
            f"Leaking RRefs: references still point to {leaking} values of worker {agent.name!r}"
        )


def _keep_for_good(transport: Transport) -> None:
    """Keep the memory of transfers that have not ended until the process does.

    What holds it must outlive this module: mpi4py finalises MPI when the modules are gone, and
    until then others may fetch what was sent to them, and MPI may write what they have sent.

    Its communicators are kept too.  What is under way to a worker that has left, or from it, would
    else come out of a later communicator to which MPI gives the same number.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(transport))


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
        func: Anything callable that pickle can name: a function or class of a module that both
            have, a method, a `functools.partial`.  With ``MPIRpcBackendOptions(cloudpickle=True)``
            anything callable.
        args: Positional arguments, a tuple or a list.  The callee gets copies.
        kwargs: Keyword arguments.
        timeout: Seconds; -1 for the default of the options, 0 for no limit.

    Returns:
        A copy of the result.

    Raises:
        RpcTimeoutError: There was no answer in time; tells what the callee was doing.
        WorkerLeftError: The worker has left.
        RuntimeError: There is no such worker, or RPC has not been initialised.
        ValueError: `to` is neither a name, a rank nor a `WorkerInfo`.
        TypeError: `args`, `kwargs` or `timeout` is not what it should be, or cannot be pickled.
        pickle.PicklingError: Other workers could not find `func`, or something in the arguments, by
            its name.
        Exception: What `func` raised, with the remote traceback as its cause.

    Local, thread-safe.  This worker serves others while it waits.

    >>> from tensorplay.distributed import rpc
    >>> rpc.rpc_sync("worker1", pow, args=(2, 10))
    1024
    >>> rpc.rpc_sync(1, sorted, args=([1, 3, 2],), kwargs={"reverse": True})
    [3, 2, 1]
    """
    agent = current_agent()
    call = agent.call(to, func, args, kwargs, timeout, waits=True)
    if not call.is_done:
        agent.wait(call)
    return call.take()


def rpc_async(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Future:
    """Like `rpc_sync`, but returns at once, with a `Future` of the result.

    The caller may change what it has passed at once.  What the call itself has wrong (no such
    worker, arguments that cannot be pickled) is raised here, the rest when the future is asked.

    Local, thread-safe.

    >>> from tensorplay.distributed import rpc
    >>> futures = [rpc.rpc_async(worker, pow, args=(2, worker)) for worker in (0, 1)]
    >>> [future.wait() for future in futures]
    [1, 2]
    """
    future = current_agent().call(to, func, args, kwargs, timeout, waits=False)
    note(future)
    return future


def remote(
    to: str | int | WorkerInfo,
    func: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> RRef[Any]:
    """Like `rpc_async`, but the result stays where it is made; returns an `RRef` to it at once.

    `timeout` bounds the making of the value.  What goes wrong with that is raised whenever the
    reference is used.

    Local, thread-safe.

    >>> from tensorplay.distributed import rpc
    >>> squares = rpc.remote("worker1", dict, args=([(1, 1), (2, 4)],))
    >>> squares.owner_name(), squares.to_here()
    ('worker1', {1: 1, 2: 4})
    """
    return current_agent().create(to, func, args, kwargs, timeout)


def get_rpc_timeout() -> float:
    """Seconds until a call without a timeout of its own fails; 0 for no limit.  Local.

    Raises:
        RuntimeError: RPC has not been initialised.

    >>> from tensorplay.distributed import rpc
    >>> rpc._set_rpc_timeout(30)
    >>> rpc.get_rpc_timeout()
    30
    """
    return current_agent().options.rpc_timeout


def _set_rpc_timeout(rpc_timeout: float) -> None:
    """Set what `get_rpc_timeout` says, for the calls that this worker makes from now on.  Local.

    Args:
        rpc_timeout: Seconds; 0 for no limit.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative or not finite.
        RuntimeError: RPC has not been initialised.
    """
    problem = timeout_problem(rpc_timeout)
    if problem is not None:
        raise problem
    agent = current_agent()
    # The object may be that of other workers, too.
    agent.options = replace(agent.options, rpc_timeout=rpc_timeout)


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """Name and rank of a worker, by default of this one.  Local.

    Raises:
        RuntimeError: There is no worker of that name, or RPC has not been initialised.

    >>> from tensorplay.distributed import rpc
    >>> rpc.get_worker_info()
    WorkerInfo(id=0, name=worker0)
    >>> rpc.get_worker_info("worker1").id
    1
    """
    return current_agent().get_worker_info(worker_name)


def get_world_size() -> int:
    """How many workers there are, or were at `init_rpc`.  Local.

    Raises:
        RuntimeError: RPC has not been initialised.

    >>> from tensorplay.distributed import rpc
    >>> rpc.get_world_size()
    2
    """
    return len(current_agent().workers)
