"""Train a classifier of handwritten digits, cut into stages over the ranks of an MPI job.

    mpiexec -n 4 python examples/train_digits.py

Rank 0 drives.  Each rank holds one stage of the network as a remote module.  A batch is split into
micro-batches; each flows from stage to stage, rank to rank, and several are under way at a time.
`dist_autograd.backward` sends the gradients back the same way, and a `DistributedOptimizer` updates
every stage where it lives.

``python examples/train_digits.py`` runs it in a world of one, and ``--local`` without any remote
call.  All of them compute the same losses: how the network is cut does not change them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer

#: Widths of the network: 8 x 8 pixels in, ten classes out.
WIDTHS = (64, 128, 96, 64, 10)
LAYERS = len(WIDTHS) - 1


@dataclass(frozen=True)
class Digits:
    """The data, split once for all: images as rows of 64 values in [0, 1], labels 0 to 9."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


@dataclass
class History:
    """What the training has shown so far."""

    losses: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    seconds: float = 0.0


def load_digits(seed: int) -> Digits:
    """The digits that scikit-learn ships, a fifth of them held out."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise SystemExit(
            "this example needs scikit-learn: install the extra 'examples' of tensorplay-mpi"
        ) from error
    data = load()
    order = np.random.default_rng(seed).permutation(len(data.target))
    held_out = len(order) // 5
    test, train = order[:held_out], order[held_out:]
    images = data.data / 16.0
    return Digits(images[train], data.target[train], images[test], data.target[test])


def make_stage(first: int, last: int, seed: int, dtype: str) -> nn.Module:
    """Layers `first` to `last` - 1.  Each starts from a seed of its own, wherever it lives."""
    layers: list[nn.Module] = []
    for index in range(first, last):
        tp.manual_seed(seed + index)
        layers.append(nn.Linear(WIDTHS[index], WIDTHS[index + 1]))
        if index < LAYERS - 1:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers).to(getattr(tp, dtype))


def run_stage(stage: rpc.RRef, inputs: tp.Tensor | rpc.RRef) -> tp.Tensor:
    """Run a stage on its own rank; fetches the output of the stage before from where it is."""
    x = inputs.to_here() if isinstance(inputs, rpc.RRef) else inputs
    return stage.local_value()(x)


class Pipeline:
    """The network, one stage a rank."""

    def __init__(self, world_size: int, seed: int, dtype: str) -> None:
        stages = min(world_size, LAYERS)
        cuts = [round(LAYERS * k / stages) for k in range(stages + 1)]
        self.stages = [
            RemoteModule(f"rank:{k}", make_stage, (cuts[k], cuts[k + 1], seed, dtype))
            for k in range(stages)
        ]

    def start(self, x: tp.Tensor) -> rpc.Future:
        """Send a micro-batch on its way; the future of the last stage's output."""
        flowing: tp.Tensor | rpc.RRef = x
        for stage in self.stages[:-1]:
            flowing = rpc.remote(stage.on, run_stage, (stage.get_module_rref(), flowing))
        last = self.stages[-1]
        return rpc.rpc_async(last.on, run_stage, (last.get_module_rref(), flowing))

    def parameters(self) -> list[rpc.RRef]:
        """References to all parameters."""
        return [rref for stage in self.stages for rref in stage.remote_parameters()]


def loss_of(outputs: Iterable[tp.Tensor], labels: list[tp.Tensor]) -> tp.Tensor:
    """Mean cross entropy over the micro-batches of one batch."""
    total = sum(
        nn.functional.cross_entropy(output, label, reduction="sum")
        for output, label in zip(outputs, labels, strict=True)
    )
    return total / sum(len(label) for label in labels)


def distributed_step(
    pipeline: Pipeline, optimizer: DistributedOptimizer
) -> Callable[[list[tp.Tensor], list[tp.Tensor]], float]:
    """The function that trains on one batch, over all ranks."""

    def step(inputs: list[tp.Tensor], labels: list[tp.Tensor]) -> float:
        with dist_autograd.context() as context_id:
            under_way = [pipeline.start(x) for x in inputs]
            loss = loss_of((future.wait() for future in under_way), labels)
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        return float(loss.item())

    return step


def local_step(
    network: nn.Module, optimizer: tp.optim.Optimizer
) -> Callable[[list[tp.Tensor], list[tp.Tensor]], float]:
    """The same on one process, with no remote call."""

    def step(inputs: list[tp.Tensor], labels: list[tp.Tensor]) -> float:
        optimizer.zero_grad()
        loss = loss_of([network(x) for x in inputs], labels)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def batches(
    digits: Digits, size: int, micro: int, dtype: str, seed: int
) -> Iterator[tuple[list[tp.Tensor], list[tp.Tensor]]]:
    """One epoch of batches in random order, each as lists of micro-batches."""
    order = np.random.default_rng(seed).permutation(len(digits.train_y))
    for start in range(0, len(order), size):
        parts = np.array_split(order[start : start + size], micro)
        parts = [part for part in parts if len(part)]
        yield (
            [tp.tensor(digits.train_x[part], dtype=getattr(tp, dtype)) for part in parts],
            [tp.tensor(digits.train_y[part]) for part in parts],
        )


def train(
    args: argparse.Namespace,
    digits: Digits,
    step: Callable[[list[tp.Tensor], list[tp.Tensor]], float],
    predict: Callable[[tp.Tensor], tp.Tensor],
) -> History:
    """Train for all epochs; shows a bar on a terminal, else a line every few epochs."""
    history = History()
    began = time.perf_counter()
    test_x = tp.tensor(digits.test_x, dtype=getattr(tp, args.dtype))
    for epoch in show_progress(args, history):
        for inputs, labels in batches(
            digits, args.batch_size, args.micro_batches, args.dtype, args.seed + epoch
        ):
            history.losses.append(step(inputs, labels))
        with tp.no_grad():
            guesses = predict(test_x).detach().numpy().argmax(axis=1)
        history.accuracy = float((guesses == digits.test_y).mean())
    history.seconds = time.perf_counter() - began
    return history


def show_progress(args: argparse.Namespace, history: History) -> Iterator[int]:
    """Count the epochs, and show how it goes: a bar, or a line every few epochs."""
    wanted = args.progress == "bar" or (args.progress == "auto" and sys.stderr.isatty())
    bar = make_bar(args.epochs) if wanted else None
    for epoch in range(args.epochs):
        yield epoch
        loss, accuracy = history.losses[-1], history.accuracy
        if bar is not None:
            bar.set_postfix(loss=f"{loss:.4f}", accuracy=f"{accuracy:.1%}", refresh=False)
            bar.update()
        elif (epoch + 1) % max(1, args.epochs // 10) == 0:
            print(f"epoch {epoch + 1:3d}  loss {loss:.4f}  held out {accuracy:.1%}", flush=True)
    if bar is not None:
        bar.close()


def make_bar(epochs: int) -> Any:
    """A progress bar; None if tqdm is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=epochs, unit="epoch", ncols=100)


def show_table(history: History, rows: list[tuple[str, int, int]]) -> None:
    """What came out: the training as a whole, then each rank's calls and bytes."""
    print(f"\n{'loss':>10} {'accuracy':>10} {'seconds':>10} {'steps':>10}")
    print(
        f"{history.losses[-1]:>10.5f} {history.accuracy:>10.2%} "
        f"{history.seconds:>10.2f} {len(history.losses):>10d}"
    )
    if rows:
        print(f"\n{'worker':>10} {'calls':>10} {'bytes sent':>12}")
        for name, calls, sent in rows:
            print(f"{name:>10} {calls:>10d} {sent:>12,d}")


def draw_losses(history: History, path: Path) -> None:
    """A picture of the loss curve, if matplotlib is there."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot(history.losses, linewidth=0.8)
    axes.set(xlabel="step", ylabel="cross entropy", yscale="log", title="Digits, training loss")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"\nloss curve: {path}")


def calls_and_bytes() -> tuple[str, int, int]:
    """This worker's name, calls made, and bytes sent."""
    numbers = rpc.statistics()
    return rpc.get_worker_info().name, numbers.calls_made, numbers.bytes_sent


def drive(args: argparse.Namespace, world_size: int) -> History:
    """Rank 0's program."""
    digits = load_digits(args.seed)
    pipeline = Pipeline(world_size, args.seed, args.dtype)
    optimizer = DistributedOptimizer(tp.optim.Adam, pipeline.parameters(), lr=args.lr)
    history = train(
        args, digits, distributed_step(pipeline, optimizer), lambda x: pipeline.start(x).wait()
    )
    show_table(history, [rpc.rpc_sync(rank, calls_and_bytes) for rank in range(world_size)])
    return history


def run_local(args: argparse.Namespace) -> History:
    """The single-process version."""
    digits = load_digits(args.seed)
    network = make_stage(0, LAYERS, args.seed, args.dtype)
    optimizer = tp.optim.Adam(network.parameters(), lr=args.lr)
    history = train(args, digits, local_step(network, optimizer), network)
    show_table(history, [])
    return history


def finish(args: argparse.Namespace, history: History) -> None:
    """Write what was asked for."""
    if args.losses:
        args.losses.write_text(json.dumps(history.losses))
    if args.picture:
        draw_losses(history, args.picture)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--local", action="store_true", help="one process, no remote calls")
    parser.add_argument(
        "--progress",
        choices=["auto", "bar", "lines"],
        default="auto",
        help="auto: a bar if stderr is a terminal, which launchers may hide from their ranks",
    )
    parser.add_argument("--losses", type=Path, help="write each step's loss there, as JSON")
    parser.add_argument(
        "--picture", type=Path, default=Path("train_digits.png"), help="where the loss curve goes"
    )
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.local:
        finish(args, run_local(args))
        return
    rpc.init_rpc()
    me = rpc.get_worker_info()
    if me.id == 0:
        finish(args, drive(args, rpc.get_world_size()))
    rpc.shutdown()


if __name__ == "__main__":
    main()
