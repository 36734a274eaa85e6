"""Schedules without PyTorch to compare with: their first rates, their errors, their warnings."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tensorplay as tp
from tensorplay.optim import SGD, lr_scheduler


def make(lr: float = 1.0, groups: int = 1, **options: Any) -> SGD:
    leaves = [tp.ones(1, requires_grad=True) for _ in range(groups)]
    return SGD([{"params": [leaf]} for leaf in leaves], lr=lr, **options)


def rates(optimizer: Any, scheduler: Any, steps: int) -> list[float]:
    seen = []
    for _ in range(steps):
        seen += scheduler.get_last_lr()
        optimizer.step()
        scheduler.step()
    return seen


@pytest.mark.parametrize(
    ("kind", "args", "expected"),
    [
        ("StepLR", (2, 0.5), [1, 1, 0.5, 0.5, 0.25]),
        ("MultiStepLR", ([1, 3, 3], 0.5), [1, 0.5, 0.5, 0.125, 0.125]),
        ("ExponentialLR", (0.5,), [1, 0.5, 0.25, 0.125, 0.0625]),
        ("ConstantLR", (0.5, 2), [0.5, 0.5, 1, 1, 1]),
        ("LinearLR", (0.5, 1.0, 2), [0.5, 0.75, 1, 1, 1]),
        ("PolynomialLR", (4, 1.0), [1, 0.75, 0.5, 0.25, 0]),
        ("CosineAnnealingLR", (2,), [1, 0.5, 0, 0.5, 1]),
        ("CosineAnnealingWarmRestarts", (2,), [1, 0.5, 1, 0.5, 1]),
        ("LambdaLR", (lambda step: 1 / (1 + step),), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]),
        ("MultiplicativeLR", (lambda step: 0.5,), [1, 0.5, 0.25, 0.125, 0.0625]),
    ],
)
def test_rates(kind: str, args: tuple[Any, ...], expected: list[float]) -> None:
    optimizer = make()
    scheduler = getattr(lr_scheduler, kind)(optimizer, *args)
    assert rates(optimizer, scheduler, 5) == pytest.approx(expected, abs=1e-12)


def test_one_cycle_goes_up_and_down_and_the_momentum_the_other_way() -> None:
    optimizer = make(momentum=0.5)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=10, pct_start=0.5)
    momenta, seen = [], []
    for _ in range(10):
        seen += scheduler.get_last_lr()
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        scheduler.step()
    assert seen[0] == pytest.approx(1 / 25)
    assert max(seen) == seen[4] == pytest.approx(1.0)
    assert seen[9] == pytest.approx(1 / 25 / 1e4)
    assert min(momenta) == momenta[4] == pytest.approx(0.85)
    assert momenta[9] == pytest.approx(0.95)
    optimizer.step()
    with pytest.raises(ValueError, match="Tried to step 11 times"):
        scheduler.step()


def test_schedules_of_one_optimizer_work_on_the_same_rate() -> None:
    optimizer = make()
    first, second = (lr_scheduler.ExponentialLR(optimizer, 0.5) for _ in range(2))
    optimizer.step()
    first.step()
    optimizer.param_groups[0]["lr"] *= 10
    second.step()
    assert optimizer.param_groups[0]["lr"] == 2.5


class Halves(lr_scheduler.LRScheduler):
    """A user's own, as for PyTorch."""

    def get_lr(self) -> list[float]:
        return [base / 2**self.last_epoch for base in self.base_lrs]


def test_a_schedule_of_the_users_own() -> None:
    optimizer = make()
    assert rates(optimizer, Halves(optimizer), 3) == [1.0, 0.5, 0.25]


def test_the_order_of_steps() -> None:
    optimizer = make()
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match=r"`lr_scheduler\.step\(\)` before `optimizer\.step\(\)`"):
        scheduler.step()
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lr_scheduler.StepLR(optimizer, 1).step()


def test_rates_may_be_tensors() -> None:
    optimizer = SGD([tp.ones(1, requires_grad=True)], lr=tp.tensor(0.5))  # type: ignore[arg-type]
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    assert rates(optimizer, scheduler, 3) == [0.5, 0.25, 0.125]


s = lr_scheduler


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (lambda o: s.StepLR(3, 2), TypeError, "int is not an Optimizer"),
        (lambda o: s.ReduceLROnPlateau(3), TypeError, "int is not an Optimizer"),
        (lambda o: s.StepLR(o, 2, last_epoch=3), KeyError, "initial_lr"),
        (lambda o: s.ConstantLR(o, 2.0), ValueError, "expected to be between 0 and 1"),
        (lambda o: s.LinearLR(o, 0.0), ValueError, "greater than 0"),
        (lambda o: s.LinearLR(o, 0.5, 2.0), ValueError, "between 0 and 1"),
        (lambda o: s.LambdaLR(o, [abs]), ValueError, "Expected 2 lr_lambdas, but got 1"),
        (lambda o: s.LambdaLR(o, 3), TypeError, "lr_lambda should be a function"),
        (lambda o: s.CosineAnnealingWarmRestarts(o, 0), ValueError, "positive integer T_0"),
        (lambda o: s.CosineAnnealingWarmRestarts(o, 2, 0), ValueError, "integer T_mult >= 1"),
        (lambda o: s.CosineAnnealingWarmRestarts(o, 2, 1, "x"), ValueError, "eta_min"),
        (lambda o: s.CosineAnnealingWarmRestarts(o, 2).step(-1), ValueError, "non-negative"),
        (lambda o: s.ReduceLROnPlateau(o, factor=1.0), ValueError, "Factor should be < 1.0"),
        (lambda o: s.ReduceLROnPlateau(o, "least"), ValueError, "mode least is unknown"),
        (lambda o: s.ReduceLROnPlateau(o, min_lr=[1]), ValueError, "expected 2 min_lrs, got 1"),
        (
            lambda o: s.ReduceLROnPlateau(o, threshold_mode="x"),
            ValueError,
            "threshold mode x is unknown",
        ),
        (lambda o: s.OneCycleLR(o, 1.0), ValueError, "either total_steps OR"),
        (lambda o: s.OneCycleLR(o, 1.0, total_steps=0), ValueError, "positive integer total_steps"),
        (lambda o: s.OneCycleLR(o, 1.0, 9, pct_start=2), ValueError, "between 0 and 1 pct_start"),
        (lambda o: s.OneCycleLR(o, [1.0], 9), ValueError, "max_lr must have the same length"),
        (lambda o: s.OneCycleLR(o, 1.0, 9, anneal_strategy="x"), ValueError, "'cos' or 'linear'"),
        (lambda o: s.ChainedScheduler([]), ValueError, "at least one scheduler"),
        (
            lambda o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
            ValueError,
            "does not support `ReduceLROnPlateau`",
        ),
        (lambda o: s.ChainedScheduler([3]), TypeError, "should have `optimizer`"),
        (
            lambda o: s.ChainedScheduler([s.StepLR(o, 1), s.StepLR(make(), 1)]),
            ValueError,
            "belong to the same optimizer",
        ),
        (
            lambda o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]),
            ValueError,
            "one more than the number of milestone points",
        ),
    ],
)
def test_errors(function: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        function(make(groups=2))


def test_momentum_to_cycle_must_be_there() -> None:
    optimizer = tp.optim.Adagrad([tp.ones(1, requires_grad=True)])
    with pytest.raises(ValueError, match="must support momentum or beta1"):
        lr_scheduler.OneCycleLR(optimizer, 1.0, 9)


def test_groups_added_later_fall_on_a_plateau_too() -> None:
    optimizer = make()
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    listed = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.1])
    optimizer.add_param_group({"params": [tp.ones(1, requires_grad=True)], "lr": 3.0})
    for _ in range(2):
        scheduler.step(1.0)
    assert scheduler.get_last_lr() == [0.5, 1.5]
    listed.step(1.0)
    with pytest.raises(RuntimeError, match="number of param groups"):
        listed.step(1.0)
