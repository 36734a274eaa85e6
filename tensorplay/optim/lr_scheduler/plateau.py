"""A rate that falls when a measured number no longer gets better."""

from __future__ import annotations

import math
from typing import Any

from tensorplay.optim.lr_scheduler.base import LRScheduler, groups_of, number, rates_of


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate with `factor` when a number has not got better for some steps.

    Args:
        optimizer: The optimizer.
        mode: ``"min"`` if less is better, ``"max"`` if more is.
        factor: Below 1.
        patience: How many steps without a better number are let pass.
        threshold: By how much a better number must be better,
        threshold_mode: as a share of the best one (``"rel"``) or in itself (``"abs"``).
        cooldown: How many steps are let pass after a fall before counting begins again.
        min_lr: The least rate; or a list, one a group.
        eps: A fall by no more than this is left out.

    Raises:
        TypeError: `optimizer` is none.
        ValueError: `factor` is not below 1, a mode is unknown, or there are not as many `min_lr` as
            groups.
    """

    def __init__(
        self,
        optimizer: Any,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        # The base's constructor would take a step, for which there is no number yet.
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        count = len(groups_of(optimizer))
        # For groups that are added later.
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ValueError(f"expected {count} min_lrs, got {len(self.min_lrs)}")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = rates_of(optimizer)

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Tell the number; the rates fall if it is time.

        Args:
            metrics: The number, or a tensor with it.
            epoch: Which step this is, if not the next.
        """
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = rates_of(self.optimizer)

    @property
    def in_cooldown(self) -> bool:
        """Whether the last fall was not long ago."""
        return self.cooldown_counter > 0

    def _is_better(self, current: float) -> bool:
        least = self.mode == "min"
        margin = -self.threshold if least else self.threshold
        if self.threshold_mode == "rel":
            bar = self.best * (1.0 + margin)
        else:
            bar = self.best + margin
        return current < bar if least else current > bar

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}): extend its "
                    "`min_lrs`"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = number(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                group["lr"] = new
