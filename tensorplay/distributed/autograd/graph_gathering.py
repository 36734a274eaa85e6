"""Gathers the graph of a context from all its workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tensorplay.autograd.graph import AccumulateGrad, Node
from tensorplay.distributed.autograd.arguments import as_list, check_id
from tensorplay.distributed.autograd.container import Container
from tensorplay.distributed.autograd.context import DistAutogradContext
from tensorplay.distributed.autograd.context_graph import ContextGraph, GraphNode, MessagePair
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward
from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.rpc.api import rpc_async
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.transport.wire import NO_CONTEXT
from tensorplay.tensor import Tensor


class _Part(NamedTuple):
    """What one worker has of a graph."""

    nodes: list[GraphNode]
    roots: list[int]
    known: set[int]


def get_graph(context_id: int, roots: Tensor | Sequence[Tensor] = ()) -> ContextGraph:
    """The graph of a context, gathered from all workers that took part in it.

    What hangs from send functions is found on every worker; what this worker has made of the
    results it received only from `roots`.  Dependency counts are those of a pass from `roots`.

    Local: one worker asks, any that took part in the context, from any thread; the others answer
    while they serve.  Each worker tells what it has when the question comes, so ask when no call
    or pass is under way in the context.  A pass that does not retain the graph forgets the pairs
    it has used: ask before it.

    The questions are no part of the context: they record nothing in it.  They cost one call to
    each other worker, and time and memory in proportion to the nodes of the graph.

    Args:
        context_id: The context's id.
        roots: A tensor that this worker would start a pass from, or several.

    Raises:
        TypeError: `roots` is not a tensor or a sequence of tensors.
        RuntimeError: The context is not known here, or has been released; or a root was not
            recorded.
        RpcTimeoutError: A worker has not answered in the time that calls have.
        WorkerLeftError: A worker of the context has left.

    >>> import operator
    >>> import tensorplay as tp
    >>> from tensorplay.distributed import autograd, rpc
    >>> with autograd.context() as context_id:
    ...     x = tp.ones(2, requires_grad=True)
    ...     y = rpc.rpc_sync("worker1", operator.neg, args=(x,))
    ...     graph = autograd.get_graph(context_id, y.sum())
    >>> [node.name for node in graph.nodes if node.rank == 1]
    ['SendRpcBackward', 'NegBackward0', 'RecvRpcBackward']
    >>> len(graph.pairs)
    2
    >>> print(graph.dot().splitlines()[-2].strip())
    w0_1 -> w1_0 [label="message 2" style=dashed]
    """
    check_id("get_graph", context_id)
    tensors = as_list("get_graph", roots)
    container = current_session().container
    context = container.retrieve(context_id)
    starts = [_start(root) for root in tensors]
    agent = current_agent()
    parts = {agent.rank: _part_of(context, agent.rank, starts)}
    while missing := {rank for part in parts.values() for rank in part.known} - set(parts):
        parts.update(_ask(container, context_id, sorted(missing)))
    workers = {rank: agent.workers[rank].name for rank in sorted(parts)}
    nodes = {(rank, node.number): node for rank in workers for node in parts[rank].nodes}
    return ContextGraph(
        context_id,
        workers,
        tuple(nodes.values()),
        tuple(nodes[agent.rank, number] for number in parts[agent.rank].roots),
        _pairs(nodes.values()),
    )


def _start(root: Tensor) -> Node:
    function = root.grad_fn
    if function is None:
        raise RuntimeError("a root was not made by a recorded operation: it has no graph")
    return function


def _ask(container: Container, context_id: int, ranks: Iterable[int]) -> dict[int, _Part]:
    """The parts of other workers; all are asked at once."""
    # Outside the context: the question must not add to what it asks about.
    before = container.enter(NO_CONTEXT)
    try:
        calls = {rank: rpc_async(rank, _part_here, args=(context_id,)) for rank in ranks}
    finally:
        container.leave(before)
    return {rank: call.wait() for rank, call in calls.items()}


def _part_here(context_id: int) -> _Part:
    """This worker's part of a context's graph; runs there for `get_graph` elsewhere."""
    context = current_session().container.here(context_id)
    if context is None:
        return _Part([], [], set())
    return _part_of(context, current_agent().rank, starts=())


def _part_of(context: DistAutogradContext, rank: int, starts: Iterable[Node]) -> _Part:
    sends = context._send_functions()
    recvs = context._recv_functions()
    starts = list(starts)
    found = _walk([*starts, *sends.values()])
    # Recv functions that nothing leads to come last: they answer none at once.
    for recv in recvs.values():
        found.setdefault(recv, len(found))
    edges = {
        node: tuple([None if to is None else found[to] for to, _ in node.next_functions])
        for node in found
    }
    waits = Counter(number for numbers in edges.values() for number in numbers)
    waits.update(found[send] for send in sends.values())
    nodes = [
        _described(node, rank, number, edges[node], waits[number]) for node, number in found.items()
    ]
    roots = list(dict.fromkeys(found[start] for start in starts))
    return _Part(nodes, roots, context._known_worker_ids())


def _walk(starts: Iterable[Node]) -> dict[Any, int]:
    """Number all that `starts` lead to, depth first.  A chain may be long: no recursion."""
    found: dict[Any, int] = {}
    for start in starts:
        stack: list[Any] = [start]
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = len(found)
                following = [to for to, _ in node.next_functions if to is not None]
                stack.extend(reversed(following))
    return found


def _described(
    node: Any, rank: int, number: int, following: tuple[int | None, ...], waits_for: int
) -> GraphNode:
    plain = GraphNode(rank, number, "operation", node.name(), following, waits_for)
    if isinstance(node, AccumulateGrad):
        return replace(plain, kind="leaf", shape=tuple(node.variable.shape))
    if isinstance(node, SendRpcBackward):
        return replace(plain, kind="send", message_id=node.message_id, peer=node.peer)
    if isinstance(node, RecvRpcBackward):
        return replace(plain, kind="recv", message_id=node.message_id, peer=node.peer)
    return plain


def _pairs(nodes: Iterable[GraphNode]) -> tuple[MessagePair, ...]:
    sends: dict[int, GraphNode] = {}
    recvs: dict[int, GraphNode] = {}
    for node in nodes:
        if node.message_id is not None:
            (sends if node.kind == "send" else recvs)[node.message_id] = node
    both = sorted(sends.keys() & recvs.keys())
    return tuple(MessagePair(sends[message_id], recvs[message_id]) for message_id in both)
