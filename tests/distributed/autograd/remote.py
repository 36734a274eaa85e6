"""Functions that the tests here call on other workers, and parameters that live there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import tensorplay as tp
from distributed.autograd.driving import context_of
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.autograd.container import thread
from tensorplay.distributed.rpc.current import current_agent

# -- plain functions ---------------------------------------------------------------------------


def add(a: Any, b: Any) -> Any:
    return a + b


def mul(a: Any, b: Any) -> Any:
    return a * b


def identity(value: Any) -> Any:
    return value


def twice(x: Any) -> Any:
    return x * 2


def both(x: Any) -> list[Any]:
    """One result that needs a gradient, and one that does not."""
    return [x * 2, tp.ones(2)]


def constant(*_: Any) -> Any:
    return tp.full((2,), 3.0)


def number(*_: Any) -> int:
    return 7


def nothing(*_: Any) -> None:
    return None


def without_grad(x: Any) -> Any:
    with tp.no_grad():
        return x * 2


def detached(x: Any) -> Any:
    return x.detach() * 2


def total(values: Any) -> Any:
    """The sum of all tensors in nested containers."""
    if isinstance(values, tp.Tensor):
        return values.sum()
    parts = values.values() if isinstance(values, dict) else values
    return sum([total(part) for part in parts], start=tp.zeros(()))


def fail(*_: Any) -> None:
    raise KeyError("on purpose")


# -- calls that go on to others ----------------------------------------------------------------


def via(route: Sequence[int], function: Callable[..., Any], *args: Any) -> Any:
    """Call on the last worker of the route, each one calling the next."""
    if not route:
        return function(*args)
    return rpc.rpc_sync(route[0], via, args=(list(route[1:]), function, *args))


def via_async(to: int, function: Callable[..., Any], *args: Any) -> Any:
    return rpc.rpc_async(to, function, args=args).wait()


def via_reference(to: int, function: Callable[..., Any], *args: Any) -> Any:
    return rpc.remote(to, function, args=args).to_here()


def fetch(reference: rpc.RRef[Any]) -> Any:
    return reference.to_here()


# -- parameters that live on a worker ----------------------------------------------------------

_parameters: WeakKeyDictionary[Any, dict[str, tp.Tensor]] = WeakKeyDictionary()
_making = threading.Lock()


def parameter(name: str = "w", value: float = 3.0) -> tp.Tensor:
    """A parameter of this worker, made on first use."""
    with _making:
        mine = _parameters.setdefault(current_agent(), {})
        if name not in mine:
            mine[name] = tp.full((2,), value, requires_grad=True)
        return mine[name]


def times_parameter(x: Any, name: str = "w") -> Any:
    return x * parameter(name)


def square_parameter(name: str = "w") -> Any:
    return parameter(name) * parameter(name)


def gradient_of(context_id: int, name: str = "w") -> Any:
    """The gradient of a parameter of this worker, None if it has none."""
    found = dist_autograd.get_gradients(context_id).get(parameter(name))
    return None if found is None else found.tolist()


def grad_attribute(name: str = "w") -> Any:
    return parameter(name).grad


# -- what a worker has recorded ----------------------------------------------------------------


class Recorded(NamedTuple):
    """A worker's part of a context, in words."""

    sends: dict[int, tuple[str, int, list[str]]]
    recvs: dict[int, tuple[str, int, int]]
    known: set[int]


def recorded(context_id: int) -> Recorded:
    """What this worker has recorded in a context: names, peers and next functions."""
    context = context_of(context_id)
    return Recorded(
        {
            message_id: (node.name(), node.peer, [edge.name() for edge, _ in node.next_functions])
            for message_id, node in context._send_functions().items()
        },
        {
            message_id: (node.name(), node.peer, node.outputs)
            for message_id, node in context._recv_functions().items()
        },
        context._known_worker_ids(),
    )


def current_context() -> int:
    """The context that this thread is in, -1 for none."""
    return thread.context
