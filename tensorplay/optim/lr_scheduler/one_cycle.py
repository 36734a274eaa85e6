"""One rise and one fall over the whole of a training."""

from __future__ import annotations

import math
from typing import Any

from tensorplay.optim.lr_scheduler.base import LRScheduler, groups_of, one_for_each


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
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
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
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if step <= end or phase is self._schedule_phases[-1]:
                break
            begins = end
        share = (step - begins) / (end - begins)
        rates = []
        for group in self.optimizer.param_groups:
            start, last = group[phase["start_lr"]], group[phase["end_lr"]]
            rates.append(self._between(start, last, share))
            if self.cycle_momentum:
                start, last = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._between(start, last, share))
        return rates

    def _between(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "cos":
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


def _phases(total: int, share: float, three: bool) -> list[dict[str, Any]]:
    up = share * total - 1
    rise = _phase(up, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three:
        return [rise, _phase(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    down = 2 * share * total - 2
    back = _phase(down, "max_lr", "initial_lr", "base_momentum", "max_momentum")
    rest = _phase(total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")
    return [rise, back, rest]


def _phase(end: float, *names: str) -> dict[str, Any]:
    """Until which step a phase lasts, and names of what it leads from and to.

    A plain dictionary with PyTorch's keys, as it becomes part of the schedule's state.
    """
    keys = ("start_lr", "end_lr", "start_momentum", "end_momentum")
    return {"end_step": end, **dict(zip(keys, names, strict=True))}
