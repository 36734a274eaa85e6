"""The graph of a context as data that can be looked at, compared and drawn.

`get_graph` in ``graph_gathering.py`` makes it.  Arrows point where gradients go: from an operation
to what made its inputs, and from a recv function to the send function of its message.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

#: How each kind of node is drawn.
_STYLES = {
    "operation": "",
    "leaf": " shape=box",
    "send": " shape=invhouse",
    "recv": " shape=house",
}


@dataclass(frozen=True)
class GraphNode:
    """A node of the graph of a context.

    Attributes:
        rank: Rank of the worker that recorded it.
        number: Its place among the nodes of that worker: first roots and what they lead to, then
            send functions, oldest first, and what these lead to, then the other recv functions.
        kind: ``operation``, ``leaf``, ``send`` or ``recv``.
        name: Name of the operation, as ``MulBackward0``; ``AccumulateGrad`` for a leaf.
        next: Numbers of the nodes that its edges lead to, in the order of its inputs; None where
            no gradient is wanted.
        waits_for: How many answers it waits for in a pass from the roots that the graph was asked
            for: one from each edge that leads to it, and for a send function one from its recv
            function.
        message_id: Autograd id of the message, for send and recv functions; else None.
        peer: Rank of the worker at the other end of the message; else None.
        shape: Shape of a leaf; else None.
    """

    rank: int
    number: int
    kind: str
    name: str
    next: tuple[int | None, ...] = ()
    waits_for: int = 0
    message_id: int | None = None
    peer: int | None = None
    shape: tuple[int, ...] | None = None

    @property
    def key(self) -> str:
        """Its name in DOT."""
        return f"w{self.rank}_{self.number}"


@dataclass(frozen=True)
class MessagePair:
    """A message whose send function and recv function are both in the graph.

    Attributes:
        send: The sender's end: what it leads to made the tensors.
        recv: The receiver's end, which the tensors that arrived hang from.
    """

    send: GraphNode
    recv: GraphNode


@dataclass(frozen=True)
class ContextGraph:
    """The graph of a context over its workers, as it was when it was gathered.

    It holds names and numbers only: it keeps no tensor alive, can be sent and pickled, and two of
    them are equal if they are of the same context and show the same.

    Attributes:
        context_id: The context.
        workers: Names of the context's workers by rank, also of those that recorded nothing.
        nodes: All nodes, by rank and number.
        roots: The nodes that passes would start from.
        pairs: Messages with both ends, by the sender's rank and in the order of sending.

    >>> import tensorplay as tp
    >>> from tensorplay.distributed import autograd
    >>> with autograd.context() as context_id:
    ...     graph = autograd.get_graph(context_id, tp.ones(2, requires_grad=True).sum())
    >>> [(node.name, node.waits_for) for node in graph.nodes]
    [('SumBackward0', 0), ('AccumulateGrad', 1)]
    """

    context_id: int
    workers: dict[int, str]
    nodes: tuple[GraphNode, ...]
    roots: tuple[GraphNode, ...]
    pairs: tuple[MessagePair, ...]

    def dot(self) -> str:
        """The graph in DOT, the language of Graphviz: a box for each worker.  Local.

        Order and names depend on the graph alone, not on ids of contexts and messages; the same
        program recorded again gives the same text.
        """
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield "digraph context {"
        roots = {root.key for root in self.roots}
        by_rank: dict[int, list[GraphNode]] = {rank: [] for rank in self.workers}
        for node in self.nodes:
            by_rank[node.rank].append(node)
        for rank, name in self.workers.items():
            yield f"  subgraph cluster_{rank} {{"
            yield f"    label={_quoted(name)}"
            if not by_rank[rank]:
                # Graphviz leaves a box out that has nothing in it.
                yield f'    w{rank} [label="nothing recorded" shape=plaintext]'
            for node in by_rank[rank]:
                style = _STYLES[node.kind] + (" peripheries=2" if node.key in roots else "")
                yield f"    {node.key} [label={_quoted(_label(node))}{style}]"
                for number in node.next:
                    if number is not None:
                        yield f"    {node.key} -> w{rank}_{number}"
            yield "  }"
        for number, pair in enumerate(self.pairs, 1):
            yield f'  {pair.recv.key} -> {pair.send.key} [label="message {number}" style=dashed]'
        yield "}"

    def draw(self, path: str | PathLike[str]) -> None:
        """Write the graph to a file: ``.dot`` as text, ``.svg`` as a picture.  Local.

        A picture is made by the program ``dot`` of Graphviz, which tensorplay does not bring.

        Raises:
            ValueError: The file's name ends otherwise.
            RuntimeError: There is no ``dot`` on this machine, or it failed.
        """
        path = Path(path)
        if path.suffix == ".dot":
            path.write_text(self.dot())
        elif path.suffix == ".svg":
            _run_dot(self.dot(), path)
        else:
            raise ValueError(f"cannot draw to {path}: the name must end in .dot or .svg")


def _run_dot(text: str, path: Path) -> None:
    program = shutil.which("dot")
    if program is None:
        raise RuntimeError(
            f"cannot draw {path}: the program 'dot' of Graphviz is not on PATH. Install Graphviz "
            "here, or draw to a .dot file and run `dot -Tsvg` where it is"
        )
    done = subprocess.run(
        [program, "-Tsvg", "-o", str(path)], input=text, text=True, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"cannot draw {path}: {program} failed: {done.stderr.strip()}")


def _label(node: GraphNode) -> str:
    title = node.name if node.shape is None else f"leaf {node.shape}"
    return f"{node.key}: {title}\nwaits for {node.waits_for}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
