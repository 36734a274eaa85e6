"""Graphs of contexts, gathered over the ranks of an MPI job."""

from __future__ import annotations

import pytest

import tensorplay as tp
from distributed.autograd.driving import eventually
from distributed.autograd.remote import add, recorded, times_parameter, via
from mpi.conftest import RpcWorld
from tensorplay.distributed import autograd, rpc
from tensorplay.distributed.rpc.current import current_agent

pytestmark = pytest.mark.mpi


@pytest.mark.ranks(2, 4)
def test_graph_of_a_chain_through_all_ranks(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    x = tp.ones(2, requires_grad=True)
    others = list(rpc_world.everybody)[1:]
    with autograd.context() as context_id:
        loss = rpc.rpc_sync(1, via, args=(others[1:], times_parameter, x)).sum()
        before = recorded(context_id)
        graph = autograd.get_graph(context_id, loss)
        # Any worker of the context can ask; this call is of the context, but has no tensors.
        seen_there = rpc.rpc_sync(others[-1], autograd.get_graph, args=(context_id,))
        assert recorded(context_id).sends == before.sends
        assert recorded(context_id).recvs == before.recvs
        autograd.backward(context_id, loss)
        assert autograd.get_gradients(context_id)[x].tolist() == [3.0, 3.0]
    assert graph.workers == {rank: f"worker{rank}" for rank in rpc_world.everybody}
    assert seen_there.workers == graph.workers
    # One message along each link of the chain, and one back.
    links = [(rank, rank + 1) for rank in range(rpc_world.size - 1)]
    ends = [(pair.send.rank, pair.recv.rank) for pair in graph.pairs]
    assert sorted(ends) == sorted([*links, *(link[::-1] for link in links)])
    assert len(seen_there.pairs) == len(graph.pairs)
    last = [node.name for node in graph.nodes if node.rank == others[-1]]
    assert last == ["SendRpcBackward", "MulBackward0", "RecvRpcBackward", "AccumulateGrad"]


@pytest.mark.ranks(2, 4)
def test_a_worker_of_the_context_that_has_left(world: RpcWorld) -> None:
    rpc.init_rpc()
    last = world.size - 1
    if world.rank == 0:
        with autograd.context() as context_id:
            x = tp.ones(2, requires_grad=True)
            loss = rpc.rpc_sync(last, add, args=(x, x)).sum()
            world.comm.Barrier()
            eventually(lambda: last in current_agent().departed)
            with pytest.raises(rpc.WorkerLeftError, match=f"'worker{last}'"):
                autograd.get_graph(context_id, loss)
    else:
        world.comm.Barrier()
    rpc.shutdown(graceful=world.rank != last, timeout=30)


@pytest.mark.ranks(2, 4)
def test_text_does_not_depend_on_what_was_before(rpc_world: RpcWorld) -> None:
    texts = set()
    for _ in range(3):
        with autograd.context() as context_id:
            x = tp.ones(2, requires_grad=True)
            y = rpc.rpc_sync(rpc_world.next, add, args=(x, x))
            texts.add(autograd.get_graph(context_id, y.sum()).dot())
    assert len(texts) == 1
