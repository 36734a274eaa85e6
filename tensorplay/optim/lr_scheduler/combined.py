"""Several schedules of one optimizer, one after another or at the same time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from tensorplay.optim.lr_scheduler.base import LRScheduler, number, rates_of
from tensorplay.optim.lr_scheduler.plateau import ReduceLROnPlateau


class _Several(LRScheduler):
    """Keeps the states of other schedules in its own."""

    _schedulers: list[LRScheduler]

    def _take(self, schedulers: Sequence[LRScheduler], optimizer: Any) -> None:
        name = type(self).__name__
        if not schedulers:
            raise ValueError(f"{name} expects at least one scheduler, but got no scheduler.")
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires "
                    "additional kwargs to be specified when calling `step`, but got one at index "
                    f"{i} in the given schedulers sequence."
                )
            if scheduler.optimizer is not (optimizer or schedulers[0].optimizer):
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but that at "
                    f"index {i}, a {type(scheduler).__name__}, has another"
                )
        self._schedulers = list(schedulers)
        self.optimizer = schedulers[0].optimizer

    def state_dict(self) -> dict[str, Any]:
        """What it and its schedules know."""
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(
            {name: value for name, value in state_dict.items() if name != "_schedulers"}
        )
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_Several):
    """One schedule after another; each begins anew when its turn comes.

    Args:
        optimizer: The optimizer, which all schedules belong to.
        schedulers: The schedules.
        milestones: The steps at which the second takes over, the third, and so on.
        last_epoch: As for `LRScheduler`.

    Raises:
        ValueError: A schedule cannot be used here, belongs to another optimizer, or the number of
            milestones is not one less than that of schedules.
    """

    def __init__(
        self,
        optimizer: Any,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Each schedule's constructor has taken a step; only that of the first one counts.
        for group in optimizer.param_groups:
            group["lr"] = number(group["initial_lr"])
        _undo(self._schedulers)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Take a step of the schedule whose turn it is."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _undo(schedulers: Sequence[LRScheduler]) -> None:
    for scheduler in schedulers:
        if isinstance(scheduler, _Several):
            _undo(scheduler._schedulers)
        else:
            scheduler.last_epoch -= 1


class ChainedScheduler(_Several):
    """Several schedules at the same time, each of which changes what the last one has set.

    Args:
        schedulers: The schedules.
        optimizer: The optimizer, by default that of the first.

    Raises:
        ValueError: A schedule cannot be used here, or belongs to another optimizer.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Any = None) -> None:
        self._take(schedulers, optimizer)
        self._last_lr = rates_of(self.optimizer)

    def _initial_step(self) -> None:
        for scheduler in self._schedulers:
            # Steps that nobody has asked for yet are none before the optimizer's.
            scheduler._step_count = 0
        self.step()

    def step(self) -> None:  # type: ignore[override]
        """Take a step of each schedule."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = rates_of(self.optimizer)
