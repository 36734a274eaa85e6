"""One rise and one fall over the whole of a training."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tensorplay.optim.lr_scheduler.base import LRScheduler, groups_of, one_for_each


class _Phase(NamedTuple):
    """Until which step it lasts, and names of what it leads from and to."""

    end: float
    rates: tuple[str, str]
    momenta: tuple[str, str]


class OneCycleLR(LRScheduler):
    """Takes the rate up and down again once, and the momentum the other way (Smith, 2017).

    Args:
        optimizer: The optimizer.
        max_lr: The greatest rate; or a list, one a group.
        total_steps: How many steps there are in all; or leave it out and give the next two.
        epochs: How many epochs ...
        steps_per_epoch: ... of how many steps.
        pct_start: Share of the steps in which the rate goes up.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        cycle_momentum: Whether to move the optimizer's momentum, or first beta.
        base_momentum: The least momentum, where the rate is greatest; or a list.
        max_momentum: The greatest momentum; or a list.
        div_factor: The rate begins with ``max_lr / div_factor``,
        final_div_factor: and ends with that divided by this.
        three_phase: Go down as fast as up, and only then to the last rate.
        last_epoch: See `LRScheduler`.

    Raises:
        ValueError: The number of steps is missing or no positive integer, another argument is not
            what it should be, or the optimizer has no momentum to move.  `step` raises it when
            there are no steps left.
    """

    def __init__(
        self,
        optimizer: Any,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        groups = groups_of(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._cosine = anneal_strategy == "cos"
        self._phases = _phases(self.total_steps, pct_start, three_phase)
        self.cycle_momentum = cycle_momentum
        self.use_beta1 = "betas" in optimizer.defaults
        if cycle_momentum and not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        greatest = one_for_each("max_lr", max_lr, optimizer)
        high = one_for_each("max_momentum", max_momentum, optimizer)
        low = one_for_each("base_momentum", base_momentum, optimizer)
        if last_epoch == -1:
            for i, group in enumerate(groups):
                group["initial_lr"] = greatest[i] / div_factor
                group["max_lr"] = greatest[i]
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    self._set_momentum(group, high[i])
                    group["max_momentum"] = high[i]
                    group["base_momentum"] = low[i]
        super().__init__(optimizer, last_epoch)

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum

    def get_lr(self) -> list[float]:
        """The rates that come next; sets the momentum as well."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        begins = 0.0
        for phase in self._phases:
            if step <= phase.end or phase is self._phases[-1]:
                break
            begins = phase.end
        share = (step - begins) / (phase.end - begins)
        rates = []
        for group in self.optimizer.param_groups:
            start, end = phase.rates
            rates.append(self._between(group[start], group[end], share))
            if self.cycle_momentum:
                start, end = phase.momenta
                self._set_momentum(group, self._between(group[start], group[end], share))
        return rates

    def _between(self, start: float, end: float, share: float) -> float:
        if self._cosine:
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
        return (end - start) * share + start


def _total(total: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    given = {"total_steps": total}
    if total is None:
        given = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    product = 1
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
        product *= value
    return product


def _phases(total: int, share: float, three: bool) -> list[_Phase]:
    up = share * total - 1
    rise = _Phase(up, ("initial_lr", "max_lr"), ("max_momentum", "base_momentum"))
    if not three:
        fall = _Phase(total - 1, ("max_lr", "min_lr"), ("base_momentum", "max_momentum"))
        return [rise, fall]
    down = 2 * share * total - 2
    back = _Phase(down, ("max_lr", "initial_lr"), ("base_momentum", "max_momentum"))
    rest = _Phase(total - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum"))
    return [rise, back, rest]
