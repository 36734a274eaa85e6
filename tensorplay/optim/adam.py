"""Adam, and AdamW, which differs in how weights decay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Optimizer, Params, count_step, remembered
from tensorplay.optim.options import check_betas, check_not_negative, implementation


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square (Kingma and Ba, 2015).

    Args:
        params: Tensors, or groups of them: see `Optimizer`.
        lr: Learning rate.
        betas: How much of the running means of gradient and square is kept in each step.
        eps: Added to the divisor.
        weight_decay: This times the parameter is added to its gradient.
        amsgrad: Divide by the greatest mean square so far, not by the present one.
        maximize: Go uphill.
        decoupled_weight_decay: Let weights decay by themselves, as `AdamW` does.
        others: ``foreach``, ``fused``, ``capturable``, ``differentiable``: taken for the sake of
            programs that give them, and not used.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **others: bool | None,
    ) -> None:
        check_not_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(betas)
        given = implementation(
            type(self), others, "foreach", "capturable", "differentiable", "fused"
        )
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            **given,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], dict[str, Any]]:
        step = count_step(state)
        names = ["exp_avg", "exp_avg_sq"]
        if group["amsgrad"]:
            names.append("max_exp_avg_sq")
        beta1, beta2 = map(float, group["betas"])
        constants = {
            **group,
            "betas": (beta1, beta2),
            "root_correction": math.sqrt(1 - beta2**step),
            "step_size": group["lr"] / (1 - beta1**step),
        }
        return [remembered(state, name, old) for name in names], constants

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        mean, square, *greatest, constants = rest
        beta1, beta2 = constants["betas"]
        decay = constants["weight_decay"]
        decoupled = constants["decoupled_weight_decay"]
        if not decoupled:
            grad = self._decayed(old, grad, decay)

        np.subtract(grad, mean, out=new)
        new *= 1 - beta1
        mean += new
        np.multiply(grad, grad, out=new)
        new *= 1 - beta2
        square *= beta2
        square += new

        if greatest:
            square = np.maximum(greatest[0], square, out=greatest[0])
        np.sqrt(square, out=new)
        new /= constants["root_correction"]
        new += constants["eps"]
        np.divide(mean, new, out=new)
        new *= -constants["step_size"]
        if decay and decoupled:
            new += np.multiply(old, 1 - constants["lr"] * decay, out=self._scratch(old))
        else:
            new += old


class AdamW(Adam):
    """Adam whose weights decay by themselves (Loshchilov and Hutter, 2019).

    Arguments as for `Adam`, but for `weight_decay`: in each step the parameter itself shrinks by
    the factor ``1 - lr * weight_decay``.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **others: bool | None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            decoupled_weight_decay=True,
            **others,
        )
