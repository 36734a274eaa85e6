"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Group, Optimizer
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

    def _update(
        self,
        old: np.ndarray[Any, Any],
        grad: np.ndarray[Any, Any],
        new: np.ndarray[Any, Any],
        state: dict[str, Any],
        group: Group,
    ) -> None:
        momentum = group["momentum"]
        direction = grad
        if group["weight_decay"]:
            np.multiply(old, group["weight_decay"], out=new)
            new += grad
            direction = new
        if momentum:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = wrap(direction.copy())
                kept = buffer._array
            else:
                kept = buffer._array
                kept *= momentum
                if group["dampening"]:
                    scratch = self._scratch(old)
                    np.multiply(direction, 1 - group["dampening"], out=scratch)
                    kept += scratch
                else:
                    kept += direction
            if group["nesterov"]:
                scratch = self._scratch(old)
                np.multiply(kept, momentum, out=scratch)
                direction = np.add(direction, scratch, out=new)
            else:
                direction = kept
        np.multiply(direction, -group["lr"], out=new)
        new += old
