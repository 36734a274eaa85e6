"""Adadelta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Optimizer, Params, count_step, remembered
from tensorplay.optim.options import check_not_negative, implementation


class Adadelta(Optimizer):
    """Steps as long as the earlier ones were, in proportion to the gradient (Zeiler, 2012).

    Args:
        params: Tensors, or groups of them: see `Optimizer`.
        lr: What the step is multiplied with.
        rho: How much of the running means of squares is kept in each step.
        eps: Added to both mean squares.
        weight_decay: This times the parameter is added to its gradient.
        maximize: Go uphill.
        others: ``foreach``, ``capturable``, ``differentiable``: taken for the sake of programs that
            give them, and not used.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **others: bool | None,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(type(self), others, "capturable", "foreach", "differentiable"),
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], Mapping[str, Any]]:
        count_step(state)
        return [remembered(state, name, old) for name in ("square_avg", "acc_delta")], group

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        square, moved, options = rest
        grad = self._decayed(old, grad, options["weight_decay"])
        np.multiply(grad, grad, out=new)
        new *= 1 - options["rho"]
        square *= options["rho"]
        square += new

        np.add(moved, options["eps"], out=new)
        new /= np.add(square, options["eps"], out=self._scratch(old, 1))
        np.sqrt(new, out=new)
        new *= grad
        squared = np.multiply(new, new, out=self._scratch(old, 1))
        squared *= 1 - options["rho"]
        moved *= options["rho"]
        moved += squared
        new *= -options["lr"]
        new += old
