"""Nodes of the recorded graph.

An operation that must be differentiated leaves a `Node` behind.  Its edges lead to what produced
its inputs, one edge for each input: another node, a leaf `Tensor`, or ``None`` where no gradient is
wanted.  Leaves stand in the graph themselves, so that a graph keeps the leaves it needs alive and
no tensor has to point to a helper that points back to it.

Every node has one output.  An operation with several outputs gives each of them an `OutputOf` node
that passes its gradient on to the one node that holds the rule.  So the engine never has to carry
an output number along an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tensorplay.autograd.hooks import RemovableHandle
    from tensorplay.tensor import Tensor

#: Stands in `Node.saved` once a pass has used the node up.
FREED: tuple[Any, ...] = ("freed",)

#: In `Node.lift`: the saved value is the node's own output, not one of its inputs.
OUTPUT = -1


class Node:
    """One recorded operation.

    Attributes:
        edges: For each input, where its gradient goes; ``None`` where none is wanted.
        saved: What the rule needs besides the gradient: arrays, shapes, constants.
        versions: The version counters (`Tensor._version`) of the saved arrays that `lift` names,
            in their order.
        stamp: The sum of these counters when they were saved.  Counters only grow, so the sum is
            the same later exactly when none of the arrays has been written to.
        _hooks: Functions that see, and may replace, the gradient of the node's output.
    """

    __slots__ = ("__weakref__", "_hooks", "edges", "saved", "stamp", "versions")

    #: Handled by the engine itself: leaves, `OutputOf`, and functions that end a local graph.
    special: ClassVar[bool] = False
    #: Stands for the stretching of an operand by broadcasting: see `tensorplay.ops.recording`.
    stretched: ClassVar[bool] = False
    #: For each saved value: the number of the input that it is, `OUTPUT`, or None for a constant.
    #: Empty if all are constants.
    lift: tuple[int | None, ...] = ()

    edges: tuple[Node | Tensor | None, ...]
    saved: tuple[Any, ...]
    versions: tuple[list[int], ...]
    stamp: int
    _hooks: dict[int, Callable[[Any], Any]] | None

    def __init__(
        self,
        edges: tuple[Node | Tensor | None, ...],
        saved: tuple[Any, ...] = (),
        versions: tuple[list[int], ...] = (),
    ) -> None:
        self.edges = edges
        self.saved = saved
        self.versions = versions
        self.stamp = sum([version[0] for version in versions]) if versions else 0
        self._hooks = None

    def rule(self, grad: Any, *saved: Any) -> Sequence[Any]:
        """Gradients for the inputs, aligned with `edges`, from that of the output.

        Written once for arrays and for `Tensor` alike: the engine passes NumPy arrays, or, when the
        pass is itself to be recorded, tensors.  An entry whose edge is ``None`` is ignored.
        """
        raise NotImplementedError(f"{self.name()} has no backward rule")

    @property
    def function(self) -> Node:
        """The node that holds the rule: itself, unless it is one output of several."""
        return self

    def name(self) -> str:
        """The operation's name, as in ``MulBackward0``."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """``(node, output number)`` for each input; leaves appear as `AccumulateGrad`."""
        return tuple(_as_function(edge) for edge in self.edges)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class BareNode(Node):
    """A node that is made without its attributes: hot operations set them one by one."""

    __slots__ = ()
    __init__ = object.__init__


class OutputOf(Node):
    """One output of a node that has several."""

    __slots__ = ("index", "parent")
    special: ClassVar[bool] = True

    def __init__(self, parent: MultiOutputNode, index: int) -> None:
        # One is made for every tensor that arrives: without the base class's `__init__`.
        self.edges = (parent,)
        self.saved = ()
        self.versions = ()
        self.stamp = 0
        self._hooks = None
        self.parent = parent
        self.index = index

    @property
    def function(self) -> Node:
        return self.parent

    def name(self) -> str:
        return self.parent.name()


class MultiOutputNode(Node):
    """A node whose rule receives a list: for each output its gradient, or ``None``."""

    __slots__ = ("outputs",)
    outputs: int

    def output(self, index: int) -> OutputOf:
        """The node of one output."""
        return OutputOf(self, index)


class AccumulateGrad:
    """How a leaf looks to somebody who walks the graph: `variable` is the leaf."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable

    def name(self) -> str:
        return "AccumulateGrad"

    @property
    def next_functions(self) -> tuple[()]:
        return ()

    def register_hook(self, hook: Callable[[tuple[()], tuple[Tensor]], None]) -> RemovableHandle:
        """Call ``hook((), (grad,))`` each time a pass has added its whole gradient of the leaf.

        A local pass has added it to `.grad` by then, a distributed one to its context's gradients.
        What the hook returns is ignored.

        >>> import tensorplay as tp
        >>> x = tp.ones(2, requires_grad=True)
        >>> ((leaf, _),) = (x * 3).grad_fn.next_functions[:1]
        >>> handle = leaf.register_hook(lambda inputs, outputs: print(outputs[0], x.grad))
        >>> (x * 3).sum().backward()
        tensor([3., 3.]) tensor([3., 3.])
        """
        from tensorplay.autograd.hooks import register_post_hook

        return register_post_hook(self.variable, hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return hash((AccumulateGrad, id(self.variable)))

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self.variable):#x}>"


def _as_function(edge: Node | Tensor | None) -> tuple[Any, int]:
    if edge is None:
        return (None, 0)
    if isinstance(edge, OutputOf):
        return (edge.parent, edge.index)
    if isinstance(edge, Node):
        return (edge, 0)
    return (AccumulateGrad(edge), 0)
