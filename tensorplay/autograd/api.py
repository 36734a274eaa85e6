"""`backward` and `grad`: local backward passes.

What they share: the roots become edges into the graph with a gradient each, a `GraphTask` walks
what leads from them, and its sink does something with the gradients of leaves.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tensorplay.autograd.engine import GraphTask, ends_here
from tensorplay.autograd.grad_mode import set_grad_enabled
from tensorplay.autograd.graph import Node, OutputOf
from tensorplay.autograd.hooks import PostAccumulateHook, run_post_hooks
from tensorplay.tensor import Tensor, wrap

Target = Node | Tensor

#: Passes of several threads may end in the same leaves.
_accumulating = threading.RLock()


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves that they were computed from.

    Args:
        tensors: One or several tensors that require grad.
        grad_tensors: For each of them the gradient to start from, of its shape; None (one) for a
            real tensor with a single element.  That of a complex tensor ``z`` is, for a real loss
            ``L``, ``dL/dRe(z) + i dL/dIm(z)``: the direction in which `L` grows fastest.
        retain_graph: Keep what the graph saved, so that it can be walked again; by default as
            `create_graph`.
        create_graph: Record the pass itself, so that the gradients can be differentiated.
        inputs: Only these tensors get gradients, and only what leads to them is walked.

    Raises:
        RuntimeError: A tensor does not require grad, is not a real scalar and has no gradient
            given, is complex with a real gradient or the other way round, the graph was freed by an
            earlier pass, a saved tensor was changed in place, or the graph leads to another worker.

    >>> import tensorplay as tp
    >>> x = tp.tensor([1.0, 2.0], requires_grad=True)
    >>> tp.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    roots = _roots(tensors, grad_tensors, create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        _walk(roots, _accumulator(create_graph), retain, create_graph)
        return
    targets = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not targets:
        raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    found = _captured(roots, targets, retain, create_graph)
    accumulate = _accumulator(create_graph)
    for target in targets:
        grad = found.pop(target._node or target, None)
        # Another target may have got the same array.
        accumulate(target, grad.copy() if isinstance(grad, np.ndarray) else grad)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`; no `.grad` is touched.

    Args:
        outputs: As `tensors` of `backward`.
        inputs: The tensors, leaves or not, whose gradients are wanted.
        grad_outputs: As `grad_tensors` of `backward`.
        retain_graph: As for `backward`.
        create_graph: As for `backward`.
        only_inputs: Must be True, as PyTorch has it now.
        allow_unused: Give None for an input that the outputs do not depend on.
        is_grads_batched: Must be False: batches of gradients are not there.
        materialize_grads: Give zeros for such an input.

    Raises:
        ValueError: `only_inputs` or `is_grads_batched` is not as it must be.
        RuntimeError: As `backward`; or an input is not used and neither of the last two was set;
            or the outputs depend on the result of a remote call, and not only through `inputs`.

    >>> import tensorplay as tp
    >>> x = tp.tensor(3.0, requires_grad=True)
    >>> (dx,) = tp.autograd.grad(x * x * x, x, create_graph=True)
    >>> tp.autograd.grad(dx, x)
    (tensor(18.),)
    """
    if not only_inputs:
        raise ValueError("only_inputs=False is not supported: call backward for all leaves")
    if is_grads_batched:
        raise ValueError("is_grads_batched=True is not supported: call grad for each gradient")
    if materialize_grads and allow_unused is False:
        raise ValueError("materialize_grads=True needs allow_unused to be True or not given")
    roots = _roots(outputs, grad_outputs, create_graph)
    targets = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for target in targets:
        if not target._requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    retain = create_graph if retain_graph is None else retain_graph
    found = _captured(roots, targets, retain, create_graph)
    results: list[Tensor | None] = []
    for target in targets:
        value = found.get(target._node or target)
        if value is None and materialize_grads:
            value = np.zeros(target._array.shape, target._array.dtype)
        elif value is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. "
                "Set allow_unused=True if this is the desired behavior."
            )
        results.append(value if value is None or isinstance(value, Tensor) else wrap(value))
    return tuple(results)


def _roots(
    tensors: Tensor | Sequence[Tensor],
    grads: Tensor | Sequence[Tensor | None] | None,
    create_graph: bool,
) -> list[tuple[Target, Any]]:
    """``(edge, gradient)`` for each tensor that a pass starts from."""
    given = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    if grads is None:
        starts: tuple[Tensor | None, ...] = (None,) * len(given)
    else:
        starts = (grads,) if isinstance(grads, Tensor) else tuple(grads)
    if len(starts) != len(given):
        raise RuntimeError(f"got {len(given)} tensors and {len(starts)} gradients")
    roots: list[tuple[Target, Any]] = []
    for i, (tensor, start) in enumerate(zip(given, starts, strict=True)):
        if not tensor._requires_grad:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        array = tensor._array
        value: Any
        if start is None:
            if array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if array.dtype.kind == "c":
                raise RuntimeError(
                    "grad can be implicitly created only for real scalar outputs but got "
                    f"{array.dtype}"
                )
            value = np.ones(array.shape, array.dtype)
            if create_graph:
                value = wrap(value)
        else:
            if start._array.shape != array.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {start._array.shape} and "
                    f"output[{i}] has a shape of {array.shape}."
                )
            if (start._array.dtype.kind == "c") is not (array.dtype.kind == "c"):
                raise RuntimeError(
                    "For complex Tensors, both grad_output and output are required to have the "
                    f"same dtype. Mismatch in dtype: grad_output[{i}] has a dtype of "
                    f"{start._array.dtype} and output[{i}] has a dtype of {array.dtype}."
                )
            value = start.to(array.dtype)
            if not create_graph:
                value = value._array
        roots.append((tensor._node or tensor, value))
    return roots


def _walk(
    roots: list[tuple[Target, Any]], sink: Callable[[Any, Any], None], retain: bool, create: bool
) -> None:
    task = GraphTask(sink, retain_graph=retain, create_graph=create)
    task.count([target for target, _ in roots])
    _check_local(task.pending)
    _run(task, roots, create)


def _captured(
    roots: list[tuple[Target, Any]], targets: Sequence[Tensor], retain: bool, create: bool
) -> dict[Target, Any]:
    """The gradients at some places of the graph; only what leads to them is run."""
    captures: dict[Target, Any] = dict.fromkeys([t._node or t for t in targets])
    task = GraphTask(_discard, retain_graph=retain, create_graph=create, captures=captures)
    if task.count_towards([target for target, _ in roots], captures):
        for wanted in captures:
            _check_local(_before(wanted, [target for target, _ in roots]))
    _run(task, [root for root in roots if root[0] in task.pending], create)
    return captures


def _discard(target: Any, grad: Any) -> None:
    """The sink of a pass whose results are captured."""


def _run(task: GraphTask, roots: list[tuple[Target, Any]], create: bool) -> None:
    with set_grad_enabled(create):
        while roots:
            # Popped, so that a leaf that is a root itself can take its gradient without a copy.
            task.seed(*roots.pop())
        task.start()
        task.run()


def _before(wanted: Target, sources: Iterable[Target]) -> set[Target]:
    """All that the sources lead to without going through `wanted`, or others of its message."""
    message = wanted.function if isinstance(wanted, OutputOf) else wanted
    met: set[Target] = set()
    stack = list(sources)
    while stack:
        target = stack.pop()
        if target in met or target is wanted or target is message:
            continue
        met.add(target)
        stack.extend([edge for edge in target.edges if edge is not None])
    return met


def _check_local(targets: Iterable[Target]) -> None:
    for target in targets:
        if ends_here(target):
            raise RuntimeError(
                "this graph goes through a remote call: use "
                "tensorplay.distributed.autograd.backward(context_id, [loss]) inside its context"
            )


def _accumulator(create_graph: bool) -> Callable[[Any, Any], None]:
    return _accumulate_recorded if create_graph else accumulate


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Add an array to the `.grad` of a leaf: the sink of a local pass.

    The first gradient is taken as it is if nobody else holds the array, and copied otherwise.
    """
    if grad is None:
        return
    sole = sys.getrefcount(grad) <= _SOLE
    with _accumulating:
        held = leaf._grad
        if held is None:
            if grad.__class__ is not np.ndarray:
                grad = np.asarray(grad)
            elif not sole or grad.base is not None or not grad.flags.writeable:
                grad = grad.copy()
            leaf._grad = wrap(grad)
        elif held._node is None and held._array.flags.writeable:
            held._array += grad
            held._version[0] += 1
        else:
            leaf._grad = wrap(held._array + grad)
    _after_accumulation(leaf, grad)


def _accumulate_recorded(leaf: Tensor, grad: Any) -> None:
    if grad is None:
        return
    with _accumulating:
        held = leaf._grad
        leaf._grad = grad if held is None else held + grad
    _after_accumulation(leaf, grad)


def _after_accumulation(leaf: Tensor, grad: Any) -> None:
    if leaf._hooks is not None:
        run_post_hooks(leaf, grad)
        for hook in tuple(leaf._hooks.values()):
            if isinstance(hook, PostAccumulateHook):
                hook.function(leaf)


def _references_to_a_fresh_gradient() -> int:
    """What `sys.getrefcount` says in a sink of a gradient that nobody else holds."""
    counts = []

    def probe(leaf: Tensor, grad: Any) -> None:
        counts.append(sys.getrefcount(grad))

    leaf = wrap(np.zeros(1))
    task = GraphTask(probe)
    task.count([leaf])
    task.seed(leaf, np.zeros(1))
    task.start()
    task.run()
    return counts[0]


_SOLE = _references_to_a_fresh_gradient()
