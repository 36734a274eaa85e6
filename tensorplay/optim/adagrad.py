"""Adagrad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Optimizer, Params, count_step, remembered
from tensorplay.optim.options import check_not_negative, implementation


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squares so far (Duchi and others, 2011).

    Args:
        params: Tensors, or groups of them: see `Optimizer`.
        lr: Learning rate.
        lr_decay: Step `t` has the learning rate ``lr / (1 + (t - 1) * lr_decay)``.
        weight_decay: This times the parameter is added to its gradient.
        initial_accumulator_value: What the sums begin with.
        eps: Added to the divisor.
        maximize: Go uphill.
        others: ``foreach``, ``fused``, ``differentiable``: taken for the sake of programs that give
            them, and not used.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **others: bool | None,
    ) -> None:
        check_not_negative(
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
            **implementation(type(self), others, "foreach", "differentiable", "fused"),
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], dict[str, Any]]:
        step = count_step(state)
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        total = remembered(state, "sum", old, group["initial_accumulator_value"])
        return [total], {**group, "lr": rate}

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        total, options = rest
        grad = self._decayed(old, grad, options["weight_decay"])
        total += np.multiply(grad, grad, out=new)
        np.sqrt(total, out=new)
        new += options["eps"]
        np.divide(grad, new, out=new)
        new *= -options["lr"]
        new += old
