"""A convolutional network as a pipeline over four ranks, trained in micro-batches on digits.

    mpiexec -n 4 python examples/pipeline.py

Each rank holds one stage.  Rank 0 drives: it splits a batch into micro-batches, and sets all of
them off at once.  A stage gets a *reference* to the output of the stage before and fetches it from
there, so values go from rank to rank and never through the driver; while stage 2 works on one
micro-batch, stage 1 works on the next.  `dist_autograd.backward` sends gradients back in the same
way, and a `DistributedOptimizer` moves the parameters of each stage where they live.

Each stage writes down when it worked, and the program tells how much of that was at the same time.
Then it trains the same network in one process, on whole batches and with no remote call, and
compares: the losses of all steps and the parameters at the end are equal to rounding.

With fewer ranks some hold several stages; ``python examples/pipeline.py`` is a world of one.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from showing import Progress, pyplot, save

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer

STAGES = 4
#: Largest difference, relative, of a loss from that of one process, and of a parameter: where a
#: gradient is all but 0, Adam divides a difference of rounding by a number as small.
LOSSES_APART, PARAMETERS_APART = 1e-12, 1e-10


def layers_of(stage: int) -> list[nn.Module]:
    """The network in four pieces: 8 x 8 pixels in, ten classes out."""
    if stage == 0:
        return [nn.Conv2d(1, 24, 3, padding=1), nn.ReLU()]
    if stage == 1:
        return [nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    if stage == 2:
        return [nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return [nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10)]


class Stage(nn.Module):
    """A piece of the network, which takes one micro-batch at a time.

    It begins with the same parameters wherever it lives.
    """

    def __init__(self, index: int, seed: int) -> None:
        super().__init__()
        tp.manual_seed(seed + index)
        # In float32 the rounding of the first steps grows to a per cent within some hundred.
        self.layers = nn.Sequential(*layers_of(index)).double()
        self._worked: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    def forward(self, inputs: tp.Tensor | rpc.RRef[tp.Tensor]) -> tp.Tensor:
        """Run the layers; an output of another stage is fetched from where it is."""
        # Not under the lock: another micro-batch may be here already.
        x = inputs.to_here() if isinstance(inputs, rpc.RRef) else inputs
        with self._lock:
            began = time.time()
            output: tp.Tensor = self.layers(x)
            self._worked.append((began, time.time()))
        return output

    def worked(self) -> list[tuple[float, float]]:
        """When each forward pass so far began and ended."""
        return self._worked


class Pipeline:
    """The four stages, spread over the ranks."""

    def __init__(self, world_size: int, seed: int) -> None:
        self.stages = [
            RemoteModule(f"rank:{k % world_size}", Stage, (k, seed)) for k in range(STAGES)
        ]

    def start(self, x: tp.Tensor) -> rpc.Future:
        """Set a micro-batch off; the future of the last stage's output."""
        flowing: tp.Tensor | rpc.RRef[tp.Tensor] = x
        for stage in self.stages[:-1]:
            flowing = stage.get_module_rref().remote().forward(flowing)
        return self.stages[-1].forward_async(flowing)

    def parameters(self) -> list[rpc.RRef]:
        """References to all parameters."""
        return [rref for stage in self.stages for rref in stage.remote_parameters()]


@dataclass(frozen=True)
class Batch:
    """Images, ``(count, 1, 8, 8)`` in [0, 1], and labels 0 to 9."""

    images: np.ndarray
    labels: np.ndarray

    def split(self, pieces: int) -> list[Batch]:
        """As micro-batches of about the same size, none of them empty."""
        parts = np.array_split(np.arange(len(self.labels)), min(pieces, len(self.labels)))
        return [Batch(self.images[part], self.labels[part]) for part in parts]


@dataclass
class Run:
    """What a training has brought."""

    losses: list[float] = field(default_factory=list)
    parameters: list[np.ndarray] = field(default_factory=list)
    accuracy: float = 0.0
    seconds: float = 0.0


def load_digits(seed: int) -> tuple[Batch, Batch]:
    """The digits that scikit-learn ships: for training, and a fifth held out."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise SystemExit(
            "this example needs scikit-learn: install the extra 'examples' of tensorplay-mpi"
        ) from error
    data = load()
    order = np.random.default_rng(seed).permutation(len(data.target))
    test, train = np.split(order, [len(order) // 5])
    images = (data.data / 16.0).reshape(-1, 1, 8, 8)
    return Batch(images[train], data.target[train]), Batch(images[test], data.target[test])


def batches(args: argparse.Namespace, data: Batch) -> Iterator[Batch]:
    """The batches of all epochs, in the same order each time."""
    for epoch in range(args.epochs):
        order = np.random.default_rng(args.seed + epoch).permutation(len(data.labels))
        for start in range(0, len(order), args.batch_size):
            part = order[start : start + args.batch_size]
            yield Batch(data.images[part], data.labels[part])


def loss_of(output: tp.Tensor, labels: np.ndarray, count: int) -> tp.Tensor:
    """What a micro-batch adds to the mean cross entropy of a batch of `count`."""
    return nn.functional.cross_entropy(output, tp.tensor(labels), reduction="sum") / count


def accuracy_of(predict: Callable[[tp.Tensor], tp.Tensor], batch: Batch) -> float:
    """Which part of a batch is classified rightly."""
    with tp.no_grad():
        scores = predict(tp.from_numpy(batch.images)).detach().numpy()
    return float((scores.argmax(axis=1) == batch.labels).mean())


def train_pipeline(
    args: argparse.Namespace, pipeline: Pipeline, data: Batch, held_out: Batch
) -> Run:
    """Train over all ranks."""
    optimizer = DistributedOptimizer(tp.optim.Adam, pipeline.parameters(), lr=args.lr)
    steps = args.epochs * -(-len(data.labels) // args.batch_size)
    progress = Progress(steps, "step", args.progress)
    run = Run()
    began = time.perf_counter()
    for batch in batches(args, data):
        pieces = batch.split(args.micro_batches)
        with dist_autograd.context() as context_id:
            under_way = [pipeline.start(tp.from_numpy(piece.images)) for piece in pieces]
            losses = [
                loss_of(output.wait(), piece.labels, len(batch.labels))
                for output, piece in zip(under_way, pieces, strict=True)
            ]
            loss = tp.stack(losses).sum()
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        run.losses.append(loss.item())
        progress.advance_to(len(run.losses), loss=f"{run.losses[-1]:.4f}")
    run.seconds = time.perf_counter() - began
    progress.close()
    run.accuracy = accuracy_of(lambda x: pipeline.start(x).wait(), held_out)
    run.parameters = [
        value.numpy() for stage in pipeline.stages for value in stage.state_dict().values()
    ]
    return run


def train_alone(args: argparse.Namespace, data: Batch, held_out: Batch) -> Run:
    """The same in one process: whole batches, a local optimizer, no remote call."""
    network = nn.Sequential(*(Stage(k, args.seed) for k in range(STAGES)))
    optimizer = tp.optim.Adam(network.parameters(), lr=args.lr)
    run = Run()
    began = time.perf_counter()
    for batch in batches(args, data):
        optimizer.zero_grad()
        loss = loss_of(network(tp.from_numpy(batch.images)), batch.labels, len(batch.labels))
        loss.backward()
        optimizer.step()
        run.losses.append(loss.item())
    run.seconds = time.perf_counter() - began
    run.accuracy = accuracy_of(network, held_out)
    run.parameters = [value.numpy() for value in network.state_dict().values()]
    return run


def shared_time(worked: list[list[tuple[float, float]]]) -> float:
    """Of the time in which a stage worked on a forward pass, the part in which others did, too."""
    changes = sorted(
        change for spans in worked for began, ended in spans for change in ((began, 1), (ended, -1))
    )
    at_work, some, several = 0, 0.0, 0.0
    for (now, change), (then, _) in itertools.pairwise(changes):
        at_work += change
        some += (then - now) * (at_work > 0)
        several += (then - now) * (at_work > 1)
    return several / some


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """How far apart two arrays are, measured by the largest number of the second."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def drive(args: argparse.Namespace, world_size: int) -> list[str]:
    """Rank 0's program; what went wrong."""
    data, held_out = load_digits(args.seed)
    pipeline = Pipeline(world_size, args.seed)
    run = train_pipeline(args, pipeline, data, held_out)
    worked = [stage.worked() for stage in pipeline.stages]
    alone = train_alone(args, data, held_out)

    steps = len(run.losses)
    print(f"\n{'stage':>12} {'rank':>5} {'micro-batches':>14} {'forward, s':>11}")
    for k, spans in enumerate(worked):
        busy = sum(ended - began for began, ended in spans)
        print(f"{k:>12} {k % world_size:>5} {len(spans):>14} {busy:>11.2f}")
    print(f"\n{'':>12} {'loss':>10} {'accuracy':>9} {'steps':>7} {'seconds':>9}")
    for name, one in (("pipeline", run), ("one process", alone)):
        print(
            f"{name:>12} {one.losses[-1]:>10.6f} {one.accuracy:>9.2%} {steps:>7d} "
            f"{one.seconds:>9.2f}"
        )
    losses = max(
        abs(one - other) / abs(other) for one, other in zip(run.losses, alone.losses, strict=True)
    )
    parameters = max(map(relative, run.parameters, alone.parameters))
    shared = shared_time(worked)
    print(f"\n{'losses apart':>13} {'parameters apart':>17} {'at the same time':>17}")
    print(f"{losses:>13.1e} {parameters:>17.1e} {shared:>17.0%}")
    if args.picture:
        draw(args.picture, run, alone, worked, args.micro_batches)
    faults = []
    if losses > LOSSES_APART or parameters > PARAMETERS_APART:
        faults.append("the pipeline computes something else than one process")
    if run.accuracy < args.bound:
        faults.append(f"accuracy {run.accuracy:.2%} is below {args.bound:.0%}")
    if world_size > 1 and args.micro_batches > 1 and not shared:
        faults.append("no two stages have ever worked at the same time")
    return faults


def draw(
    path: Path, run: Run, alone: Run, worked: list[list[tuple[float, float]]], micro_batches: int
) -> None:
    """A picture of the losses and of one step's forward pass, if matplotlib is there."""
    plot = pyplot()
    if plot is None:
        return
    figure, (left, right) = plot.subplots(1, 2, figsize=(11, 4))
    left.plot(run.losses, linewidth=0.8, label="pipeline")
    left.plot(alone.losses, ":", linewidth=1.6, label="one process")
    left.set(xlabel="step", ylabel="cross entropy", yscale="log", title="Digits, training loss")
    left.legend()
    # The first step's passes also load code, and the last passes are those of the held-out images.
    step = slice(2 * micro_batches, 3 * micro_batches)
    first = min(began for spans in worked for began, _ in spans[step])
    for k, spans in enumerate(worked):
        for number, (began, ended) in enumerate(spans[step]):
            span = ((began - first) * 1e3, (ended - began) * 1e3)
            right.broken_barh([span], (k - 0.4, 0.8), color=f"C{number % 10}")
    right.set(xlabel="ms", ylabel="stage", yticks=range(STAGES), title="Micro-batches of a step")
    right.invert_yaxis()
    save(plot, figure, path)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--bound", type=float, default=0.96, help="the least accuracy")
    parser.add_argument("--short", action="store_true", help="two epochs, for a first look")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--progress", choices=Progress.STYLES, default="auto")
    parser.add_argument("--picture", type=Path, default=Path("pipeline.png"))
    if parser.parse_args().short:
        parser.set_defaults(epochs=2, bound=0.75)
    return parser.parse_args()


def main() -> None:
    args = parse()
    rpc.init_rpc()
    faults = drive(args, rpc.get_world_size()) if rpc.get_worker_info().id == 0 else []
    rpc.shutdown()
    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
