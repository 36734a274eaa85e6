"""Rates that fall by a factor, from time to time or in each step."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tensorplay.optim.lr_scheduler.base import LRScheduler


class StepLR(LRScheduler):
    """Multiplies the rate with `gamma` every `step_size` steps.

    >>> import tensorplay as tp
    >>> optimizer = tp.optim.SGD([tp.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = tp.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates += scheduler.get_last_lr()
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        falls = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return lr * self.gamma if falls else lr

    def _at(self, base: float) -> float:
        return base * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Multiplies the rate with `gamma` at each of `milestones`, which are numbers of steps."""

    def __init__(
        self, optimizer: Any, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        times = self.milestones.get(self.last_epoch)
        return lr * self.gamma**times if times else lr

    def _at(self, base: float) -> float:
        # A plain dictionary if it comes out of a file.
        milestones = Counter(self.milestones)
        passed = bisect_right(sorted(milestones.elements()), self.last_epoch)
        return base * self.gamma**passed


class ExponentialLR(LRScheduler):
    """Multiplies the rate with `gamma` in each step."""

    def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _next(self, lr: float, base: float) -> float:
        return lr if self._is_initial else lr * self.gamma

    def _at(self, base: float) -> float:
        return base * self.gamma**self.last_epoch
