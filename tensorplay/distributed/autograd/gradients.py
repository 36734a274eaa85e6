"""The gradients of one worker's leaves in a context, and those of passes that may still fail.

What a pass gives to a leaf is *staged* until the pass is known to have come to a good end; then it
is *settled*: added to what earlier passes gave.  What a failed pass has staged is dropped, so a
pass that is tried again counts once.

The worker that has started a pass knows how it ended.  Another learns of a failure by a message,
and of a good end with the next pass of that worker, or takes it for granted when gradients are
asked for after it has done its own part.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tensorplay.autograd.grad_mode import set_grad_enabled
from tensorplay.autograd.graph import Node
from tensorplay.distributed.autograd.backward_pass import BackwardPass
from tensorplay.distributed.transport.memory import is_sole_user
from tensorplay.tensor import Tensor, wrap


class Gradients:
    """Gradients by leaf.  Whoever calls a method holds the context's lock.

    Attributes:
        settled: Sums over the passes that have come to a good end.
        staged: What other passes have given so far: pass id to gradients by leaf.
    """

    def __init__(self) -> None:
        self.settled: dict[Tensor, Tensor] = {}
        self.staged: dict[int, dict[Tensor, Tensor]] = {}

    def stage(self, pass_id: int, leaf: Tensor, grad: Any) -> None:
        """Take a leaf's whole gradient from a pass: an array, or a tensor if it is recorded."""
        if isinstance(grad, Tensor):
            self.staged.setdefault(pass_id, {})[leaf] = grad
            return
        array = grad if type(grad) is np.ndarray else np.asarray(grad)
        del grad
        # Taken over if only this frame and the caller's call hold it; else copied, since its other
        # holders may write to it, or be given it too.
        if (
            sys.getrefcount(array) > _sole_references()
            or not array.flags.writeable
            or not is_sole_user(array)
        ):
            array = array.copy()
        self.staged.setdefault(pass_id, {})[leaf] = wrap(array)

    def settle(self, pass_id: int, good: bool) -> None:
        """A pass has come to its end, a good one or not."""
        staged = self.staged.pop(pass_id, None)
        if staged and good:
            if not self.settled:
                self.settled.update(staged)
                return
            for leaf, grad in staged.items():
                self._add(leaf, grad)

    def _add(self, leaf: Tensor, grad: Tensor) -> None:
        if leaf not in self.settled:
            self.settled[leaf] = grad
            return
        alone = _holders(self.settled, leaf) == _ONLY_THE_MAP
        kept = self.settled[leaf]
        if grad._requires_grad:
            with set_grad_enabled(True):
                self.settled[leaf] = kept + grad
        elif kept._requires_grad:
            # The sum of what was recorded and what was not is not recorded.
            self.settled[leaf] = wrap(np.asarray(kept._array + grad._array))
        elif alone and is_sole_user(kept._array) and kept._array.dtype == grad._array.dtype:
            kept._array += grad._array
        else:
            # Not in place: the user, or a message, holds the sum so far.
            kept._array = np.asarray(kept._array + grad._array)


def _holders(grads: Mapping[Any, Tensor], leaf: Any) -> tuple[int, int]:
    """How many refer to a gradient, and to its array."""
    kept = grads[leaf]
    return sys.getrefcount(kept), sys.getrefcount(kept._array)


# Measured, since it depends on how this Python passes arguments.
_ONLY_THE_MAP = _holders({0: wrap(np.zeros(1))}, 0)


@functools.cache
def _sole_references() -> int:
    """What `sys.getrefcount` says within `Gradients.stage` of an array that only the pass holds.

    Measured, since it depends on how this Python passes arguments.
    """
    counts: list[int] = []

    def stage(_pass_id: int, _leaf: Tensor, grad: Any) -> None:
        array = grad if type(grad) is np.ndarray else np.asarray(grad)
        del grad
        counts.append(sys.getrefcount(array))

    def staged(pass_id: int, leaf: Tensor, grad: Any) -> None:
        stage(pass_id, leaf, grad)

    target = wrap(np.zeros(1))
    target._requires_grad = True
    probe = BackwardPass(0, {}, {}, (), partial(staged, 0), lambda instruction: None)
    node = _Probe((target,))
    probe.join([(node, np.ones(1))])
    probe.advance()
    return counts[0]


class _Probe(Node):
    """Gives its input a gradient that nobody else holds."""

    __slots__ = ()

    def rule(self, grad: Any, *saved: Any) -> tuple[Any, ...]:
        return (grad + 1,)
