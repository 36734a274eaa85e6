"""A language model over two ranks: embedding and decoder on one, the LSTM on the other.

    mpiexec -n 2 python examples/recurrent.py

It learns to write the manual of Python, letter by letter, from the texts that every Python has for
its `help()`.  Rank 0 holds the text, the embedding of the letters and the decoder, which gives the
chance of each letter to be the next.  Rank 1 holds the LSTM, and with it the state with which the
next piece of text begins: it never travels.  What crosses between ranks are embedded letters, the
LSTM's outputs, and the gradients of both.

Whole topics are held out.  The *perplexity* on them, the number of letters among which the model is
still undecided, must fall below a bound; what counting letters and pairs of letters gives is shown
beside it.

Both ranks are also watched for leaks.  After some steps their memory must not grow any more, except
by a few arrays that the C library keeps for later; a step makes arrays of some 10 MiB.  Nor may the
number of Python's objects, which is known exactly; what a step makes is some hundred of them.

``python examples/recurrent.py`` runs it in a world of one.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from showing import Progress, pyplot, save

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer
from tensorplay.optim import lr_scheduler

#: One topic of so many is held out.
HELD_OUT = 10
#: Steps between two looks at the memory.
LOOK = 20
#: How many objects of each step may be kept.  The library remembers the numbers of the latest
#: contexts, the program a loss.
OBJECTS = 20.0


@dataclass(frozen=True)
class Text:
    """Letters as numbers: for training, and held out."""

    train: np.ndarray
    test: np.ndarray
    letters: int


def load_text() -> Text:
    """The topics of `help()`, in alphabetical order, every tenth of them held out."""
    ordered = [topics[name] for name in sorted(topics)]
    numbers = {letter: k for k, letter in enumerate(sorted(set("".join(ordered))))}

    def encoded(pieces: list[str]) -> np.ndarray:
        return np.array([numbers[letter] for piece in pieces for letter in piece])

    test = ordered[::HELD_OUT]
    train = [piece for k, piece in enumerate(ordered) if k % HELD_OUT]
    return Text(encoded(train), encoded(test), len(numbers))


def by_counting(text: Text) -> tuple[float, float]:
    """Perplexity on the held-out text of counted letters, and of counted pairs of letters."""
    single = np.bincount(text.train, minlength=text.letters) + 1.0
    pairs = np.full((text.letters, text.letters), 0.1)
    np.add.at(pairs, (text.train[:-1], text.train[1:]), 1.0)
    of_single = np.log(single / single.sum())[text.test]
    of_pairs = np.log(pairs / pairs.sum(axis=1, keepdims=True))[text.test[:-1], text.test[1:]]
    return math.exp(-of_single.mean()), math.exp(-of_pairs.mean())


def pieces(numbers: np.ndarray, streams: int, length: int) -> list[tuple[tp.Tensor, tp.Tensor]]:
    """The text as `streams` sequences side by side, cut into pieces.

    Each piece is ``(length, streams)`` letters and, in one row, those that follow them; it goes on
    where the one before has ended.
    """
    rows = (len(numbers) - 1) // streams // length * length
    x = numbers[: rows * streams].reshape(streams, rows).T
    y = numbers[1 : rows * streams + 1].reshape(streams, rows).T
    return [
        (tp.tensor(x[k : k + length]), tp.tensor(y[k : k + length].ravel()))
        for k in range(0, rows, length)
    ]


class Memory(nn.Module):
    """The LSTM, which keeps its state from one piece of text to the next."""

    def __init__(self, width: int, hidden: int, seed: int) -> None:
        super().__init__()
        tp.manual_seed(seed)
        self.lstm = nn.LSTM(width, hidden)
        self._state: tuple[tp.Tensor, tp.Tensor] | None = None

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        """All outputs, ``(length, streams, hidden)``."""
        output, (hidden, cell) = self.lstm(x, self._state)
        # Gradients end where a piece of text begins.
        self._state = (hidden.detach(), cell.detach())
        return output

    def forget(self) -> None:
        """Other texts follow."""
        self._state = None


class LanguageModel(nn.Module):
    """Embedding and decoder here, the LSTM on another worker."""

    def __init__(self, on: int, letters: int, width: int, hidden: int, seed: int) -> None:
        super().__init__()
        self.memory = RemoteModule(f"rank:{on}", Memory, (width, hidden, seed))
        tp.manual_seed(seed + 1)
        self.embedding = nn.Embedding(letters, width)
        self.decoder = nn.Linear(hidden, letters)

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        """Scores of what the next letter is, ``(length, streams, letters)``."""
        scores: tp.Tensor = self.decoder(self.memory(self.embedding(x)))
        return scores

    def loss(self, x: tp.Tensor, y: tp.Tensor) -> tp.Tensor:
        """Mean cross entropy of the letters that come."""
        return nn.functional.cross_entropy(self(x).flatten(0, 1), y)

    def every_parameter(self) -> list[rpc.RRef]:
        """References to all parameters, here and there."""
        return [rpc.RRef(value) for value in self.parameters()] + self.memory.remote_parameters()


def perplexity(model: LanguageModel, parts: list[tuple[tp.Tensor, tp.Tensor]]) -> float:
    """Of a text from its beginning; leaves the LSTM without a state."""
    model.memory.forget()
    with tp.no_grad():
        losses = [model.loss(x, y).item() for x, y in parts]
    model.memory.forget()
    return math.exp(sum(losses) / len(losses))


def memory_here() -> tuple[float, int]:
    """This process's memory in MiB, NaN where /proc does not tell; how many objects it has."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return math.nan, sys.getallocatedblocks()
    return pages * resource.getpagesize() / 2**20, sys.getallocatedblocks()


@dataclass
class History:
    """What the training has shown.

    Attributes:
        losses: One a step.
        held_out: Steps, and the perplexity after them.
        memory: Steps, and what `memory_here` finds after them on both ranks.
        seconds: All of it.
    """

    losses: list[float]
    held_out: list[tuple[int, float]]
    memory: list[tuple[int, tuple[float, int], tuple[float, int]]]
    seconds: float = 0.0


def train(args: argparse.Namespace, model: LanguageModel, text: Text, on: int) -> History:
    """Go through the text again and again."""
    parts = pieces(text.train, args.streams, args.length)
    held_out = pieces(text.test, args.streams, args.length)
    optimizer = DistributedOptimizer(tp.optim.Adam, model.every_parameter(), lr=args.lr)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps, eta_min=args.lr / 20)
    progress = Progress(args.steps, "step", args.progress)
    history = History([], [(0, perplexity(model, held_out))], [])
    began = time.perf_counter()
    for step in range(args.steps):
        if step % len(parts) == 0:
            model.memory.forget()
        with dist_autograd.context() as context_id:
            loss = model.loss(*parts[step % len(parts)])
            dist_autograd.backward(context_id, [loss])
            optimizer.clip_grad_norm_(context_id, max_norm=1.0)
            optimizer.step(context_id)
        scheduler.step()
        history.losses.append(loss.item())
        done = step + 1
        if done % LOOK == 0 or done == args.steps:
            history.memory.append((done, memory_here(), rpc.rpc_sync(on, memory_here)))
        if done == args.steps:
            history.held_out.append((done, perplexity(model, held_out)))
        progress.advance_to(done, perplexity=f"{math.exp(np.mean(history.losses[-50:])):.2f}")
    progress.close()
    history.seconds = time.perf_counter() - began
    return history


def drive(args: argparse.Namespace, world_size: int) -> list[str]:
    """Rank 0's program; what went wrong."""
    text = load_text()
    on = min(1, world_size - 1)
    model = LanguageModel(on, text.letters, args.width, args.hidden, args.seed)
    history = train(args, model, text, on)
    single, pairs = by_counting(text)
    last = history.held_out[-1][1]
    print(f"\n{len(text.train):,} letters of {text.letters} kinds, {len(text.test):,} held out")
    print(f"\n{'perplexity of':>20} {'held out':>9}")
    for name, value in (
        ("counted letters", single),
        ("counted pairs", pairs),
        ("the model, at first", history.held_out[0][1]),
        ("the model", last),
    ):
        print(f"{name:>20} {value:>9.2f}")
    growths = show_growth(history, args.settled, range(on + 1))
    print(f"\n{args.steps} steps in {history.seconds:.1f} s")
    if args.picture:
        draw(args.picture, history, pairs)
    faults = []
    if not last < args.bound:
        faults.append(f"the perplexity {last:.2f} is not below {args.bound:.2f}")
    for rank, growth, objects in growths:
        if growth > args.growth:
            faults.append(f"memory of rank {rank} has grown by {growth:.1f} MiB")
        if objects > OBJECTS:
            faults.append(f"rank {rank} keeps {objects:.0f} objects of each step")
    return faults


def show_growth(
    history: History, settled: int, ranks: Iterable[int]
) -> list[tuple[int, float, float]]:
    """Print how memory has grown; ranks, by how many MiB, and by how many objects a step."""
    looks = [row for row in history.memory if row[0] > settled]
    if len(looks) < 2:
        return []
    part = -(-len(looks) // 4)
    steps = looks[-1][0] - looks[0][0]
    print(f"\n{'memory, MiB':>20} {'at first':>9} {'at last':>9} {'objects kept a step':>20}")
    growths = []
    for rank in ranks:
        # The least of many looks: a context may still be there just after its block has ended.
        first, last = (
            [min(values) for values in zip(*(row[1 + rank] for row in rows), strict=True)]
            for rows in (looks[:part], looks[-part:])
        )
        objects = (last[1] - first[1]) / steps
        growths.append((rank, last[0] - first[0], objects))
        print(f"{f'rank {rank}':>20} {first[0]:>9.1f} {last[0]:>9.1f} {objects:>20.1f}")
    return growths


def draw(path: Path, history: History, pairs: float) -> None:
    """A picture of perplexity and memory, if matplotlib is there."""
    plot = pyplot()
    if plot is None:
        return
    figure, (left, right) = plot.subplots(1, 2, figsize=(11, 4))
    left.plot(np.exp(history.losses), linewidth=0.5, label="training")
    left.plot(*zip(*history.held_out, strict=True), "o", label="held out")
    left.axhline(pairs, color="grey", linestyle=":", label="counted pairs")
    left.set(xlabel="step", ylabel="perplexity", yscale="log", title="The manual of Python")
    left.legend()
    steps, *memories = zip(*history.memory, strict=True)
    for rank, memory in enumerate(memories):
        right.plot(steps, [size for size, _ in memory], label=f"rank {rank}")
    right.set(xlabel="step", ylabel="MiB", title="Memory", ylim=(0, None))
    right.legend()
    save(plot, figure, path)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=32, help="sequences side by side")
    parser.add_argument("--length", type=int, default=48, help="letters that gradients go back")
    parser.add_argument("--width", type=int, default=32, help="of the embedding")
    parser.add_argument("--hidden", type=int, default=160, help="width of the LSTM")
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--bound", type=float, default=5.0, help="what the perplexity must reach")
    parser.add_argument("--settled", type=int, default=200, help="steps before memory is watched")
    parser.add_argument("--growth", type=float, default=16.0, help="the most from there on, MiB")
    parser.add_argument("--short", action="store_true", help="few steps, for a first look")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--progress", choices=Progress.STYLES, default="auto")
    parser.add_argument("--picture", type=Path, default=Path("recurrent.png"))
    if parser.parse_args().short:
        parser.set_defaults(steps=300, hidden=96, settled=100, bound=9.0)
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
