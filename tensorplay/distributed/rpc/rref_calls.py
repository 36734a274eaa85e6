"""What runs on the owner of a value when a reference to it is used elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tensorplay.distributed.rpc import messages
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.functions import Later, is_async
from tensorplay.distributed.rpc.ownership import RRefId
from tensorplay.distributed.transport.wire import NO_CONTEXT
from tensorplay.tensor import Tensor


def apply_to_value(
    rref_id: tuple[int, int],
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """``function(value, *args, **kwargs)``; waits until the value exists."""
    return _run(function, (_value(rref_id), *args), kwargs)


def call_method(
    rref_id: tuple[int, int], name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """``value.name(*args, **kwargs)``; waits until the value exists.

    Raises:
        AttributeError: The value has no such attribute.
        TypeError: It cannot be called.
    """
    value = _value(rref_id)
    method = getattr(value, name)
    if not callable(method):
        raise TypeError(
            f"attribute {name!r} of this {type(value).__name__!r} object is not callable: it is of "
            f"type {type(method).__name__!r}. To read an attribute, have the owner call a function "
            "that returns it"
        )
    return _run(method, args, kwargs)


def _value(rref_id: tuple[int, int]) -> Any:
    return current_agent().rrefs.value_of(RRefId(*rref_id)).wait()


def _run(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    result = function(*args, **kwargs)
    return Later(result) if is_async(function) else result


def differentiate(value: Any, context_id: int, retain_graph: bool) -> None:
    """Backward from a value of this worker: through a context's graph, or locally if it is -1."""
    if not isinstance(value, Tensor):
        raise RuntimeError(
            f"RRef should contain a tensor for .backward(), but it contains a {type(value)}"
        )
    if context_id == NO_CONTEXT:
        value.backward(retain_graph=retain_graph)
    else:
        messages.backward(context_id, value, retain_graph)


def fail(reason: str) -> NoReturn:
    """Stands in for a call that was to make a value and could not be sent."""
    raise RuntimeError(reason)
