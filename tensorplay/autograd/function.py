"""`Function`: operations with a backward rule of the user's own.

Inside, anything may compute: NumPy, compiled code, another solver.  Only the tensors that go in and
come out take part in the graph.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.autograd.engine import lifted
from tensorplay.autograd.grad_mode import grad_mode, no_grad, set_grad_enabled
from tensorplay.autograd.graph import FREED, OUTPUT, MultiOutputNode, Node, OutputOf
from tensorplay.tensor import Tensor, wrap


class FunctionCtx:
    """What `Function.forward` leaves for `Function.backward`; further attributes may be set.

    Attributes:
        needs_input_grad: For each argument of `Function.apply` whether its gradient is wanted.
    """

    needs_input_grad: tuple[bool, ...]

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._to_save: tuple[Tensor | None, ...] = ()
        self._non_differentiable: tuple[Tensor, ...] = ()
        self._materialize = True
        self._node: Callable[[], FunctionNode | None] = _no_node

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors (or None) for `saved_tensors`.

        Inputs and outputs should be saved like this rather than as attributes: then a write to them
        before the backward pass is noticed, and their memory is freed after it.
        """
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    "save_for_backward can only save variables, but argument is of type "
                    f"{type(tensor).__name__}"
                )
        self._to_save = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved.

        Raises:
            RuntimeError: A backward pass that did not retain the graph has freed it.
        """
        node = self._node()
        if node is None:
            return self._to_save
        if node.saved is FREED:
            raise RuntimeError(
                f"Trying to access the saved tensors of {node.name()} after they have been freed. "
                "Pass retain_graph=True to the first backward pass to keep them."
            )
        values = lifted(node)
        return tuple([wrap(one) if isinstance(one, np.ndarray) else one for one in values])

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say of outputs that they have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` sees zeros (the default) or None for outputs without a gradient."""
        self._materialize = value


def _no_node() -> None:
    return None


class FunctionNode(MultiOutputNode):
    """The place of one call of a `Function` in the graph."""

    __slots__ = ("ctx", "function_class", "input_types", "lift", "living", "places", "result_types")

    ctx: FunctionCtx
    function_class: type[Function]
    #: Shape and dtype of each argument that is a tensor, None for others; so for the results.
    input_types: tuple[Any, ...]
    result_types: tuple[Any, ...]
    #: Which of the results the node's outputs are.
    places: list[int]
    #: The nodes of the outputs, weakly: they hold this one.
    living: tuple[weakref.ref[OutputOf], ...]

    def name(self) -> str:
        return f"{self.function_class.__name__}Backward"

    def output(self, index: int) -> OutputOf:
        return self.living[index]() or OutputOf(self, index)

    def rule(self, grads: Any, *_saved: Any) -> list[Any]:
        recorded = any(isinstance(grad, Tensor) for grad in grads)
        shown: list[Any] = [None] * len(self.result_types)
        for place, grad in zip(self.places, grads, strict=True):
            shown[place] = wrap(grad) if grad is not None and not recorded else grad
        if self.ctx._materialize:
            for place, kind in enumerate(self.result_types):
                if shown[place] is None and kind is not None:
                    shown[place] = wrap(np.zeros(*kind))
        with set_grad_enabled(recorded):
            answers = self.function_class.backward(self.ctx, *shown)
        if not isinstance(answers, tuple):
            answers = tuple(answers) if isinstance(answers, list) else (answers,)
        expected = len(self.input_types)
        if len(answers) < expected or any(one is not None for one in answers[expected:]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected "
                f"{expected}, got {len(answers)})"
            )
        checked = [
            None if edge is None or answer is None else self._checked(answer, i, recorded)
            for i, (edge, answer) in enumerate(zip(self.edges, answers[:expected], strict=False))
        ]
        return [*checked, None]

    def _checked(self, answer: Any, i: int, recorded: bool) -> Any:
        """A gradient brought to its input's shape and type."""
        shape, dtype = self.input_types[i]
        tensor = answer if isinstance(answer, Tensor) else wrap(np.asarray(answer))
        if tensor._array.shape != shape:
            tensor = self._summed(tensor, i)
        if tensor._array.dtype.kind == "c" and dtype.kind == "f":
            # The gradient of a real input is real.
            tensor = tensor.real
        if tensor._array.dtype != dtype:
            tensor = tensor.to(dtype)
        return tensor if recorded else tensor._array

    def _summed(self, tensor: Tensor, i: int) -> Tensor:
        # As in PyTorch, a gradient may have the shape that its input was broadcast to.
        shape, _ = self.input_types[i]
        have = tensor._array.shape
        extra = len(have) - len(shape)
        padded = (1,) * extra + shape
        if extra < 0 or any(a not in (1, b) for a, b in zip(padded, have, strict=True)):
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - got "
                f"{list(have)} but expected shape compatible with {list(shape)}"
            )
        axes = tuple([j for j, size in enumerate(padded) if size == 1])
        return tensor.sum(axes, keepdim=True).reshape(shape)


class Function:
    """A differentiable operation: a subclass defines `forward` and `backward`, `apply` calls it.

    >>> import numpy as np
    >>> import tensorplay as tp
    >>> class Cube(tp.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return tp.from_numpy(np.power(x.numpy(force=True), 3))
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad * 3 * x * x
    >>> x = tp.tensor([2.0], requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor([12.])
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result: ``forward(ctx, *args)``; or ``forward(*args)`` with `setup_context`.

        Nothing in it is recorded.  The result is a tensor, or a tuple that may hold other things
        too.
        """
        raise NotImplementedError("You must implement the forward function for custom Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what `backward` needs, if `forward` does not take the context."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The inputs' gradients from those of the outputs (None for results that are no tensors).

        Returns:
            As many values as `apply` was given arguments: tensors, or None for no gradient.
        """
        raise NotImplementedError(
            "You must implement the backward function for your custom Function."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Compute the result, and record the operation if an argument requires grad."""
        inputs = [arg if isinstance(arg, Tensor) else None for arg in args]
        needs = tuple([one is not None and one._requires_grad for one in inputs])
        ctx = FunctionCtx(needs)
        with no_grad():
            if cls.setup_context is not Function.setup_context:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
        if grad_mode.enabled and any(needs):
            return _record(cls, ctx, inputs, result)
        return result


def _record(
    function_class: type[Function], ctx: FunctionCtx, inputs: list[Tensor | None], result: Any
) -> Any:
    """Give the tensors among the results their place in the graph."""
    results = list(result) if isinstance(result, tuple) else [result]
    held = {id(one): i for i, one in enumerate(inputs) if one is not None}
    barred = {id(one) for one in ctx._non_differentiable}
    places = [
        i
        for i, one in enumerate(results)
        if isinstance(one, Tensor) and id(one) not in barred and one._array.dtype.kind in "fc"
    ]
    # The last edge leads nowhere: it is that of what is saved and is neither input nor output.
    node = FunctionNode((*[None if one is None else _edge(one) for one in inputs], None))
    node.ctx = ctx
    node.function_class = function_class
    node.input_types = tuple([None if one is None else _type(one) for one in inputs])
    node.result_types = tuple([_type(one) if isinstance(one, Tensor) else None for one in results])
    node.places = places
    node.outputs = len(places)
    saved_as: dict[int, int] = {}
    outputs = []
    for number, i in enumerate(places):
        output = OutputOf(node, number)
        outputs.append(output)
        given = results[i]
        saved_as[id(given)] = OUTPUT - 1 - number
        if id(given) in held or given._node is not None or given._requires_grad:
            # An input, or somebody else's tensor: the result is another one on the same memory.
            version = given._version
            given = results[i] = wrap(given._array)
            given._version = version
        given._node = output
        given._requires_grad = True
    node.living = tuple([weakref.ref(output) for output in outputs])
    _save(node, ctx, {**saved_as, **held})
    return tuple(results) if isinstance(result, tuple) else results[0]


def _save(node: FunctionNode, ctx: FunctionCtx, sources: dict[int, int]) -> None:
    """Move what the context is to save into the node."""
    tensors = ctx._to_save
    present = [one for one in tensors if one is not None]
    node.saved = tuple([None if one is None else one._array for one in tensors])
    nowhere = len(node.edges) - 1
    node.lift = tuple([None if one is None else sources.get(id(one), nowhere) for one in tensors])
    node.versions = tuple([one._version for one in present])
    node.stamp = sum([version[0] for version in node.versions])
    ctx._to_save = ()
    ctx._node = weakref.ref(node)


def _edge(tensor: Tensor) -> Node | Tensor | None:
    return (tensor._node or tensor) if tensor._requires_grad else None


def _type(tensor: Tensor) -> tuple[tuple[int, ...], np.dtype[Any]]:
    return tensor._array.shape, tensor._array.dtype


class _Twice(Node):
    """Stands for the derivative that a once-differentiable function does not have."""

    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For a `Function.backward` that cannot be differentiated: trying to raises an error.

    Within it nothing is recorded, so NumPy and compiled code may be used freely.
    """

    @functools.wraps(backward)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            plain = [grad.detach() if isinstance(grad, Tensor) else grad for grad in grads]
            answers = backward(ctx, *plain)
        if not grad_mode.enabled:
            return answers
        edges = tuple([_edge(grad) for grad in grads if isinstance(grad, Tensor)])
        edges += tuple([_edge(one) for one in ctx.saved_tensors if one is not None])
        if all(edge is None for edge in edges):
            return answers
        several = isinstance(answers, tuple)
        marked = tuple(
            [
                wrap(one._array if isinstance(one, Tensor) else one, _Twice(edges))
                if one is not None
                else None
                for one in (answers if several else (answers,))
            ]
        )
        return marked if several else marked[0]

    return wrapper
