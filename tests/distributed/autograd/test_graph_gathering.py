"""Graphs of contexts, gathered over their workers."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import HARSH, LIMIT, context_of, on_first
from distributed.autograd.remote import (
    add,
    both,
    constant,
    identity,
    mul,
    nothing,
    recorded,
    square_parameter,
    twice,
    via,
    without_grad,
)
from tensorplay.autograd.engine import GraphTask
from tensorplay.autograd.graph import MultiOutputNode, OutputOf
from tensorplay.distributed import autograd, rpc
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent
from tensorplay.tensor import Tensor


def leaf() -> tp.Tensor:
    return tp.ones(2, requires_grad=True)


def named(graph: autograd.ContextGraph, rank: int) -> list[tuple[str, int]]:
    """Names and dependency counts of a worker's nodes."""
    return [(node.name, node.waits_for) for node in graph.nodes if node.rank == rank]


def messages(graph: autograd.ContextGraph) -> list[tuple[int | None, int, int]]:
    """For each message its id, sender and receiver."""
    return [(pair.send.message_id, pair.send.rank, pair.recv.rank) for pair in graph.pairs]


def test_the_published_example() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            t1, t2 = leaf(), leaf()
            t3 = rpc.rpc_sync(1, add, args=(t1, t2))
            loss = mul(t3, leaf()).sum()
            graph = autograd.get_graph(context_id, [loss])
        assert graph.context_id == context_id
        assert graph.workers == {0: "worker0", 1: "worker1"}
        assert named(graph, 0) == [
            ("SumBackward0", 0),
            ("MulBackward0", 1),
            ("RecvRpcBackward", 1),
            ("AccumulateGrad", 1),
            ("SendRpcBackward", 1),
            ("AccumulateGrad", 1),
            ("AccumulateGrad", 1),
        ]
        assert named(graph, 1) == [
            ("SendRpcBackward", 1),
            ("AddBackward0", 1),
            ("RecvRpcBackward", 2),
        ]
        (root,) = graph.roots
        assert (root.rank, root.number, root.kind) == (0, 0, "operation")
        there, back = graph.pairs
        assert (there.send.rank, there.recv.rank) == (0, 1)
        assert (back.send.rank, back.recv.rank) == (1, 0)
        assert (there.send.peer, there.recv.peer) == (1, 0)
        assert there.send.message_id == there.recv.message_id
        assert [node.shape for node in graph.nodes if node.kind == "leaf"] == [(2,)] * 3
        assert pickle.loads(pickle.dumps(graph)) == graph

    on_first(program)


def test_it_reaches_workers_that_this_one_does_not_know() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            y = rpc.rpc_sync(1, via, args=([2, 3], twice, leaf()))
            graph = autograd.get_graph(context_id, y.sum())
            seen_from_the_end = rpc.rpc_sync(3, autograd.get_graph, args=(context_id,))
        assert list(graph.workers) == [0, 1, 2, 3]
        assert len(graph.pairs) == 6
        # It has no root there, so nodes have other numbers; all else is the same.
        assert seen_from_the_end.workers == graph.workers
        assert messages(seen_from_the_end) == messages(graph)
        assert seen_from_the_end.roots == ()

    on_first(program, size=4, weather=HARSH)


def test_the_question_leaves_no_trace_in_the_context() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, via, args=([2], twice, x)).sum()
            before = [ask(rank, context_id) for rank in range(3)]
            graphs = [autograd.get_graph(context_id, loss) for _ in range(5)]
            assert [ask(rank, context_id) for rank in range(3)] == before
            assert graphs == graphs[:1] * 5
            autograd.backward(context_id, [loss])
            assert autograd.get_gradients(context_id)[x].tolist() == [2.0, 2.0]

    def ask(rank: int, context_id: int) -> Any:
        if rank == 0:
            return recorded(context_id)
        with tp.no_grad():  # outside the context
            return rpc.rpc_sync(rank, recorded, args=(context_id,))

    on_first(program, size=3)


def test_counts_are_those_of_the_engine() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            x, y = leaf(), leaf()
            first = rpc.rpc_sync(1, identity, args=([x, y, x * y],))
            second = rpc.rpc_sync(1, both, args=(first[0] * first[2],))
            tp.split(rpc.rpc_sync(0, twice, args=(x,)), 1)  # a call to itself, unused
            loss = (second[0] * first[1] * first[1]).sum()
            graph = autograd.get_graph(context_id, loss)
            expected = counted(context_id, [loss])
        mine = [node for node in graph.nodes if node.rank == 0]
        assert Counter((node.name, node.waits_for) for node in mine) == expected

    on_first(program)


def counted(context_id: int, roots: list[tp.Tensor]) -> Counter[tuple[str, int]]:
    """Names and counts as the engine has them; of several outputs of one node the sum."""
    task = GraphTask(lambda target, grad: None)
    context = context_of(context_id)
    sends = context._send_functions().values()
    task.count([root._node for root in roots])  # type: ignore[misc]
    task.count(sends)
    for send in sends:
        task.expect(send)
    waits: Counter[Any] = Counter(dict.fromkeys(context._recv_functions().values(), 0))
    for target, number in task.pending.items():
        if isinstance(target, OutputOf):
            waits[target.parent] += number
        elif not isinstance(target, MultiOutputNode):
            waits[target] += number
    return Counter(
        ("AccumulateGrad" if isinstance(target, Tensor) else target.name(), number)
        for target, number in waits.items()
    )


def test_parts_that_no_root_leads_to_are_there() -> None:
    """Unused arguments and results, callees that record nothing, messages without tensors."""

    def program() -> None:
        with autograd.context() as context_id:
            x = leaf()
            rpc.rpc_sync(1, twice, args=(x,))
            for function in (constant, without_grad, nothing):
                rpc.rpc_sync(2, function, args=(x,))
            rpc.rpc_sync(3, nothing)
            graph = autograd.get_graph(context_id)
        assert named(graph, 2) == [("RecvRpcBackward", 0)] * 3
        assert named(graph, 3) == []
        assert graph.workers[3] == "worker3"
        assert named(graph, 0)[-1] == ("RecvRpcBackward", 0)
        assert len(graph.pairs) == 5
        assert graph.roots == ()

    on_first(program, size=4)


def test_parameters_of_other_workers_are_leaves() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            loss = rpc.rpc_sync(1, square_parameter).sum()
            graph = autograd.get_graph(context_id, [loss])
        assert named(graph, 1) == [
            ("SendRpcBackward", 1),
            ("MulBackward0", 1),
            ("AccumulateGrad", 2),
        ]

    on_first(program)


def test_a_pass_takes_the_pairs_with_it_unless_the_graph_is_retained() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            loss = rpc.rpc_sync(1, twice, args=(leaf(),)).sum()
            before = autograd.get_graph(context_id, loss)
            autograd.backward(context_id, loss, retain_graph=True)
            assert autograd.get_graph(context_id, loss) == before
            autograd.backward(context_id, loss)
            after = autograd.get_graph(context_id, loss)
        assert after.pairs == ()
        assert named(after, 0) == [("SumBackward0", 0), ("RecvRpcBackward", 1)]
        assert named(after, 1) == []

    on_first(program)


def test_a_recorded_pass_is_in_the_graph() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            x = leaf()
            y = rpc.rpc_sync(1, twice, args=(x,))
            loss = (y * y).sum()
            before = autograd.get_graph(context_id, loss)
            autograd.backward(context_id, loss, create_graph=True)
            gradient = autograd.get_gradients(context_id)[x]
            after = autograd.get_graph(context_id, gradient.sum())
        # The calls made one pair each way, and so did the gradients, the other way round.
        assert len(before.pairs) == 2
        assert len(after.pairs) == 4
        assert Counter(pair.send.rank for pair in after.pairs) == {0: 2, 1: 2}

    on_first(program)


def test_a_long_chain_needs_no_recursion() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            x: tp.Tensor = leaf()
            for _ in range(5000):
                x = -x
            graph = autograd.get_graph(context_id, x)
        assert len(graph.nodes) == 5001
        assert [node.number for node in graph.nodes] == list(range(5001))

    on_first(program, size=1)


def test_what_cannot_be_asked() -> None:
    def program() -> None:
        with pytest.raises(RuntimeError, match="Could not find autograd context with id: 77"):
            autograd.get_graph(77)
        with autograd.context() as context_id:
            with pytest.raises(TypeError, match="roots must be a Tensor or a list"):
                autograd.get_graph(context_id, [1.0])  # type: ignore[list-item]
            with pytest.raises(RuntimeError, match="not made by a recorded operation"):
                autograd.get_graph(context_id, leaf())
        with pytest.raises(RuntimeError, match="it has been released"):
            autograd.get_graph(context_id)

    on_first(program, size=1)


held, free = threading.Event(), threading.Event()


def hold(context_id: int) -> None:
    """Keep everybody else from looking at this worker's part of a context for a while."""
    with context_of(context_id).lock:
        held.set()
        assert free.wait(LIMIT)


def test_a_worker_that_does_not_answer() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            loss = rpc.rpc_sync(1, twice, args=(leaf(),)).sum()
            with tp.no_grad():
                holding = rpc.rpc_async(1, hold, args=(context_id,))
            assert held.wait(LIMIT)
            usual = rpc.get_rpc_timeout()
            rpc.api._set_rpc_timeout(0.05)
            try:
                with pytest.raises(rpc.RpcTimeoutError):
                    autograd.get_graph(context_id, loss)
            finally:
                rpc.api._set_rpc_timeout(usual)
                free.set()
            holding.wait()
            assert len(autograd.get_graph(context_id, loss).pairs) == 2

    on_first(program)


def test_many_threads_ask_at_once() -> None:
    def program() -> None:
        agent = current_agent()
        with autograd.context() as context_id:
            loss = rpc.rpc_sync(1, via, args=([2], twice, leaf())).sum()

            def ask(_: int) -> autograd.ContextGraph:
                set_thread_agent(agent)
                return autograd.get_graph(context_id, loss)

            with ThreadPoolExecutor(8) as pool:
                graphs = list(pool.map(ask, range(40)))
            assert graphs == graphs[:1] * 40
            assert len(graphs[0].pairs) == 4

    on_first(program, size=3, weather=HARSH)


def test_a_worker_that_no_message_has_reached_has_nothing() -> None:
    def program() -> None:
        with autograd.context() as context_id:
            # As if a message to it were still under way.
            context_of(context_id).known.add(1)
            graph = autograd.get_graph(context_id)
        assert graph.workers == {0: "worker0", 1: "worker1"}
        assert graph.nodes == ()

    on_first(program)
