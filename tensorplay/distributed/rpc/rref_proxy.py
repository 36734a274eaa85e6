"""Calls of methods of remotely referenced values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorplay.distributed.rpc.rref_calls import call_method

if TYPE_CHECKING:
    from tensorplay.distributed.rpc.rref import RRef

# Starts a call on the owner: the reference, the request, the timeout.
Start = Callable[["RRef[Any]", Any, float], Any]


class RRefProxy:
    """Stands for a referenced value: what is called on it runs on the owner.

    ``proxy.method(*args)`` calls a method there, ``proxy(*args)`` the value itself.  Any callable
    attribute of the value will do; whether there is one, the owner finds out.  May be used again
    and again, by any thread.

    Args:
        rref: The reference.
        start: Makes the call.
        timeout: Of each call, in seconds; -1 for the default of the options, 0 for no limit.
    """

    __slots__ = ("_rref", "_start", "_timeout")

    def __init__(self, rref: RRef[Any], start: Start, timeout: float) -> None:
        self._rref = rref
        self._start = start
        self._timeout = timeout

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(_call, self, name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _call(self, "__call__", *args, **kwargs)

    def __repr__(self) -> str:
        return f"<proxy of {self._rref!r}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("Can not pickle the proxy of an RRef: send the RRef itself")


def _call(proxy: RRefProxy, method: str, /, *args: Any, **kwargs: Any) -> Any:
    rref = proxy._rref
    request: Any = (call_method, (tuple(rref._id), method, args, kwargs), {})
    return proxy._start(rref, request, proxy._timeout)


def start_sync(rref: RRef[Any], request: Any, timeout: float) -> Any:
    """Wait for the result."""
    return rref._agent.use_value(rref, request, timeout, waits=True).wait()


def start_async(rref: RRef[Any], request: Any, timeout: float) -> Any:
    """A future of the result."""
    return rref._agent.use_value(rref, request, timeout, waits=False)


def start_remote(rref: RRef[Any], request: Any, timeout: float) -> Any:
    """A reference to the result, which stays on the owner."""
    return rref._agent.create_from_value(rref, request, timeout)
