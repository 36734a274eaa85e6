"""Random programs in one process, by ordinary function calls: what their gradients must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorplay as tp
from distributed.autograd.crossings import Crossings
from distributed.autograd.program_operations import FUNCTIONS, bend
from distributed.autograd.programs import (
    CHAINED,
    CONTINUED,
    KEPT,
    LATER,
    THEN,
    THIRD,
    TWICE,
    Block,
    Call,
    Compute,
    Constant,
    Load,
    Parameter,
    Program,
    Wait,
)

Values = list[Any]
#: Each parameter's gradient, None where there is none.
Gradients = dict[str, Any]


def constant(statement: Constant) -> tp.Tensor:
    return tp.full(statement.shape, statement.number, dtype=getattr(tp, statement.dtype))


def scaled(values: Sequence[Any]) -> Values:
    """What callbacks and continuations do with values, so that they record something."""
    return [value * 0.75 for value in values]


class Plain:
    """Runs blocks in one process.

    Args:
        blocks: All blocks of the program.
        parameters: The leaves, by name.
        crossings: Notes the messages that there would be between workers.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        parameters: dict[str, tp.Tensor],
        crossings: Crossings | None = None,
    ) -> None:
        self.blocks = blocks
        self.parameters = parameters
        self._crossings = crossings

    def run(self, block: Block, given: Values, references: Sequence[Any]) -> Values:
        """What a block returns."""
        frame = Frame(self, block.worker, dict(zip(block.inputs, given, strict=True)))
        frame.handles = dict(zip(block.references, references, strict=True))
        with tp.set_grad_enabled(not block.no_grad and tp.is_grad_enabled()):
            for statement in block.statements:
                if isinstance(statement, Call):
                    callee = self.blocks[statement.block]
                    arguments, passed = frame.arguments(statement, callee.worker)
                    with tp.set_grad_enabled(tp.is_grad_enabled() and not statement.quiet):
                        made = self.run(callee, arguments, passed)
                    frame.finish(statement, callee.worker, made)
                else:
                    frame.do(statement)
            return [frame.values[output] for output in block.outputs]

    def carry(self, source: int, to: int, values: Sequence[Any]) -> Values:
        """What arrives of values that one worker sends another: copies, one of each tensor."""
        if self._crossings is not None:
            values = self._crossings.cross(source, to, values)
        once = {id(value): value for value in values}
        copies = {key: value.clone() for key, value in once.items()}
        return [copies[id(value)] for value in values]


class Frame:
    """A block under way: its values, and what its handles stand for."""

    def __init__(self, plain: Plain, worker: int, values: dict[int, Any]) -> None:
        self.worker = worker
        self.values = values
        #: Where the values of a future or a reference are, and what they are.
        self.handles: dict[int, tuple[int, Values]] = {}
        self._plain = plain

    def do(self, statement: Load | Constant | Compute | Wait) -> None:
        """A statement other than a call."""
        match statement:
            case Load(to, parameter):
                self.values[to] = self._plain.parameters[parameter]
            case Constant(to):
                self.values[to] = constant(statement)
            case Compute(to, operation, operands):
                self.values[to] = FUNCTIONS[operation](*[self.values[i] for i in operands])
            case Wait(to, handle):
                owner, values = self.handles[handle]
                if owner != self.worker:
                    values = self._plain.carry(owner, self.worker, values)
                self.values.update(zip(to, values, strict=True))

    def arguments(self, call: Call, there: int) -> tuple[Values, list[Any]]:
        """What arrives of a call's arguments: values, and references."""
        carry = self._plain.carry
        values = [self.values[operand] for operand in call.operands]
        with tp.set_grad_enabled(tp.is_grad_enabled() and not call.quiet):
            if call.way == CONTINUED:
                values = carry(call.third, there, carry(self.worker, call.third, values))
            else:
                values = carry(self.worker, there, values)
        return values, [self.handles[reference] for reference in call.references]

    def finish(self, call: Call, there: int, made: Values) -> None:
        """Take what the called block has returned."""
        with tp.set_grad_enabled(tp.is_grad_enabled() and not call.quiet):
            results = self._returned(call, there, made)
        if call.quiet:
            results = [one.detach() for one in results]
        if call.way == KEPT:
            self.handles[call.handle] = there, made
        elif call.way in LATER:
            self.handles[call.handle] = self.worker, results
        else:
            self.values.update(zip(call.to, results, strict=True))

    def _returned(self, call: Call, there: int, made: Values) -> Values:
        here, third, carry = self.worker, call.third, self._plain.carry
        if call.way == KEPT:
            return made
        if call.way == CONTINUED:
            return carry(third, here, scaled(carry(there, third, made)))
        if call.way == THIRD:
            return carry(third, here, carry(there, third, made))
        results = carry(there, here, made)
        if call.way == THEN:
            return scaled(results)
        if call.way == CHAINED:
            return carry(third, here, scaled(carry(here, third, results)))
        if call.way == TWICE:
            pairs = zip(results, carry(there, here, made), strict=True)
            return [one * 0.5 + other * 0.5 for one, other in pairs]
        return results


# -- whole programs --------------------------------------------------------------------------------


def leaf(parameter: Parameter) -> tp.Tensor:
    """A parameter, as its worker holds it."""
    made = tp.nn.Parameter(tp.tensor(parameter.values()))
    if parameter.hooked:
        made.register_hook(bend)
    return made


def leaves(program: Program) -> dict[str, tp.Tensor]:
    """All parameters, as one process holds them."""
    return {parameter.name: leaf(parameter) for parameter in program.parameters}


def interpret(
    program: Program, parameters: dict[str, tp.Tensor], crossings: Crossings | None = None
) -> Values:
    """The losses, computed in one process by ordinary function calls.

    With `crossings` it notes the messages that there would be between workers.
    """
    return Plain(program.blocks, parameters, crossings).run(program.blocks[0], [], [])


def plain_gradients(program: Program, crossings: Crossings | None = None) -> Gradients:
    """Each parameter's gradient in one process, None where there is none."""
    parameters = leaves(program)
    for _ in range(1 + program.again):
        losses = interpret(program, parameters, crossings)
        for number, chosen in enumerate(program.passes, start=1):
            retain_graph = number < len(program.passes)
            tp.autograd.backward([losses[i] for i in chosen], retain_graph=retain_graph)
    return {
        name: None if one.grad is None else one.grad.numpy() for name, one in parameters.items()
    }


def difference_quotients(program: Program, step: float = 1e-6) -> Gradients:
    """Each parameter's gradient by central differences of the values of the losses."""
    arrays = {parameter.name: parameter.values() for parameter in program.parameters}
    weights = [0] * (1 + max(i for chosen in program.passes for i in chosen))
    for chosen in program.passes:
        for i in chosen:
            weights[i] += 1 + program.again

    def total() -> float:
        tensors: dict[str, tp.Tensor] = {name: tp.tensor(one) for name, one in arrays.items()}
        with tp.no_grad():
            losses = interpret(program, tensors)
        return float(sum([w * one.item() for w, one in zip(weights, losses, strict=False)]))

    quotients: Gradients = {}
    for name, array in arrays.items():
        quotients[name] = np.empty_like(array)
        for index in np.ndindex(array.shape):
            kept = array[index]
            array[index] = kept + step
            above = total()
            array[index] = kept - step
            quotients[name][index] = (above - total()) / (2 * step)
            array[index] = kept
    return quotients
