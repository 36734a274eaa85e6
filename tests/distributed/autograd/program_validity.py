"""Which programs mean the same in one process and on many workers."""

from __future__ import annotations

import itertools

import numpy as np

from distributed.autograd.program_operations import IN_PLACE
from distributed.autograd.program_plain import interpret, leaves
from distributed.autograd.programs import FRESH, Call, Compute, Load, Program, Wait


def valid(program: Program) -> bool:
    """Whether it means the same on many workers, and its passes have something to differentiate."""
    if not all(_is_sound(program, number) for number in range(len(program.blocks))):
        return False
    try:
        losses = interpret(program, leaves(program))
        chosen = [losses[i] for i in itertools.chain.from_iterable(program.passes)]
    except Exception:
        return False
    return bool(chosen) and all(
        one.grad_fn is not None and one.shape == () and bool(np.isfinite(one.item()))
        for one in chosen
    )


def _is_sound(program: Program, number: int) -> bool:
    """Whether a block keeps the rules that the maker of programs keeps."""
    block = program.blocks[number]
    owners = {one.name: one.worker for one in program.parameters}
    fresh = set(block.inputs)
    used: set[int] = set()
    calls: dict[int, Call] = {}
    for one in block.statements:
        match one:
            case Load(parameter=parameter) if owners[parameter] != block.worker:
                return False
            case Compute(operation=operation, operands=(operand, *_)):
                # Only what has just arrived, and nobody else has, may be written to.
                if operation == IN_PLACE and (operand not in fresh or operand in used):
                    return False
            case Call():
                # What is called without recording must not record, either.
                recording = not block.no_grad and not one.quiet
                if not recording and not program.blocks[one.block].no_grad:
                    return False
                calls[one.handle] = one
                fresh.update(one.to if one.way in FRESH else ())
            case Wait(to, handle) if handle in calls and calls[handle].way in FRESH:
                fresh.update(to)
        used.update(getattr(one, "operands", ()))
    plain = {
        one.to
        for one in block.statements
        if isinstance(one, Compute) and one.operation in ("halve", "average", "add")
    }
    if number == 0:
        return block.worker == program.start
    return not block.no_grad or plain.issuperset(block.outputs)
