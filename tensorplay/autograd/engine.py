"""The engine: runs backward rules in the order that their dependencies allow.

One engine serves the local backward pass and a worker's part in a distributed one.  Both are a
`GraphTask`: it counts how many answers each node still waits for, holds the sums of those that
came, runs nodes as they become ready, and hands what ends the local graph (leaves, and functions
that pass gradients to other workers) to a *sink*.

An *answer* along an edge is a gradient, or ``None`` for "no gradient will come this way".  A node
whose answers are all in and all ``None`` does not run its rule; it passes ``None`` on.  So every
edge that was counted is answered exactly once, whatever the rules return, and a task that has
received all outside answers always runs to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tensorplay.autograd.grad_mode import grad_mode, set_grad_enabled
from tensorplay.autograd.graph import FREED, OUTPUT, MultiOutputNode, Node, OutputOf
from tensorplay.tensor import Tensor, wrap

_ndarray = np.ndarray

#: Where a gradient may go: a node, or a leaf.
Target = Node | Tensor
#: Receives ``(target, gradient or None)`` for everything that ends the local graph.
Sink = Callable[[Any, Any], None]


class GraphTask:
    """One walk over a recorded graph.  Used by one thread at a time.

    Args:
        sink: Called once for each leaf and each graph-ending function that was counted, with its
            whole gradient or ``None``.
        retain_graph: Keep what the rules saved, so that another pass can use it.
        create_graph: Record the pass itself; gradients are then tensors rather than arrays.
        captures: Nodes inside the graph whose gradient is wanted; filled in place.

    Attributes:
        pause: Set by the sink, or by another thread: `run` returns after the node that it runs.
    """

    __slots__ = (
        "_owned",
        "captures",
        "create_graph",
        "grads",
        "pause",
        "pending",
        "ready",
        "retain_graph",
        "sink",
    )

    def __init__(
        self,
        sink: Sink,
        *,
        retain_graph: bool = False,
        create_graph: bool = False,
        captures: dict[Target, Any] | None = None,
    ) -> None:
        self.sink = sink
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.captures = captures
        #: Answers that each counted target still waits for.
        self.pending: dict[Any, int] = {}
        #: Sums of the gradients that have come so far.
        self.grads: dict[Any, Any] = {}
        #: Targets whose answers are all in.
        self.ready: list[Any] = []
        self.pause = False
        # Targets whose sum is an array that nobody else holds: it may be added to in place.
        self._owned: set[Any] = set()

    def count(self, sources: Iterable[Target]) -> None:
        """Count the dependencies of everything that the sources lead to.

        May be called again with further sources before the first `run`.
        """
        pending = self.pending
        known = pending.get
        stack = []
        for source in sources:
            if source not in pending:
                pending[source] = 0
                stack.append(source)
        while stack:
            for edge in stack.pop().edges:
                if edge is not None:
                    number = known(edge)
                    if number is None:
                        pending[edge] = 1
                        stack.append(edge)
                    else:
                        pending[edge] = number + 1

    def count_towards(self, sources: Iterable[Target], wanted: Iterable[Target]) -> list[Target]:
        """Count like `count`, but only what leads from the sources to the wanted targets.

        Returns the functions that the sources lead to and that pass gradients to other workers.
        """
        users: dict[Any, list[Any]] = {source: [] for source in sources}
        stack = list(users)
        while stack:
            node = stack.pop()
            for edge in node.edges:
                if edge is None:
                    continue
                if edge in users:
                    users[edge].append(node)
                else:
                    users[edge] = [node]
                    stack.append(edge)
        # Back from the wanted targets to the sources: what is met on the way leads to them.
        pending = self.pending
        stack = [target for target in wanted if target in users]
        pending.update(dict.fromkeys(stack, 0))
        while stack:
            for node in users[stack.pop()]:
                if node not in pending:
                    pending[node] = 0
                    stack.append(node)
        for target in pending:
            pending[target] = sum([node in pending for node in users[target]])
        return [target for target in users if ends_here(target)]

    def expect(self, target: Target) -> None:
        """Count one more answer for `target`: it will come from outside, through `deliver`."""
        self.pending[target] += 1

    def seed(self, root: Target, grad: Any) -> None:
        """Add the gradient of a root; to be called after `count`, before `start`."""
        self._add(root, grad)

    def start(self) -> None:
        """Make ready everything that waits for nobody."""
        self.ready.extend([target for target, count in self.pending.items() if count == 0])

    def deliver(self, target: Target, grad: Any) -> None:
        """Answer one counted dependency of `target` from outside."""
        if grad is not None:
            self._add(target, grad)
        left = self.pending[target] - 1
        self.pending[target] = left
        if left == 0:
            self.ready.append(target)

    def run(self) -> None:
        """Run what is ready, and what becomes ready through it, unless told to `pause`."""
        # The loop is written out, without calls that could be spared: per node it costs about as
        # much as the arithmetic of a small operation.
        ready = self.ready
        grads = self.grads
        pending = self.pending
        counted = pending.get
        held = grads.get
        owned = self._owned
        captures = self.captures
        create_graph = self.create_graph
        retain_graph = self.retain_graph
        while ready:
            node = ready.pop()
            grad = grads.pop(node, None)
            if grad is not None and node._hooks is not None:
                grad = run_hooks(node._hooks, grad, create_graph)
            answers: Any = None
            if captures is not None and node in captures:
                captures[node] = grad
                finished = not any(edge in pending for edge in node.edges)
            else:
                finished = False
            if finished:
                pass
            elif node.special:
                if node.__class__ is OutputOf:
                    self._collect_output(node, grad)
                else:
                    self.sink(node, grad)
            elif grad is None:
                answers = (None,) * len(node.edges)
            elif create_graph:
                answers = self._recorded_rule(node, grad)
            else:
                saved = node.saved
                if saved:
                    now = 0
                    for version in node.versions:
                        now += version[0]
                    if now != node.stamp or saved is FREED:
                        check_saved(node)
                    answers = node.rule(grad, *saved)
                    if not retain_graph:
                        node.saved = FREED
                else:
                    answers = node.rule(grad)
            if answers is not None:
                for edge, answer in zip(node.edges, answers, strict=True):
                    left = counted(edge)
                    if left is None:
                        # No gradient is wanted there.
                        continue
                    if answer is not None:
                        before = held(edge)
                        if before is None:
                            grads[edge] = answer
                        elif edge in owned:
                            before += answer
                        else:
                            total = before + answer
                            grads[edge] = total
                            if total.__class__ is _ndarray:
                                owned.add(edge)
                    pending[edge] = left - 1
                    if left == 1:
                        ready.append(edge)
                # A gradient on its way to a leaf must not be held here as well.
                answers = answer = before = total = None
            if self.pause:
                return

    def _add(self, target: Target, grad: Any) -> None:
        grads = self.grads
        before = grads.get(target)
        if before is None:
            grads[target] = grad
        elif target in self._owned:
            before += grad
        else:
            total = before + grad
            grads[target] = total
            if type(total) is np.ndarray:
                self._owned.add(target)

    def _collect_output(self, output: OutputOf, grad: Any) -> None:
        parent = output.parent
        if parent not in self.pending:
            return
        if grad is not None:
            slots = self.grads.get(parent)
            if slots is None:
                slots = self.grads[parent] = [None] * parent.outputs
            # There may be a second node for the same output: see `lifted`.
            before = slots[output.index]
            slots[output.index] = grad if before is None else before + grad
        left = self.pending[parent] - 1
        self.pending[parent] = left
        if left == 0:
            self.ready.append(parent)

    def _recorded_rule(self, node: Node, grad: Any) -> Any:
        check_saved(node)
        with set_grad_enabled(True):
            answers = node.rule(grad, *lifted(node))
        if not self.retain_graph and node.saved:
            node.saved = FREED
        return answers


def ends_here(target: Target) -> bool:
    """Whether it is a function that passes gradients to another worker."""
    special = target.special and target.__class__ is not OutputOf
    return special and not isinstance(target, Tensor)


def check_saved(node: Node) -> None:
    """Raise if what the rule needs is gone, or was written to since it was saved."""
    if node.saved is FREED:
        raise RuntimeError(
            f"Trying to backward through the graph a second time ({node.name()}): what the first "
            "pass needed has been freed. Pass retain_graph=True to the first backward to keep it."
        )
    now = sum([version[0] for version in node.versions])
    if now != node.stamp:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: {node.name()} saved it, and it was written to {now - node.stamp} time(s) "
            "before the backward pass. Use an out-of-place operation, or clone it first."
        )


def lifted(node: Node) -> list[Any]:
    """The saved values of a node, those that came from tensors as tensors in the graph again."""
    if not node.lift:
        return list(node.saved)
    values: list[Any] = []
    versions = iter(node.versions)
    for value, source in zip(node.saved, node.lift, strict=True):
        if source is None or value.__class__ is not np.ndarray:
            values.append(value)
            continue
        if source >= 0:
            tensor = _tensor_at(value, node.edges[source])
        elif source == OUTPUT:
            tensor = wrap(value, node)
        else:
            assert isinstance(node, MultiOutputNode)
            tensor = wrap(value, node.output(OUTPUT - 1 - source))
        # A later write to what was saved must be noticed through the new graph as well.
        version = next(versions)
        if tensor._array is value:
            tensor._version = version
        values.append(tensor)
    return values


def _tensor_at(array: Any, edge: Target | None) -> Tensor:
    if edge is not None and edge.stretched:
        # What was saved is the operand as it was before the stretch.
        edge = edge.edges[0]
    if edge is None:
        return wrap(array)
    if isinstance(edge, Tensor):
        # A leaf may hold another array by now (an optimizer put it there); the graph goes on with
        # the one that the forward pass used.
        return edge if edge._array is array else wrap(array, AliasBackward0((edge,)))
    return wrap(array, edge)


class AliasBackward0(Node):
    """The same value under another tensor."""

    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (grad,)


def run_hooks(hooks: dict[int, Callable[[Any], Any]], grad: Any, create_graph: bool) -> Any:
    """Show a gradient to the hooks in their order; each may return another in its place."""
    if type(grad) is list:
        # A node with several outputs: its outputs' own hooks have run already.
        return grad
    shown = grad if create_graph else wrap(np.asarray(grad))
    with set_grad_enabled(create_graph and grad_mode.enabled):
        for hook in tuple(hooks.values()):
            replaced = hook(shown)
            if replaced is not None:
                _check_replaced(hook, shown, replaced)
                shown = replaced
    return shown if create_graph else shown._array


def _check_replaced(hook: Callable[[Any], Any], grad: Tensor, replaced: object) -> None:
    name = getattr(hook, "__qualname__", repr(hook))
    if not isinstance(replaced, Tensor):
        raise TypeError(
            f"a hook must return a Tensor or None, but hook {name!r} returned "
            f"{type(replaced).__name__}"
        )
    for what, before, after in (
        ("size", grad._array.shape, replaced._array.shape),
        ("type", grad._array.dtype, replaced._array.dtype),
    ):
        if before != after:
            raise RuntimeError(
                f"hook {name!r} has changed the {what} of the gradient: from {before} to {after}"
            )
