"""Schedules give PyTorch's sequences of rates, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tensorplay as tp

torch = pytest.importorskip("torch")

Make = Callable[[Any, Any], Any]


def sequential(s: Any, optimizer: Any) -> Any:
    parts = [
        s.LinearLR(optimizer, 0.1, total_iters=4),
        s.ExponentialLR(optimizer, 0.9),
        s.CosineAnnealingLR(optimizer, 5),
        s.StepLR(optimizer, 2, 0.5),
    ]
    return s.SequentialLR(optimizer, parts, [4, 9, 15])


def restarts_later(s: Any, optimizer: Any) -> Any:
    parts = [s.ConstantLR(optimizer, 0.1, 3), s.CosineAnnealingWarmRestarts(optimizer, 4, 2)]
    return s.SequentialLR(optimizer, parts, [3])


def nested(s: Any, optimizer: Any) -> Any:
    chain = s.ChainedScheduler([s.ConstantLR(optimizer, 0.5, 3), s.StepLR(optimizer, 2)])
    return s.SequentialLR(optimizer, [chain, s.ExponentialLR(optimizer, 0.7)], [6])


SCHEDULES: dict[str, Make] = {
    "step": lambda s, o: s.StepLR(o, 3),
    "step gamma": lambda s, o: s.StepLR(o, 1, gamma=0.7),
    "multi-step": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 11], gamma=0.3),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.93),
    "constant": lambda s, o: s.ConstantLR(o),
    "constant 4": lambda s, o: s.ConstantLR(o, 0.25, 4),
    "linear": lambda s, o: s.LinearLR(o),
    "linear down": lambda s, o: s.LinearLR(o, 1.0, 0.1, 13),
    "polynomial": lambda s, o: s.PolynomialLR(o, 12, 1.7),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 7),
    "cosine eta": lambda s, o: s.CosineAnnealingLR(o, 5, eta_min=0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5),
    "restarts longer": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.001),
    "lambda": lambda s, o: s.LambdaLR(o, lambda step: 0.95**step),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda step: 1 / (1 + step), math.exp]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda step: 1 - step / 50),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=31),
    "one cycle linear": lambda s, o: s.OneCycleLR(
        o, [0.3, 0.5], epochs=8, steps_per_epoch=4, anneal_strategy="linear", div_factor=10.0
    ),
    "one cycle of three": lambda s, o: s.OneCycleLR(
        o, 0.3, total_steps=40, three_phase=True, pct_start=0.4, cycle_momentum=False
    ),
    "sequential": sequential,
    "restarts later": restarts_later,
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9)]),
    "nested": nested,
}


def make_optimizer(library: Any, kind: str = "SGD") -> Any:
    a, b = (library.ones(1, requires_grad=True) for _ in range(2))
    groups = [{"params": [a]}, {"params": [b], "lr": 0.4}]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(library.optim, kind)(groups, lr=0.1, **options)


def sequence(library: Any, make: Make, kind: str, steps: int = 30) -> list[Any]:
    optimizer = make_optimizer(library, kind)
    scheduler = make(library.optim.lr_scheduler, optimizer)
    seen = []
    for _ in range(steps):
        groups = optimizer.param_groups
        momenta = [group.get("momentum", group.get("betas")) for group in groups]
        seen.append(([group["lr"] for group in groups], scheduler.get_last_lr(), momenta))
        optimizer.step()
        scheduler.step()
    return seen


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning:torch")
def test_sequences(name: str, kind: str) -> None:
    make = SCHEDULES[name]
    assert sequence(tp, make, kind) == sequence(torch, make, kind)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
def test_steps_to_given_epochs(name: str) -> None:
    def rates(library: Any) -> list[Any]:
        optimizer = make_optimizer(library)
        scheduler = SCHEDULES[name](library.optim.lr_scheduler, optimizer)
        optimizer.step()
        seen = []
        for epoch in (1, 2, 7, 3, 0, 11):
            scheduler.step(epoch)
            seen.append(scheduler.get_last_lr())
        return seen

    if name in ("sequential", "restarts later", "chained", "nested"):
        with pytest.raises(TypeError):
            rates(tp)
    else:
        assert rates(tp) == rates(torch)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("cooldown", [0, 2])
def test_plateau(mode: str, threshold_mode: str, cooldown: int) -> None:
    def rates(library: Any) -> list[Any]:
        optimizer = make_optimizer(library)
        scheduler = library.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer,
            mode,
            0.3,
            patience=2,
            threshold=0.1,
            threshold_mode=threshold_mode,
            cooldown=cooldown,
            min_lr=[0.001, 0.05],
        )
        seen = []
        for step in range(40):
            number = 5 / (1 + step) + 0.3 * math.sin(step)
            scheduler.step(library.tensor(number, dtype=library.float64))
            seen.append((scheduler.get_last_lr(), scheduler.num_bad_epochs, scheduler.best))
        return seen

    assert rates(tp) == rates(torch)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings("ignore:Detected call of:UserWarning:torch")
def test_goes_on_from_its_state(name: str) -> None:
    make = SCHEDULES[name]
    expected = [entry[0] for entry in sequence(tp, make, "SGD")]
    optimizer = make_optimizer(tp)
    scheduler = make(tp.optim.lr_scheduler, optimizer)
    for _ in range(10):
        optimizer.step()
        scheduler.step()
    saved = optimizer.state_dict(), scheduler.state_dict()

    optimizer = make_optimizer(tp)
    scheduler = make(tp.optim.lr_scheduler, optimizer)
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    seen = []
    for _ in range(20):
        seen.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    assert seen == expected[10:]


@pytest.mark.parametrize(
    "name", ["step", "multi-step", "exponential", "linear", "cosine", "restarts", "lambda"]
)
def test_begins_where_last_epoch_says(name: str) -> None:
    kinds = {
        "step": ("StepLR", (3,)),
        "multi-step": ("MultiStepLR", ([2, 5],)),
        "exponential": ("ExponentialLR", (0.9,)),
        "linear": ("LinearLR", (0.5, 1.0, 8)),
        "cosine": ("CosineAnnealingLR", (7,)),
        "restarts": ("CosineAnnealingWarmRestarts", (5,)),
        "lambda": ("LambdaLR", (lambda step: 0.9**step,)),
    }
    kind, args = kinds[name]

    def rates(library: Any) -> list[Any]:
        optimizer = make_optimizer(library)
        make = getattr(library.optim.lr_scheduler, kind)
        with pytest.raises(KeyError, match="initial_lr"):
            make(optimizer, *args, last_epoch=4)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        scheduler = make(optimizer, *args, last_epoch=4)
        seen = [scheduler.get_last_lr()]
        for _ in range(8):
            optimizer.step()
            scheduler.step()
            seen.append(scheduler.get_last_lr())
        return seen

    assert rates(tp) == rates(torch)


@pytest.mark.parametrize("options", [{}, {"three_phase": True, "anneal_strategy": "linear"}])
def test_states_of_one_cycle_can_be_exchanged(options):
    made = []
    for lib in (tp, torch):
        leaf = lib.ones(1, requires_grad=True)
        leaf.grad = lib.ones(1)
        optimizer = lib.optim.SGD([leaf], lr=0.1, momentum=0.9)
        made.append(lib.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 10, **options))
    ours, theirs = (one.state_dict() for one in made)
    assert ours["_schedule_phases"] == theirs["_schedule_phases"]
    assert ours.items() <= theirs.items()
    made[0].load_state_dict(theirs)
    made[1].load_state_dict(ours)
    for _ in range(5):
        for one in made:
            one.optimizer.step()
            one.step()
        assert made[0].get_last_lr() == pytest.approx(made[1].get_last_lr())
