"""What a training step costs in one process: ours, and PyTorch's if it is installed.

A step is a forward pass, a backward pass and a step of SGD with momentum, in float32, on one
thread.  The contenders take turns, step by step; shown are the median in milliseconds and, in
brackets, the lowest and the highest step.  The last columns are ours divided by PyTorch's, of the
medians and of the lowest.

    OPENBLAS_NUM_THREADS=1 python benchmarks/training_steps.py [name ...]

Names choose among the cases: those that contain one of them are measured.
"""

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import tensorplay

ROUNDS = 40
WARM_UP = 5


class Case(NamedTuple):
    """One model: `make(library)` returns it with the arrays of its input and its classes.

    Calling the model on the input gives scores of the classes, which cross entropy compares.
    """

    name: str
    make: Callable[[Any], tuple[Any, Any, Any]]


def classes(samples: int) -> Any:
    """The right answers: class numbers below ten."""
    return np.random.default_rng(1).integers(0, 10, samples)


def inputs(*shape: int) -> Any:
    """Numbers from the normal distribution."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def perceptron(library: Any, samples: int) -> tuple[Any, Any, Any]:
    """784-512-512-10."""
    nn = library.nn
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    return model, inputs(samples, 784), classes(samples)


def conv_net(library: Any, samples: int) -> tuple[Any, Any, Any]:
    """Two convolutions of 3x3, each with a rectifier and pooling, on images of 28x28."""
    nn = library.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 10),
    )
    return model, inputs(samples, 1, 28, 28), classes(samples)


def normalised_conv_net(library: Any, samples: int) -> tuple[Any, Any, Any]:
    """Three padded convolutions with batch normalisation on colour images of 32x32."""
    nn = library.nn
    layers: list[Any] = []
    for inner, outer in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return model, inputs(samples, 3, 32, 32), classes(samples)


def language_model(library: Any, kind: str) -> tuple[Any, Any, Any]:
    """A recurrent layer between an embedding and a decoder; 20 texts of 35 words at a time."""

    class Model(library.nn.Module):  # type: ignore[misc]  # its base is known at run time only
        def __init__(self) -> None:
            super().__init__()
            self.encoder = library.nn.Embedding(1000, 200)
            self.recurrent = getattr(library.nn, kind)(200, 200)
            self.decoder = library.nn.Linear(200, 1000)

        def forward(self, words: Any) -> Any:
            states, _ = self.recurrent(self.encoder(words))
            return self.decoder(states.reshape(-1, 200))

    words = np.random.default_rng(0).integers(0, 1000, (35, 20))
    return Model(), words, classes(words.size)


CASES = [
    Case("perceptron, batch 32", lambda library: perceptron(library, 32)),
    Case("perceptron, batch 256", lambda library: perceptron(library, 256)),
    Case("conv net, batch 8", lambda library: conv_net(library, 8)),
    Case("conv net, batch 32", lambda library: conv_net(library, 32)),
    Case("conv net, batch 128", lambda library: conv_net(library, 128)),
    Case("normalised conv net, batch 32", lambda library: normalised_conv_net(library, 32)),
    Case("LSTM, 35 x 20 words", lambda library: language_model(library, "LSTM")),
    Case("GRU, 35 x 20 words", lambda library: language_model(library, "GRU")),
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


def stepper(library: Any, case: Case) -> Callable[[], None]:
    """A function that takes one step."""
    model, data, answers = case.make(library)
    x, y = library.tensor(data), library.tensor(answers)
    optimizer = library.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    cross_entropy = library.nn.functional.cross_entropy

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def shown(times: list[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(times):7.2f} [{min(times):.2f}, {max(times):.2f}]"


def main() -> None:
    """Measure and print."""
    chosen = sys.argv[1:]
    for case in CASES:
        if chosen and not any(name in case.name for name in chosen):
            continue
        steppers = {name: stepper(library, case) for name, library in contenders().items()}
        taken: dict[str, list[float]] = {name: [] for name in steppers}
        for number in range(WARM_UP + ROUNDS):
            for name, step in steppers.items():
                began = time.perf_counter()
                step()
                if number >= WARM_UP:
                    taken[name].append((time.perf_counter() - began) * 1e3)
        line = "   ".join([f"{name} {shown(times)}" for name, times in taken.items()])
        if "torch" in taken:
            ours, theirs = taken["ours"], taken["torch"]
            median = statistics.median(ours) / statistics.median(theirs)
            line += f"   ours / torch {median:.2f}, lowest {min(ours) / min(theirs):.2f}"
        print(f"{case.name:30} {line}", flush=True)


if __name__ == "__main__":
    main()
