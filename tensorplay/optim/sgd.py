"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Group, Optimizer
from tensorplay.tensor import Tensor, wrap


class SGD(Optimizer):
    """Gradient descent with optional momentum.

    Args:
        params: Tensors, or groups of them: see `Optimizer`.
        lr: Learning rate.
        momentum: Share of the last step's direction that is kept.
        dampening: Share of the gradient that does not enter the direction.
        weight_decay: This times the parameter is added to its gradient.
        nesterov: Look ahead by the momentum (Nesterov).
        maximize: Go uphill.

    Raises:
        ValueError: An option is out of range.

    >>> import tensorplay as tp
    >>> w = tp.tensor([1.0], requires_grad=True)
    >>> optimizer = tp.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8000], requires_grad=True)
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Group
    ) -> tuple[list[Array], Group]:
        if not group["momentum"]:
            return [], group
        if "momentum_buffer" in state:
            return [state["momentum_buffer"]._array], group
        # The first direction is the gradient itself.
        buffer = state["momentum_buffer"] = wrap(np.zeros_like(old))
        return [buffer._array], {**group, "dampening": 0}

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        *buffers, options = rest
        direction = grad
        if options["weight_decay"]:
            np.multiply(old, options["weight_decay"], out=new)
            new += grad
            direction = new
        if buffers:
            (kept,) = buffers
            kept *= options["momentum"]
            if options["dampening"]:
                kept += np.multiply(direction, 1 - options["dampening"], out=self._scratch(old))
            else:
                kept += direction
            if options["nesterov"]:
                ahead = np.multiply(kept, options["momentum"], out=self._scratch(old))
                direction = np.add(direction, ahead, out=new)
            else:
                direction = kept
        np.multiply(direction, -options["lr"], out=new)
        new += old
