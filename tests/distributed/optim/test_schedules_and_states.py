"""Options that change, schedules, states and norms of an optimizer over several workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from distributed.optim.lines import (
    Line,
    lines,
    loss_of,
    on_rank_0,
    references,
    train_alone,
    train_together,
    values,
)
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer, clip_grad_norm_
from tensorplay.optim import lr_scheduler

STEPS = range(6)


def alone() -> tuple[list[Line], list[Any]]:
    modules = [Line(1.0 + k) for k in range(3)]
    return modules, [param for module in modules for param in module.parameters()]


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.01, total_steps=8),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.ExponentialLR(o, 0.8)], [2]
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("kind", [tp.optim.SGD, tp.optim.Adam])
def test_schedules_are_followed(kind: Any, schedule: Callable[[Any], Any]) -> None:
    options = {"lr": 0.002, **({"momentum": 0.9} if kind is tp.optim.SGD else {})}

    def program() -> list[list[float]]:
        modules = lines(3)
        optimizer = DistributedOptimizer(kind, references(modules), **options)
        scheduler = schedule(optimizer)
        return train_together(modules, optimizer, STEPS, after=scheduler.step)

    modules, params = alone()
    local = kind(params, **options)
    expected = train_alone(modules, local, STEPS, after=schedule(local).step)
    np.testing.assert_allclose(on_rank_0(3, program), expected, rtol=1e-12)


def test_a_plateau_lowers_the_rate_and_options_may_be_set_by_hand() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Line, (2.0,))
        optimizer = DistributedOptimizer(tp.optim.SGD, module.remote_parameters(), lr=1.0)
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        for _ in range(3):
            scheduler.step(1.0)
        assert optimizer.param_groups[0]["lr"] == 0.25

        def move() -> float:
            before = values([module])[1]
            with dist_autograd.context() as context_id:
                dist_autograd.backward(context_id, module(tp.tensor([1.0])).sum())
                optimizer.step(context_id)
            return before - values([module])[1]

        assert move() == 0.25
        optimizer.param_groups[0]["lr"] = np.float64(0.125)
        assert move() == 0.125
        optimizer.param_groups[0]["maximize"] = True
        assert move() == -0.125

    on_rank_0(2, program)


def test_a_schedule_that_steps_before_the_optimizer_warns() -> None:
    def program() -> None:
        modules = lines(2)
        optimizer = DistributedOptimizer(tp.optim.SGD, references(modules), lr=0.001)
        with pytest.warns(UserWarning, match=r"before `optimizer\.step\(\)`"):
            lr_scheduler.ExponentialLR(optimizer, 0.9).step()
        train_together(modules, optimizer, range(1))
        lr_scheduler.ExponentialLR(optimizer, 0.9).step()

    on_rank_0(2, program)


@pytest.mark.parametrize(
    ("kind", "options"), [(tp.optim.SGD, {"lr": 0.002, "momentum": 0.9}), (tp.optim.Adam, {})]
)
def test_a_state_is_that_of_one_process_and_can_be_loaded_elsewhere(
    kind: Any, options: dict[str, Any]
) -> None:
    """From one process to three workers, from there to two, and back."""
    modules, params = alone()
    expected = train_alone(modules, kind(params, **options), range(9))

    modules, params = alone()
    local = kind(params, **options)
    train_alone(modules, local, range(3))
    saved = local.state_dict()
    start = [module.state_dict() for module in modules]

    def program() -> Any:
        on_three = lines(3)
        for module, state in zip(on_three, start, strict=True):
            module.load_state_dict(state)
        optimizer = DistributedOptimizer(kind, references(on_three), **options)
        optimizer.load_state_dict(saved)
        train_together(on_three, optimizer, range(3, 5))

        on_two = [RemoteModule(f"worker{k % 2}", Line, (0.0,)) for k in range(3)]
        for module, other in zip(on_two, on_three, strict=True):
            module.load_state_dict(other.state_dict())
        moved = DistributedOptimizer(kind, references(on_two), **options)
        moved.load_state_dict(optimizer.state_dict())
        seen = train_together(on_two, moved, range(5, 7))
        return seen, moved.state_dict(), [module.state_dict() for module in on_two]

    seen, state, values_then = on_rank_0(3, program)
    np.testing.assert_allclose(seen, expected[5:7], rtol=1e-12)
    modules, params = alone()
    for module, own in zip(modules, values_then, strict=True):
        module.load_state_dict(own)
    local = kind(params, **options)
    assert state.keys() == local.state_dict().keys()
    assert list(state["state"]) == list(range(6))
    local.load_state_dict(state)
    np.testing.assert_allclose(train_alone(modules, local, range(7, 9)), expected[7:], rtol=1e-12)


def test_a_state_has_the_options_and_only_what_was_used() -> None:
    def program() -> None:
        modules = lines(3)
        groups = [
            {"params": references(modules[2:])},
            {"params": references(modules[:2]), "lr": 0.5},
        ]
        optimizer = DistributedOptimizer(tp.optim.SGD, groups, lr=0.0, momentum=0.9)
        lr_scheduler.StepLR(optimizer, 5)
        train_together(modules[:1], optimizer, range(1))
        saved = optimizer.state_dict()
        assert list(saved["state"]) == [2, 3]
        assert [group["params"] for group in saved["param_groups"]] == [[0, 1], [2, 3, 4, 5]]
        assert saved["param_groups"][1]["initial_lr"] == 0.5
        optimizer.param_groups[1]["lr"] = 7.0
        optimizer.load_state_dict(saved)
        assert optimizer.param_groups[1]["lr"] == 0.5
        with pytest.raises(ValueError, match="don't match"):
            DistributedOptimizer(tp.optim.SGD, references(modules)).load_state_dict(saved)

    on_rank_0(3, program)


@pytest.mark.parametrize("norm_type", [2, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [1e-3, 1e6])
def test_gradients_are_clipped_as_in_one_process(norm_type: float, max_norm: float) -> None:
    norms: list[float] = []

    def program() -> tuple[Any, list[float]]:
        modules = lines(3)
        rrefs = references(modules)
        optimizer = DistributedOptimizer(tp.optim.SGD, rrefs, lr=0.1)
        seen = []

        def clip(context_id: int) -> None:
            seen.append(optimizer.clip_grad_norm_(context_id, max_norm, norm_type).item())
            if max_norm < 1:
                after = clip_grad_norm_(context_id, [*rrefs, *rrefs], 1e9, norm_type)
                assert after.item() == pytest.approx(max_norm, rel=1e-4)
                assert after.dtype == tp.float64

        return train_together(modules, optimizer, range(2), before=clip), seen

    modules, params = alone()
    expected = train_alone(
        modules,
        tp.optim.SGD(params, lr=0.1),
        range(2),
        before=lambda p: norms.append(tp.nn.utils.clip_grad_norm_(p, max_norm, norm_type).item()),
    )
    seen, norms_there = on_rank_0(3, program)
    np.testing.assert_allclose(seen, expected, rtol=1e-12)
    np.testing.assert_allclose(norms_there, norms, rtol=1e-12)


def test_clipping_leaves_alone_what_others_hold_and_refuses_what_is_not_finite() -> None:
    def program() -> None:
        module = RemoteModule("worker0", Line, (2.0,))
        weight, bias = module.remote_parameters()
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, loss_of([module], 0))
            grads = dist_autograd.get_gradients(context_id)
            kept, array = grads[bias.local_value()], grads[bias.local_value()].numpy()
            before = array.copy()
            clip_grad_norm_(context_id, [bias], 0.5)
            # The context's tensor has other numbers; who held the array has the old ones.
            assert kept.item() == pytest.approx(0.5, rel=1e-4)
            assert array == before
            unclipped = dist_autograd.get_gradients(context_id)[weight.local_value()]
            assert unclipped.item() != kept.item()
            kept.fill_(float("inf"))
            with pytest.raises(RuntimeError, match="non-finite"):
                clip_grad_norm_(context_id, [weight, bias], 1.0, error_if_nonfinite=True)
        with pytest.raises(RuntimeError, match="Could not find autograd context"):
            clip_grad_norm_(context_id, [weight], 1.0)

    on_rank_0(1, program)


def train_on(module: RemoteModule, optimizer: Any, steps: int) -> list[tuple[float, float]]:
    """What the weight was in each forward pass, and in its backward pass."""
    if optimizer is None:
        weight = module.remote_parameters()[:1]
        optimizer = DistributedOptimizer(tp.optim.SGD, weight, lr=1e-3)
    x = tp.tensor([2.0], dtype=tp.float64, requires_grad=True)
    seen = []
    for _ in range(steps):
        with dist_autograd.context() as context_id:
            y = module(x)
            dist_autograd.backward(context_id, y.sum())
            slope = dist_autograd.get_gradients(context_id)[x].item()
            seen.append(((y.item() - 0.5) / 2.0, slope))
            optimizer.step(context_id)
    return seen


@pytest.mark.parametrize("shared", [False, True])
def test_concurrent_trainers_share_a_server_without_version_errors(shared: bool) -> None:
    """Each gradient is that of the very values that its own forward pass used."""
    steps = 20

    def program() -> None:
        module = RemoteModule("worker3", Line, (1.0,))
        weight = module.remote_parameters()[:1]
        optimizer = DistributedOptimizer(tp.optim.SGD, weight, lr=1e-3) if shared else None
        training = [rpc.rpc_async(rank, train_on, (module, optimizer, steps)) for rank in (1, 2)]
        seen = [train_on(module, optimizer, steps), *(future.wait() for future in training)]
        for trainer in seen:
            assert all(then == pytest.approx(now, rel=1e-12) for then, now in trainer)
        # Every step moved the weight by lr times its gradient, the input.
        assert values([module])[0] == pytest.approx(1.0 - 3 * steps * 1e-3 * 2.0, rel=1e-12)

    on_rank_0(4, program)


def one_step(module: RemoteModule, optimizer: DistributedOptimizer) -> float:
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, module(tp.tensor([1.0])).sum())
        optimizer.step(context_id)
    lr: float = optimizer.param_groups[0]["lr"]
    return lr


def test_an_optimizer_that_was_sent_has_the_same_momentum_and_options_of_its_own() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Line, (0.0,))
        _, bias = module.remote_parameters()
        shared = DistributedOptimizer(tp.optim.SGD, [bias], lr=1.0, momentum=0.5)
        one_step(module, shared)
        assert bias.to_here().item() == 0.5 - 1.0
        # The momentum of the first step is in the second, which another worker takes.
        assert rpc.rpc_sync("worker2", one_step, (module, shared)) == 1.0
        assert bias.to_here().item() == -0.5 - 1.5
        # An optimizer of one's own begins without.
        one_step(module, DistributedOptimizer(tp.optim.SGD, [bias], lr=1.0, momentum=0.5))
        assert bias.to_here().item() == -2.0 - 1.0
        shared.param_groups[0]["lr"] = 0.0
        one_step(module, shared)
        assert bias.to_here().item() == -3.0

    on_rank_0(3, program)
