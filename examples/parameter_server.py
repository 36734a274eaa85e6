"""Three trainers and a parameter server, all at work at the same time, on handwritten digits.

    mpiexec -n 4 python examples/parameter_server.py

Rank 0 holds the network.  Every other rank trains it on a share of the data, as fast as it can and
without a look at the others: forward pass on the server through a remote reference, loss on the
trainer, `dist_autograd.backward`, and a step of its `DistributedOptimizer` on the server.  So while
one trainer is between its forward and its backward pass, steps of others land.

That is safe: a step never writes into arrays that another trainer's graph holds.  The program shows
it.  The server keeps the values that a forward pass began with, and computes from them, in NumPy,
what the gradient must be; and at the end each parameter must be where it began less all the
gradients that the trainers got: no step is lost, or taken twice.

``python examples/parameter_server.py`` runs it in a world of one, with one trainer.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from showing import Progress, pyplot, save

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.optim import DistributedOptimizer

#: Widths of the network: 8 x 8 pixels in, ten classes out.
WIDTHS = (64, 96, 10)


@dataclass(frozen=True)
class Batch:
    """Images as rows of 64 values in [0, 1], and labels 0 to 9."""

    images: np.ndarray
    labels: np.ndarray


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
    images = data.data / 16.0
    return Batch(images[train], data.target[train]), Batch(images[test], data.target[test])


def gradients_by_hand(values: list[np.ndarray], batch: Batch) -> list[np.ndarray]:
    """Gradients of the mean cross entropy of the network with these parameters."""
    first, first_bias, second, second_bias = values
    hidden = np.maximum(batch.images @ first.T + first_bias, 0.0)
    scores = hidden @ second.T + second_bias
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    of_scores = scores / scores.sum(axis=1, keepdims=True)
    of_scores[np.arange(len(of_scores)), batch.labels] -= 1.0
    of_scores /= len(of_scores)
    of_hidden = (of_scores @ second) * (hidden > 0)
    return [
        of_hidden.T @ batch.images,
        of_hidden.sum(axis=0),
        of_scores.T @ hidden,
        of_scores.sum(axis=0),
    ]


@dataclass
class Record:
    """What the server has seen of one trainer.

    Attributes:
        steps: Gradients that have come.
        overtaken: Of these, how many came when the parameters had moved since the forward pass:
            steps of other trainers had landed meanwhile.
        checked: Gradients that were compared with those computed by hand.
        apart: By how much one of these was off, at most.
    """

    steps: int = 0
    overtaken: int = 0
    checked: int = 0
    apart: float = 0.0


class Server:
    """The network, and what is known of its trainers.  Calls of several trainers run at once."""

    def __init__(self, seed: int) -> None:
        tp.manual_seed(seed)
        self.network = nn.Sequential(
            nn.Linear(WIDTHS[0], WIDTHS[1]), nn.ReLU(), nn.Linear(WIDTHS[1], WIDTHS[2])
        ).to(tp.float64)
        self.begun = self.values()
        self.sums = [np.zeros_like(value) for value in self.begun]
        self.records: dict[str, Record] = {}
        self.losses: list[float] = []
        self._began_with: dict[str, list[np.ndarray] | None] = {}
        self._lock = threading.Lock()

    def values(self) -> list[np.ndarray]:
        """The parameters as they are now, copied."""
        return [parameter.detach().numpy().copy() for parameter in self.network.parameters()]

    def parameters(self) -> list[rpc.RRef]:
        """References to the parameters."""
        return [rpc.RRef(parameter) for parameter in self.network.parameters()]

    def forward(self, trainer: str, images: tp.Tensor) -> tp.Tensor:
        """The scores of the classes, one row for each image."""
        before = self.values()
        scores = self.network(images)
        # A step may have landed while the network ran: then nobody knows which values it saw.
        steady = all(map(np.array_equal, before, self.values()))
        self._began_with[trainer] = before if steady else None
        return scores

    def inspect(self, trainer: str, context_id: int, batch: Batch, loss: float) -> None:
        """Look at the gradients of a trainer's backward pass, before they are applied."""
        found = dist_autograd.get_gradients(context_id)
        gradients = [found[parameter].numpy() for parameter in self.network.parameters()]
        began_with, now = self._began_with[trainer], self.values()
        with self._lock:
            record = self.records.setdefault(trainer, Record())
            record.steps += 1
            self.losses.append(loss)
            for total, gradient in zip(self.sums, gradients, strict=True):
                total += gradient
            if began_with is not None:
                record.overtaken += not all(map(np.array_equal, began_with, now))
                record.checked += 1
                truths = gradients_by_hand(began_with, batch)
                apart = max(
                    float(np.abs(gradient - truth).max())
                    for gradient, truth in zip(gradients, truths, strict=True)
                )
                record.apart = max(record.apart, apart)

    def lost(self, lr: float) -> float:
        """How far the parameters are from where all gradients together should have taken them."""
        return max(
            float(np.abs(begun - lr * total - value).max())
            for begun, total, value in zip(self.begun, self.sums, self.values(), strict=True)
        )

    def accuracy(self, batch: Batch) -> float:
        """Which part of a batch the network gets right."""
        with tp.no_grad():
            scores = self.network(tp.from_numpy(batch.images)).numpy()
        return float((scores.argmax(axis=1) == batch.labels).mean())


def train(
    server: rpc.RRef[Server], share: Batch, epochs: int, batch_size: int, lr: float, seed: int
) -> float:
    """A trainer's program; the seconds that it took."""
    me = rpc.get_worker_info().name
    optimizer = DistributedOptimizer(tp.optim.SGD, server.rpc_sync().parameters(), lr=lr)
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    for _ in range(epochs):
        order = rng.permutation(len(share.labels))
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            batch = Batch(share.images[part], share.labels[part])
            with dist_autograd.context() as context_id:
                scores = server.rpc_sync().forward(me, tp.from_numpy(batch.images))
                loss = nn.functional.cross_entropy(scores, tp.tensor(batch.labels))
                dist_autograd.backward(context_id, [loss])
                server.rpc_sync().inspect(me, context_id, batch, loss.item())
                optimizer.step(context_id)
    return time.perf_counter() - began


def drive(args: argparse.Namespace, world_size: int) -> list[str]:
    """Rank 0's program; what went wrong."""
    data, held_out = load_digits(args.seed)
    server = Server(args.seed)
    here = rpc.RRef(server)
    trainers = range(1, world_size) if world_size > 1 else range(1)
    every = len(trainers)
    shares = [Batch(data.images[k::every], data.labels[k::every]) for k in range(every)]
    under_way = {
        rpc.rpc_async(
            rank,
            train,
            (here, share, args.epochs, args.batch_size, args.lr, args.seed + rank),
            timeout=0,
        )
        for rank, share in zip(trainers, shares, strict=True)
    }
    steps = sum(args.epochs * -(-len(share.labels) // args.batch_size) for share in shares)
    progress = Progress(steps, "step", args.progress)
    waiting = under_way
    while waiting:
        _, waiting = wait(waiting, timeout=0.1)
        if server.losses:
            accuracy = server.accuracy(held_out)
            progress.advance_to(
                len(server.losses),
                loss=f"{np.mean(server.losses[-50:]):.4f}",
                held_out=f"{accuracy:.1%}",
            )
    progress.close()
    seconds = max(future.wait() for future in under_way)
    return report(args, server, server.accuracy(held_out), steps, seconds)


def report(
    args: argparse.Namespace, server: Server, accuracy: float, steps: int, seconds: float
) -> list[str]:
    """Print the tables, draw the picture; what went wrong."""
    lost = server.lost(args.lr)
    print(f"\n{'trainer':>10} {'steps':>7} {'overtaken':>10} {'checked':>8} {'gradient off':>13}")
    for name, record in sorted(server.records.items()):
        print(
            f"{name:>10} {record.steps:>7d} {record.overtaken:>10d} {record.checked:>8d} "
            f"{record.apart:>13.1e}"
        )
    print(f"\n{'accuracy':>10} {'parameters off':>15} {'steps':>7} {'seconds':>9} {'steps/s':>9}")
    print(f"{accuracy:>10.2%} {lost:>15.1e} {steps:>7d} {seconds:>9.2f} {steps / seconds:>9.0f}")
    if args.picture:
        draw(args.picture, server.losses)
    records = server.records.values()
    faults = []
    if accuracy < args.bound:
        faults.append(f"accuracy {accuracy:.2%} is below {args.bound:.0%}")
    if sum(record.steps for record in records) != steps:
        faults.append("steps are missing")
    if max(record.apart for record in records) > 1e-10:
        faults.append("a gradient is not that of the values that its forward pass used")
    if lost > 1e-8:
        faults.append("the parameters are not where the gradients should have taken them")
    if len(records) > 1 and not all(record.overtaken for record in records):
        faults.append("a trainer has never been overtaken: they did not run at the same time")
    return faults


def draw(path: Path, losses: list[float]) -> None:
    """A picture of the loss curve, if matplotlib is there."""
    plot = pyplot()
    if plot is None:
        return
    figure, axes = plot.subplots(figsize=(6, 4))
    axes.plot(losses, linewidth=0.5)
    axes.set(xlabel="step of any trainer", ylabel="cross entropy", yscale="log")
    axes.set_title("Digits, trained by several ranks at once")
    save(plot, figure, path)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--bound", type=float, default=0.96, help="the least accuracy")
    parser.add_argument("--short", action="store_true", help="a few epochs, for a first look")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--progress", choices=Progress.STYLES, default="auto")
    parser.add_argument("--picture", type=Path, default=Path("parameter_server.png"))
    if parser.parse_args().short:
        parser.set_defaults(epochs=4, bound=0.85)
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
