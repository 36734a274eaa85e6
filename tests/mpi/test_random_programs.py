"""Random programs over the ranks of an MPI job give the gradients of one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from distributed.autograd.driving import eventually, left_over
from distributed.autograd.program_counts import check_counts
from distributed.autograd.program_failures import describe
from distributed.autograd.program_maker import program_of
from distributed.autograd.program_products import check_products
from distributed.autograd.program_runs import check, check_program
from distributed.autograd.programs import program_from
from mpi.conftest import RpcWorld
from tensorplay.distributed import rpc

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

#: Programs for each world; each gets others.
COUNT = 60
THREADS = 4


def nothing_left(world: RpcWorld) -> None:
    for rank in world.everybody:
        eventually(lambda rank=rank: rpc.rpc_sync(rank, left_over) == (0, 0))  # type: ignore[misc]


@pytest.mark.parametrize(
    "count",
    [COUNT, pytest.param(5000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
def test_random_programs(world: RpcWorld, count: int) -> None:
    rpc.init_rpc()
    if world.rank == 0:
        for seed in range(count):
            check_program(seed, world.size, numerically=seed % 5 == 0)
        nothing_left(world)
    rpc.shutdown()


def test_random_programs_that_all_ranks_drive_at_once(world: RpcWorld) -> None:
    rpc.init_rpc()
    for seed in range(world.rank, COUNT, world.size):
        check_program(10_000 + seed, world.size)
    nothing_left(world)
    rpc.shutdown()


def test_random_programs_of_many_threads_at_once(rpc_world: RpcWorld) -> None:
    """Each thread of each rank drives programs of its own, in contexts of its own."""

    def drive(thread: int) -> None:
        for seed in range(rpc_world.rank * THREADS + thread, COUNT, rpc_world.size * THREADS):
            check_program(40_000 + seed, rpc_world.size)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(drive, range(THREADS)))
    nothing_left(rpc_world)


def test_a_failing_program_is_shrunk_in_a_process_of_its_own(rpc_world: RpcWorld) -> None:
    """This one does not fail there."""
    if rpc_world.rank == 0:
        program = program_of(3, rpc_world.size)
        text = describe(program, check)
        assert "on workers of one process it did not fail again" in text
        assert program_from(text[text.index("Program(") :]) == program


def test_hessian_vector_products_of_random_programs(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        products = [check_products(20_000 + seed, rpc_world.size) for seed in range(COUNT)]
        assert sum(products) > COUNT / 12
        nothing_left(rpc_world)


def test_messages_of_random_programs(rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        for seed in range(COUNT // 2):
            check_counts(30_000 + seed, rpc_world.size)
        nothing_left(rpc_world)
