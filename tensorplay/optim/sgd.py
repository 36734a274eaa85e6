"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Optimizer, Params, remembered
from tensorplay.optim.options import check_not_negative, implementation


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
        others: ``foreach``, ``fused``, ``differentiable``: taken for the sake of programs that give
            them, and not used.

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
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **others: bool | None,
    ) -> None:
        check_not_negative(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            **implementation(type(self), others, "foreach", "differentiable", "fused"),
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], Mapping[str, Any]]:
        if not group["momentum"]:
            return [], group
        # The first direction is the gradient itself.
        begins = state.get("momentum_buffer") is None
        buffers = [remembered(state, "momentum_buffer", old)]
        return buffers, {**group, "dampening": 0} if begins else group

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
