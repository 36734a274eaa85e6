"""What a small operation costs: NumPy's own, ours, and PyTorch's if it is installed.

Each figure is for one operation on 3x3 matrices that require grad: forward, and forward and
backward together.  The first table is of chains of a hundred, where each takes the result of the
one before; the second of a hundred results from the same tensors, with one backward pass from all
of them.  The contenders take turns, round by round.  Of chains are shown the median in microseconds
and, in brackets, the lowest and the highest round; of the others the medians.  Ratios are ours
divided by PyTorch's; in the second table of the medians and of the lowest.

    OPENBLAS_NUM_THREADS=1 python benchmarks/small_ops.py [float32|float64]
"""

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tensorplay

CHAIN = 100
ROUNDS = 40
DTYPE = sys.argv[1] if len(sys.argv) > 1 else "float32"


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


class Operands(NamedTuple):
    """What the operations of the second table take, besides `x`."""

    library: Any
    functional: Any
    b: Any
    row: Any
    classes: Any
    mask: Any
    plain: Any
    target: Any


Single = Callable[[Any, Operands], Any]

SINGLES: dict[str, Single] = {
    "abs": lambda x, o: x.abs(),
    "add_": lambda x, o: o.plain.add_(o.target),
    "cat": lambda x, o: o.library.cat([x, o.b]),
    "clamp": lambda x, o: x.clamp(0.6, 0.9),
    "clone": lambda x, o: x.clone(),
    "cross_entropy": lambda x, o: o.functional.cross_entropy(x, o.classes),
    "detach": lambda x, o: x.detach(),
    "exp": lambda x, o: x.exp(),
    "index_select": lambda x, o: x.index_select(0, o.classes),
    "layer_norm": lambda x, o: o.functional.layer_norm(x, (3,), o.row, o.row),
    "linear": lambda x, o: o.functional.linear(x, o.b, o.row),
    "log_softmax": lambda x, o: o.functional.log_softmax(x, dim=1),
    "maximum": lambda x, o: o.library.maximum(x, o.b),
    "mean": lambda x, o: x.mean(),
    "mse_loss": lambda x, o: o.functional.mse_loss(x, o.target),
    "mul_": lambda x, o: o.plain.mul_(o.target),
    "pow": lambda x, o: x**2,
    "reshape": lambda x, o: x.reshape(9),
    "sigmoid": lambda x, o: x.sigmoid(),
    "softmax": lambda x, o: o.functional.softmax(x, dim=1),
    "sqrt": lambda x, o: x.sqrt(),
    "stack": lambda x, o: o.library.stack([x, o.b]),
    "sub_": lambda x, o: o.plain.sub_(o.target),
    "sum": lambda x, o: x.sum(),
    "sum(dim)": lambda x, o: x.sum(1),
    "transpose": lambda x, o: x.transpose(0, 1),
    "unsqueeze": lambda x, o: x.unsqueeze(0),
    "where": lambda x, o: o.library.where(o.mask, x, o.b),
    "x[0]": lambda x, o: x[0],
    "x[:, 1]": lambda x, o: x[:, 1],
}


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
    start = drawn.uniform(0.5, 1.0, (3, 3)).astype(DTYPE)
    other = drawn.uniform(0.3, 0.36, (3, 3)).astype(DTYPE)
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


def operands(library: Any) -> tuple[Any, Operands]:
    """`x` and the rest for the second table."""
    x, b, row = values()
    return library.tensor(x, requires_grad=True), Operands(
        library,
        library.nn.functional,
        library.tensor(b, requires_grad=True),
        library.tensor(row.copy(), requires_grad=True),
        library.tensor([0, 2, 1]),
        library.tensor(x > 0.75),
        library.tensor(x),
        library.tensor(b),
    )


def single_turn(library: Any, apply: Single) -> tuple[float, float]:
    """A hundred results of a library: forward, and forward and backward."""
    x, others = operands(library)
    began = time.perf_counter()
    results = [apply(x, others) for _ in range(CHAIN)]
    forward = time.perf_counter() - began
    backward = 0.0
    if results[0].requires_grad:
        ones = [library.ones_like(results[0])] * CHAIN
        began = time.perf_counter()
        library.autograd.backward(results, ones)
        backward = time.perf_counter() - began
    return forward / CHAIN * 1e6, (forward + backward) / CHAIN * 1e6


def singles(libraries: dict[str, Any]) -> None:
    """Measure and print the second table."""
    print(f"\n{'':15} " + "  ".join([f"{name:>14}" for name in libraries]))
    for name, apply in SINGLES.items():
        taken: dict[str, list[tuple[float, float]]] = {one: [] for one in libraries}
        for _ in range(ROUNDS):
            for one, library in libraries.items():
                taken[one].append(single_turn(library, apply))
        columns = {one: list(zip(*times, strict=True)) for one, times in taken.items()}
        line = f"{name:15} "
        for forward, both in columns.values():
            line += f"{statistics.median(forward):6.2f} {statistics.median(both):7.2f}  "
        if "torch" in columns:
            for what, pick in (("median", statistics.median), ("lowest", min)):
                ratios = [
                    pick(a) / pick(b)
                    for a, b in zip(columns["ours"], columns["torch"], strict=True)
                ]
                line += f"  {what} {ratios[0]:.2f} {ratios[1]:.2f}"
        print(line, flush=True)


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
    singles(libraries)


if __name__ == "__main__":
    main()
