"""What a training step of recurrent nets costs in one process: ours, and PyTorch's if it is there.

Sequences of 35 elements with 200 features, 20 at a time, go through a recurrent layer of 200
features and a linear one; cross entropy compares with the right answers.  In float32 and on one
thread; the contenders take turns, step by step.  Shown are the medians in milliseconds and, in
brackets, the lowest and the highest step.

    OPENBLAS_NUM_THREADS=1 python benchmarks/lstm_step.py
"""

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorplay

LENGTH, BATCH, SIZE, CLASSES = 35, 20, 200, 50
ROUNDS = 60
WARM_UP = 5


def recurrent_net(library: Any, kind: str = "LSTM", layers: int = 1) -> tuple[Any, Any, Any]:
    """A model, its input, and the classes that its scores should point to."""

    class Net(library.nn.Module):  # type: ignore[misc]  # its base is known at run time only
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = getattr(library.nn, kind)(SIZE, SIZE, layers)
            self.decoder = library.nn.Linear(SIZE, CLASSES)

        def forward(self, x: Any) -> Any:
            states, _ = self.recurrent(x)
            return self.decoder(states.reshape(-1, SIZE))

    random = np.random.default_rng(0)
    x = random.standard_normal((LENGTH, BATCH, SIZE)).astype(np.float32)
    return Net(), x, random.integers(0, CLASSES, LENGTH * BATCH)


def stepper(library: Any, kind: str, layers: int) -> Callable[[], None]:
    """A function that takes one step."""
    model, data, answers = recurrent_net(library, kind, layers)
    # As if an embedding, which gets a gradient too, lay before it.
    x = library.tensor(data, requires_grad=True)
    y = library.tensor(answers)
    optimizer = library.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    cross_entropy = library.nn.functional.cross_entropy

    def step() -> None:
        optimizer.zero_grad()
        x.grad = None
        cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def main() -> None:
    """Measure and print."""
    libraries = {"ours": tensorplay}
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        libraries["torch"] = torch
    except ImportError:
        pass
    for kind, layers in (("LSTM", 1), ("LSTM", 2), ("GRU", 1), ("RNN", 1)):
        steppers = {name: stepper(library, kind, layers) for name, library in libraries.items()}
        taken: dict[str, list[float]] = {name: [] for name in steppers}
        for number in range(WARM_UP + ROUNDS):
            for name, step in steppers.items():
                began = time.perf_counter()
                step()
                if number >= WARM_UP:
                    taken[name].append((time.perf_counter() - began) * 1e3)
        line = "   ".join(
            [
                f"{name} {statistics.median(times):6.2f} [{min(times):.2f}, {max(times):.2f}]"
                for name, times in taken.items()
            ]
        )
        if "torch" in taken:
            ours, theirs = taken["ours"], taken["torch"]
            median = statistics.median(ours) / statistics.median(theirs)
            line += f"   ours / torch {median:.2f}, lowest {min(ours) / min(theirs):.2f}"
        print(f"{kind}, {layers} layer(s): {line}", flush=True)


if __name__ == "__main__":
    main()
