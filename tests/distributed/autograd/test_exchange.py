"""The messages between workers, in simulated worlds: failures, releases and passes at once.

The worlds run the package's own `Exchange`, `PassRunner` and `Container`; only agents and network
are simulated.  See `simulator`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from distributed.autograd.package import CONTEXT, PackageWorker
from distributed.autograd.simulator import Boom, RandomProgram, Value, World
from tensorplay.distributed.autograd import exchange
from tensorplay.distributed.autograd.answers import unpack_answers
from tensorplay.distributed.rpc import RpcTimeoutError
from tensorplay.distributed.transport import Message

FAILURES = (Boom, RpcTimeoutError)


class Story(RandomProgram):
    """A random program with passes of any worker, some at once, of which some fail.

    Attributes:
        exact: No pass has failed since gradients were last compared.
        at_once: So many passes the program still starts by itself, beside others.
        retaining: The share of passes that retain the graph.
        outcomes: How passes have ended.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, PackageWorker)
        self.packages: list[PackageWorker] = self.workers  # type: ignore[assignment]
        self.slow = self.random.choice([0.0, 0.2, 0.6])
        self.faulty = self.random.choice([0.0, 0.05, 0.15])
        self.exact = True
        self.at_once = 0
        self.retaining = self.random.choice([0.0, 0.5, 1.0])
        self.outcomes: Counter[str] = Counter()
        self._running: list[frozenset[int]] = []

    def act(self) -> None:
        # A thread that takes a message starts no pass.
        if self.at_once and not self.receiving and self.random.random() < 0.3:
            free = [worker.rank for worker in self.packages if not worker.exchange.running]
            if free:
                self.at_once -= 1
                self.attempt(self.random.choice(free))
                return
        super().act()

    def attempt(self, rank: int, roots: list[Value] | None = None) -> None:
        """A pass, which may fail if `armed`."""
        roots = roots or self.roots(rank)
        made_of = frozenset[int]().union(*[root.made_of for root in roots])
        retain_graph = self.random.random() < self.retaining
        if any(made_of & other for other in self._running):
            retain_graph = True  # it shares a part of the graph
        patience = self.random.choice([None, None, 0, 5, 30]) if self.armed else None
        self.packages[rank].agent.patience = patience
        self._running.append(made_of)
        try:
            self.backward(rank, roots, retain_graph)
        except FAILURES as error:
            self.outcomes[type(error).__name__] += 1
            self.exact = False
            self.spent |= made_of
        except RuntimeError as error:
            # A retry over what a failed pass had used up.
            if self.exact or "second time" not in str(error):
                raise
            self.outcomes["second time"] += 1
            self.spent |= made_of
        else:
            self.outcomes["well"] += 1
        finally:
            self._running.remove(made_of)

    def settle(self) -> None:
        """Let all come to rest, and compare; what a failed pass has left is taken as it is."""
        self.armed = False
        self.at_once = 0
        self.drain()
        if self.exact:
            self.check()
        for i, (rank, leaf) in enumerate(self.leaves):
            found = self.workers[rank].grads.get(leaf.tensor)
            self.expected[i] = None if found is None else found._array.copy()
        self.exact = True


def run_seeds(first: int, count: int, run: Callable[[int], Story]) -> Counter[str]:
    ends: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            ends.update(run(seed).outcomes)
        except Exception as error:
            raise AssertionError(f"seed {seed}; rerun: {run.__name__}({seed})") from error
    return ends


def run_well(seed: int) -> Story:
    story = Story(seed)
    draw = story.random
    story.write(draw.randrange(5, 25))
    for _ in range(draw.choice([1, 1, 2, 3])):
        story.unfinished = draw.choice([0, 0, 3, 8])
        story.attempt(draw.randrange(story.size))
        story.check()
        if draw.random() < 0.5:
            story.settle()
        story.write(draw.randrange(8))
    story.settle()
    return story


def run_with_failures(seed: int) -> Story:
    story = Story(seed)
    draw = story.random
    story.write(draw.randrange(5, 25))
    for _ in range(draw.choice([2, 3, 4])):
        story.unfinished = draw.choice([0, 0, 3, 8])
        story.armed = draw.random() < 0.5
        story.attempt(draw.randrange(story.size))
        if draw.random() < 0.5:
            story.settle()
        story.write(draw.randrange(8))
    story.settle()
    story.attempt(draw.randrange(story.size))
    story.check()
    return story


def run_at_once(seed: int) -> Story:
    story = Story(seed)
    draw = story.random
    story.write(draw.randrange(5, 25))
    for _ in range(draw.choice([1, 2, 3])):
        story.at_once = 3
        story.unfinished = 12
        story.armed = draw.random() < 0.5
        story.attempt(draw.randrange(story.size))
        if draw.random() < 0.7:
            story.settle()
        story.write(draw.randrange(8))
    story.settle()
    story.attempt(draw.randrange(story.size))
    story.check()
    return story


def stretches(count: int) -> pytest.MarkDecorator:
    """Parameters of a test of so many seeds, and of many more that are left to a long run."""
    long = [
        pytest.param(first, 1000, marks=[pytest.mark.soak, pytest.mark.timeout(300)])
        for first in range(count, 20000, 1000)
    ]
    return pytest.mark.parametrize(("first", "count"), [(0, count), *long])


@stretches(500)
def test_passes_one_after_another(first: int, count: int) -> None:
    ends = run_seeds(first, count, run_well)
    assert set(ends) == {"well"}


@stretches(500)
def test_after_any_failure_the_next_pass_ends_and_is_exact(first: int, count: int) -> None:
    ends = run_seeds(first, count, run_with_failures)
    assert min(ends["Boom"], ends["RpcTimeoutError"]) > 10


@stretches(500)
def test_passes_of_several_workers_at_once(first: int, count: int) -> None:
    ends = run_seeds(first, count, run_at_once)
    assert min(ends["Boom"], ends["RpcTimeoutError"]) > 10


def test_a_pass_may_be_given_up_after_every_single_step() -> None:
    for seed in range(15):
        for patience in range(60):
            story = Story(seed)
            story.write(12)
            rank = story.random.randrange(story.size)
            roots = story.roots(rank)
            again = [story.combine(rank, [root], [2.0]) for root in roots]
            story.packages[rank].agent.patience = patience
            try:
                story.backward(rank, roots, retain_graph=True)
            except RpcTimeoutError:
                story.exact = False
            else:
                story.check()
            # The next one begins at once; nobody need have heard of the end.
            story.packages[rank].agent.patience = None
            story.backward(rank, again, retain_graph=True)
            story.settle()
            story.backward(rank, again, retain_graph=False)
            story.check()
            if patience and story.packages[rank].exchange.running:
                break
        assert not any(worker.exchange.running for worker in story.packages)


class Released(Story):
    """A story whose context is released in the middle."""

    to_release = False
    released = False

    def step(self) -> bool:
        if self.to_release and not self.receiving and self.random.random() < 0.05:
            self.to_release = False
            self.released = True
            self.packages[0].exchange.release(CONTEXT)
        return super().step()

    def act(self) -> None:
        self._or_released(super().act)

    def attempt(self, rank: int, roots: list[Value] | None = None) -> None:
        self._or_released(lambda: super(Released, self).attempt(rank, roots))

    def _or_released(self, action: Callable[[], None]) -> None:
        try:
            action()
        except RuntimeError as error:
            if "released" not in str(error):
                raise
            assert self.released
            self.outcomes["released"] += 1
            self.exact = False


def run_released(seed: int) -> Story:
    story = Released(seed)
    draw = story.random
    story.write(draw.randrange(5, 25))
    # Worker 0, where the block is left, has called all others.
    for rank in range(1, story.size):
        story.send(0, rank, [story.leaf(0, 1.0)])
    story.drain()
    story.to_release = True
    story.at_once = 3
    story.unfinished = 12
    story.armed = draw.random() < 0.5
    story.attempt(draw.randrange(story.size))
    while story.to_release:
        story.step()
    story.drain()
    for worker in story.packages:
        assert not worker.exchange.running
        assert not len(worker.container)
    return story


@stretches(500)
def test_a_release_ends_passes_and_leaves_no_context_anywhere(first: int, count: int) -> None:
    ends = run_seeds(first, count, run_released)
    assert ends["released"] > 50


class Scripted(World):
    """A world in which messages arrive as the script says, and then in any order."""

    def __init__(self, size: int) -> None:
        super().__init__(size, lambda options: 0, PackageWorker)
        self.script: list[tuple[int, int]] = []

    def step(self) -> bool:
        return super().step() if not self.script else self.follow(*self.script.pop(0))

    def follow(self, source: int, to: int) -> bool:
        self.deliver(source, to)
        while self.tasks[to]:
            self.tasks[to].popleft()()
        return True


def test_an_end_that_comes_after_the_next_pass_has_begun() -> None:
    """Worker 3 drops its pair with 2 in a pass that fails; 2 counts on it in the next.

    Worker 3 hears of the next pass from worker 1, who is new to it, before it hears of the end.
    """
    world = Scripted(4)
    value = world.leaf(2, 1.0)
    for source, to in [(2, 3), (3, 0)]:
        world.send(source, to, [value])
        world.drain()
        value = world.values[to][-1]
    for to in (1, 2):
        world.send(0, to, [world.leaf(0, 1.0)])
    world.drain()
    starter: PackageWorker = world.workers[0]  # type: ignore[assignment]
    starter.agent.patience = 0
    with pytest.raises(RpcTimeoutError):
        starter.backward([world.combine(0, [value], [2.0]).tensor], retain_graph=False)
    starter.agent.patience = None
    # Worker 3 has its part in the first pass, and worker 1 hears of it, and of its end.
    for to in (3, 1, 1):
        world.follow(0, to)
    world.send(1, 3, [world.leaf(1, 1.0)])
    world.follow(1, 3)
    # Worker 1 hears of the second pass and tells 3, before 2 and 3 hear of the end of the first.
    world.script = [(0, 1), (1, 3), (0, 2), (0, 2), (0, 2)]
    root = world.combine(0, [world.leaf(0, 1.0)], [2.0])
    starter.backward([root.tensor], retain_graph=False)
    world.drain()
    assert starter.grads[world.leaves[-1][1].tensor].tolist() == 2.0


class Unsent(World):
    """A world in which it turns out that a message cannot be sent once all else has happened."""

    def __init__(self) -> None:
        super().__init__(2, lambda options: 0, PackageWorker)
        self.unsent: list[Message] = []

    def step(self) -> bool:
        if super().step():
            return True
        if not self.unsent:
            return False
        sender: PackageWorker = self.workers[0]  # type: ignore[assignment]
        sender.container.retract_send(self.unsent.pop())
        return True


def test_a_message_that_cannot_be_sent_while_a_pass_waits_for_its_answer() -> None:
    world = Unsent()
    x, y = world.leaf(0, 1.0), world.leaf(0, 1.0)
    world.unsent = [world.workers[0].send(1, [y.tensor]) for _ in range(3)]
    world.backward(0, [world.combine(0, [x], [2.0])])
    world.check()
    world.unsent = [world.workers[0].send(1, [y.tensor])]
    world.drain()
    world.backward(0, [world.combine(0, [x], [2.0])])
    world.check()


# -- what it costs ---------------------------------------------------------------------------------

KINDS = {
    exchange.GRADIENTS: "gradients",
    exchange.BEGIN: "begin",
    exchange.LATE: "late",
    exchange.REPORT: "report",
    exchange.END: "end",
}


class Metered(Story):
    """Counts the messages of passes by kind."""

    def deliver(self, source: int, to: int) -> None:
        message = self.lanes[source, to][0]
        kind = KINDS.get(getattr(message, "kind", 0), "")
        self.delivered[kind] += 1
        if kind == "gradients" and unpack_answers(message.body, message.buffers).known is not None:
            self.delivered["report"] += 1
            self.riding += 1
        super().deliver(source, to)

    #: Messages by kind; and reports, of which these came with answers.
    delivered: Counter[str]
    riding: int = 0


def metered(size: int) -> Metered:
    for seed in range(100):
        story = Metered(seed)
        story.delivered = Counter()
        story.slow = story.faulty = 0.0
        if story.size == size:
            return story
    raise AssertionError("no world of that size")


def hop(story: Story, value: Value, source: int, to: int) -> Value:
    """Send a value, and compute something from it there."""
    story.send(source, to, [value])
    story.drain()
    received = story.values[to][-1]
    return story.combine(to, [received, story.leaf(to, 2.0)], [1.0, 1.0])


@pytest.mark.parametrize(
    "route",
    [[0, 1, 0], [0, 1, 2, 1, 0], [0, 1, 0, 1, 0, 1, 0], [0, 1, 2, 3, 2, 1, 0]],
)
def test_a_chain_of_calls_costs_a_message_a_pair_and_a_report_a_worker(route: list[int]) -> None:
    for _ in range(5):
        story = metered(4)
        value = story.leaf(0, 1.0)
        for source, to in itertools.pairwise(route):
            value = hop(story, value, source, to)
        story.delivered.clear()
        story.backward(0, [value])
        story.check()
        story.drain()
        hops = len(route) - 1
        assert story.delivered == {"gradients": hops, "report": len(set(route)) - 1}
        # The last answer that comes back to the first worker brings a report with it.
        assert story.riding == 1


def test_nobody_is_told_what_he_knows_by_a_shorter_way() -> None:
    for _ in range(5):
        story = metered(4)
        value = story.leaf(0, 1.0)
        for source, to in itertools.pairwise([0, 1, 2, 3, 0]):
            value = hop(story, value, source, to)
        story.delivered.clear()
        story.backward(0, [value])
        story.check()
        story.drain()
        # Worker 0 tells 1, which tells 2 unless it has heard from it.
        assert story.delivered.pop("begin") <= 2
        assert story.delivered == {"gradients": 4, "report": 3}


def test_calls_to_several_workers_that_are_used_all_cost_no_more() -> None:
    story = metered(4)
    parts = []
    for rank in (1, 2, 3):
        there = hop(story, story.leaf(0, 1.0), 0, rank)
        parts.append(hop(story, there, rank, 0))
    loss = story.combine(0, parts, [1.0, 2.0, 3.0])
    story.delivered.clear()
    story.backward(0, [loss])
    story.check()
    story.drain()
    assert story.delivered == {"gradients": 6, "report": 3}


def test_an_unused_result_costs_one_answer_as_well() -> None:
    story = metered(3)
    used = hop(story, hop(story, story.leaf(0, 1.0), 0, 1), 1, 0)
    hop(story, hop(story, story.leaf(0, 1.0), 0, 2), 2, 0)
    story.delivered.clear()
    story.backward(0, [used])
    story.check()
    story.drain()
    assert story.delivered == {"gradients": 4, "report": 2}


def test_a_worker_off_every_path_is_told_and_reports() -> None:
    story = metered(2)
    hop(story, story.leaf(1, 1.0), 1, 0)
    story.delivered.clear()
    loss = story.combine(0, [story.leaf(0, 1.0)], [2.0])
    story.backward(0, [loss])
    story.drain()
    assert story.delivered == {"gradients": 1, "report": 1}

    story = metered(2)
    hop(story, story.leaf(0, 1.0), 0, 1)
    story.delivered.clear()
    loss = story.combine(0, [story.leaf(0, 1.0)], [2.0])
    story.backward(0, [loss])
    story.drain()
    assert story.delivered == {"begin": 1, "gradients": 1, "report": 1}
