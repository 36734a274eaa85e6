"""Private names of `torch.distributed.rpc` that programs and tools import.

What there is here under another name is that; what there cannot be says why when it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from tensorplay.distributed.rpc.agent import Agent
from tensorplay.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.current import agent_or_none, current_agent
from tensorplay.distributed.rpc.internal import _internal_rpc_pickler
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.worker import WorkerInfo

PyRRef = RRef
RpcAgent = Agent
TensorPipeAgent = Agent

_default_pickler = _internal_rpc_pickler


def _is_current_rpc_agent_set() -> bool:
    """Whether this process is a worker."""
    return agent_or_none() is not None


def _get_current_rpc_agent() -> Agent:
    """This worker's agent.

    Raises:
        RuntimeError: RPC has not been initialised.
    """
    agent = agent_or_none()
    if agent is None:
        raise RuntimeError(
            "Current RPC agent is not set! Did you initialize the RPC framework (e.g. by calling "
            "`rpc.init_rpc`)?"
        )
    return agent


def _to_worker_info(to: str | int | WorkerInfo) -> WorkerInfo:
    """The worker that a call to `to` would reach."""
    return current_agent().resolve(to)


def _rref_typeof_on_user(
    rref: RRef[Any], timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True
) -> Any:
    """The class of a reference's value, or a future of it unless `blocking`."""
    future = current_agent().call_on_value(rref, type, None, None, timeout, waits=blocking)
    return future.wait() if blocking else future


def _rref_typeof_on_owner(rref: RRef[Any], blocking: bool = True) -> Any:
    """The same, on the owner."""
    return _rref_typeof_on_user(rref, blocking=blocking)


def method_factory(method_name: str, docstring: str | None) -> Callable[..., Any]:
    """A function that calls the method of that name of an `RRef`.  Local.

    >>> from tensorplay.distributed import rpc
    >>> rpc.method_factory("owner_name", "Where the value lives.")(rpc.RRef(5))
    'worker0'
    """

    def method(self: RRef[Any], *args: Any, **kwargs: Any) -> Any:
        return getattr(self, method_name)(*args, **kwargs)

    method.__name__ = method_name
    method.__doc__ = docstring
    return method


new_method = method_factory("to_here", RRef.to_here.__doc__)


@contextlib.contextmanager
def _use_rpc_pickler(rpc_pickler: Any) -> Iterator[None]:
    """A block in which `rpc_pickler` pickles messages: only the one that does anyway.

    Raises:
        RuntimeError: It is another.
    """
    if rpc_pickler is not _default_pickler:
        raise RuntimeError(
            "messages are pickled by tensorplay's own rules, which no other pickler can replace; "
            "rpc.internal._internal_rpc_pickler._register_reducer adds a rule for a class"
        )
    yield


def no_profiler(name: str) -> RuntimeError:
    """What to raise where something is to be profiled."""
    return RuntimeError(
        f"{name}: there is no profiler of calls here. rpc.statistics() and rpc._get_debug_info() "
        "count them; py-spy or cProfile show where a worker spends its time"
    )


class RemoteProfilerManager:
    """Exists so that programs can import it; its methods raise RuntimeError."""

    @staticmethod
    def set_current_profiling_key(key: str) -> NoReturn:
        """There is no profiler to tell."""
        raise no_profiler("RemoteProfilerManager")


def enable_gil_profiling(flag: bool) -> None:
    """Have `_get_debug_info` measure waits for the interpreter lock: it cannot, so only False goes.

    Local.

    Raises:
        RuntimeError: `flag` is True.
    """
    if flag:
        raise no_profiler("enable_gil_profiling(True)")


def _delete_all_user_and_unforked_owner_rrefs(timeout: object = None) -> NoReturn:
    """There is nothing that would do so.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(
        "references are not deleted while the program holds them: drop them (del, or leave their "
        "scope), and their owners free the values. shutdown() ends what is left"
    )


def _destroy_rref_context(ignore_leak: bool) -> NoReturn:
    """`shutdown` does what this would do.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(
        "a worker's references end with its agent: call shutdown(), which ends both together"
    )
