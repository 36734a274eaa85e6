"""One optimizer over the parameters of several workers: what a step does."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from distributed.optim.lines import (
    Line,
    Unused,
    lines,
    on_rank_0,
    references,
    train_alone,
    train_together,
    values,
)
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer

STEPS = range(5)

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (tp.optim.SGD, {"lr": 0.05}),
    (tp.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    (tp.optim.Adam, {"lr": 0.05}),
    (tp.optim.AdamW, {}),
    (tp.optim.Adagrad, {}),
    (tp.optim.Adadelta, {}),
    (tp.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (tp.optim.Adamax, {}),
    (tp.optim.Rprop, {}),
]


def all_params(modules: list[Line]) -> list[Any]:
    return [param for module in modules for param in module.parameters()]


@pytest.mark.parametrize(("optimizer", "options"), KINDS)
def test_steps_are_those_of_one_process(optimizer: Any, options: dict[str, Any]) -> None:
    def program() -> list[list[float]]:
        modules = lines(3)
        together = DistributedOptimizer(optimizer, references(modules), **options)
        return train_together(modules, together, STEPS)

    alone = [Line(1.0 + k) for k in range(3)]
    expected = train_alone(alone, optimizer(all_params(alone), **options), STEPS)
    np.testing.assert_allclose(on_rank_0(3, program), expected, rtol=1e-13)


@pytest.mark.parametrize("optimizer", [kind for kind, _ in KINDS[2:]])
def test_defaults_are_those_of_the_local_class(optimizer: Any) -> None:
    def program() -> None:
        together = DistributedOptimizer(optimizer, references(lines(2)))
        local = optimizer([tp.ones(1, requires_grad=True)])
        assert together.defaults == local.defaults
        (group,) = together.param_groups
        assert {name: group[name] for name in group if name != "params"} == local.defaults
        assert len(group["params"]) == 4

    on_rank_0(2, program)


def test_a_parameter_without_a_gradient_in_the_context_stays() -> None:
    def program() -> None:
        used, unused = (
            RemoteModule("worker1", Unused, (2.0,)),
            RemoteModule("worker2", Line, (3.0,)),
        )
        optimizer = DistributedOptimizer(
            tp.optim.SGD, references([used, unused]), lr=1.0, momentum=0.9
        )
        for factor in (1.0, 10.0):
            with dist_autograd.context() as context_id:
                dist_autograd.backward(context_id, used(tp.tensor([factor])).sum())
                optimizer.step(context_id)
        # The gradient of the first step is not applied again where the second has none.
        assert values([used, unused])[1:] == [0.5, 3.0, 0.5]
        with dist_autograd.context() as context_id:
            optimizer.step(context_id)
        assert values([used, unused])[1:] == [0.5, 3.0, 0.5]

    on_rank_0(3, program)


def leave_a_gradient(rref: rpc.RRef) -> None:
    parameter = rref.local_value()
    parameter.grad = tp.full_like(parameter, 1000.0)


def grad_of(rref: rpc.RRef) -> Any:
    return rref.local_value().grad


def test_what_stands_in_grad_is_neither_used_nor_changed() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Unused, (2.0,))
        weight, bias = module.remote_parameters()
        for rref in (weight, bias):
            rpc.rpc_sync("worker1", leave_a_gradient, (rref,))
        optimizer = DistributedOptimizer(tp.optim.SGD, [weight, bias], lr=1.0)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, module(tp.tensor([0.5])).sum())
            optimizer.step(context_id)
            optimizer.zero_grad()
            assert values([module]) == [1.5, 0.5]
            # The gradients are still there, and can be applied again.
            optimizer.step(context_id)
        assert values([module]) == [1.0, 0.5]
        assert rpc.rpc_sync("worker1", grad_of, (weight,)).tolist() == [1000.0]

    on_rank_0(2, program)


def test_steps_only_in_the_block_of_a_context() -> None:
    def program() -> None:
        optimizer = DistributedOptimizer(tp.optim.SGD, references(lines(2)), lr=0.1)
        with pytest.raises(RuntimeError, match="Could not find autograd context with id: 12345"):
            optimizer.step(12345)
        with dist_autograd.context() as context_id:
            pass
        with pytest.raises(RuntimeError, match="Could not find autograd context"):
            optimizer.step(context_id)
        with pytest.raises(TypeError, match="context_id must be an int, got Tensor"):
            optimizer.step(tp.zeros(()))  # type: ignore[arg-type]

    on_rank_0(2, program)


class ByHand(tp.optim.Optimizer):
    """A user's own, written as for PyTorch."""

    def __init__(self, params: Any, lr: float = 0.5) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.data = param.data - group["lr"] * param.grad


def test_a_class_of_the_users_own_that_defines_step() -> None:
    def program() -> None:
        used, unused = RemoteModule("worker1", Unused, (2.0,)), RemoteModule("worker1", Line, (3,))
        optimizer = DistributedOptimizer(ByHand, references([used, unused]))
        for _ in range(2):
            with dist_autograd.context() as context_id:
                dist_autograd.backward(context_id, used(tp.tensor([1.0])).sum())
                optimizer.step(context_id)
        assert values([used, unused]) == [1.0, 0.5, 3.0, 0.5]
        assert rpc.rpc_sync("worker1", grad_of, (used.remote_parameters()[0],)) is None

    on_rank_0(2, program)


def test_a_parameter_referred_to_twice_moves_once() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Unused, (2.0,))
        other = RemoteModule("worker0", Unused, (3.0,))
        twice = [
            *module.remote_parameters(),
            *other.remote_parameters(),
            *module.remote_parameters(),
        ]
        optimizer = DistributedOptimizer(tp.optim.SGD, twice, lr=1.0)
        assert optimizer.param_groups[0]["params"] == twice[:4]
        with dist_autograd.context() as context_id:
            loss = module(tp.tensor([0.25])) + other(tp.tensor([0.5]))
            dist_autograd.backward(context_id, loss.sum())
            optimizer.step(context_id)
        assert values([module, other]) == [1.75, 0.5, 2.5, 0.5]

    on_rank_0(2, program)


def test_one_without_parameters() -> None:
    def program() -> None:
        optimizer = DistributedOptimizer(tp.optim.SGD, [], lr=0.1)
        assert optimizer.remote_optimizers == optimizer.param_groups == []
        with dist_autograd.context() as context_id:
            optimizer.step(context_id)
            assert optimizer.clip_grad_norm_(context_id, 1.0).item() == 0.0
        assert optimizer.state_dict() == {"state": {}, "param_groups": []}
        module = RemoteModule("worker1", Line, (2.0,))
        optimizer.add_param_group({"params": module.remote_parameters()})
        assert optimizer.param_groups[0]["lr"] == 0.1

    on_rank_0(2, program)


def test_groups_have_options_of_their_own() -> None:
    def program() -> list[list[float]]:
        modules = lines(3)
        own = [module.remote_parameters() for module in modules]
        groups = [
            {"params": [own[0][0], own[1][0]], "lr": 0.01},
            {"params": [own[1][1], own[0][1]]},
        ]
        optimizer = DistributedOptimizer(tp.optim.SGD, groups, lr=0.002, momentum=0.5)
        optimizer.add_param_group({"params": own[2], "momentum": 0.1})
        assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.002, 0.002]
        assert len(optimizer.remote_optimizers) == 3
        with pytest.raises(ValueError, match="more than one parameter group"):
            optimizer.add_param_group({"params": own[0]})
        assert len(optimizer.param_groups) == 3
        assert "Parameter Group 2\n" in repr(optimizer)
        return train_together(modules, optimizer, STEPS)

    alone = [Line(1.0 + k) for k in range(3)]
    local = tp.optim.SGD(
        [
            {"params": [alone[0].weight, alone[1].weight], "lr": 0.01},
            {"params": [alone[1].bias, alone[0].bias]},
            {"params": list(alone[2].parameters()), "momentum": 0.1},
        ],
        lr=0.002,
        momentum=0.5,
    )
    expected = train_alone(alone, local, STEPS)
    np.testing.assert_allclose(on_rank_0(3, program), expected, rtol=1e-13)


def test_a_group_that_one_owner_refuses_is_added_nowhere() -> None:
    def program() -> None:
        modules = lines(3)
        own = [module.remote_parameters() for module in modules]
        optimizer = DistributedOptimizer(tp.optim.SGD, [*own[0], own[1][0]], lr=0.1)
        with pytest.raises(ValueError, match="more than one parameter group"):
            optimizer.add_param_group({"params": [own[1][1], own[0][0]]})
        optimizer.add_param_group({"params": [own[1][1]], "lr": 0.0})
        before = values(modules)
        train_together(modules[:2], optimizer, range(1))
        after = values(modules)
        assert [one == other for one, other in zip(before, after, strict=True)] == [
            *[False] * 3,
            *[True] * 3,
        ]

    on_rank_0(3, program)


def test_arguments_are_named_as_in_pytorch() -> None:
    names = list(inspect.signature(DistributedOptimizer).parameters)
    assert names == ["optimizer_class", "params_rref", "args", "kwargs"]
