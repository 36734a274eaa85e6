"""Fixtures of tests that run on the ranks of one MPI world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mpi.served import gate
from tensorplay.distributed import rpc


@dataclass(frozen=True)
class RpcWorld:
    """Where a test runs.

    Attributes:
        comm: COMM_WORLD, which is the test's own: no message of the library travels on it.
        rank: This rank in it, and the worker's.
        size: The number of ranks, and of workers.
    """

    comm: Any
    rank: int
    size: int

    @property
    def next(self) -> int:
        """The worker after this one."""
        return (self.rank + 1) % self.size

    @property
    def everybody(self) -> range:
        return range(self.size)


@pytest.fixture
def world() -> RpcWorld:
    """The world, without RPC.  A test that asks for it starts and ends RPC by itself."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    return RpcWorld(comm, comm.Get_rank(), comm.Get_size())


@pytest.fixture
def rpc_world(world: RpcWorld) -> Iterator[RpcWorld]:
    """The world with RPC up; a graceful shutdown of all ranks together follows the test."""
    rpc.init_rpc()
    yield world
    rpc.shutdown(timeout=30)


@pytest.fixture
def closed_gate() -> Iterator[None]:
    """Close this rank's gate, which holds the calls of others; asked for before `rpc_world`."""
    gate.close()
    yield
    gate.open()
