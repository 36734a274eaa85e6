"""Adam, and AdamW, which differs in how weights decay."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Group, Optimizer
from tensorplay.tensor import Tensor, wrap


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

    Raises:
        ValueError: An option is out of range.
    """

    _decoupled_decay = False

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if eps < 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
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
        if not state:
            state["step"] = 0
            state["exp_avg"] = wrap(np.zeros_like(old))
            state["exp_avg_sq"] = wrap(np.zeros_like(old))
        if group["amsgrad"] and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = wrap(np.zeros_like(old))
        lr = group["lr"]
        beta1, beta2 = group["betas"]
        decay = group["weight_decay"]
        state["step"] += 1
        mean = state["exp_avg"]._array
        square = state["exp_avg_sq"]._array
        if decay and not self._decoupled_decay:
            scratch = self._scratch(old)
            np.multiply(old, decay, out=scratch)
            grad = np.add(scratch, grad, out=scratch)

        np.subtract(grad, mean, out=new)
        new *= 1 - beta1
        mean += new
        np.multiply(grad, grad, out=new)
        new *= 1 - beta2
        square *= beta2
        square += new

        if group["amsgrad"]:
            greatest = state["max_exp_avg_sq"]._array
            square = np.maximum(greatest, square, out=greatest)
        np.sqrt(square, out=new)
        new /= math.sqrt(1 - beta2 ** state["step"])
        new += group["eps"]
        np.divide(mean, new, out=new)
        new *= -lr / (1 - beta1 ** state["step"])
        if decay and self._decoupled_decay:
            scratch = self._scratch(old)
            new += np.multiply(old, 1 - lr * decay, out=scratch)
        else:
            new += old


class AdamW(Adam):
    """Adam whose weights decay by themselves (Loshchilov and Hutter, 2019).

    Arguments as for `Adam`, but for `weight_decay`: in each step the parameter itself shrinks by
    the factor ``1 - lr * weight_decay``.
    """

    _decoupled_decay = True

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
