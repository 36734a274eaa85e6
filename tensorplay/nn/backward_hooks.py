"""Hooks that see the gradients of a module's results and of its arguments.

Around a call of a module with such hooks stand two nodes that pass everything on: one behind its
results, one before its arguments.  In the backward pass the first meets the gradients of the
results, the second those of the arguments; then the hooks are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensorplay.autograd.graph import MultiOutputNode
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.tensor import Tensor, wrap

if TYPE_CHECKING:
    from tensorplay.nn.module import Module

Gradients = tuple[Any, ...]


class HookedCall:
    """One call of a module whose gradients hooks want to see.

    Args:
        module: The module that is called.
        pre_hooks: Called with ``(module, grad_output)``.
        hooks: Called with ``(module, grad_input, grad_output)``.
    """

    def __init__(
        self,
        module: Module,
        pre_hooks: tuple[Callable[..., Any], ...],
        hooks: tuple[Callable[..., Any], ...],
    ) -> None:
        self.module = module
        self.pre_hooks = pre_hooks
        self.hooks = hooks
        #: Where the tensors stand among all arguments, and how many arguments there are.
        self.places: tuple[int, ...] = ()
        self.count = 0
        #: Whether gradients flow on to the arguments: then the hooks wait for them.
        self.waits = False
        self.grad_output: Gradients = ()

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with a node before them where a gradient is wanted."""
        self.count = len(args)
        self.places = tuple(i for i, one in enumerate(args) if isinstance(one, Tensor))
        tensors = [args[i] for i in self.places]
        if not self.hooks or not wanted(*tensors):
            return args
        self.waits = True
        passed = list(args)
        for i, one in zip(self.places, _behind(ArgumentsBackward, self, tensors), strict=True):
            passed[i] = one
        return tuple(passed)

    def results(self, result: Any) -> Any:
        """What the module returned, with a node behind its tensors."""
        several = isinstance(result, (tuple, list))
        parts = list(result) if several else [result]
        places = [i for i, one in enumerate(parts) if isinstance(one, Tensor)]
        tensors = [parts[i] for i in places]
        if not wanted(*tensors):
            return result
        for i, one in zip(places, _behind(ResultsBackward, self, tensors), strict=True):
            parts[i] = one
        if not several:
            return parts[0]
        # A named tuple takes its fields one by one.
        kind: Any = type(result)
        return kind(*parts) if hasattr(result, "_fields") else kind(parts)

    def met_results(self, grads: list[Any]) -> Gradients:
        """The gradients of the results have come."""
        shown = tuple(_shown(grad) for grad in grads)
        for pre_hook in self.pre_hooks:
            shown = _replaced(pre_hook(self.module, shown), shown, "grad_output")
        self.grad_output = shown
        if self.hooks and not self.waits:
            for hook in self.hooks:
                hook(self.module, (None,) * self.count, shown)
        return shown

    def met_arguments(self, grads: list[Any]) -> Gradients:
        """The gradients of the arguments have come."""
        full: list[Any] = [None] * self.count
        for i, grad in zip(self.places, grads, strict=True):
            full[i] = _shown(grad)
        shown = tuple(full)
        for hook in self.hooks:
            shown = _replaced(hook(self.module, shown, self.grad_output), shown, "grad_input")
        self.grad_output = ()
        return tuple(shown[i] for i in self.places)


class ArgumentsBackward(MultiOutputNode):
    """Stands before the arguments."""

    __slots__ = ()

    def rule(self, grads: Any, call: HookedCall) -> Gradients:
        return _as(grads, call.met_arguments(grads))


class ResultsBackward(MultiOutputNode):
    """Stands behind the results."""

    __slots__ = ()

    def rule(self, grads: Any, call: HookedCall) -> Gradients:
        return _as(grads, call.met_results(grads))


def _behind(
    node_class: type[MultiOutputNode], call: HookedCall, tensors: list[Tensor]
) -> list[Tensor]:
    """The tensors as outputs of one node; those that need no gradient as they are."""
    node = node_class(tuple([edge_of(one) for one in tensors]), (call,))
    node.outputs = len(tensors)
    passed = []
    for i, one in enumerate(tensors):
        if one._requires_grad:
            same = wrap(one._array, node.output(i))
            same._version = one._version
            one = same
        passed.append(one)
    return passed


def _shown(grad: Any) -> Any:
    return grad if grad is None or isinstance(grad, Tensor) else wrap(grad)


def _as(given: list[Any], answers: Gradients) -> Gradients:
    """Arrays if the pass works on arrays, tensors if it is recorded."""
    if any(isinstance(grad, Tensor) for grad in given):
        return answers
    return tuple(one._array if isinstance(one, Tensor) else one for one in answers)


def _replaced(answer: Any, before: Gradients, what: str) -> Gradients:
    if answer is None:
        return before
    after = answer if isinstance(answer, tuple) else (answer,)
    if len(after) != len(before):
        raise RuntimeError(
            f"Backward hook returned an invalid number of {what}, got {len(after)}, but expected "
            f"{len(before)}"
        )
    return after
