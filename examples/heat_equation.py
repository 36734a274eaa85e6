"""Find what heats a plate, by gradient descent through a solver that is cut over the ranks.

    mpiexec -n 2 python examples/heat_equation.py

A plate conducts heat, the better the hotter it is, and is kept cold along its rim.  Something heats
it, and nobody knows where.  Its temperature is measured a few times, with noise.  The program finds
the heating of every cell: it runs the equation with a guess, compares, differentiates through all
the time steps and improves the guess.

Each rank holds a strip of the grid's rows, and runs the same program on it: the usual way with MPI.
Before each time step neighbours exchange their outermost rows (`Halo`); in the backward pass the
gradients of these rows go back the same way (`HaloAdjoint`).  There is no remote call: `backward`
runs on each rank's own graph, and MPI carries the rest.  The ranks cannot wait for one another in a
circle, because

- each exchange needs what came of the one before, so they are a chain in each rank's graph: in a
  backward pass they come one at a time, the last one first, whatever else the engine does;
- all ranks have the same number of them, and run each exactly once: the misfit, and so each rank's
  share of it, depends on the last step, and that on all;
- within an exchange nobody waits before it has sent all that its neighbours wait for.

An exchange beside the chain would break this: ranks might come to it at different times.

Finite differences check the gradient, also of cells along the cuts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from showing import Progress, pyplot, save

import tensorplay as tp
import tensorplay.distributed.rpc  # from here on a rank that fails ends the job
from tensorplay.autograd import Function

#: How much better hot matter conducts: by (1 + HOTTER * temperature).
HOTTER = 0.5
#: Conductivity times time step over the square of a cell's width; above
#: 0.25 / (1 + HOTTER * temperature) such steps would not be stable.
PACE = 0.15
#: Measurements are taken after these parts of the run.
TIMES = (0.25, 0.5, 0.75, 1.0)
#: Standard deviation of the noise, in units of temperature; the plate gets to about 0.5.
NOISE = 0.003
#: How little the heating is expected to change from cell to cell.
SMOOTHNESS = 3e-3


class Strip:
    """This rank's rows of the grid, and the exchange with the ranks above and below.

    Args:
        comm: An mpi4py communicator of the program's own.
        cells: Rows, and columns, of the whole grid.
    """

    def __init__(self, comm: Any, cells: int) -> None:
        from mpi4py import MPI

        cuts = [cells * k // comm.size for k in range(comm.size + 1)]
        self.comm, self.cuts, self.rows = comm, cuts, slice(cuts[comm.rank], cuts[comm.rank + 1])
        self.above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
        self.below = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
        self.test_all = MPI.Request.Testall

    def swap(self, upwards: np.ndarray, downwards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Give a row to each neighbour, and get theirs: from above, from below; zeros at the rim.

        Returns when both have come.  All ranks must call it equally often.
        """
        from_above, from_below = np.zeros_like(downwards), np.zeros_like(upwards)
        upwards, downwards = np.ascontiguousarray(upwards), np.ascontiguousarray(downwards)
        under_way = [
            self.comm.Irecv(from_above, self.above, tag=1),
            self.comm.Irecv(from_below, self.below, tag=0),
            self.comm.Isend(upwards, self.above, tag=0),
            self.comm.Isend(downwards, self.below, tag=1),
        ]
        while not self.test_all(under_way):
            time.sleep(1e-5)  # the neighbour may need this core
        return from_above, from_below

    def total(self, value: float) -> float:
        """The sum over all ranks."""
        return float(self.comm.allreduce(value))

    def whole(self, part: np.ndarray) -> np.ndarray | None:
        """The whole field on rank 0, from each rank's strip; None on others."""
        parts = self.comm.gather(part)
        return None if parts is None else np.concatenate(parts)


class Halo(Function):
    """A strip with one more row or column on each side: the neighbours' rows, zeros at the rim."""

    @staticmethod
    def forward(ctx: Any, field: tp.Tensor, strip: Strip) -> tp.Tensor:
        ctx.strip = strip
        inner = field.numpy(force=True)
        padded = np.zeros((inner.shape[0] + 2, inner.shape[1] + 2))
        padded[1:-1, 1:-1] = inner
        padded[0, 1:-1], padded[-1, 1:-1] = strip.swap(inner[0], inner[-1])
        return tp.from_numpy(padded)

    @staticmethod
    def backward(ctx: Any, grad: tp.Tensor) -> tuple[tp.Tensor, None]:
        return HaloAdjoint.apply(grad, ctx.strip), None


class HaloAdjoint(Function):
    """The transpose of `Halo`: what fell on the neighbours' rows goes back to them, and is added.

    The transpose of this one is `Halo` again, so higher derivatives work too.
    """

    @staticmethod
    def forward(ctx: Any, grad: tp.Tensor, strip: Strip) -> tp.Tensor:
        ctx.strip = strip
        padded = grad.numpy(force=True)
        inner = padded[1:-1, 1:-1].copy()
        from_above, from_below = strip.swap(padded[0, 1:-1], padded[-1, 1:-1])
        inner[0] += from_above
        inner[-1] += from_below
        return tp.from_numpy(inner)

    @staticmethod
    def backward(ctx: Any, grad: tp.Tensor) -> tuple[tp.Tensor, None]:
        return Halo.apply(grad, ctx.strip), None


def run(heating: tp.Tensor, strip: Strip, steps: int, pace: float = PACE) -> list[tp.Tensor]:
    """Solve the equation for one unit of time; the temperatures at `TIMES`.

    ``d temperature / d time = div((1 + HOTTER temperature) grad temperature) + heating``, from a
    cold plate, by explicit steps.
    """
    measured = []
    wanted = [round(part * steps) for part in TIMES]
    temperature = tp.zeros(heating.shape, dtype=tp.float64)
    for step in range(1, steps + 1):
        # The gradient of this potential is the flux of heat.
        potential = temperature + (HOTTER / 2) * temperature * temperature
        padded = Halo.apply(potential, strip)
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        temperature = temperature + pace * (around - 4 * potential) + heating / steps
        if step in wanted:
            measured.append(temperature)
    return measured


def true_heating(cells: int) -> np.ndarray:
    """What is to be found: a round spot and a bar."""
    y, x = np.meshgrid(*2 * [(np.arange(cells) + 0.5) / cells], indexing="ij")
    spot = np.exp(-((x - 0.3) ** 2 + (y - 0.35) ** 2) / (2 * 0.08**2))
    bar = np.exp(-(((x - 0.65) / 0.2) ** 4 + ((y - 0.7) / 0.06) ** 4))
    return spot + 0.7 * bar


def measure(heating: np.ndarray, strip: Strip, steps: int, seed: int) -> list[tp.Tensor]:
    """Measurements of the truth on this rank's rows.

    Made with four times as many steps as the search uses, so that its solver is not quite right.
    """
    with tp.no_grad():
        clean = run(tp.from_numpy(heating[strip.rows].copy()), strip, 4 * steps, PACE / 4)
    noise = np.random.default_rng(seed).normal(0.0, NOISE, (len(clean), *heating.shape))
    return [
        one + tp.from_numpy(extra[strip.rows].copy())
        for one, extra in zip(clean, noise, strict=True)
    ]


def misfit(heating: tp.Tensor, measured: list[tp.Tensor], strip: Strip, steps: int) -> tp.Tensor:
    """This rank's share of what is to be made small; the shares add up to the whole.

    Half the mean square, over all cells and times, of what the measurements are off, in units of
    their noise; and a little for each difference between neighbouring cells' heating.
    """
    cells = heating.shape[1] ** 2
    # The run takes the heating from this exchange too, which makes it the first in the chain.
    padded = Halo.apply(heating, strip)
    total = tp.tensor(0.0, dtype=tp.float64)
    for found, wanted in zip(run(padded[1:-1, 1:-1], strip, steps), measured, strict=True):
        total = total + ((found - wanted) ** 2).sum()
    downwards, sideways = padded[1:] - padded[:-1], padded[1:-1, 1:] - padded[1:-1, :-1]
    # A difference across a cut belongs to the rank above it, so that it counts once.
    mine = downwards if strip.rows.start == 0 else downwards[1:]
    roughness = (mine**2).sum() + (sideways**2).sum()
    return (total / len(measured) / NOISE**2 + SMOOTHNESS / NOISE**2 * roughness) / (2 * cells)


def differentiate(
    heating: tp.Tensor, measured: list[tp.Tensor], strip: Strip, steps: int
) -> tuple[float, tp.Tensor]:
    """The whole misfit, and its gradient with respect to this rank's cells."""
    share = misfit(heating, measured, strip, steps)
    # Each rank starts from its own share: the whole is their sum, whose derivative is 1.
    (gradient,) = tp.autograd.grad([share], [heating])
    return strip.total(share.item()), gradient


def by_differences(
    cell: tuple[int, int],
    heating: tp.Tensor,
    measured: list[tp.Tensor],
    strip: Strip,
    steps: int,
    size: float = 1e-3,
) -> float:
    """The whole misfit's derivative with respect to one cell, from two more runs."""
    row, column = cell[0] - strip.rows.start, cell[1]
    push = np.zeros(heating.shape)
    if 0 <= row < len(push):
        push[row, column] = size
    with tp.no_grad():
        ahead, behind = (
            strip.total(misfit(heating + sign * tp.from_numpy(push), measured, strip, steps).item())
            for sign in (1.0, -1.0)
        )
    return (ahead - behind) / (2 * size)


def check_gradient(measured: list[tp.Tensor], strip: Strip, args: argparse.Namespace) -> float:
    """Compare the gradient with finite differences; the greatest relative difference.

    Rank 0 prints a table: for each rank its first, its middle and its last row, at some column.
    """
    rng = np.random.default_rng(args.seed)
    guess = rng.uniform(0.0, 1.0, (args.cells, args.cells))
    heating = tp.tensor(guess[strip.rows], dtype=tp.float64, requires_grad=True)
    _, gradient = differentiate(heating, measured, strip, args.steps)
    whole = strip.comm.bcast(strip.whole(gradient.numpy()))
    say = print if strip.comm.rank == 0 else lambda *_: None
    say(f"{'cell':>10} {'rank':>5} {'by adjoints':>18} {'by differences':>18} {'apart':>9}")
    worst = 0.0
    for rank, (start, stop) in enumerate(zip(strip.cuts, strip.cuts[1:], strict=False)):
        for row in sorted({start, (start + stop) // 2, stop - 1}):
            cell = row, int(rng.integers(args.cells))
            exact = float(whole[cell])
            near = by_differences(cell, heating, measured, strip, args.steps)
            apart = abs(exact - near) / abs(exact)
            worst = max(worst, apart)
            name = f"{cell[0]},{cell[1]}"
            say(f"{name:>10} {rank:>5} {exact:>18.11f} {near:>18.11f} {apart:>9.1e}")
    return worst


def search(
    measured: list[tp.Tensor],
    strip: Strip,
    args: argparse.Namespace,
    off: Callable[[tp.Tensor], float],
) -> tuple[tp.Tensor, list[float]]:
    """Gradient descent from no heating at all; what was found, and the misfits on the way."""
    heating = tp.zeros(len(measured[0]), args.cells, dtype=tp.float64, requires_grad=True)
    # Adam treats each number by itself, so each rank's optimizer does for its own cells.
    optimizer = tp.optim.Adam([heating], lr=args.lr)
    progress = None
    if strip.comm.rank == 0:
        progress = Progress(args.iterations, "iteration", args.progress)
    misfits = []
    for iteration in range(args.iterations):
        value, heating.grad = differentiate(heating, measured, strip, args.steps)
        optimizer.step()
        misfits.append(value)
        error = off(heating)
        if progress is not None:
            progress.advance_to(iteration + 1, misfit=f"{value:.4f}", off=f"{error:.1%}")
    if progress is not None:
        progress.close()
    return heating.detach(), misfits


def solve(strip: Strip, args: argparse.Namespace) -> list[str]:
    """The whole program, on all ranks together; what went wrong."""
    truth = true_heating(args.cells)
    measured = measure(truth, strip, args.steps, args.seed)
    apart = check_gradient(measured, strip, args)

    def off(heating: tp.Tensor) -> float:
        difference = heating.detach().numpy() - truth[strip.rows]
        return float(np.sqrt(strip.total((difference**2).sum()) / (truth**2).sum()))

    if strip.comm.rank == 0:
        print()
    began = time.perf_counter()
    found, misfits = search(measured, strip, args, off)
    seconds = time.perf_counter() - began
    error = off(found)
    whole, hot = strip.whole(found.numpy()), strip.whole(measured[-1].numpy())
    if whole is not None and hot is not None:
        print(
            f"\n{'misfit':>10} {'heating off':>12} {'gradient off':>13} {'seconds':>9} {'ranks':>6}"
        )
        print(
            f"{misfits[-1]:>10.4f} {error:>12.2%} {apart:>13.1e} "
            f"{seconds:>9.2f} {strip.comm.size:>6d}"
        )
        if args.values:
            args.values.write_text(json.dumps({"misfits": misfits, "heating": whole.tolist()}))
        if args.picture:
            draw(args.picture, strip.cuts, {"measured": hot, "found": whole, "truth": truth})
    faults = []
    if not apart < 1e-6:
        faults.append(f"the gradient is off by {apart:.1e} of finite differences, more than 1e-6")
    if not error < args.bound:
        faults.append(f"the heating is off by {error:.1%}, more than {args.bound:.0%}")
    return faults


def draw(path: Path, cuts: list[int], fields: dict[str, np.ndarray]) -> None:
    """A picture of each field, with the cuts between the ranks, if matplotlib is there."""
    plot = pyplot()
    if plot is None:
        return
    figure, panels = plot.subplots(1, len(fields), figsize=(4 * len(fields), 3.6))
    for axes, (name, field) in zip(panels, fields.items(), strict=True):
        image = axes.imshow(field, cmap="inferno")
        for cut in cuts[1:-1]:
            axes.axhline(cut - 0.5, color="white", linewidth=0.6)
        axes.set(title=name, xticks=[], yticks=[])
        figure.colorbar(image, ax=axes)
    save(plot, figure, path)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=48, help="rows, and columns, of the grid")
    parser.add_argument("--steps", type=int, default=120, help="time steps of a run")
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--lr", type=float, default=0.06)
    parser.add_argument("--bound", type=float, default=0.12, help="how far off the heating may be")
    parser.add_argument("--short", action="store_true", help="a small grid, for a first look")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--progress", choices=Progress.STYLES, default="auto")
    parser.add_argument("--values", type=Path, help="write misfits and result there, as JSON")
    parser.add_argument("--picture", type=Path, default=Path("heat_equation.png"))
    if parser.parse_args().short:
        parser.set_defaults(cells=20, steps=40, iterations=60, bound=0.3)
    return parser.parse_args()


def main() -> None:
    args = parse()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Dup()
    if comm.size > args.cells:
        sys.exit(f"{args.cells} rows are too few for {comm.size} ranks")
    faults = solve(Strip(comm, args.cells), args)
    if faults and comm.rank == 0:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
