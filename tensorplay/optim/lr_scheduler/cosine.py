"""Rates along a cosine."""

from __future__ import annotations

import math
from typing import Any

from tensorplay.optim.lr_scheduler.base import LRScheduler


class CosineAnnealingLR(LRScheduler):
    """Takes the rate down along half a cosine, and up again (Loshchilov and Hutter, 2017).

    Args:
        optimizer: The optimizer.
        T_max: How many steps it takes from the first rate to the least.
        eta_min: The least rate.
        last_epoch: See `LRScheduler`.
    """

    def __init__(
        self,
        optimizer: Any,
        T_max: int,  # noqa: N803  # PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        if self._is_initial:
            return lr
        step, half = self.last_epoch, self.T_max
        if (step - 1 - half) % (2 * half) == 0:
            # The least rate is behind: there is nothing that a factor could raise.
            return lr + (base - self.eta_min) * (1 - math.cos(math.pi / half)) / 2
        now = 1 + math.cos(math.pi * step / half)
        before = 1 + math.cos(math.pi * (step - 1) / half)
        return now / before * (lr - self.eta_min) + self.eta_min

    def _at(self, base: float) -> float:
        height = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return self.eta_min + (base - self.eta_min) * height / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Takes the rate down along half a cosine, again and again (Loshchilov and Hutter, 2017).

    Args:
        optimizer: The optimizer.
        T_0: How many steps the first fall takes.
        T_mult: How many times as long as the last the next one is.
        eta_min: The rate that each falls to.
        last_epoch: See `LRScheduler`.

    Raises:
        ValueError: `T_0` or `T_mult` is no positive integer, or `eta_min` no number.
    """

    def __init__(
        self,
        optimizer: Any,
        T_0: int,  # noqa: N803  # PyTorch's names
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return self.eta_min + (base - self.eta_min) * height / 2

    def step(self, epoch: float | None = None) -> None:
        """Set the rates of the next step, or of step `epoch`, which may be a fraction.

        Raises:
            ValueError: `epoch` is negative.
        """
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _go_to(self, epoch: float) -> None:
        """Find the fall that a step belongs to, and how far into it the step is."""
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0 if epoch >= self.T_0 else epoch
            return
        begins, length = 0, self.T_0
        while epoch >= begins + length:
            begins += length
            length *= self.T_mult
        self.T_cur = epoch - begins
        self.T_i = length
