"""Tensors that share memory, and writing into them.

A view shares its base's array and its version counter.  So that a write through one of them is
differentiated exactly, each knows of the other (`Tensor._alias`):

* a base holds a `Views`: weak references to its views;
* a view holds ``(base, steps)``: how to make it anew from its base.  `steps` is ``None`` for a view
  that was made while recording was off, which has no place in the graph.

A write that is recorded gives the base a node that merges the old values with the written ones, and
then makes the nodes of all the base's living views anew.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tensorplay.autograd.grad_mode import grad_mode, set_grad_enabled, switched_off
from tensorplay.autograd.graph import Node
from tensorplay.autograd.hooks import RETAIN, hooks_of, retains_grad
from tensorplay.ops import dual
from tensorplay.ops.recording import edge_of, recorded
from tensorplay.ops.writing import refused_write
from tensorplay.tensor import Tensor, wrap

#: One operation that makes a view of its argument.
Step = Callable[[Tensor], Tensor]
#: The operations that lead from a base to a view, linked from the last to the first.
Steps: TypeAlias = "tuple[Steps | None, Step]"


_forgetting = threading.Lock()
_ref = weakref.ref


class Views(list["weakref.ref[Tensor]"]):
    """The views of a base; those that are gone are forgotten when the list has doubled."""

    __slots__ = ("limit",)

    def __init__(self) -> None:
        super().__init__()
        self.limit = 16

    def forget(self) -> None:
        if _forgetting.acquire(blocking=False):
            # Other threads may append meanwhile, behind these.
            size = len(self)
            self[:size] = [ref for ref in self[:size] if ref() is not None]
            self.limit = 2 * len(self) + 16
            _forgetting.release()

    def living(self) -> list[Tensor]:
        return [view for ref in self if (view := ref()) is not None]


def view(source: Tensor, array: Any, node: Node | None, step: Step) -> Tensor:
    """The result of an operation that may share its input's memory.

    Args:
        source: The input.
        array: The result: a view of the input's array, or a copy where NumPy had to make one.
        node: The result's node, or None.
        step: The operation itself, as a function of the input.
    """
    tensor = wrap(array, node)
    own = source._array
    owner = array.base
    if owner is not own and (owner is None or owner is not own.base):
        return tensor
    return related(tensor, source, step)


def viewed(
    source: Tensor, array: Any, node_class: type[Node], saved: tuple[Any, ...], step: Step
) -> Tensor:
    """As `view`, with a node of the given class if the operation is to be recorded."""
    tensor = recorded(array, node_class, source, saved)
    own = source._array
    owner = array.base
    if owner is not own and (owner is None or owner is not own.base):
        return tensor
    return related(tensor, source, step)


def related(tensor: Tensor, source: Tensor, step: Step) -> Tensor:
    """Note that `tensor`, just made by `step`, is on the memory of `source`; returns it."""
    tensor._version = source._version
    alias = source._alias
    if alias.__class__ is tuple:
        base, before = alias
        lost = before is None
    else:
        base, before, lost = source, None, False
    if lost or (switched_off and source._requires_grad and not grad_mode.enabled):
        tensor._alias = (base, None)
        return tensor
    tensor._alias = (base, (before, step))
    views = base._alias
    if views is None:
        views = base._alias = Views()
    if len(views) >= views.limit:
        views.forget()
    views.append(_ref(tensor))
    return tensor


def replayed(steps: Steps, base: Tensor) -> Tensor:
    """The view that the steps make of a base."""
    ordered = []
    link: Steps | None = steps
    while link is not None:
        link, step = link
        ordered.append(step)
    for step in reversed(ordered):
        base = step(base)
    return base


class CopySlices(Node):
    """A write through a view: where the view is, the base's values come from elsewhere."""

    __slots__ = ()

    def rule(self, grad: Any, steps: Steps, layout: np.ndarray[Any, Any]) -> tuple[Any, ...]:
        """Edges: the base as it was before, the written values."""
        if isinstance(grad, Tensor):
            # Of the base's own type: the view may be its real or its imaginary parts.
            untouched = np.empty_like(layout, subok=False)
            untouched[...] = 1 + 1j if layout.dtype.kind == "c" else 1
            _view_of(untouched, steps)[...] = 0
            return (_only(grad, untouched), replayed(steps, grad))
        inside = replayed(steps, wrap(grad))._array
        # In the base's own memory layout, so that the steps make views of it as they did before.
        outside = np.empty_like(layout, dtype=grad.dtype, subok=False)
        outside[...] = grad
        _view_of(outside, steps)[...] = 0
        return (outside, inside)


def _only(grad: Tensor, mask: np.ndarray[Any, Any]) -> Tensor:
    """The gradient where the mask is one; of complex numbers part by part."""
    if mask.dtype.kind != "c":
        return grad * mask
    kept: Tensor = grad.real * mask.real + grad.imag * mask.imag * 1j
    return kept


def _view_of(array: np.ndarray[Any, Any], steps: Steps) -> np.ndarray[Any, Any]:
    found = replayed(steps, wrap(array))._array
    if found.size and not np.may_share_memory(found, array):
        raise RuntimeError("an in-place write through this view cannot be differentiated")
    return found


class FillBackward0(Node):
    """A write of constants: nothing of the old values is left."""

    __slots__ = ()

    def rule(self, grad: Any) -> tuple[Any, ...]:
        return (dual.zeros_like(grad),)


def _base_of(tensor: Tensor) -> tuple[Tensor, Steps | None] | None:
    """A view's base and its steps; None if it is no view (any more)."""
    alias = tensor._alias
    # The base may have been given another array since: then they have a counter each.
    if alias.__class__ is tuple and alias[0]._version is tensor._version:
        found: tuple[Tensor, Steps | None] = alias
        return found
    return None


def is_recorded(target: Tensor, *sources: Tensor) -> bool:
    """Whether a write of the sources into `target` changes the graph."""
    if not grad_mode.enabled:
        return False
    if target._requires_grad:
        return True
    for source in sources:
        if source._requires_grad:
            return True
    found = _base_of(target)
    return found is not None and found[0]._requires_grad


def write(target: Tensor, result: Tensor) -> None:
    """Put the values of `result` (same shape and type) into the memory of `target`, recorded.

    Raises:
        RuntimeError: `target` is a leaf that requires grad, a view of one, or a view that has no
            place in the graph because recording was off when it was made.
    """
    _check_writable(target)
    try:
        target._array[...] = result._array
    except ValueError as error:
        raise refused_write(target, error) from None
    target._version[0] += 1
    found = _base_of(target)
    if found is None:
        base = target
        node = result._node or FillBackward0((edge_of(target),))
    else:
        base, steps = found
        node = CopySlices((edge_of(base), edge_of(result)), (steps, base._array))
    _rebase(base, node)
    if base._alias.__class__ is Views:
        for living in base._alias.living():
            if living._version is base._version:
                _rebase(living, replayed(living._alias[1], base)._node)


def become_view(input: Tensor, step: Step) -> Tensor:
    """Make a tensor the view that `step` makes of it; returns it.

    Raises:
        RuntimeError: It is a leaf that requires grad, and recording is on.
    """
    if input._requires_grad and input._node is None and grad_mode.enabled:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    views = input._alias.living() if input._alias.__class__ is Views else []
    with set_grad_enabled(input._node is not None):
        after = step(input)
    if views:
        # They were made of the tensor as it was, which goes on as the base of all of them.
        base = wrap(input._array, input._node)
        base._version = input._version
        base._alias = input._alias
        for living in views:
            living._alias = (base, living._alias[1])
        related(input, base, step)
    elif input._alias.__class__ is tuple:
        # A view already, and now by one step more.
        input._alias = after._alias
    input._array = after._array
    if after._node is not None:
        _rebase(input, after._node)
    return input


def detach_(input: Tensor) -> Tensor:
    """Take a tensor out of the graph: it becomes a leaf that requires no grad; returns it.

    Raises:
        RuntimeError: It is a view.

    >>> import tensorplay as tp
    >>> state = tp.ones(2, requires_grad=True) * 3
    >>> state.detach_().requires_grad
    False
    """
    if _base_of(input) is not None:
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead, or detach_() before the view is "
            "taken."
        )
    input._node = None
    input._requires_grad = False
    return input


def _check_writable(target: Tensor) -> None:
    if target._requires_grad and target._node is None:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    found = _base_of(target)
    if found is None:
        return
    base, steps = found
    if base._requires_grad and base._node is None:
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation."
        )
    if steps is None:
        raise RuntimeError(
            "a view that was created in no_grad mode is being modified in place with grad mode "
            "enabled. Make the view outside of no_grad, or write to it inside."
        )


def _rebase(tensor: Tensor, node: Node | None) -> None:
    if retains_grad(tensor):
        # The gradient to keep is that of the new values.
        keep = hooks_of(tensor).pop(RETAIN)
        tensor._node = node
        hooks_of(tensor)[RETAIN] = keep
    tensor._node = node
    tensor._requires_grad = node is not None
