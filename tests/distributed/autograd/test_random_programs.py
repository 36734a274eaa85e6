"""Random programs on several workers give the gradients that they give in one process."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from distributed.autograd.driving import eventually, left_over, on_first
from distributed.autograd.program_maker import SHAPES, program_of
from distributed.autograd.program_operations import FUNCTIONS
from distributed.autograd.program_plain import plain_gradients
from distributed.autograd.program_runs import check_numerically, check_program
from distributed.autograd.programs import PACKINGS, WAYS, Call, Compute, Wait, program_from
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.distributed.transport.loopback import Weather

#: Seeds that share a world.
BATCH = 10


@pytest.fixture
def _restless() -> Iterator[None]:
    """Threads are switched as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def weather_of(number: int) -> Weather:
    """One of several climates, from fair to the worst."""
    hold, late_bulk, pause = [(0, 0, 0), (0.6, 0, 0), (0.3, 0.8, 2e-3), (0, 0, 5e-4)][number % 4]
    return Weather(seed=number, hold=hold, late_bulk=late_bulk, pause=pause)


def run_programs(size: int, count: int, *, first: int = 0) -> None:
    for number in range(count // BATCH):
        seeds = range(first + number * BATCH, first + (number + 1) * BATCH)

        def drive(seeds: range = seeds) -> None:
            for seed in seeds:
                check_program(seed, size, numerically=seed % 10 == 0)

        on_first(drive, size=size, weather=weather_of(number))


def long_runs(*sizes: int) -> list[object]:
    marks = [pytest.mark.soak, pytest.mark.timeout(900)]
    return [pytest.param(size, 3000, marks=marks) for size in sizes]


@pytest.mark.parametrize(
    ("size", "count"),
    [(1, 200), (2, 300), (3, 300), (4, 250), (5, 150), (8, 100), *long_runs(2, 3, 5, 8)],
)
def test_random_programs(size: int, count: int) -> None:
    run_programs(size, count)


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize(("size", "count"), [(2, 50), (4, 50), *long_runs(3)])
def test_random_programs_while_threads_switch_all_the_time(size: int, count: int) -> None:
    run_programs(size, count, first=10_000)


@pytest.mark.parametrize(("size", "count"), [(4, 60), *long_runs(4)])
def test_random_programs_that_all_workers_drive_at_once(size: int, count: int) -> None:
    def program(rank: int) -> None:
        for seed in range(rank, count, size):
            check_program(20_000 + seed, size)
        for other in range(size):
            eventually(lambda: rpc.rpc_sync(other, left_over) == (0, 0))  # noqa: B023

    run_world(size, program, weather=weather_of(1), seconds=600)


@pytest.mark.parametrize(("size", "threads", "count"), [(1, 4, 40), (3, 4, 120)])
def test_random_programs_of_many_threads_at_once(size: int, threads: int, count: int) -> None:
    """Each thread of each worker drives programs of its own, in contexts of its own."""

    def program(rank: int) -> None:
        agent = current_agent()

        def drive(thread: int) -> None:
            set_thread_agent(agent)
            for seed in range(rank * threads + thread, count, size * threads):
                check_program(30_000 + seed, size)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(drive, range(threads)))
        for other in range(size):
            eventually(lambda: rpc.rpc_sync(other, left_over) == (0, 0))  # noqa: B023

    run_world(size, program, weather=weather_of(2), seconds=50)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_gradients_of_one_process_are_those_of_differences(first: int) -> None:
    smooth = [
        program
        for seed in range(first, first + 100)
        if (program := program_of(seed, 1 + seed % 5)).differentiable
    ]
    assert len(smooth) > 20
    for program in smooth[:20]:
        try:
            check_numerically(program)
        except AssertionError as error:
            raise AssertionError(f"{error}\n\n{program}") from error


def test_what_the_programs_are_like() -> None:
    """That they do what they are for: a change of the generator must not empty them."""
    programs = [program_of(seed, 4) for seed in range(200)]
    blocks = [block for program in programs for block in program.blocks]
    assert sum(len(program.blocks) > 3 for program in programs) > 100
    assert sum(len({block.worker for block in p.blocks}) == 4 for p in programs) > 80
    assert sum(block.no_grad for block in blocks) > 50
    assert sum(program.start != 0 for program in programs) > 15
    assert sum(len(program.passes) > 1 for program in programs) > 30
    assert sum(program.again for program in programs) > 15
    assert sum(program.mixed for program in programs) > 30
    assert sum(program.differentiable for program in programs) > 40
    gradients = [grad for program in programs[:50] for grad in plain_gradients(program).values()]
    assert sum(grad is not None for grad in gradients) > 50
    assert sum(grad is None for grad in gradients) > 50


def test_the_programs_hold_everything_that_there_is() -> None:
    programs = [program_of(seed, 3) for seed in range(300)]
    blocks = [block for program in programs for block in program.blocks]
    statements = [one for block in blocks for one in block.statements]
    calls = [one for one in statements if isinstance(one, Call)]
    ways = Counter([call.way for call in calls])
    assert min([ways[way] for way in WAYS]) > 50
    packings = Counter([call.packing for call in calls] + [block.packing for block in blocks])
    assert min([packings[packing] for packing in PACKINGS]) > 100
    operations = Counter([one.operation for one in statements if isinstance(one, Compute)])
    assert min([operations[operation] for operation in FUNCTIONS]) > 20
    parameters = [one for program in programs for one in program.parameters]
    shapes = Counter([one.shape for one in parameters])
    assert min([shapes[shape] for shape in SHAPES]) > 5
    assert sum(one.hooked for one in parameters) > 50
    waits = Counter(
        [
            (n, one.handle)
            for n, b in enumerate(blocks)
            for one in b.statements
            if isinstance(one, Wait)
        ]
    )
    assert sum(count > 1 for count in waits.values()) > 20, "a reference fetched again"
    for what, found in {
        "made under no_grad": sum(call.quiet for call in calls),
        "a reference passed along": sum(bool(call.references) for call in calls),
        "the same tensor twice": sum(len({*c.operands}) < len(c.operands) for c in calls),
        "results that are the arguments": sum(bool({*b.inputs} & {*b.outputs}) for b in blocks),
    }.items():
        assert found > 30, what


def test_a_program_is_made_again_from_its_source() -> None:
    for seed in range(20):
        program = program_of(seed, 3)
        assert program_from(str(program)) == program


def test_programs_are_the_same_wherever_they_are_made() -> None:
    text = str(program_of(7, 3))
    program_of.cache_clear()
    assert str(program_of(7, 3)) == text
