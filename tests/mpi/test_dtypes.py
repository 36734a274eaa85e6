"""Tensors of several types in one context, among the ranks of an MPI job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distributed.autograd.program_dtypes import PAIRS, PROGRAMS, operands_of_two_types
from mpi.conftest import RpcWorld

pytestmark = pytest.mark.mpi


def test_operands_of_two_types(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    for first, second in PAIRS:
        operands_of_two_types(rpc_world.size, first, second)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: Callable[[int], None], rpc_world: RpcWorld) -> None:
    if rpc_world.rank == 0:
        program(rpc_world.size)
