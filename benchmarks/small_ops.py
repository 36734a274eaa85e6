"""What a small operation costs: NumPy's own, ours, and PyTorch's if it is installed.

Each figure is for one operation on 3x3 float32 matrices that require grad, taken over a chain of a
hundred of them: forward, and forward and backward together.  The contenders take turns, round by
round; shown are the median in microseconds and, in brackets, the lowest and the highest round.  The
last columns are ours divided by PyTorch's.

    OPENBLAS_NUM_THREADS=1 python benchmarks/small_ops.py
"""

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tensorplay

CHAIN = 100
ROUNDS = 40


class Operation(NamedTuple):
    """One thing to measure: `apply(x, b, row)` on tensors, and `bare`, the same on arrays."""

    name: str
    apply: Callable[[Any, Any, Any], Any]
    bare: Callable[[Any, Any, Any], Any]


OPERATIONS = [
    Operation("x + b", lambda x, b, _: x + b, lambda x, b, _: x + b),
    Operation("x - b", lambda x, b, _: x - b, lambda x, b, _: x - b),
    Operation("x * b", lambda x, b, _: x * b, lambda x, b, _: x * b),
    Operation("x / b", lambda x, b, _: x / b, lambda x, b, _: x / b),
    Operation("x * 1.01", lambda x, _b, _r: x * 1.01, lambda x, _b, _r: x * 1.01),
    Operation("x + row", lambda x, _, row: x + row, lambda x, _, row: x + row),
    Operation("x.tanh()", lambda x, _b, _r: x.tanh(), lambda x, _b, _r: np.tanh(x)),
    Operation("x.relu()", lambda x, _b, _r: x.relu(), lambda x, _b, _r: np.maximum(x, 0)),
    Operation("x @ b", lambda x, b, _: x @ b, lambda x, b, _: x @ b),
]


def contenders() -> dict[str, Any]:
    """The libraries that take part, by name."""
    found = {"ours": tensorplay}
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return found
    torch.set_num_threads(1)
    return {**found, "torch": torch}


def values() -> tuple[Any, Any, Any]:
    """A start, a second operand and a row whose chains neither vanish nor overflow."""
    drawn = np.random.default_rng(0)
    start = drawn.uniform(0.5, 1.0, (3, 3)).astype(np.float32)
    other = drawn.uniform(0.3, 0.36, (3, 3)).astype(np.float32)
    return start, other, other[0]


def bare_turn(operation: Operation) -> float:
    """NumPy alone, forward only."""
    x, b, row = values()
    began = time.perf_counter()
    for _ in range(CHAIN):
        x = operation.bare(x, b, row)
    return (time.perf_counter() - began) / CHAIN * 1e6


def turn(library: Any, operation: Operation) -> tuple[float, float]:
    """A library's chain: forward, and forward and backward."""
    x, b, row = [library.tensor(one, requires_grad=True) for one in values()]
    began = time.perf_counter()
    for _ in range(CHAIN):
        x = operation.apply(x, b, row)
    forward = time.perf_counter() - began
    ones = library.ones_like(x)
    began = time.perf_counter()
    x.backward(ones)
    backward = time.perf_counter() - began
    return forward / CHAIN * 1e6, (forward + backward) / CHAIN * 1e6


def shown(times: list[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(times):5.2f} [{min(times):.2f}, {max(times):.2f}]"


def main() -> None:
    """Measure and print."""
    libraries = contenders()
    for operation in OPERATIONS:
        bare: list[float] = []
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in libraries}
        with np.errstate(all="ignore"):
            for _ in range(ROUNDS):
                bare.append(bare_turn(operation))
                for name, library in libraries.items():
                    taken[name].append(turn(library, operation))
        print(f"{operation.name:9} numpy            forward {shown(bare)}")
        medians = {}
        for name, times in taken.items():
            forward, both = (list(column) for column in zip(*times, strict=True))
            medians[name] = statistics.median(forward), statistics.median(both)
            print(f"{'':9} {name:16} forward {shown(forward)}   and backward {shown(both)}")
        if "torch" in medians:
            ratios = [a / b for a, b in zip(medians["ours"], medians["torch"], strict=True)]
            print(f"{'':9} ours / torch     forward {ratios[0]:.2f}   and backward {ratios[1]:.2f}")


if __name__ == "__main__":
    main()
