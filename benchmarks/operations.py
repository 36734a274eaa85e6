"""What `calls.py` measures: the same program for tensorplay and for its peer, torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

#: Bytes of the messages that are echoed.
SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20, "128 MiB": 128 << 20}
HOPS = 16

_library: Any = None
_rpc: Any = None
_autograd: Any = None


def use(library: Any, rpc: Any, autograd: Any) -> None:
    """Name the packages: of tensorplay, or of torch.  On every worker."""
    global _library, _rpc, _autograd
    _library, _rpc, _autograd = library, rpc, autograd


def nothing() -> None:
    """The small call."""


def echo(x: Any) -> Any:
    return x


def add(x: Any, y: Any) -> Any:
    return x + y


def hop(x: Any, left: int, to: int) -> Any:
    """Go to and fro between two workers."""
    if not left:
        return x * 2
    return _rpc.rpc_sync(f"worker{to}", hop, args=(x, left - 1, 1 - to))


def times(operation: Callable[[], object], count: int) -> float:
    """Median seconds of one operation, after a few that do not count."""
    for _ in range(min(count, 20)):
        operation()
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        operation()
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def documented_example() -> None:
    """The autograd example of PyTorch's pages: a context, a call, a backward pass."""
    with _autograd.context() as context_id:
        t1 = _library.rand((3, 3), requires_grad=True)
        t2 = _library.rand((3, 3), requires_grad=True)
        t3 = _rpc.rpc_sync("worker1", add, args=(t1, t2))
        t4 = _library.rand((3, 3), requires_grad=True)
        loss = (t3 * t4).sum()
        _autograd.backward(context_id, [loss])
        _autograd.get_gradients(context_id)


def hops_forward_and_backward() -> None:
    with _autograd.context() as context_id:
        x = _library.rand((3, 3), requires_grad=True)
        loss = hop(x, HOPS, 1).sum()
        _autograd.backward(context_id, [loss])


def outstanding(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """64 calls at once."""
    for future in [_rpc.rpc_async("worker1", function, args=args) for _ in range(64)]:
        future.wait()


def measure(calls: int) -> dict[str, float]:
    """Worker 0's medians, in seconds."""
    rpc_sync = _rpc.rpc_sync
    small = _library.ones(1)
    results = {
        "rpc_sync, None": times(lambda: rpc_sync("worker1", nothing), calls),
        "rpc_sync, 1 element": times(lambda: rpc_sync("worker1", echo, args=(small,)), calls),
        "64 outstanding, None": times(lambda: outstanding(nothing, ()), calls // 50) / 64,
        "64 outstanding, element": times(lambda: outstanding(echo, (small,)), calls // 50) / 64,
        "remote and to_here": times(
            lambda: _rpc.remote("worker1", echo, args=(small,)).to_here(), calls // 4
        ),
        "autograd example": times(documented_example, calls // 4),
        f"{HOPS} hops and backward": times(hops_forward_and_backward, calls // 40),
    }
    for name, size in SIZES.items():
        message = _library.ones(size // 4)
        count = max(3, min(calls // 10, (256 << 20) // size))
        results[f"echo of {name}"] = times(
            lambda message=message: rpc_sync("worker1", echo, args=(message,)), count
        )
    return results
