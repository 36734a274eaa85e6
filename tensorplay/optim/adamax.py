"""Adamax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Optimizer, Params, count_step, remembered
from tensorplay.optim.options import check_betas, check_not_negative, implementation


class Adamax(Optimizer):
    """Adam with a fading maximum in the place of the mean square (Kingma and Ba, 2015).

    Args:
        params: Tensors, or groups of them: see `Optimizer`.
        lr: Learning rate.
        betas: How much of the running mean of the gradient, and of the maximum, is kept in each
            step.
        eps: Added to the gradient's absolute value.
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
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **others: bool | None,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            **implementation(type(self), others, "foreach", "differentiable", "capturable"),
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], dict[str, Any]]:
        step = count_step(state)
        beta1, beta2 = map(float, group["betas"])
        constants = {
            **group,
            "betas": (beta1, beta2),
            "step_size": group["lr"] / (1 - beta1**step),
        }
        return [remembered(state, name, old) for name in ("exp_avg", "exp_inf")], constants

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        mean, greatest, constants = rest
        beta1, beta2 = constants["betas"]
        grad = self._decayed(old, grad, constants["weight_decay"])
        np.subtract(grad, mean, out=new)
        new *= 1 - beta1
        mean += new
        np.abs(grad, out=new)
        new += constants["eps"]
        greatest *= beta2
        np.maximum(greatest, new, out=greatest)
        np.divide(mean, greatest, out=new)
        new *= -constants["step_size"]
        new += old
