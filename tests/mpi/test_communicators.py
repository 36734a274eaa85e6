"""RPC on communicators other than COMM_WORLD: own ranks, own names, one after the other."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from mpi.conftest import RpcWorld
from mpi.served import add, here, identity
from tensorplay.distributed import rpc

pytestmark = pytest.mark.mpi


def world_rank() -> int:
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.Get_rank())


def check_calls(comm: Any, names: list[str]) -> None:
    """All workers of `comm` call each other, by rank, name and `WorkerInfo`."""
    assert rpc.get_world_size() == comm.Get_size()
    me = rpc.get_worker_info()
    assert (me.id, me.name) == (comm.Get_rank(), names[comm.Get_rank()])
    expected = comm.allgather(world_rank())
    for to, name in enumerate(names):
        assert rpc.get_worker_info(name).id == to
        for callee in (to, name, rpc.get_worker_info(name)):
            assert rpc.rpc_sync(callee, here) == to
            assert rpc.rpc_sync(callee, world_rank) == expected[to]
        array = np.full(30_000, to)
        assert (rpc.remote(name, add, args=(array, 1)).to_here() == to + 1).all()


def default_names(comm: Any) -> list[str]:
    return [f"worker{rank}" for rank in range(comm.Get_size())]


def serve_on(comm: Any, name: str | None = None) -> None:
    rpc.init_rpc(name, comm=comm)
    names = comm.allgather(name) if name else default_names(comm)
    check_calls(comm, names)
    rpc.shutdown()


def test_ranks_in_reverse(world: RpcWorld) -> None:
    comm = world.comm.Split(0, key=-world.rank)
    assert comm.Get_rank() == world.size - 1 - world.rank
    serve_on(comm)
    comm.Free()


def test_names_of_a_part(world: RpcWorld) -> None:
    # Two groups at once, whose workers have equal names without disturbing each other.
    comm = world.comm.Split(world.rank % 2, key=world.rank)
    serve_on(comm, f"member{comm.Get_rank()}")
    comm.Free()


@pytest.mark.mpi(min_size=2)
def test_only_some_ranks_take_part(world: RpcWorld) -> None:
    from mpi4py import MPI

    comm = world.comm.Split(MPI.UNDEFINED if world.rank == 0 else 1, key=world.rank)
    if world.rank == 0:
        assert comm == MPI.COMM_NULL
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            rpc.rpc_sync(0, here)
    else:
        serve_on(comm)
        comm.Free()
    world.comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_group_created_by_its_members_alone(world: RpcWorld) -> None:
    if world.rank > 0:
        group = world.comm.Get_group().Excl([0])
        comm = world.comm.Create_group(group)
        serve_on(comm)
        comm.Free()
        group.Free()
    world.comm.Barrier()


def test_same_communicator_twice(world: RpcWorld) -> None:
    comm = world.comm.Split(0, key=-world.rank)
    serve_on(comm, f"first{world.rank}")
    serve_on(comm, f"second{world.rank}")
    # It is still the user's: a message of theirs on it is untouched.
    assert comm.allreduce(1) == world.size
    comm.Free()


def test_different_communicators_one_after_the_other(world: RpcWorld) -> None:
    halves = world.comm.Split(world.rank % 2, key=-world.rank)
    everybody = world.comm.Dup()
    for comm in (halves, everybody, None, halves, world.comm):
        serve_on(world.comm if comm is None else comm)
    rpc.init_rpc()  # and the default
    check_calls(world.comm, default_names(world.comm))
    rpc.shutdown()
    halves.Free()
    everybody.Free()


def test_communicator_may_be_freed_while_rpc_is_up(world: RpcWorld) -> None:
    # RPC has taken its own duplicate.
    comm = world.comm.Dup()
    rpc.init_rpc(comm=comm)
    comm.Free()
    check_calls(world.comm, default_names(world.comm))
    rpc.shutdown()


@pytest.mark.mpi(min_size=2)
def test_given_rank_and_size_are_those_of_the_communicator(world: RpcWorld) -> None:
    comm = world.comm.Split(0, key=-world.rank)
    rank = comm.Get_rank()
    with pytest.raises(ValueError, match=r"rank=.* was given, but MPI says"):
        rpc.init_rpc(rank=(rank + 1) % world.size, comm=comm)
    rpc.init_rpc(rank=rank, world_size=world.size, comm=comm)
    check_calls(comm, default_names(comm))
    rpc.shutdown()
    comm.Free()


@pytest.mark.parametrize("wrong", [3, "COMM_WORLD", object()])
def test_what_is_no_communicator_is_refused(world: RpcWorld, wrong: Any) -> None:
    with pytest.raises(TypeError, match="comm"):
        rpc.init_rpc(comm=wrong)
    serve_on(world.comm)


def test_null_communicator_is_refused(world: RpcWorld) -> None:
    from mpi4py import MPI

    with pytest.raises((ValueError, TypeError), match="COMM_NULL"):
        rpc.init_rpc(comm=MPI.COMM_NULL)
    serve_on(world.comm)


# -- references left over ------------------------------------------------------------------------

left_over: list[Any] = []


def keep(value: Any) -> None:
    left_over.append(value)


def test_references_of_an_earlier_communicator(world: RpcWorld) -> None:
    comm = world.comm.Split(0, key=-world.rank)
    rpc.init_rpc(comm=comm)
    to = (comm.Get_rank() + 1) % world.size
    rref = rpc.remote(to, identity, args=([1],))
    mine = rpc.RRef([rref, 5])
    # A graph of them: references that hold references, in cycles too, on several ranks.
    rpc.rpc_sync(to, keep, args=([rref, mine],))
    cycle: list[Any] = [rref, mine]
    cycle.append(cycle)
    rpc.shutdown()
    serve_on(world.comm)
    rpc.init_rpc()
    with pytest.raises(RuntimeError, match="shut down"):
        rpc.rpc_sync(world.next, identity, args=([rref],))
    for reference in (rref, mine):
        assert repr(reference)
        assert reference.owner().name.startswith("worker")
    if world.size > 1:
        with pytest.raises(RuntimeError, match=r"shut down|has not been initialized"):
            rref.to_here()
    left_over.clear()
    del rref, mine, cycle, reference
    gc.collect()
    # Their ids were given out anew: ending the old ones leaves the new ones alone.
    fresh = [rpc.remote(world.next, identity, args=(i,)) for i in range(5)]
    assert [reference.to_here() for reference in fresh] == list(range(5))
    rpc.shutdown()
    comm.Free()
