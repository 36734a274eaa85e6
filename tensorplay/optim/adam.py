"""Adam, and AdamW, which differs in how weights decay."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.optim.optimizer import Array, Group, Optimizer
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

    def _advance(
        self, old: Array, state: dict[str, Any], group: Group
    ) -> tuple[list[Array], dict[str, Any]]:
        names = ["exp_avg", "exp_avg_sq"]
        if group["amsgrad"]:
            names.append("max_exp_avg_sq")
        for name in names:
            if name not in state:
                state[name] = wrap(np.zeros_like(old))
        step = state["step"] = state.get("step", 0) + 1
        beta1, beta2 = group["betas"]
        constants = {
            **group,
            "root_correction": math.sqrt(1 - beta2**step),
            "step_size": group["lr"] / (1 - beta1**step),
        }
        return [state[name]._array for name in names], constants

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        if old.dtype.kind == "c":
            # Real and imaginary parts are parameters of their own.
            old, grad, new = dtypes.parts(old), dtypes.parts(grad), dtypes.parts(new)
            rest = (*[dtypes.parts(one) for one in rest[:-1]], rest[-1])
        mean, square, *greatest, constants = rest
        beta1, beta2 = constants["betas"]
        decay = constants["weight_decay"]
        if decay and not self._decoupled_decay:
            scratch = np.multiply(old, decay, out=self._scratch(old))
            grad = np.add(scratch, grad, out=scratch)

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
        if decay and self._decoupled_decay:
            new += np.multiply(old, 1 - constants["lr"] * decay, out=self._scratch(old))
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
