"""RMSprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Optimizer, Params, count_step, remembered
from tensorplay.optim.options import check_not_negative, implementation


class RMSprop(Optimizer):
    """Steps divided by the root of a running mean of squares (Hinton, 2012).

    Args:
        params: Tensors, or groups of them: see `Optimizer`.
        lr: Learning rate.
        alpha: How much of the running means is kept in each step.
        eps: Added to the divisor.
        weight_decay: This times the parameter is added to its gradient.
        momentum: Share of the last step's direction that is kept.
        centered: Divide by the root of the variance, not of the mean square.
        maximize: Go uphill.
        others: ``foreach``, ``capturable``, ``differentiable``: taken for the sake of programs that
            give them, and not used.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **others: bool | None,
    ) -> None:
        check_not_negative(
            lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha
        )
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(type(self), others, "capturable", "foreach", "differentiable"),
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], Mapping[str, Any]]:
        count_step(state)
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return [remembered(state, name, old) for name in names], group

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        square, *others, options = rest
        grad = self._decayed(old, grad, options["weight_decay"])
        np.multiply(grad, grad, out=new)
        new *= 1 - options["alpha"]
        square *= options["alpha"]
        square += new

        if options["centered"]:
            mean = others[-1]
            np.subtract(grad, mean, out=new)
            new *= 1 - options["alpha"]
            mean += new
            np.multiply(mean, mean, out=new)
            np.subtract(square, new, out=new)
            # Rounding can take a variance of nothing below zero.
            np.maximum(new, 0, out=new)
            np.sqrt(new, out=new)
        else:
            np.sqrt(square, out=new)
        new += options["eps"]
        np.divide(grad, new, out=new)
        if options["momentum"] > 0:
            kept = others[0]
            kept *= options["momentum"]
            kept += new
            np.multiply(kept, -options["lr"], out=new)
        else:
            new *= -options["lr"]
        new += old
