"""States of optimizers and schedules go through a file, and training goes on as it would have."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from tensorplay import optim
from tensorplay.optim import lr_scheduler as schedules


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    tp.save(state, file)
    file.seek(0)
    return tp.load(file)


class Power:
    """A factor with a state of its own."""

    def __init__(self, base: float) -> None:
        self.base = base

    def __call__(self, step: int) -> float:
        return self.base**step


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=tp.tensor(0.1)),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, centered=True, momentum=0.9),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1),
}

SCHEDULES = {
    "StepLR": lambda o: schedules.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [2, 4, 4, 7], 0.5),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, 0.9),
    "ConstantLR": lambda o: schedules.ConstantLR(o, 0.5, 5),
    "LinearLR": lambda o: schedules.LinearLR(o, 0.1, 1.0, 7),
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, 8, 2.0),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 2, 2),
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda step: 1 / (1 + step)),
    "LambdaLR of an object": lambda o: schedules.LambdaLR(o, Power(0.8)),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda step: 0.9),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 1.0, 10),
    "OneCycleLR in three": lambda o: schedules.OneCycleLR(
        o, 1.0, 10, three_phase=True, anneal_strategy="linear"
    ),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o, 0.1, 3), schedules.ExponentialLR(o, 0.9)], [4]
    ),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler(
        [schedules.MultiStepLR(o, [3, 6]), schedules.ExponentialLR(o, 0.9)]
    ),
}


def test_every_kind_is_here() -> None:
    names = {name.split()[0] for name in SCHEDULES}
    assert names == {name for name in schedules.__all__ if name != "LRScheduler"}
    kinds = {name for name in optim.__all__ if name not in ("Optimizer", "lr_scheduler")}
    assert kinds <= set(OPTIMIZERS)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    drawn = np.random.default_rng(0)
    w = tp.ones(3, dtype=tp.float64, requires_grad=True)
    optimizer = OPTIMIZERS[name]([w])

    def run(w: Any, optimizer: Any, grads: Any) -> None:
        for grad in grads:
            optimizer.step_with({w: tp.tensor(grad)})

    run(w, optimizer, drawn.standard_normal((3, 3)))
    copied = w.detach().clone().requires_grad_()
    other = OPTIMIZERS[name]([copied])
    other.load_state_dict(through_a_file(optimizer.state_dict()))
    grads = drawn.standard_normal((4, 3))
    run(w, optimizer, grads)
    run(copied, other, grads)
    assert tp.equal(copied, w)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("before", [1, 4])
def test_schedules(name: str, before: int) -> None:
    def made() -> tuple[Any, Any]:
        leaves = [tp.ones(1, requires_grad=True) for _ in range(2)]
        for leaf in leaves:
            leaf.grad = tp.ones(1)
        optimizer = optim.Adam([{"params": [leaf]} for leaf in leaves], lr=0.5)
        return optimizer, SCHEDULES[name](optimizer)

    def run(optimizer: Any, scheduler: Any, steps: int) -> list[Any]:
        seen = []
        for _ in range(steps):
            optimizer.step()
            scheduler.step(*([1.0] if "Plateau" in name else []))
            groups = optimizer.param_groups
            seen.append([(group["lr"], tuple(group["betas"])) for group in groups])
        return seen

    optimizer, scheduler = made()
    run(optimizer, scheduler, before)
    other, restored = made()
    state = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    state = through_a_file(state)
    other.load_state_dict(state["optimizer"])
    restored.load_state_dict(state["scheduler"])
    assert restored.get_last_lr() == scheduler.get_last_lr()
    assert run(other, restored, 5) == run(optimizer, scheduler, 5)


def test_milestones_from_a_file_serve_a_jump_as_well() -> None:
    leaf = tp.ones(1, requires_grad=True)
    leaf.grad = tp.ones(1)
    optimizer = optim.SGD([leaf], lr=1.0)
    scheduler = schedules.MultiStepLR(optimizer, [2, 4, 4], 0.5)
    scheduler.load_state_dict(through_a_file(scheduler.state_dict()))
    optimizer.step()
    scheduler.step(5)
    assert scheduler.get_last_lr() == [0.125]
