"""Data-parallel trainers on top of a shared embedding: remote calls and MPI's own allreduce.

    mpiexec -n 4 python examples/hybrid.py

A table of embeddings, which in earnest is too large for a trainer, lives on rank 0 as a remote
`EmbeddingBag`.  Every other rank is a trainer with a replica of the dense layers and a share of
each batch.  Gradients take two roads in one step:

- those of the table go back through the remote call, and a `DistributedOptimizer` applies them
  there;
- those of the dense layers are added up over the trainers by `Allreduce` of mpi4py, on a
  communicator that the program has made for them, as in any MPI program.

The data are the digits that scikit-learn ships, as bags of words: for each pixel with ink there is
a word for its shade, and for each lighter one.

What comes out is checked: after every step the replicas are equal to the last bit, and losses and
parameters are those that one process finds by itself, with no remote call and no communicator.

``python examples/hybrid.py`` runs it in a world of one, with one trainer.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mpi4py import MPI
from showing import Progress, pyplot, save

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer

PIXELS, SHADES = 64, 16
#: One word for each pixel and shade: this pixel has this shade, or a darker one.
WORDS = PIXELS * SHADES
#: Width of the embeddings.
WIDTH = 32
#: Largest difference, relative, of a loss or parameter from that of one process.
APART = 1e-12


@dataclass(frozen=True)
class Bags:
    """Images as bags of words.

    Attributes:
        words: Those of all images, one image after another.
        offsets: Where the words of each image begin.
        labels: 0 to 9.
    """

    words: tp.Tensor
    offsets: tp.Tensor
    labels: tp.Tensor


def bags_of(images: np.ndarray, labels: np.ndarray) -> Bags:
    """Write images, rows of 64 shades from 0 (white) to 16, as bags."""
    rows, pixels, shades = np.nonzero(images[:, :, None] > np.arange(SHADES))
    words = pixels * SHADES + shades
    offsets = np.searchsorted(rows, np.arange(len(images)))
    return Bags(tp.tensor(words), tp.tensor(offsets), tp.tensor(labels))


@dataclass(frozen=True)
class Images:
    """Rows of 64 shades, and labels."""

    images: np.ndarray
    labels: np.ndarray

    def bags(self, rows: np.ndarray) -> Bags:
        """Some of the images, as bags."""
        return bags_of(self.images[rows], self.labels[rows])


def load_digits(seed: int) -> tuple[Images, Images]:
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
    return Images(data.data[train], data.target[train]), Images(data.data[test], data.target[test])


@dataclass(frozen=True)
class Plan:
    """How to train."""

    epochs: int
    batch_size: int
    lr: float
    seed: int

    def batches(self, count: int) -> Iterator[np.ndarray]:
        """Numbers of the images of each batch, over all epochs."""
        for epoch in range(self.epochs):
            order = np.random.default_rng(self.seed + epoch).permutation(count)
            yield from np.split(order, range(self.batch_size, count, self.batch_size))

    def steps(self, count: int) -> int:
        """How many batches these are."""
        return self.epochs * -(-count // self.batch_size)


def make_table(seed: int) -> nn.Module:
    """The embeddings; a bag is the sum of its words."""
    tp.manual_seed(seed)
    table = nn.EmbeddingBag(WORDS, WIDTH, mode="sum", dtype=tp.float64)
    with tp.no_grad():
        table.weight.mul_(0.1)
    return table


def make_dense(seed: int) -> nn.Module:
    """The layers that every trainer has."""
    tp.manual_seed(seed + 1)
    return nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 10)).double()


class Board:
    """Where trainers tell rank 0 how far they are."""

    def __init__(self, steps: int, style: str) -> None:
        self.progress = Progress(steps, "step", style)

    def tell(self, step: int, loss: float) -> None:
        """So many steps are done."""
        self.progress.advance_to(step, loss=f"{loss:.4f}")


@dataclass
class Trained:
    """What a trainer brings home.

    Attributes:
        losses: What its share added to the loss of each batch.
        parameters: Of the dense layers.
        equal: Steps after which all replicas were equal to the last bit.
        seconds: All of it.
        waited: Seconds of these in collectives.
    """

    losses: list[float] = field(default_factory=list)
    parameters: list[np.ndarray] = field(default_factory=list)
    equal: int = 0
    seconds: float = 0.0
    waited: float = 0.0


#: The trainers' own communicator; on other ranks none.
trainers_only = MPI.COMM_NULL


def add_up(parameters: list[nn.Parameter], gradients: dict[tp.Tensor, tp.Tensor]) -> None:
    """Set the parameters' `.grad` to the sums of all trainers' gradients: one `Allreduce`."""
    flat = np.concatenate([gradients[parameter].numpy().ravel() for parameter in parameters])
    trainers_only.Allreduce(MPI.IN_PLACE, flat)
    ends = np.cumsum([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, np.split(flat, ends[:-1]), strict=True):
        parameter.grad = tp.from_numpy(part.reshape(parameter.shape))


def digest(module: nn.Module) -> bytes:
    """Of all bits of the parameters."""
    together = hashlib.sha256()
    for parameter in module.parameters():
        together.update(parameter.detach().numpy().tobytes())
    return together.digest()


def train(table: RemoteModule, board: rpc.RRef[Board], data: Images, plan: Plan) -> Trained:
    """A trainer's program.  Collective: all trainers run it at the same time."""
    dense = make_dense(plan.seed)
    parameters = list(dense.parameters())
    # Each trainer's step on the table subtracts lr times its own gradient: together the sum.
    of_table = DistributedOptimizer(tp.optim.SGD, table.remote_parameters(), lr=plan.lr)
    of_dense = tp.optim.SGD(parameters, lr=plan.lr, momentum=0.9)
    me, every = trainers_only.rank, trainers_only.size
    done = Trained()
    began = time.perf_counter()
    for rows in plan.batches(len(data.labels)):
        share = data.bags(rows[me::every])
        with dist_autograd.context() as context_id:
            scores = dense(table(share.words, share.offsets))
            loss = nn.functional.cross_entropy(scores, share.labels, reduction="sum") / len(rows)
            dist_autograd.backward(context_id, [loss])
            waiting = time.perf_counter()
            add_up(parameters, dist_autograd.get_gradients(context_id))
            done.waited += time.perf_counter() - waiting
            # All trainers' forward passes are over, so that none sees a part of this step.
            of_table.step(context_id)
        of_dense.step()
        done.losses.append(loss.item())
        # Nor may anybody begin the next one before all have changed the table.
        waiting = time.perf_counter()
        replicas = trainers_only.allgather(digest(dense))
        done.waited += time.perf_counter() - waiting
        done.equal += len(set(replicas)) == 1
        if me == 0:
            board.rpc_async().tell(len(done.losses), done.losses[-1] * every)
    done.seconds = time.perf_counter() - began
    done.parameters = [parameter.detach().numpy() for parameter in parameters]
    return done


def train_alone(data: Images, plan: Plan) -> tuple[list[float], list[np.ndarray], float]:
    """Losses, parameters (the table's first) and seconds of the same in one process."""
    table, dense = make_table(plan.seed), make_dense(plan.seed)
    of_table = tp.optim.SGD(table.parameters(), lr=plan.lr)
    of_dense = tp.optim.SGD(dense.parameters(), lr=plan.lr, momentum=0.9)
    losses = []
    began = time.perf_counter()
    for rows in plan.batches(len(data.labels)):
        batch = data.bags(rows)
        of_table.zero_grad()
        of_dense.zero_grad()
        loss = nn.functional.cross_entropy(dense(table(batch.words, batch.offsets)), batch.labels)
        loss.backward()
        of_table.step()
        of_dense.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - began
    parameters = [*table.parameters(), *dense.parameters()]
    return losses, [parameter.detach().numpy() for parameter in parameters], seconds


def accuracy_of(parameters: list[np.ndarray], seed: int, held_out: Images) -> float:
    """Which part of the held-out images is classified rightly."""
    network = nn.ModuleList([make_table(seed), make_dense(seed)])
    names = network.state_dict()
    network.load_state_dict(
        {name: tp.from_numpy(value) for name, value in zip(names, parameters, strict=True)}
    )
    table, dense = network
    bags = held_out.bags(np.arange(len(held_out.labels)))
    with tp.no_grad():
        scores = dense(table(bags.words, bags.offsets)).numpy()
    return float((scores.argmax(axis=1) == held_out.labels).mean())


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """How far apart two arrays are, measured by the largest number of the second."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def drive(args: argparse.Namespace, world_size: int) -> list[str]:
    """Rank 0's program; what went wrong."""
    data, held_out = load_digits(args.seed)
    plan = Plan(args.epochs, args.batch_size, args.lr, args.seed)
    steps = plan.steps(len(data.labels))
    table = RemoteModule("rank:0", make_table, (args.seed,))
    board = Board(steps, args.progress)
    ranks = trainer_ranks(world_size)
    under_way = [
        rpc.rpc_async(rank, train, (table, rpc.RRef(board), data, plan), timeout=0)
        for rank in ranks
    ]
    trained = [future.wait() for future in under_way]
    board.progress.close()
    losses, parameters, seconds = train_alone(data, plan)

    together = np.sum([one.losses for one in trained], axis=0)
    found = [table.state_dict()["weight"].numpy(), *trained[0].parameters]
    print(f"\n{'trainer':>12} {'steps':>7} {'replicas equal':>15} {'in collectives':>15}")
    for rank, one in zip(ranks, trained, strict=True):
        print(
            f"{f'rank {rank}':>12} {len(one.losses):>7d} {one.equal:>15d} "
            f"{one.waited / one.seconds:>15.0%}"
        )
    accuracy = accuracy_of(found, args.seed, held_out)
    print(f"\n{'':>12} {'loss':>10} {'accuracy':>9} {'seconds':>9}")
    print(f"{'hybrid':>12} {together[-1]:>10.6f} {accuracy:>9.2%} {trained[0].seconds:>9.2f}")
    alone = accuracy_of(parameters, args.seed, held_out)
    print(f"{'one process':>12} {losses[-1]:>10.6f} {alone:>9.2%} {seconds:>9.2f}")
    losses_apart = float(np.max(np.abs(together - losses) / np.abs(losses)))
    apart = max(map(relative, found, parameters))
    print(f"\n{'losses apart':>13} {'parameters apart':>17}\n{losses_apart:>13.1e} {apart:>17.1e}")
    if args.picture:
        draw(args.picture, together, np.array(losses))
    faults = []
    if not all(one.equal == steps for one in trained):
        faults.append("the replicas were not equal after every step")
    if max(losses_apart, apart) > APART:
        faults.append(f"the result is further than {APART} from that of one process")
    if accuracy < args.bound:
        faults.append(f"accuracy {accuracy:.2%} is below {args.bound:.0%}")
    return faults


def draw(path: Path, hybrid: np.ndarray, alone: np.ndarray) -> None:
    """A picture of the loss curves, if matplotlib is there."""
    plot = pyplot()
    if plot is None:
        return
    figure, axes = plot.subplots(figsize=(6, 4))
    axes.plot(hybrid, linewidth=0.8, label="hybrid")
    axes.plot(alone, ":", linewidth=1.6, label="one process")
    axes.set(xlabel="step", ylabel="cross entropy", yscale="log")
    axes.set_title("Digits as bags of words")
    axes.legend()
    save(plot, figure, path)


def trainer_ranks(world_size: int) -> list[int]:
    """All but the server; in a world of one that, too."""
    return list(range(1, world_size)) or [0]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=48, help="of all trainers together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--bound", type=float, default=0.95, help="the least accuracy")
    parser.add_argument("--short", action="store_true", help="a few epochs, for a first look")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--progress", choices=Progress.STYLES, default="auto")
    parser.add_argument("--picture", type=Path, default=Path("hybrid.png"))
    if parser.parse_args().short:
        parser.set_defaults(epochs=3, bound=0.85)
    return parser.parse_args()


def main() -> None:
    global trainers_only
    args = parse()
    world = MPI.COMM_WORLD
    chosen = world.rank in trainer_ranks(world.size)
    trainers_only = world.Split(0 if chosen else MPI.UNDEFINED)
    rpc.init_rpc()
    faults = drive(args, rpc.get_world_size()) if rpc.get_worker_info().id == 0 else []
    rpc.shutdown()
    if trainers_only != MPI.COMM_NULL:
        trainers_only.Free()
    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
