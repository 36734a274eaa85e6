"""Functions that see gradients: their registration and removal."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.tensor import Tensor, wrap

Hooks = dict[int, Callable[[Any], Any]]

_numbers = itertools.count()

#: Under this key stands the hook of `retain_grad`, which is to see what the others returned.
RETAIN = -1


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away again.

    As a context manager, it removes the hook at the end of the block.
    """

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks = hooks
        self._key = key

    def remove(self) -> None:
        """Take the hook away; nothing happens if it is gone already."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()


class PostAccumulateHook:
    """A leaf's hook that runs after `.grad` was added to, rather than on the gradient itself."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Tensor], None]) -> None:
        self.function = function

    def __call__(self, grad: Any) -> None:
        """Leave the gradient itself alone."""


class PostHook:
    """A hook of a leaf's `AccumulateGrad`: it runs after a pass's gradient was added up."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[tuple[()], tuple[Tensor]], None]) -> None:
        self.function = function

    def __call__(self, grad: Any) -> None:
        """Leave the gradient itself alone."""


def run_post_hooks(leaf: Tensor, grad: Any) -> None:
    """Show a leaf's hooks the gradient that a pass has just added, in `.grad` or elsewhere."""
    for hook in tuple((leaf._hooks or {}).values()):
        if isinstance(hook, PostHook):
            # A copy: later passes add to the array in place.
            shown = grad if isinstance(grad, Tensor) else wrap(np.array(grad))
            hook.function((), (shown,))


class RetainGrad:
    """Keeps the gradient of a tensor that is not a leaf in its `.grad`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        # Weakly: the tensor holds its node, which holds this hook.
        self.tensor = weakref.ref(tensor)

    def __call__(self, grad: Tensor) -> None:
        tensor = self.tensor()
        if tensor is None:
            return
        held = tensor._grad
        if held is not None:
            grad = held + grad
        elif grad._node is None:
            grad = wrap(grad._array.copy())
        tensor._grad = grad


def add_hook(hooks: Hooks, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Register a hook behind those that are there, but before that of `retain_grad`."""
    key = next(_numbers)
    last = hooks.pop(RETAIN, None)
    hooks[key] = hook
    if last is not None:
        hooks[RETAIN] = last
    return RemovableHandle(hooks, key)


def hooks_of(tensor: Tensor) -> Hooks:
    """Where the hooks on the gradient of `tensor` are."""
    place: Any = tensor if tensor._node is None else tensor._node
    if place._hooks is None:
        place._hooks = {}
    hooks: Hooks = place._hooks
    return hooks


def register_hook(tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Call ``hook(grad)`` with the tensor's whole gradient in each backward pass.

    What it returns, unless None, takes the gradient's place, and must have its shape and dtype; or
    the pass raises.  It must not write into its argument.

    Raises:
        RuntimeError: The tensor does not require grad.

    >>> import tensorplay as tp
    >>> x = tp.ones(2, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 10)
    >>> x.sum().backward()
    >>> x.grad
    tensor([10., 10.])
    """
    if not tensor._requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return add_hook(hooks_of(tensor), hook)


def register_post_accumulate_grad_hook(
    tensor: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Call ``hook(tensor)`` each time a backward pass has added to the `.grad` of this leaf.

    A distributed pass does not touch `.grad`, so it does not call it either.

    Raises:
        RuntimeError: The tensor does not require grad, or is not a leaf.
    """
    if not tensor._requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if tensor._node is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return add_hook(hooks_of(tensor), PostAccumulateHook(hook))


def register_post_hook(
    leaf: Tensor, hook: Callable[[tuple[()], tuple[Tensor]], None]
) -> RemovableHandle:
    """Call ``hook((), (grad,))`` each time a pass has added its gradient of this leaf."""
    return add_hook(hooks_of(leaf), PostHook(hook))


def retain_grad(tensor: Tensor) -> None:
    """Keep the gradient in `.grad` though the tensor is not a leaf (a leaf does so anyway).

    Raises:
        RuntimeError: The tensor does not require grad.
    """
    if not tensor._requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if tensor._node is None or retains_grad(tensor):
        return
    hooks_of(tensor)[RETAIN] = RetainGrad(tensor)


def retains_grad(tensor: Tensor) -> bool:
    """Whether `retain_grad` was called on a tensor that is not a leaf."""
    node = tensor._node
    if node is None or node._hooks is None:
        return False
    hook = node._hooks.get(RETAIN)
    return isinstance(hook, RetainGrad) and hook.tensor() is tensor
