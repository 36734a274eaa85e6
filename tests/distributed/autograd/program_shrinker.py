"""Makes a failing program small: by steps that each leave out or simplify something.

Pure: what fails is a function that the caller gives.  `smaller` lists a program's neighbours,
`valid` says which of them still mean the same everywhere, and `shrink` walks from one that fails to
the next, until none does.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from distributed.autograd.program_operations import IN_PLACE
from distributed.autograd.program_validity import valid
from distributed.autograd.programs import (
    KEPT,
    LATER,
    SYNC,
    Block,
    Call,
    Compute,
    Constant,
    Load,
    Program,
    Statement,
    Wait,
)

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, *, seconds: float = 20.0) -> Program:
    """The smallest program found that fails like `program`, which is known to.

    It stops after so many seconds with what it has.
    """
    return _numbered(_walk(program, fails, time.monotonic() + seconds))


def _walk(program: Program, fails: Fails, deadline: float) -> Program:
    tried = {program}
    while True:
        for candidate in smaller(program):
            if time.monotonic() > deadline:
                return program
            if candidate in tried:
                continue
            tried.add(candidate)
            if valid(candidate) and fails(candidate):
                program = candidate
                break
        else:
            return program


def smaller(program: Program) -> Iterator[Program]:
    """Programs that differ in one step, those first that leave out most; some may not be valid."""
    for rule in (
        _without_passes,
        _without_roots,
        _without_calls,
        _with_calls_inlined,
        _without_statements,
        _without_results,
        _without_arguments,
        _on_fewer_workers,
        _with_plainer_calls,
        _with_plainer_statements,
        _with_plainer_parameters,
    ):
        for changed in rule(program):
            yield tidy(changed)


# -- tidying ---------------------------------------------------------------------------------------


def tidy(program: Program) -> Program:
    """Without what nothing refers to: blocks, parameters, workers beyond the last one used."""
    order: list[int] = []
    stack = [0]
    while stack:
        number = stack.pop()
        order.append(number)
        calls = [one.block for one in program.blocks[number].statements if isinstance(one, Call)]
        stack.extend(reversed(calls))
    places = {number: place for place, number in enumerate(order)}
    blocks = [
        _mapped(
            program.blocks[number],
            lambda one: replace(one, block=places[one.block]) if isinstance(one, Call) else one,
        )
        for number in order
    ]
    loaded = {
        one.parameter for block in blocks for one in block.statements if isinstance(one, Load)
    }
    parameters = tuple([one for one in program.parameters if one.name in loaded])
    return replace(program, blocks=tuple(blocks), parameters=parameters)


def _numbered(program: Program) -> Program:
    """The same program, its values numbered in the order in which they are made."""
    blocks = []
    for block in program.blocks:
        made = itertools.chain(block.inputs, *[_made(one) for one in block.statements])
        names = {old: new for new, old in enumerate(dict.fromkeys(made))}

        def change(one: Any, names: dict[int, int] = names) -> Statement:
            return _moved(one, names, 0)

        blocks.append(
            replace(
                _mapped(block, change),
                inputs=tuple([names[n] for n in block.inputs]),
                outputs=tuple([names[n] for n in block.outputs]),
            )
        )
    return replace(program, blocks=tuple(blocks))


def _mapped(block: Block, change: Callable[[Any], Statement | None]) -> Block:
    """A block with each statement changed, or left out where it becomes None."""
    changed = [change(one) for one in block.statements]
    return replace(block, statements=tuple([one for one in changed if one is not None]))


def _with_block(program: Program, number: int, block: Block) -> Program:
    return replace(program, blocks=(*program.blocks[:number], block, *program.blocks[number + 1 :]))


def _made(statement: Statement) -> tuple[int, ...]:
    return statement.to if isinstance(statement, (Call, Wait)) else (statement.to,)


def _operands(statement: Statement) -> tuple[int, ...]:
    return statement.operands if isinstance(statement, (Compute, Call)) else ()


def _used(block: Block) -> set[int]:
    used = set(block.outputs)
    return used.union(*[_operands(one) for one in block.statements])


def _renamed(statement: Statement, names: dict[int, int]) -> Statement:
    """A statement with other operands."""
    if isinstance(statement, (Compute, Call)):
        return replace(
            statement, operands=tuple([names.get(one, one) for one in statement.operands])
        )
    return statement


def _positions(program: Program) -> Iterator[tuple[int, Block, int, Statement]]:
    """All statements, the last ones first, with where they stand."""
    for number, block in reversed(list(enumerate(program.blocks))):
        for place, statement in reversed(list(enumerate(block.statements))):
            yield number, block, place, statement


def _replaced(block: Block, place: int, by: Sequence[Statement]) -> Block:
    before, after = block.statements[:place], block.statements[place + 1 :]
    return replace(block, statements=(*before, *by, *after))


def _left_out(block: Block, place: int) -> Iterator[Block]:
    """Blocks without a statement: others use, instead of it, what it was made of, or a number."""
    statement = block.statements[place]
    handle = getattr(statement, "handle", -1)
    if handle >= 0 and not isinstance(statement, Wait):
        # What waits for the call goes with it.
        waits = [one for one in block.statements if isinstance(one, Wait) and one.handle == handle]
        gone = tuple(itertools.chain.from_iterable(one.to for one in waits))
        rest = [one for one in block.statements if one is not statement and one not in waits]
    else:
        gone = _made(statement)
        rest = [*block.statements[:place], *block.statements[place + 1 :]]
    without = replace(block, statements=tuple(rest))
    if not _used(without) & set(gone):
        yield without
        return
    for operand in dict.fromkeys(_operands(statement)):
        names = dict.fromkeys(gone, operand)
        outputs = tuple([names.get(one, one) for one in without.outputs])
        renamed = _mapped(without, lambda one, names=names: _renamed(one, names))  # type: ignore[misc]
        yield replace(renamed, outputs=outputs)
    if not isinstance(statement, Constant):
        numbers = [Constant(one, (), 0.5) for one in gone]
        yield replace(without, statements=(*numbers, *without.statements))


# -- leaving out -----------------------------------------------------------------------------------


def _without_passes(program: Program) -> Iterator[Program]:
    if program.again:
        yield replace(program, again=False)
    if len(program.passes) > 1:
        for chosen in program.passes:
            yield replace(program, passes=(chosen,))


def _without_roots(program: Program) -> Iterator[Program]:
    for number, chosen in enumerate(program.passes):
        if len(chosen) > 1:
            for i in range(len(chosen)):
                rest = chosen[:i] + chosen[i + 1 :]
                passes = (*program.passes[:number], rest, *program.passes[number + 1 :])
                yield replace(program, passes=passes)
    used = sorted({*itertools.chain.from_iterable(program.passes)})
    main = program.blocks[0]
    if len(used) < len(main.outputs):
        main = replace(main, outputs=tuple([main.outputs[i] for i in used]))
        passes = tuple([tuple([used.index(i) for i in chosen]) for chosen in program.passes])
        yield replace(_with_block(program, 0, main), passes=passes)


def _without_calls(program: Program) -> Iterator[Program]:
    for number, block in enumerate(program.blocks):
        for place, statement in enumerate(block.statements):
            if isinstance(statement, Call):
                for changed in _left_out(block, place):
                    yield _with_block(program, number, changed)


def _without_statements(program: Program) -> Iterator[Program]:
    for number, block, place, statement in _positions(program):
        if not isinstance(statement, (Call, Wait)):
            for changed in _left_out(block, place):
                yield _with_block(program, number, changed)


def _with_calls_inlined(program: Program) -> Iterator[Program]:
    """A called block's statements take the place of the call, on the caller's worker."""
    for number, block, place, call in _positions(program):
        if not isinstance(call, Call) or call.way in (*LATER, KEPT):
            continue
        callee = program.blocks[call.block]
        free = 1 + max([-1, *block.inputs, *[n for one in block.statements for n in _made(one)]])
        shift = 1 + max([-1, *callee.inputs, *[n for one in callee.statements for n in _made(one)]])
        handles = 1 + max(
            [-1, *block.references, *[getattr(one, "handle", -1) for one in block.statements]]
        )
        if callee.references:
            continue
        names = {n: n + free for n in range(shift)}
        names |= dict(zip(callee.inputs, call.operands, strict=True))
        inner = [_moved(one, names, handles) for one in callee.statements]
        results = dict(zip(call.to, [names[n] for n in callee.outputs], strict=True))
        after = [_renamed(one, results) for one in block.statements[place + 1 :]]
        changed = replace(
            block,
            statements=(*block.statements[:place], *inner, *after),
            outputs=tuple([results.get(n, n) for n in block.outputs]),
        )
        parameters = _with_parameters_on(program, inner, block.worker)
        if parameters is not None:
            yield _with_block(replace(program, parameters=parameters), number, changed)


def _with_parameters_on(
    program: Program, statements: Sequence[Statement], worker: int
) -> tuple[Any, ...] | None:
    """The parameters, those that are loaded here on this worker; None if others load them, too."""
    loaded = {one.parameter for one in statements if isinstance(one, Load)}
    everywhere = [
        one.parameter
        for block in program.blocks
        if block.worker != worker
        for one in block.statements
        if isinstance(one, Load)
    ]
    here = [one.parameter for one in statements if isinstance(one, Load)]
    owners = {one.name: one.worker for one in program.parameters}
    if any(owners[name] != worker and everywhere.count(name) > here.count(name) for name in loaded):
        return None
    return tuple(
        [replace(one, worker=worker) if one.name in loaded else one for one in program.parameters]
    )


def _moved(statement: Statement, names: dict[int, int], handles: int) -> Statement:
    """A statement under other names, its handles so much higher."""
    statement = _renamed(statement, names)
    if isinstance(statement, (Call, Wait)):
        handle = statement.handle + handles if statement.handle >= 0 else -1
        statement = replace(statement, to=tuple([names[n] for n in statement.to]), handle=handle)
        if isinstance(statement, Call):
            references = tuple([one + handles for one in statement.references])
            statement = replace(statement, references=references)
        return statement
    return replace(statement, to=names[statement.to])


def _without_results(program: Program) -> Iterator[Program]:
    """Results of blocks that the caller does not use."""
    for called, (number, call) in program.callers().items():
        block, callee = program.blocks[number], program.blocks[called]
        if call.handle >= 0:
            waits = [
                one
                for one in block.statements
                if isinstance(one, Wait) and one.handle == call.handle
            ]
            if call.way == KEPT or len(waits) != 1:
                continue
            to = waits[0].to
        else:
            to = call.to
        for i in range(len(to)):
            if to[i] not in _used(block):
                rest = to[:i] + to[i + 1 :]

                def change(one: Statement, to: Any = to, rest: Any = rest) -> Statement:
                    matches = isinstance(one, (Call, Wait)) and one.to == to
                    return replace(one, to=rest) if matches else one

                outputs = callee.outputs[:i] + callee.outputs[i + 1 :]
                changed = _with_block(program, called, replace(callee, outputs=outputs))
                yield _with_block(changed, number, _mapped(block, change))


def _without_arguments(program: Program) -> Iterator[Program]:
    """Arguments that the callee does not use, and references that it does not fetch."""
    for called, (number, call) in program.callers().items():
        block, callee = program.blocks[number], program.blocks[called]
        place = block.statements.index(call)
        for i, given in enumerate(callee.inputs):
            if given not in _used(callee):
                less = replace(call, operands=call.operands[:i] + call.operands[i + 1 :])
                inputs = callee.inputs[:i] + callee.inputs[i + 1 :]
                changed = _with_block(program, called, replace(callee, inputs=inputs))
                yield _with_block(changed, number, _replaced(block, place, [less]))
        fetched = {one.handle for one in callee.statements if isinstance(one, Wait)}
        passed = {h for one in callee.statements if isinstance(one, Call) for h in one.references}
        for i, handle in enumerate(callee.references):
            if handle not in fetched | passed:
                less = replace(call, references=call.references[:i] + call.references[i + 1 :])
                rest = callee.references[:i] + callee.references[i + 1 :]
                changed = _with_block(program, called, replace(callee, references=rest))
                yield _with_block(changed, number, _replaced(block, place, [less]))


# -- simplifying -----------------------------------------------------------------------------------


def _on_fewer_workers(program: Program) -> Iterator[Program]:
    """One worker's part on another one; then the last worker is no more."""
    last = program.size - 1
    for worker in reversed(range(1, program.size)):
        for other in range(worker):
            names = {last: worker, worker: other}
            yield replace(_on_others(program, names), size=last)
    if program.start:
        yield _on_others(program, {program.start: 0, 0: program.start})


def _on_others(program: Program, names: dict[int, int]) -> Program:
    """The program, were the workers' ranks these."""

    def rank(old: int) -> int:
        return names.get(old, old)

    def change(one: Statement) -> Statement:
        return replace(one, third=rank(one.third)) if isinstance(one, Call) else one

    return replace(
        program,
        start=rank(program.start),
        parameters=tuple([replace(one, worker=rank(one.worker)) for one in program.parameters]),
        blocks=tuple(
            [replace(_mapped(one, change), worker=rank(one.worker)) for one in program.blocks]
        ),
    )


def _with_plainer_calls(program: Program) -> Iterator[Program]:
    for number, block, place, call in _positions(program):
        if not isinstance(call, Call):
            continue
        if call.way != SYNC:
            yield from _made_sync(program, number, place, call)
        for less in (
            replace(call, quiet=False),
            replace(call, packing="list"),
            replace(call, third=block.worker),
        ):
            if less != call:
                yield _with_block(program, number, _replaced(block, place, [less]))


def _made_sync(program: Program, number: int, place: int, call: Call) -> Iterator[Program]:
    """The same call, waited for at once; what is fetched again is what was fetched first."""
    block = program.blocks[number]
    if call.handle < 0:
        yield _with_block(program, number, _replaced(block, place, [replace(call, way=SYNC)]))
        return
    waits = [one for one in block.statements if isinstance(one, Wait) and one.handle == call.handle]
    if any(isinstance(one, Call) and call.handle in one.references for one in block.statements):
        return
    to = (
        waits[0].to
        if waits
        else tuple([_UNUSED + n for n in range(len(program.blocks[call.block].outputs))])
    )
    names = {n: first for wait in waits[1:] for n, first in zip(wait.to, to, strict=True)}
    sync = replace(call, way=SYNC, handle=-1, to=to)
    changed = _replaced(block, place, [sync])
    changed = _mapped(changed, lambda one: None if one in waits else _renamed(one, names))
    outputs = tuple([names.get(n, n) for n in block.outputs])
    yield _with_block(program, number, replace(changed, outputs=outputs))


#: Names for values that nothing uses.
_UNUSED = 1000


def _with_plainer_statements(program: Program) -> Iterator[Program]:
    for number, block in enumerate(program.blocks):
        for less_block in (replace(block, no_grad=False), replace(block, packing="list")):
            if less_block != block:
                yield _with_block(program, number, less_block)
    for number, block, place, one in _positions(program):
        less: list[Statement] = []
        if isinstance(one, Compute) and len(one.operands) == 1:
            if one.operation not in ("halve", "average", IN_PLACE):
                less = [replace(one, operation=plain) for plain in ("halve", "average")]
        elif isinstance(one, Compute) and one.operation not in ("add", "multiply"):
            less = [replace(one, operation="add")]
        elif isinstance(one, Constant):
            less = [
                Constant(one.to, shape, 0.5) for shape in ((), (2,)) if len(shape) < len(one.shape)
            ]
            if (one.number, one.dtype) != (0.5, "float64"):
                less.append(Constant(one.to, one.shape, 0.5))
        elif isinstance(one, Wait):
            # A fetch the less.
            for changed in _left_out(block, place):
                yield _with_block(program, number, changed)
        for other in less:
            yield _with_block(program, number, _replaced(block, place, [other]))


def _with_plainer_parameters(program: Program) -> Iterator[Program]:
    for i, one in enumerate(program.parameters):
        candidates = [
            *[
                replace(one, shape=shape)
                for shape in ((), (2,), (2, 2))
                if len(shape) < len(one.shape)
            ],
            replace(one, hooked=False),
            replace(one, dtype="float64"),
            replace(one, seed=i),
        ]
        for less in candidates:
            if less != one:
                parameters = (*program.parameters[:i], less, *program.parameters[i + 1 :])
                yield replace(program, parameters=parameters)
