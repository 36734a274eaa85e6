"""Rates by functions of the user's."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from tensorplay.optim.lr_scheduler.base import LRScheduler, groups_of, number

#: What has no state of its own.
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)

Factor = Callable[[int], float]


class LambdaLR(LRScheduler):
    """Multiplies the first rate with ``lr_lambda(step)``.

    Args:
        optimizer: The optimizer.
        lr_lambda: A function of the number of the step, from 0; or a list of them, one a group.
        last_epoch: See `LRScheduler`.

    `state_dict` has the attributes of callable objects among them, and nothing of functions.

    Raises:
        ValueError: There are not as many functions as groups.
        TypeError: What was given cannot be called.
    """

    def __init__(
        self, optimizer: Any, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1
    ) -> None:
        count = len(groups_of(optimizer))
        factors = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(factors) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(factors)}")
        for factor in factors:
            if not callable(factor):
                raise TypeError(f"lr_lambda should be a function, but got {type(factor).__name__}")
        self.lr_lambdas: list[Any] = factors
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The first rates, each multiplied with its function's value."""
        factors = zip(self.lr_lambdas, self.base_lrs, strict=True)
        return [base * factor(self.last_epoch) for factor, base in factors]

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows but the optimizer and functions."""
        state = super().state_dict()
        state["lr_lambdas"] = [
            None if isinstance(factor, _FUNCTIONS) else dict(vars(factor))
            for factor in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(
            {name: value for name, value in state_dict.items() if name != "lr_lambdas"}
        )
        for factor, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                vars(factor).update(attributes)


class MultiplicativeLR(LambdaLR):
    """Multiplies the last rate with ``lr_lambda(step)``; arguments as for `LambdaLR`."""

    def get_lr(self) -> list[float]:
        """The last rates, each multiplied with its function's value."""
        rates = [number(group["lr"]) for group in self.optimizer.param_groups]
        if self._is_initial:
            return rates
        factors = zip(self.lr_lambdas, rates, strict=True)
        return [rate * factor(self.last_epoch) for factor, rate in factors]
