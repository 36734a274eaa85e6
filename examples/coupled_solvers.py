"""Two solvers on two ranks, each with an adjoint written by hand, differentiated as one program.

    mpiexec -n 2 python examples/coupled_solvers.py

A rod is heated along its length by a fuel that burns faster where it is hot.  Rank 0 solves for the
temperature (a linear system), rank 1 burns the fuel (a loop over time steps).  They take turns: the
heat that was set free goes into the next temperature.

Both are plain NumPy within a `tensorplay.autograd.Function`, whose `backward` multiplies a vector
by the transposed derivative of the solver.  Nobody writes an adjoint of the coupling: the calls
record it, and `dist_autograd.backward` goes through all of it.  Finite differences check it.

``python examples/coupled_solvers.py`` runs it in a world of one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tensorplay as tp
import tensorplay.distributed.autograd as dist_autograd
from tensorplay.autograd import Function, once_differentiable
from tensorplay.distributed import rpc

#: Points of the rod, both ends of which are kept at temperature 0.
POINTS = 8
#: Time steps of the fire, which burns for one unit of time.
STEPS = 200
#: How often the solvers take turns.
TURNS = 3


class Temperature(Function):
    """Steady conduction: solves ``K(conductivity) temperature = heat``.

    ``K = D^T diag(conductivity) D``, where `D` takes differences between neighbours.
    """

    @staticmethod
    def forward(ctx: Any, conductivity: tp.Tensor, heat: tp.Tensor) -> tp.Tensor:
        differences = np.diff(np.pad(np.eye(POINTS), ((1, 1), (0, 0))), axis=0)
        ctx.matrix = differences.T @ (conductivity.numpy(force=True)[:, None] * differences)
        ctx.temperature = np.linalg.solve(ctx.matrix, heat.numpy(force=True))
        return tp.from_numpy(ctx.temperature.copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: tp.Tensor) -> tuple[tp.Tensor, tp.Tensor]:
        """One more solve, with the transposed matrix."""
        adjoint = np.linalg.solve(ctx.matrix.T, grad.numpy())
        of_conductivity = -np.diff(np.pad(adjoint, 1)) * np.diff(np.pad(ctx.temperature, 1))
        return tp.from_numpy(of_conductivity), tp.from_numpy(adjoint)


class Fire(Function):
    """Burns 1 by ``d fuel / dt = -rate exp(temperature) fuel^2``; what is left at the end."""

    @staticmethod
    def forward(ctx: Any, temperature: tp.Tensor, rate: tp.Tensor) -> tp.Tensor:
        ctx.growth = np.exp(temperature.numpy(force=True))
        ctx.speed = rate.item() * ctx.growth
        ctx.states = [np.ones(POINTS)]
        for _ in range(STEPS):
            fuel = ctx.states[-1]
            ctx.states.append(fuel - ctx.speed * fuel**2 / STEPS)
        return tp.from_numpy(ctx.states[-1].copy())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: tp.Tensor) -> tuple[tp.Tensor, tp.Tensor]:
        """The same steps backwards."""
        adjoint = grad.numpy().copy()
        of_speed = np.zeros(POINTS)
        for fuel in reversed(ctx.states[:-1]):
            of_speed -= adjoint * fuel**2 / STEPS
            adjoint *= 1 - 2 * ctx.speed * fuel / STEPS
        return (
            tp.from_numpy(of_speed * ctx.speed),
            tp.from_numpy(np.asarray((of_speed * ctx.growth).sum())),
        )


class Burner:
    """The second solver and its parameter; lives on a rank of its own."""

    def __init__(self) -> None:
        self.rate = tp.tensor(0.8, dtype=tp.float64, requires_grad=True)

    def burn(self, temperature: tp.Tensor, step: float) -> tp.Tensor:
        """What is left of the fuel; `step` is added to the rate."""
        return Fire.apply(temperature, self.rate + step)

    def gradient(self, context_id: int) -> float:
        """The gradient of the rate."""
        return dist_autograd.get_gradients(context_id)[self.rate].item()


def misfit(conductivity: tp.Tensor, burner: rpc.RRef[Burner], step: float = 0.0) -> tp.Tensor:
    """The coupled run: how far the fuel that is left is from half of it everywhere."""
    heat = tp.full((POINTS,), 0.1, dtype=tp.float64)
    for _ in range(TURNS):
        temperature = Temperature.apply(conductivity, heat)
        fuel = burner.rpc_sync().burn(temperature, step)
        heat = (1 - fuel) * 0.1
    return ((fuel - 0.5) ** 2).sum()


def by_differences(
    conductivity: tp.Tensor, burner: rpc.RRef[Burner], size: float = 1e-5
) -> list[float]:
    """The same gradients from two more runs for each parameter; nothing is recorded."""
    steps = [tp.from_numpy(direction) for direction in np.eye(POINTS + 1) * size]
    with tp.no_grad():
        pairs = [
            (misfit(conductivity + step, burner), misfit(conductivity - step, burner))
            for step in steps
        ]
        pairs.append((misfit(conductivity, burner, size), misfit(conductivity, burner, -size)))
    return [(ahead - behind).item() / (2 * size) for ahead, behind in pairs]


def drive(picture: Path | None) -> bool:
    """Rank 0's program; whether the gradients are right."""
    on = min(1, rpc.get_world_size() - 1)
    burner = rpc.remote(on, Burner)
    values = np.linspace(0.6, 1.4, POINTS + 1)
    conductivity = tp.tensor(values, dtype=tp.float64, requires_grad=True)
    with dist_autograd.context() as context_id:
        loss = misfit(conductivity, burner)
        graph = dist_autograd.get_graph(context_id, loss)
        dist_autograd.backward(context_id, [loss])
        adjoint = dist_autograd.get_gradients(context_id)[conductivity].tolist()
        adjoint.append(burner.rpc_sync().gradient(context_id))
    differences = by_differences(conductivity, burner)

    print(f"misfit {loss.item():.6f}")
    print(f"graph: {len(graph.nodes)} nodes, {len(graph.pairs)} messages\n")
    print(f"{'parameter':>16} {'rank':>5} {'by adjoints':>16} {'by differences':>16} {'apart':>9}")
    names = [(f"conductivity[{i}]", 0) for i in range(POINTS + 1)] + [("rate", on)]
    worst = 0.0
    for (name, rank), exact, near in zip(names, adjoint, differences, strict=True):
        apart = abs(exact - near) / abs(exact)
        worst = max(worst, apart)
        print(f"{name:>16} {rank:>5} {exact:>16.10f} {near:>16.10f} {apart:>9.1e}")
    if picture is not None:
        graph.draw(picture)
        print(f"\ndrawn: {picture}")
    return worst < 1e-6


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", type=Path, help="where to draw the graph: a .dot or .svg file")
    return parser.parse_args()


def main() -> None:
    args = parse()
    rpc.init_rpc()
    right = drive(args.graph) if rpc.get_worker_info().id == 0 else True
    rpc.shutdown()
    if not right:
        sys.exit("the gradients differ")


if __name__ == "__main__":
    main()
