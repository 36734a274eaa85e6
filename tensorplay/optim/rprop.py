"""Rprop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.optim.optimizer import Array, Optimizer, Params, count_step, remembered
from tensorplay.optim.options import check_not_negative, implementation


class Rprop(Optimizer):
    """Steps by the gradient's sign, longer while it stays (Riedmiller and Braun, 1993).

    Args:
        params: Tensors, or groups of them: see `Optimizer`.
        lr: Length of the first step.
        etas: What a length is multiplied with when the sign turns, and while it stays.
        step_sizes: The least and the greatest length.
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
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
        **others: bool | None,
    ) -> None:
        check_not_negative(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "maximize": maximize,
            **implementation(type(self), others, "foreach", "differentiable", "capturable"),
        }
        super().__init__(params, defaults)

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], dict[str, Any]]:
        count_step(state)
        buffers = [remembered(state, "prev", old), remembered(state, "step_size", old, group["lr"])]
        numbers = {name: tuple(map(float, group[name])) for name in ("etas", "step_sizes")}
        return buffers, {**group, **numbers}

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        before, length, options = rest
        shorter, longer = options["etas"]
        np.multiply(grad, before, out=new)
        turned = new < 0
        np.multiply(length, shorter, out=length, where=turned)
        np.multiply(length, longer, out=length, where=new > 0)
        np.clip(length, *options["step_sizes"], out=length)
        # Where the sign has turned nothing moves, and the next sign will count as new.
        np.copyto(before, grad)
        np.copyto(before, 0, where=turned)
        np.sign(before, out=new)
        new *= length
        np.subtract(old, new, out=new)
