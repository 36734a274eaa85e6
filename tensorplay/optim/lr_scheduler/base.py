"""What schedules have in common.

A schedule reads and writes the learning rates in an optimizer's `param_groups`, and needs no more
of it: a `DistributedOptimizer` will do as well as a local one.  Each step computes a rate from the
last one, not from the beginning, so that schedules, and the user, may work on the same rate.
"""

from __future__ import annotations

import warnings
from typing import Any

from tensorplay.tensor import Tensor


class LRScheduler:
    """The base of schedules that go by the number of steps.

    A subclass defines `_next`; or, as in PyTorch, `get_lr`.

    Args:
        optimizer: The optimizer whose learning rates it sets, from now on.
        last_epoch: How many steps have been taken, less one; -1 to begin.  Otherwise the
            optimizer's groups must have their first rates under ``"initial_lr"``, as after
            `load_state_dict`.

    Attributes:
        optimizer: The optimizer.
        base_lrs: The rates that each group began with.
        last_epoch: How many steps have been taken, not counting the one of the constructor.

    Raises:
        TypeError: `optimizer` is none.
        KeyError: `last_epoch` is not -1, and a group has no ``"initial_lr"``.
    """

    #: While the constructor takes its step, which must not move the rates of one that goes on.
    _is_initial = False

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for i, group in enumerate(groups_of(optimizer)):
            if last_epoch == -1:
                group.setdefault("initial_lr", number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0: load the optimizer's state first"
                )
        self.base_lrs = [number(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            del self._is_initial

    def get_last_lr(self) -> list[float]:
        """The rates that the last step has set, one for each group."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rates that come next.  For subclasses; programs read `get_last_lr`."""
        groups = self.optimizer.param_groups
        return [
            self._next(number(group["lr"]), base)
            for group, base in zip(groups, self.base_lrs, strict=True)
        ]

    def _next(self, lr: float, base: float) -> float:
        """The rate of a group in step `last_epoch`.

        Args:
            lr: Its rate until now.
            base: The rate that it began with.
        """
        raise NotImplementedError

    def _at(self, base: float) -> float:
        """The rate in step `last_epoch`, computed from the first one alone."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Set the rates of the next step; to be called after the optimizer's `step`.

        Args:
            epoch: Go to this step instead, where the schedule allows it.
        """
        if self._step_count == 1 and not getattr(self.optimizer, "_stepped", True):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the optimizer "
                "will not see the first learning rate of the schedule. Call them in the opposite "
                "order",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            closed = type(self)._at is not LRScheduler._at
            rates = [self._at(base) for base in self.base_lrs] if closed else self.get_lr()
        self._set(rates)

    def _set(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = rates_of(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned; the rates themselves are in the optimizer's."""
        self.__dict__.update(state_dict)


def groups_of(optimizer: Any) -> list[dict[str, Any]]:
    """An optimizer's groups.

    Raises:
        TypeError: It is no optimizer.
    """
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    return groups


def number(value: Any) -> float:
    """A rate as a number of Python's; it may be a tensor of one element."""
    return float(value.item()) if isinstance(value, Tensor) else value


def rates_of(optimizer: Any) -> list[float]:
    """The rates that an optimizer's groups have now."""
    return [number(group["lr"]) for group in optimizer.param_groups]


def one_for_each(name: str, given: Any, optimizer: Any) -> list[float]:
    """A value for each group.

    Raises:
        ValueError: There is a list of them, of another length than that of the groups.
    """
    count = len(optimizer.param_groups)
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(given)} values, param_groups has {count}."
        )
    return list(given)
