"""One optimizer over the parameters of several workers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from harness.launcher import run_bounded
from harness.loopback import run_world
from tensorplay import nn
from tensorplay.distributed import rpc
from tensorplay.distributed.nn import RemoteModule
from tensorplay.distributed.optim import DistributedOptimizer


def on_rank_0(size: int, program: Callable[[], Any]) -> Any:
    """Run `program` on worker 0 of a world; the others serve."""
    return run_world(size, lambda rank: program() if rank == 0 else None)[0]


class Line(nn.Module):
    """``weight * x + bias``, in float64."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(tp.tensor([weight], dtype=tp.float64))
        self.bias = nn.Parameter(tp.tensor([0.5], dtype=tp.float64))

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        return self.weight * x + self.bias


class Unused(Line):
    """Ignores its bias."""

    def forward(self, x: tp.Tensor) -> tp.Tensor:
        return self.weight * x


def values(modules: list[RemoteModule]) -> list[float]:
    return [rref.to_here().item() for module in modules for rref in module.remote_parameters()]


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (tp.optim.SGD, {"lr": 0.05}),
        (tp.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
        (tp.optim.Adam, {"lr": 0.05}),
    ],
)
def test_steps_are_those_of_one_process(optimizer: Any, options: dict[str, Any]) -> None:
    def program() -> list[list[float]]:
        modules = [RemoteModule(f"worker{k}", Line, (1.0 + k,)) for k in range(3)]
        rrefs = [rref for module in modules for rref in module.remote_parameters()]
        together = DistributedOptimizer(optimizer, rrefs, **options)
        seen = []
        for step in range(4):
            x = tp.tensor([0.3 + step], dtype=tp.float64)
            with dist_autograd.context() as context_id:
                for module in modules:
                    x = module(x)
                dist_autograd.backward(context_id, (x * x).sum())
                together.step(context_id)
            seen.append(values(modules))
        return seen

    modules = [Line(1.0 + k) for k in range(3)]
    local = optimizer([p for module in modules for p in module.parameters()], **options)
    expected = []
    for step in range(4):
        local.zero_grad()
        x = tp.tensor([0.3 + step], dtype=tp.float64)
        for module in modules:
            x = module(x)
        (x * x).sum().backward()
        local.step()
        expected.append([p.item() for module in modules for p in module.parameters()])
    np.testing.assert_allclose(on_rank_0(3, program), expected, rtol=1e-13)


def test_a_parameter_without_a_gradient_in_the_context_stays() -> None:
    def program() -> None:
        used, unused = (
            RemoteModule("worker1", Unused, (2.0,)),
            RemoteModule("worker2", Line, (3.0,)),
        )
        rrefs = used.remote_parameters() + unused.remote_parameters()
        optimizer = DistributedOptimizer(tp.optim.SGD, rrefs, lr=1.0, momentum=0.9)
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


def test_errors_of_making_it_and_of_using_it_are_raised() -> None:
    def program() -> None:
        module = RemoteModule("worker1", Line, (2.0,))
        rrefs = module.remote_parameters()
        with pytest.raises(TypeError):
            DistributedOptimizer(tp.optim.SGD, rrefs, no_such_option=1)
        with pytest.raises(ValueError, match=r"lr|learning rate"):
            DistributedOptimizer(tp.optim.SGD, rrefs, lr=-1.0)
        with pytest.raises(AttributeError):
            DistributedOptimizer(tp.optim.SGD, [tp.zeros(1)], lr=0.1)
        optimizer = DistributedOptimizer(tp.optim.SGD, rrefs, lr=0.1)
        with pytest.raises(RuntimeError, match="Could not find autograd context with id: 12345"):
            optimizer.step(12345)
        with dist_autograd.context() as context_id:
            pass
        with pytest.raises(RuntimeError, match="Could not find autograd context"):
            optimizer.step(context_id)
        assert DistributedOptimizer(tp.optim.SGD, [], lr=0.1).remote_optimizers == []

    on_rank_0(2, program)


def train_on(module: RemoteModule, steps: int) -> list[tuple[float, float]]:
    """Outputs for the input 2, and the slopes that their backward passes found."""
    optimizer = DistributedOptimizer(tp.optim.SGD, module.remote_parameters(), lr=1e-3)
    x = tp.tensor([2.0], dtype=tp.float64, requires_grad=True)
    seen = []
    for _ in range(steps):
        with dist_autograd.context() as context_id:
            y = module(x)
            dist_autograd.backward(context_id, y.sum())
            seen.append((y.item(), dist_autograd.get_gradients(context_id)[x].item()))
            optimizer.step(context_id)
    return seen


def test_concurrent_trainers_share_a_server_without_version_errors() -> None:
    """Each gradient is that of the very values that its own forward pass used."""
    steps = 30

    def program() -> None:
        module = RemoteModule("worker3", Unused, (1.0,))
        training = [rpc.rpc_async(rank, train_on, (module, steps)) for rank in (1, 2)]
        seen = [train_on(module, steps), *(future.wait() for future in training)]
        for trainer in seen:
            assert all(y == 2.0 * slope for y, slope in trainer)
        # Every step moved the weight by lr times its gradient, the input.
        assert values([module])[0] == pytest.approx(1.0 - 3 * steps * 1e-3 * 2.0, rel=1e-12)

    on_rank_0(4, program)


# -- optimizers stepped by hand --------------------------------------------------------------------


def step_here(x: tp.Tensor, context_id: int) -> list[str]:
    """Step an optimizer of this worker by hand, twice, after a pass; what it warned of."""
    model = Line(2.0)
    loss = (model(x) * model(x)).sum()
    dist_autograd.backward(context_id, loss)
    by_hand = tp.optim.SGD(model.parameters(), lr=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        by_hand.step()
        by_hand.step()
    assert [warning.filename for warning in caught] == [__file__] * len(caught)
    assert model.weight.tolist() == [2.0]
    by_hand.step_with(dist_autograd.get_gradients(context_id))
    assert model.weight.tolist() != [2.0]
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("worker", [0, 1])
def test_a_step_by_hand_that_finds_no_gradient_after_a_distributed_pass_warns_once(
    worker: int,
) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = tp.ones(1, dtype=tp.float64, requires_grad=True)
            (text,) = rpc.rpc_sync(worker, step_here, args=(x, context_id))
            assert "no parameter has a .grad" in text
            assert "DistributedOptimizer" in text

    on_rank_0(2, program)


def test_a_step_by_hand_with_gradients_of_its_own_does_not_warn() -> None:
    def program() -> None:
        model = Line(2.0)
        by_hand = tp.optim.SGD(model.parameters(), lr=1.0)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, model(tp.ones(1, dtype=tp.float64)).sum())
        model(tp.ones(1, dtype=tp.float64)).sum().backward()
        by_hand.step()
        assert model.weight.tolist() == [1.0]

    on_rank_0(1, program)


def test_optimizers_without_gradients_do_not_warn_where_no_distributed_pass_has_run() -> None:
    script = (
        "import warnings; warnings.simplefilter('error');"
        "import tensorplay as tp, tensorplay.distributed.autograd;"
        "tp.optim.SGD([tp.ones(2, requires_grad=True)], lr=1.0).step()"
    )
    assert run_bounded([sys.executable, "-c", script], limit=30).status == 0
