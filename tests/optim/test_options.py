"""Options of optimizers: their checks, their kinds of numbers, and groups with names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from tensorplay import optim

KINDS = [
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.Adagrad,
    optim.Adadelta,
    optim.RMSprop,
    optim.Adamax,
    optim.Rprop,
]


def leaf() -> tp.Tensor:
    return tp.ones(2, requires_grad=True)


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        *[(kind, {"lr": -1.0}, "Invalid learning rate: -1.0") for kind in KINDS],
        *[(kind, {"lr": float("nan")}, "Invalid learning rate: nan") for kind in KINDS],
        (optim.SGD, {"momentum": -1.0}, "Invalid momentum value: -1.0"),
        (optim.Adagrad, {"lr_decay": -1.0}, "Invalid lr_decay value: -1.0"),
        (
            optim.Adagrad,
            {"initial_accumulator_value": -1.0},
            "Invalid initial_accumulator_value value: -1.0",
        ),
        (optim.Adagrad, {"eps": -1.0}, "Invalid epsilon value: -1.0"),
        (optim.Adadelta, {"rho": 1.5}, "Invalid rho value: 1.5"),
        (optim.RMSprop, {"alpha": -1.0}, "Invalid alpha value: -1.0"),
        (optim.RMSprop, {"momentum": -1.0}, "Invalid momentum value: -1.0"),
        (optim.Adamax, {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
        (optim.Rprop, {"etas": (0.5, 0.9)}, "Invalid eta values: 0.5, 0.9"),
        *[(kind, {"weight_decay": -1.0}, "Invalid weight_decay value") for kind in KINDS[:-1]],
        *[(kind, {"differentiable": True}, "steps cannot be differentiated") for kind in KINDS],
    ],
)
def test_values_are_checked(kind: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        kind([leaf()], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_checked(kind: Any) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__} got an unexpected keyword argument 'x'"):
        kind([leaf()], x=1)
    assert kind([leaf()], foreach=True).param_groups[0]["foreach"] is True


@pytest.mark.parametrize("convert", [np.float64, lambda number: tp.tensor(number)])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_other_kinds_leave_the_parameters_type(kind: Any, convert: Any) -> None:
    plain, other = leaf(), leaf()
    expected, optimizer = kind([plain], lr=0.25), kind([other], lr=convert(0.25))
    for name in ("eps", "weight_decay", "momentum", "rho", "alpha"):
        if name in optimizer.param_groups[0]:
            expected.param_groups[0][name] = 0.5
            optimizer.param_groups[0][name] = convert(0.5)
    if "betas" in optimizer.defaults and convert is np.float64:
        optimizer.param_groups[0]["betas"] = tuple(map(convert, optimizer.defaults["betas"]))
    for _ in range(2):
        expected.step_with({plain: tp.ones(2)})
        optimizer.step_with({other: tp.ones(2)})
    assert other.dtype == tp.float32
    assert tp.equal(plain, other)


def test_parameters_with_names() -> None:
    model = tp.nn.Linear(2, 1)
    optimizer = optim.SGD(model.named_parameters(), lr=1.0)
    (group,) = optimizer.param_groups
    assert group["param_names"] == ["weight", "bias"]
    assert group["params"] == list(model.parameters())
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="with/without names"):
        optim.SGD([("weight", leaf()), leaf()])


def test_what_are_no_groups() -> None:
    optimizer = optim.SGD([leaf()])
    with pytest.raises(TypeError, match="param_group must be a dict, but got list"):
        optimizer.add_param_group([leaf()])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="need an order"):
        optimizer.add_param_group({"params": {leaf()}})


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_writes_into_nothing_that_others_hold(kind: Any) -> None:
    param, grad = leaf(), tp.ones(2)
    optimizer = kind([param], maximize=True)
    holders = [(param.detach(), [1.0, 1.0])]
    for _ in range(3):
        optimizer.step_with({param: grad})
        holders.append((param.detach(), param.tolist()))
    assert grad.tolist() == [1.0, 1.0]
    assert all(held.tolist() == then for held, then in holders)
    assert len({held.tolist()[0] for held, _ in holders}) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_large_parameters_take_the_steps_of_small_ones(kind: Any) -> None:
    random = np.random.default_rng(0)
    start, grads = random.standard_normal((41, 1000)), random.standard_normal((3, 41, 1000))
    whole = tp.tensor(start, requires_grad=True)
    rows = [tp.tensor(row, requires_grad=True) for row in start]
    optimizers = kind([whole]), kind(rows)
    for grad in grads:
        optimizers[0].step_with({whole: tp.tensor(grad)})
        optimizers[1].step_with(
            {row: tp.tensor(part) for row, part in zip(rows, grad, strict=True)}
        )
    assert tp.equal(whole, tp.stack(rows))


class Signs(optim.Optimizer):
    """A user's own, with nothing but `step`."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.data = param.data - group["lr"] * param.grad.sign()


def test_a_class_that_defines_step_can_be_given_gradients() -> None:
    a, b = leaf(), leaf()
    b.grad = tp.ones(2)
    optimizer = Signs([a, b], 0.5)
    optimizer.step_with({a: tp.full((2,), 7.0)})
    assert (a.tolist(), b.tolist()) == ([0.5, 0.5], [1.0, 1.0])
    assert a.grad is None
    assert b.grad.tolist() == [1.0, 1.0]
    optimizer.step()
    assert b.tolist() == [0.5, 0.5]


def test_one_that_defines_nothing_cannot_step() -> None:
    optimizer = optim.Optimizer([leaf()], {})
    with pytest.raises(NotImplementedError):
        optimizer.step_with({optimizer.param_groups[0]["params"][0]: tp.ones(2)})
