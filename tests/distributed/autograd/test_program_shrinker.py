"""A failing program becomes a small one that still fails, and is shown as source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distributed.autograd import program_failures, program_runs
from distributed.autograd.driving import on_first
from distributed.autograd.program_failures import failing, shrunk
from distributed.autograd.program_maker import program_of
from distributed.autograd.program_operations import FUNCTIONS, IN_PLACE
from distributed.autograd.program_runs import check, check_program
from distributed.autograd.program_shrinker import shrink, smaller, tidy
from distributed.autograd.program_validity import valid
from distributed.autograd.programs import (
    CHAINED,
    SYNC,
    TWICE,
    Block,
    Call,
    Compute,
    Load,
    Parameter,
    Program,
    program_from,
)
from tensorplay.distributed.autograd.backward_pass import BackwardPass
from tensorplay.distributed.rpc.rref import RRef

# -- by itself -------------------------------------------------------------------------------------


def has(program: Program, **wanted: Any) -> bool:
    """Whether any statement has these attributes."""
    return any(
        all(getattr(one, name, None) == value for name, value in wanted.items())
        for block in program.blocks
        for one in block.statements
    )


def shrunk_to(holds: Callable[[Program], bool], seeds: range = range(40)) -> list[Program]:
    """Programs of which something holds, shrunk while it does."""
    programs = [program_of(seed, 4) for seed in seeds]
    return [shrink(one, holds, seconds=60.0) for one in programs if valid(one) and holds(one)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("wanted", "steps", "seeds"),
    [
        ({"way": CHAINED}, 4, range(20)),
        ({"way": TWICE}, 4, range(20)),
        ({"operation": "stack"}, 4, range(20)),
        ({"operation": "matmul"}, 5, range(20)),
        ({"quiet": True}, 5, range(30)),
    ],
)
def test_little_remains_but_what_fails(wanted: dict[str, Any], steps: int, seeds: range) -> None:
    found = shrunk_to(lambda program: has(program, **wanted), seeds)
    assert len(found) > 2
    for program in found:
        assert has(program, **wanted)
        assert valid(program)
        assert program.steps <= steps, str(program)
        assert program.size <= 2, str(program)


def test_smaller_programs_are_tidy_and_differ() -> None:
    for seed in range(10):
        program = program_of(seed, 3)
        assert tidy(program) == program
        for candidate in smaller(program):
            assert candidate != program
            assert tidy(candidate) == candidate


def test_programs_that_do_not_mean_the_same_everywhere_are_not_valid() -> None:
    w = Parameter("w", 0, (), 0)
    load, halve = Load(0, "w"), Compute(1, "halve", (0,))

    def program(*statements: Any, output: int = 1, **others: Any) -> Program:
        block = Block(0, statements=statements, outputs=(output,))
        return Program(0, 2, parameters=(w,), blocks=(block,), **others)

    assert valid(program(load, halve))
    assert not valid(program(load, output=0)), "a root that is a leaf"
    assert not valid(program(load, halve, passes=((),))), "no root"
    assert not valid(program(load, halve, start=1)), "the losses are elsewhere"
    assert not valid(program(halve)), "no such value"
    assert not valid(program(load, halve, Compute(2, IN_PLACE, (1,)), output=2)), "not received"
    quiet = Call((1,), 1, SYNC, (0,), quiet=True)
    callee = Block(1, inputs=(0,), statements=(Compute(1, "halve", (0,)),), outputs=(1,))
    caller = Block(0, statements=(load, quiet, Compute(2, "add", (0, 1))), outputs=(2,))
    called = program()
    assert not valid(replace(called, blocks=(caller, callee))), "the callee would record"
    assert valid(replace(called, blocks=(caller, replace(callee, no_grad=True))))


# -- with faults in the package --------------------------------------------------------------------


def lose_answers(patch: pytest.MonkeyPatch) -> None:
    """Answers that carry a gradient of a message with several tensors never leave."""
    answer = BackwardPass._answer

    def lossy(running: BackwardPass, recv: Any, grads: Any) -> None:
        if grads is None or len(grads) < 2:
            answer(running, recv, grads)

    patch.setattr(BackwardPass, "_answer", lossy)


def double_gradients(patch: pytest.MonkeyPatch) -> None:
    """A gradient of a matrix counts twice if it has crossed."""
    answer = BackwardPass._answer

    def doubled(running: BackwardPass, recv: Any, grads: Any) -> None:
        if grads is not None:
            grads = [g if g is None or np.ndim(g) != 2 else 2 * g for g in grads]
        answer(running, recv, grads)

    patch.setattr(BackwardPass, "_answer", doubled)


def wrong_rule(patch: pytest.MonkeyPatch) -> None:
    """One operation is another one, on workers."""
    patch.setattr(program_runs, "FUNCTIONS", FUNCTIONS | {"tanh": lambda x: x * 0.5})


def fetch_wrongly(patch: pytest.MonkeyPatch) -> None:
    """What is fetched is cut from the graph."""
    fetch = RRef.to_here

    def to_here(reference: RRef[Any], *args: Any) -> Any:
        found = fetch(reference, *args)
        return [one.detach() for one in found] if isinstance(found, list) else found

    patch.setattr(RRef, "to_here", to_here)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("plant", "steps"),
    [(lose_answers, 6), (double_gradients, 4), (wrong_rule, 4), (fetch_wrongly, 4)],
)
def test_a_planted_fault_is_shown_by_a_small_program(
    plant: Callable[[pytest.MonkeyPatch], None], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most so many steps, in at most two blocks, on at most two workers."""
    monkeypatch.setattr(program_failures, "PASS_SECONDS", 0.2)
    fails = failing(check)
    programs = [one for seed in range(150) if 15 < (one := program_of(seed, 3)).steps < 60]
    with monkeypatch.context() as patch:
        plant(patch)
        program = next(one for one in programs if fails(one))
        found = shrunk(program, check, seconds=60.0)
        assert found is not None
        assert fails(program_from(str(found)))
    assert found.steps <= steps, str(found)
    assert found.size <= 2
    assert len(found.blocks) <= 2
    monkeypatch.setattr(program_failures, "PASS_SECONDS", 10.0)
    assert not fails(found)


def test_a_failing_seed_prints_a_small_program(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_rule(monkeypatch)

    def drive() -> None:
        for seed in range(60):
            check_program(seed, 2)

    with pytest.raises(AssertionError) as caught:
        on_first(drive)
    text = str(caught.value.__cause__)
    assert "shrunk; to run what follows again" in text
    found = program_from("Program(" + text.partition("\nProgram(")[2])
    assert has(found, operation="tanh")
    assert found.steps <= 4
    assert "# step 1, worker 0: v" in text


def test_what_does_not_fail_again_is_shown_whole() -> None:
    program = program_of(3, 2)

    def drive() -> str:
        return program_failures.describe(program, check)

    text = on_first(drive)
    assert "on workers of one process it did not fail again" in text
    assert program_from(text[text.index("Program(") :]) == program
