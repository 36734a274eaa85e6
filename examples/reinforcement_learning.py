"""Learn to balance poles on carts: one agent, and observers on other ranks, by policy gradients.

    mpiexec -n 3 python examples/reinforcement_learning.py

Each observer has some carts, and knows their mechanics.  The agent on rank 0 has the policy, a
small network.  At every step of a cart its observer asks the agent what to do.  The agent waits
until all observers that still play have asked, runs the network once for all of their carts, and
answers everybody: `select` is an asynchronous function (`rpc.functions.async_execution`), so that
no thread of the agent waits meanwhile.

When all poles have fallen the agent improves the policy (REINFORCE, with the mean over the carts as
its baseline).  It has learnt the task when poles stay up for 475 steps of 500, on average over 100
runs in a row, as in version 1 of the well-known task; its mechanics and numbers are those of
A. G. Barto, R. S. Sutton and C. W. Anderson, "Neuronlike adaptive elements that can solve difficult
learning control problems", IEEE Transactions on Systems, Man, and Cybernetics 13 (1983).

All that is random comes from seeds, of each cart's run and of the agent: how many observers share
the carts changes nothing.  ``python examples/reinforcement_learning.py`` runs in a world of one.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
from showing import Progress, pyplot, save

import tensorplay as tp
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.futures import Future, wait_all

#: Steps after which a run is ended though the pole still stands.
LIMIT = 500
#: Runs over which the score is averaged.
WINDOW = 100


class Carts:
    """Several carts, each with a pole to be balanced by pushing left or right.

    Args:
        seeds: For each cart what its start is drawn from.

    Attributes:
        states: Position, speed, angle and angular speed of each (m, m/s, rad, rad/s).
        up: Which of them are still at it.
    """

    GRAVITY = 9.8
    CART, POLE = 1.0, 0.1  # kg
    HALF_LENGTH = 0.5  # m
    FORCE = 10.0  # N
    SECONDS = 0.02
    FARTHEST, STEEPEST = 2.4, np.deg2rad(12.0)

    def __init__(self, seeds: list[tuple[int, ...]]) -> None:
        self.states = np.stack([np.random.default_rng(s).uniform(-0.05, 0.05, 4) for s in seeds])
        self.up = np.ones(len(seeds), dtype=bool)

    def push(self, actions: np.ndarray) -> None:
        """One step of those that are up; `actions`, one for each of them, are 0 (left) or 1."""
        _, speed, angle, turning = self.states[self.up].T
        mass = self.CART + self.POLE
        moment = self.POLE * self.HALF_LENGTH
        sine, cosine = np.sin(angle), np.cos(angle)
        shared = (self.FORCE * (2 * actions - 1) + moment * turning**2 * sine) / mass
        turning_faster = (self.GRAVITY * sine - cosine * shared) / (
            self.HALF_LENGTH * (4 / 3 - self.POLE * cosine**2 / mass)
        )
        faster = shared - moment * turning_faster * cosine / mass
        changes = np.stack([speed, faster, turning, turning_faster], axis=1)
        self.states[self.up] += self.SECONDS * changes
        fallen = (np.abs(self.states[:, 0]) > self.FARTHEST) | (
            np.abs(self.states[:, 2]) > self.STEEPEST
        )
        self.up &= ~fallen


class Agent:
    """The policy; many observers ask it at once.

    Args:
        seed: For the network's start, and for what actions are drawn from.
        lr: Learning rate.
        discount: What a reward is worth a step earlier.

    Attributes:
        calls, batches: How often observers have asked, and how often the network ran for them.
    """

    def __init__(self, seed: int, lr: float, discount: float) -> None:
        tp.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(tp.float64)
        self.optimizer = tp.optim.Adam(self.network.parameters(), lr=lr)
        self.discount = discount
        self.calls = self.batches = 0
        self._rng = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self._playing: set[int] = set()
        self._waiting: dict[int, tuple[list[int], np.ndarray, Future]] = {}
        #: For each batch since the last lesson: which carts, their states, their actions.
        self._seen: list[tuple[list[int], np.ndarray, np.ndarray]] = []

    def begin(self, observers: list[int]) -> None:
        """These will play: a batch is whole when all of them have asked, or left."""
        self._playing = set(observers)
        self._seen = []

    @rpc.functions.async_execution
    def select(self, observer: int, carts: list[int], states: np.ndarray) -> Future:
        """What to do with an observer's carts in these states: 0 or 1 for each, in the future."""
        future: Future = Future()
        with self._lock:
            self.calls += 1
            self._waiting[observer] = (carts, states, future)
            self._answer_if_whole()
        return future

    def leave(self, observer: int) -> None:
        """An observer's poles have all fallen: nobody has to wait for it."""
        with self._lock:
            self._playing.discard(observer)
            self._answer_if_whole()

    def _answer_if_whole(self) -> None:
        if not self._waiting or set(self._waiting) != self._playing:
            return
        # In order, so that it does not matter who asked first.
        asked = sorted(self._waiting.items())
        self._waiting = {}
        self.batches += 1
        carts = [cart for _, (own, _, _) in asked for cart in own]
        states = np.concatenate([own for _, (_, own, _) in asked])
        with tp.no_grad():
            chances = nn.functional.softmax(self.network(tp.from_numpy(states)), dim=1).numpy()
        actions = (self._rng.random(len(carts)) < chances[:, 1]).astype(np.int64)
        self._seen.append((carts, states, actions))
        ends = np.cumsum([len(own) for _, (own, _, _) in asked])
        for (_, (_, _, future)), part in zip(asked, np.split(actions, ends[:-1]), strict=True):
            future.set_result(part)

    def learn(self, rewards: np.ndarray) -> None:
        """One step of REINFORCE; `rewards` has a row for each step and a column for each cart."""
        values = np.zeros_like(rewards)
        later = np.zeros(rewards.shape[1])
        for step in reversed(range(len(rewards))):
            later = values[step] = rewards[step] + self.discount * later
        # Better than the other carts at the same step?  Those that have fallen get nothing more.
        better = values - values.mean(axis=1, keepdims=True)
        weights = np.concatenate([better[k, carts] for k, (carts, _, _) in enumerate(self._seen)])
        weights /= weights.std() + 1e-9
        states = np.concatenate([states for _, states, _ in self._seen])
        actions = np.concatenate([actions for _, _, actions in self._seen])
        chosen = nn.functional.cross_entropy(
            self.network(tp.from_numpy(states)), tp.from_numpy(actions), reduction="none"
        )
        loss = (chosen * tp.from_numpy(weights)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
        self.optimizer.step()


def play(
    agent: rpc.RRef[Agent], observer: int, carts: list[int], seed: int, lesson: int
) -> np.ndarray:
    """An observer's program: one run of each of its carts; the rewards, 1 for each step of each."""
    world = Carts([(seed, lesson, cart) for cart in carts])
    rewards = np.zeros((LIMIT, len(carts)))
    for step in range(LIMIT):
        rewards[step] = world.up
        own = [cart for cart, up in zip(carts, world.up, strict=True) if up]
        world.push(agent.rpc_sync().select(observer, own, world.states[world.up]))
        if not world.up.any():
            break
    agent.rpc_sync().leave(observer)
    return rewards


def drive(args: argparse.Namespace, world_size: int) -> list[str]:
    """Rank 0's program; what went wrong."""
    agent = Agent(args.seed, args.lr, args.discount)
    here = rpc.RRef(agent)
    observers = list(range(1, world_size))[: args.carts] or [0]
    # Each observer's carts are neighbours in the order of all, whatever the number of observers.
    shares = [part.tolist() for part in np.array_split(np.arange(args.carts), len(observers))]
    progress = Progress(args.lessons, "lesson", args.progress)
    scores: list[float] = []
    average = 0.0
    began = time.perf_counter()
    for lesson in range(args.lessons):
        agent.begin(observers)
        futures = [
            rpc.rpc_async(observer, play, (here, observer, carts, args.seed, lesson), timeout=0)
            for observer, carts in zip(observers, shares, strict=True)
        ]
        rewards = np.concatenate(wait_all(futures), axis=1)
        scores += rewards.sum(axis=0).tolist()
        average = float(np.mean(scores[-WINDOW:]))
        progress.advance_to(lesson + 1, average=f"{average:.1f}")
        if average >= args.bound and len(scores) >= WINDOW:
            break
        agent.learn(rewards)
    progress.close()
    seconds = time.perf_counter() - began
    print(f"\n{'average':>10} {'runs':>7} {'steps':>9} {'calls':>8} {'batches':>8} {'seconds':>9}")
    print(
        f"{average:>10.1f} {len(scores):>7d} {int(sum(scores)):>9,d} "
        f"{agent.calls:>8,d} {agent.batches:>8,d} {seconds:>9.2f}"
    )
    if args.values:
        args.values.write_text(json.dumps(scores))
    if args.picture:
        draw(args.picture, scores, args.bound)
    if average >= args.bound:
        return []
    return [f"the average over {WINDOW} runs is {average:.1f}, below {args.bound:g}"]


def draw(path: Path, scores: list[float], bound: float) -> None:
    """A picture of all scores and of their running average, if matplotlib is there."""
    plot = pyplot()
    if plot is None:
        return
    sums = np.cumsum([0.0, *scores])
    first = np.maximum(np.arange(1, len(sums)) - WINDOW, 0)
    averages = (sums[1:] - sums[first]) / (np.arange(1, len(sums)) - first)
    figure, axes = plot.subplots(figsize=(6, 4))
    axes.plot(scores, ".", markersize=2, label="a run")
    axes.plot(averages, label=f"average of {WINDOW}")
    axes.axhline(bound, color="gray", linewidth=0.8, linestyle="--")
    axes.set(xlabel="run", ylabel="steps that the pole stood", title="Balancing a pole")
    axes.legend()
    save(plot, figure, path)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lessons", type=int, default=200, help="at most so many")
    parser.add_argument("--carts", type=int, default=16, help="of all observers together")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--bound", type=float, default=475.0, help="the least average score")
    parser.add_argument("--short", action="store_true", help="a few lessons, for a first look")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--progress", choices=Progress.STYLES, default="auto")
    parser.add_argument("--values", type=Path, help="write each run's score there, as JSON")
    parser.add_argument("--picture", type=Path, default=Path("reinforcement_learning.png"))
    if parser.parse_args().short:
        parser.set_defaults(lessons=20, bound=60.0)
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
