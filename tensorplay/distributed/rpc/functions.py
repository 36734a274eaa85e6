"""Functions that answer later."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_wrapped_async_rpc_function"


def async_execution(function: F) -> F:
    """Mark a function that returns a `Future`: a call of it is answered when that is done.

    No thread of the callee waits meanwhile.  Works for functions, methods, static and class
    methods, on either side of ``@staticmethod`` and ``@classmethod``, and for the methods of
    references.  Called without RPC the function returns its future.  Local.

    A call of a marked function that returns something else raises a RuntimeError at the caller.

    Raises:
        TypeError: What is marked cannot be called.

    ::

        @rpc.functions.async_execution
        def add_elsewhere(to, x, y):
            return rpc.rpc_async(to, add, args=(x, y)).then(lambda future: future.wait() + 1)

        rpc.rpc_sync("worker1", add_elsewhere, args=("worker2", 1, 2))  # 4
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(async_execution(function.__func__))
    if not callable(function):
        raise TypeError(f"async_execution() needs a function, got a {type(function).__name__}")

    # A function of its own: the mark must not fall on what others call by another name.
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    setattr(wrapper, _MARK, function)
    return wrapper  # type: ignore[return-value]  # wraps() keeps the signature


class Later(NamedTuple):
    """Stands for the result of a marked function that another function has called for the caller.

    Attributes:
        result: What the marked function has returned, which should be a `Future`.
    """

    result: Any


def is_async(function: Any) -> bool:
    """Whether calls of `function` are answered when the future that it returns is done.

    Sees through bound methods, partials, and objects whose ``__call__`` is marked.

    >>> @async_execution
    ... def later(future):
    ...     return future
    >>> is_async(later), is_async(functools.partial(later, 1)), is_async(len)
    (True, True, False)
    """
    if type(function) is types.FunctionType:
        return hasattr(function, _MARK)  # most are
    while not isinstance(function, types.FunctionType):
        if isinstance(function, types.MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        else:
            # Perhaps an object of a user's class.  Only classes are asked: instances, as proxies
            # and mocks are, may answer anything.
            calls = (vars(cls).get("__call__") for cls in type(function).__mro__)
            function = next((call for call in calls if call is not None), None)
            return isinstance(function, types.FunctionType) and _MARK in function.__dict__
    return _MARK in function.__dict__
