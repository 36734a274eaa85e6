"""Small modules for tests of optimizers, and ways to drive them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from harness.loopback import run_world
from tensorplay import nn
from tensorplay.distributed.nn import RemoteModule


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


def lines(workers: int) -> list[RemoteModule]:
    return [RemoteModule(f"worker{k}", Line, (1.0 + k,)) for k in range(workers)]


def references(modules: list[RemoteModule]) -> list[Any]:
    return [rref for module in modules for rref in module.remote_parameters()]


def values(modules: list[RemoteModule]) -> list[float]:
    return [rref.to_here().item() for rref in references(modules)]


def loss_of(modules: Any, step: int) -> tp.Tensor:
    """The square of what comes out of the modules, one after another."""
    x = tp.tensor([0.3 + step], dtype=tp.float64)
    for module in modules:
        x = module(x)
    return (x * x).sum()


def train_together(
    modules: list[RemoteModule],
    optimizer: Any,
    steps: range,
    before: Callable[[int], None] | None = None,
    after: Callable[[], None] | None = None,
) -> list[list[float]]:
    """The parameters' values after each step of a `DistributedOptimizer`."""
    seen = []
    for step in steps:
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, loss_of(modules, step))
            if before is not None:
                before(context_id)
            optimizer.step(context_id)
        if after is not None:
            after()
        seen.append(values(modules))
    return seen


def train_alone(
    modules: list[Line],
    optimizer: Any,
    steps: range,
    before: Callable[[list[Any]], Any] | None = None,
    after: Callable[[], None] | None = None,
) -> list[list[float]]:
    """The same in one process, for comparison."""
    params = [param for module in modules for param in module.parameters()]
    seen = []
    for step in steps:
        optimizer.zero_grad()
        loss_of(modules, step).backward()
        if before is not None:
            before(params)
        optimizer.step()
        if after is not None:
            after()
        seen.append([param.item() for param in params])
    return seen
