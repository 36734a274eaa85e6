"""What a failing random program is shown as: a small one that fails, too, if there is one.

    PYTHONPATH=tests python -m distributed.autograd.program_failures CHECK [FILE]

reads the source of a program, runs the check (say ``distributed.autograd.program_runs:check``) on
it on workers of one process, and shows it shrunk if it fails.

On ranks of an MPI job a program cannot be shrunk where it failed: the world may be broken, and the
other ranks do not take part.  It is run again on workers of one process, in a process of its own;
if it does not fail there, the whole program is shown, and that.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from distributed.autograd.program_shrinker import Fails, shrink
from distributed.autograd.programs import Program, program_from
from harness.loopback import run_world
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.transport.loopback import LoopbackTransport, Weather

#: Compares a program with what it must give; the second argument is how long a pass may take.
Check = Callable[[Program, float], object]

TESTS = Path(__file__).resolve().parents[2]
SECONDS = 15.0
"""For shrinking one program."""
PASS_SECONDS = 0.3
"""After which a pass counts as stuck while a program is shrunk."""
WEATHERS = (Weather(), Weather(hold=0.6), Weather(hold=0.3, late_bulk=0.8), Weather(pause=2e-3))
MOST_RUNS = 60
"""In which a program that has failed is to fail again."""

_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def shown(program: Program, check: Check) -> Iterator[None]:
    """An error within it shows the program, as small as it can be made."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{error}\n\n{describe(program, check)}") from error


def describe(program: Program, check: Check) -> str:
    """A failing program in words and source."""
    whole = f"program of seed {program.seed} for {program.size} workers"
    if not _one_at_a_time.acquire(blocking=False):
        return f"{whole} (another one is being shrunk):\n{program}"
    try:
        if not isinstance(current_agent().transport, LoopbackTransport):
            found = _shrunk_elsewhere(program, check)
        else:
            found = shrunk(program, check)
    finally:
        _one_at_a_time.release()
    if found is None:
        return f"{whole}; on workers of one process it did not fail again:\n{program}"
    name = name_of(check)
    again = f"PYTHONPATH=tests python -m distributed.autograd.program_failures {name} FILE"
    return f"{whole}, shrunk; to run what follows again: {again}\n{found}"


def shrunk(program: Program, check: Check, *, seconds: float = SECONDS) -> Program | None:
    """The smallest program found that fails, on workers of one process; None if this does not."""
    runs = runs_until_failure(program, check, MOST_RUNS)
    if runs is None:
        return None
    # What fails now and then gets more tries than it took, in all of which it would seldom pass.
    fails = failing(check, max(len(WEATHERS), 3 * runs))
    found = shrink(program, fails, seconds=seconds)
    # Where a pass was merely slow, that has led astray.
    stands = runs_until_failure(found, check, MOST_RUNS, patience=10.0) is not None
    return found if stands else program


def failing(check: Check, runs: int = len(WEATHERS)) -> Fails:
    """Whether a program fails in any of so many runs on workers of one process."""
    return lambda program: runs_until_failure(program, check, runs) is not None


def runs_until_failure(
    program: Program, check: Check, most: int, *, patience: float = 1.0
) -> int | None:
    """In which run a program fails, in changing weather; None if in none of so many.

    Passes may take `patience` times as long as usual.
    """
    seconds = patience * PASS_SECONDS

    def drive(rank: int) -> None:
        if rank == 0:
            check(program, seconds)

    for run in range(most):
        weather = replace(WEATHERS[run % len(WEATHERS)], seed=run)
        try:
            run_world(program.size, drive, weather=weather, rpc_timeout=3 * seconds)
        except Exception:
            return run + 1
    return None


# -- in a process of its own -----------------------------------------------------------------------


def name_of(check: Check) -> str:
    return f"{check.__module__}:{check.__qualname__}"


def _shrunk_elsewhere(program: Program, check: Check) -> Program | None:
    paths = [str(TESTS), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    finished = subprocess.run(
        [sys.executable, "-m", "distributed.autograd.program_failures", name_of(check)],
        input=str(program),
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    source = finished.stdout.partition("\nProgram(")
    return program_from("Program(" + source[2]) if source[1] else None


def main() -> int:
    module, _, function = sys.argv[1].partition(":")
    check = getattr(importlib.import_module(module), function)
    source = Path(sys.argv[2]).read_text() if len(sys.argv) > 2 else sys.stdin.read()
    found = shrunk(program_from(source), check)
    print("it does not fail" if found is None else f"it fails; shrunk:\n{found}")
    return int(found is not None)


if __name__ == "__main__":
    sys.exit(main())
