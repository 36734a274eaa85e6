"""Rates that go up, or down, for a number of steps and then stay."""

from __future__ import annotations

from typing import Any

from tensorplay.optim.lr_scheduler.base import LRScheduler


class ConstantLR(LRScheduler):
    """Multiplies the rate with `factor` for the first `total_iters` steps.

    Raises:
        ValueError: `factor` is not between 0 and 1.
    """

    def __init__(
        self,
        optimizer: Any,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        if self.last_epoch == 0:
            return lr * self.factor
        return lr * (1.0 / self.factor) if self.last_epoch == self.total_iters else lr

    def _at(self, base: float) -> float:
        return base * (self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor))


class LinearLR(LRScheduler):
    """Multiplies the rate with a factor that goes straight from one value to another.

    Args:
        optimizer: The optimizer.
        start_factor: The factor at first, above 0 and up to 1.
        end_factor: The factor after `total_iters` steps, from 0 to 1.
        total_iters: How many steps that takes.
        last_epoch: See `LRScheduler`.

    Raises:
        ValueError: A factor is out of range.
    """

    def __init__(
        self,
        optimizer: Any,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        way = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * way
        return lr * (1.0 + way / before)

    def _at(self, base: float) -> float:
        way = self.end_factor - self.start_factor
        gone = min(self.total_iters, self.last_epoch)
        return base * (self.start_factor + way * gone / self.total_iters)


class PolynomialLR(LRScheduler):
    """Takes the rate to zero in `total_iters` steps, along a power of what is left of them."""

    def __init__(
        self,
        optimizer: Any,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        rate: float = lr * (left / before) ** self.power
        return rate

    def _at(self, base: float) -> float:
        gone = min(self.total_iters, self.last_epoch)
        rate: float = base * (1.0 - gone / self.total_iters) ** self.power
        return rate
