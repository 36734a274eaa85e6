"""Random programs that can be cut at random over workers, and their plain interpretation.

A program is a list of *blocks*, functions that each run on a worker of their own.  A block computes
with its inputs and its worker's parameters, and calls other blocks in any of the ways that there
are.  Block 0 is the main program; its results are the losses.

Everything is drawn when the program is made, also which values need a gradient; so all workers can
make the same program from its seed, and only the numbers of blocks travel.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tensorplay as tp
from distributed.autograd.crossings import Crossings

Shape = tuple[int, int]

#: How a block may be called.
SYNC = "rpc_sync"
ASYNC = "rpc_async"
REMOTE = "remote"
TWICE = "remote, fetched twice"
THIRD = "remote, fetched by a third"
WAYS = (SYNC, SYNC, ASYNC, ASYNC, REMOTE, TWICE, THIRD)

#: How values are packed in a message.
PACKINGS = ("list", "tuple", "dict", "nested", "record")


@dataclass(frozen=True)
class Parameter:
    """A leaf on a worker."""

    name: str
    worker: int
    shape: Shape
    seed: int

    def values(self) -> np.ndarray[Any, Any]:
        """Its numbers, away from where functions are steep."""
        return np.random.default_rng(self.seed).uniform(-1.0, 1.0, self.shape)


@dataclass(frozen=True)
class Load:
    """The value is a parameter of the worker."""

    parameter: Parameter


@dataclass(frozen=True)
class Constant:
    """The value is made on the spot and needs no gradient."""

    shape: Shape
    number: float


@dataclass(frozen=True)
class Compute:
    """The value is made of others."""

    operation: str
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """The values are what another block returns."""

    block: int
    way: str
    third: int
    packing: str
    operands: tuple[int, ...]
    results: int


@dataclass(frozen=True)
class Wait:
    """What an `ASYNC` call returns is used from here on; the values are those of the call."""

    call: int
    results: int


Statement = Load | Constant | Compute | Call | Wait


@dataclass
class Block:
    """A function that runs on a worker.

    Attributes:
        worker: Where.
        no_grad: It records nothing.
        packing: How its results are packed.
        inputs: How many values it is given; they are the first ones.
        statements: What it does, each adding its values to those there are.
        outputs: The values that it returns.
    """

    worker: int
    no_grad: bool
    packing: str
    inputs: int
    statements: list[Statement] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass
class Program:
    """A program for a world of `size` workers.

    Attributes:
        start: Where the losses are made, and the passes start.
        smooth: Gradients are those of the values: nothing is detached.
        passes: For each pass its losses, as positions among block 0's results.
    """

    seed: int
    size: int
    start: int = 0
    smooth: bool = True
    blocks: list[Block] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    passes: list[list[int]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"program {self.seed} for {self.size} workers; starts on worker {self.start}"]
        lines += [f"  parameter {p.name} on worker {p.worker}: {p.shape}" for p in self.parameters]
        for number, block in enumerate(self.blocks):
            mode = ", under no_grad" if block.no_grad else ""
            lines.append(f"  block {number} on worker {block.worker}{mode}:")
            lines += [f"    {line}" for line in _describe(block)]
        lines.append(f"  passes over results {self.passes} of block 0")
        return "\n".join(lines)


# -- operations ------------------------------------------------------------------------------------

Operation = Callable[..., Any]


def _scaled_in_place(x: Any) -> Any:
    y = x * 1.0
    y.mul_(0.7)
    return y


UNARY: dict[str, tuple[Operation, Callable[[Shape], Shape]]] = {
    "tanh": (tp.tanh, lambda s: s),
    "sigmoid": (tp.sigmoid, lambda s: s),
    "halve": (lambda x: x * 0.5, lambda s: s),
    "negate": (lambda x: -x, lambda s: s),
    "shift": (lambda x: x + 0.3, lambda s: s),
    "scale in place": (_scaled_in_place, lambda s: s),
    "transpose": (lambda x: x.transpose(0, 1), lambda s: (s[1], s[0])),
    "first row": (lambda x: x[0:1], lambda s: (1, s[1])),
    "sum rows": (lambda x: x.sum(0, keepdim=True), lambda s: (1, s[1])),
    "mean": (lambda x: x.mean().reshape(1, 1), lambda s: (1, 1)),
    "flatten": (lambda x: x.reshape(1, -1), lambda s: (1, s[0] * s[1])),
    "detach": (lambda x: x.detach(), lambda s: s),
}
BINARY: dict[str, Operation] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
}
FUNCTIONS: dict[str, Operation] = {name: rule for name, (rule, _) in UNARY.items()} | BINARY


def _binary_shape(operation: str, a: Shape, b: Shape) -> Shape | None:
    if operation == "matmul":
        return (a[0], b[1]) if a[1] == b[0] else None
    if all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True)):
        return (max(a[0], b[0]), max(a[1], b[1]))
    return None


# -- making a program ------------------------------------------------------------------------------

LARGEST_SIDE = 12
MOST_BLOCKS = 14


class _Known:
    """What is known of a value while the program is made."""

    def __init__(self, shape: Shape, needs_grad: bool) -> None:
        self.shape = shape
        self.needs_grad = needs_grad


class _Maker:
    def __init__(self, seed: int, size: int) -> None:
        self.draw = random.Random(f"{seed} {size}")
        self.program = Program(seed, size)
        self.calls = self.draw.choice([0.2, 0.35, 0.5])
        self.unused = self.draw.choice([0.1, 0.5])
        self.own = self.draw.choice([0.1, 0.4])
        #: Nothing is detached: the losses' differences are what the gradients say.
        self.smooth = self.draw.random() < 0.5

    def make(self) -> Program:
        program, draw = self.program, self.draw
        program.smooth = self.smooth
        program.start = draw.randrange(program.size) if draw.random() < 0.2 else 0
        main = _BlockMaker(self, program.start, [], False, depth=0)
        main.fill(draw.randint(4, 10))
        losses = main.losses(draw.choice([1, 1, 2, 3]))
        program.passes = [list(range(losses))]
        if draw.random() < 0.3:
            # A second pass over the same graph, from all losses or some, or one of them twice.
            program.passes.append(draw.choices(range(losses), k=draw.randint(1, losses)))
        return program

    def parameter(self, worker: int) -> Parameter:
        draw, parameters = self.draw, self.program.parameters
        here = [parameter for parameter in parameters if parameter.worker == worker]
        if here and draw.random() < 0.5:
            return draw.choice(here)
        shape = (draw.randint(1, 3), draw.randint(1, 3))
        made = Parameter(f"p{len(parameters)}", worker, shape, draw.randrange(1 << 30))
        parameters.append(made)
        return made


class _BlockMaker:
    """Makes one block, and those that it calls."""

    def __init__(
        self, maker: _Maker, worker: int, inputs: Sequence[_Known], no_grad: bool, depth: int
    ) -> None:
        self.maker = maker
        self.draw = maker.draw
        self.depth = depth
        self.values = [_Known(one.shape, one.needs_grad and not no_grad) for one in inputs]
        # What stands for an asynchronous call's values before they are waited for.
        self.pending: list[tuple[int, list[_Known]]] = []
        packing = self.draw.choice(PACKINGS)
        self.block = Block(worker, no_grad, packing, len(inputs))
        maker.program.blocks.append(self.block)

    def fill(self, length: int) -> None:
        if not self.values:
            self.load()
        for _ in range(length):
            chance = self.draw.random()
            if chance < 0.15:
                self.load()
            elif chance < 0.2:
                self.constant()
            elif chance < 0.2 + self.maker.calls and self.may_call():
                self.call()
            elif self.pending and chance > 0.9:
                self.wait()
            else:
                self.compute()
        # Some are never waited for.
        while self.pending and self.draw.random() > self.maker.unused:
            self.wait()

    def add(self, statement: Statement, *values: _Known) -> None:
        self.block.statements.append(statement)
        self.values.extend(values)

    def load(self) -> None:
        parameter = self.maker.parameter(self.block.worker)
        self.add(Load(parameter), _Known(parameter.shape, True))

    def constant(self) -> None:
        shape = (self.draw.randint(1, 3), self.draw.randint(1, 3))
        self.add(Constant(shape, self.draw.uniform(-1, 1)), _Known(shape, False))

    def recent(self) -> int:
        """A value, rather one of the latest."""
        return len(self.values) - 1 - min(int(self.draw.expovariate(0.4)), len(self.values) - 1)

    def compute(self) -> None:
        draw = self.draw
        first, second = self.recent(), self.recent()
        a, b = self.values[first], self.values[second]
        operation = draw.choice([*UNARY, *(list(BINARY) * 3)])
        if operation in BINARY:
            shape = _binary_shape(operation, a.shape, b.shape)
            if shape is None:
                operation = draw.choice(list(UNARY))
            else:
                needs_grad = (a.needs_grad or b.needs_grad) and not self.block.no_grad
                self.add(Compute(operation, (first, second)), _Known(shape, needs_grad))
                return
        if operation == "detach" and (self.maker.smooth or draw.random() < 0.7):
            operation = "tanh"
        shape = UNARY[operation][1](a.shape)
        if max(shape) > LARGEST_SIDE:
            operation, shape = "mean", (1, 1)
        needs_grad = a.needs_grad and operation != "detach" and not self.block.no_grad
        self.add(Compute(operation, (first,)), _Known(shape, needs_grad))

    def may_call(self) -> bool:
        return self.depth < 4 and len(self.maker.program.blocks) < MOST_BLOCKS

    def call(self) -> None:
        draw, program = self.draw, self.maker.program
        worker = draw.randrange(program.size)
        if draw.random() < self.maker.own:
            worker = self.block.worker
        operands = tuple([self.recent() for _ in range(draw.choice([0, 1, 1, 2, 3]))])
        number = len(program.blocks)
        way = draw.choice(WAYS)
        # A call made without recording carries no context: the callee shall not record either.
        no_grad = self.block.no_grad or (not self.maker.smooth and draw.random() < 0.15)
        known = [self.values[operand] for operand in operands]
        callee = _BlockMaker(self.maker, worker, known, no_grad, self.depth + 1)
        callee.fill(draw.randint(1, 6))
        results = callee.returns(draw.choice([1, 1, 2, 3]), self.maker.unused)
        call = Call(
            number,
            way,
            draw.randrange(program.size),
            draw.choice(PACKINGS),
            operands,
            len(results),
        )
        if way == ASYNC:
            self.pending.append((len(self.block.statements), results))
            self.add(call)
        else:
            self.add(call, *results)

    def wait(self) -> None:
        call, results = self.pending.pop(self.draw.randrange(len(self.pending)))
        self.add(Wait(call, len(results)), *results)

    def returns(self, count: int, unused: float) -> list[_Known]:
        """Choose what the block returns: seldom an input as it is, now and then a constant."""
        if self.draw.random() < 0.1:
            self.constant()
            self.block.outputs = [len(self.values) - 1]
        else:
            self.block.outputs = [self.recent() for _ in range(count)]
        if self.block.no_grad:
            # What passes through unchanged would still lead to where it came from.
            for i, output in enumerate(self.block.outputs):
                self.add(Compute("shift", (output,)), _Known(self.values[output].shape, False))
                self.block.outputs[i] = len(self.values) - 1
        return [self.values[output] for output in self.block.outputs]

    def losses(self, count: int) -> int:
        """End the main program: sums of values that need a gradient, as its results."""
        candidates = [i for i, value in enumerate(self.values) if value.needs_grad]
        if not candidates:
            self.load()
            candidates = [len(self.values) - 1]
        for _ in range(count):
            parts = []
            for operand in self.draw.choices(candidates, k=self.draw.choice([1, 4, 8])):
                self.add(Compute("mean", (operand,)), _Known((1, 1), True))
                parts.append(len(self.values) - 1)
            while len(parts) > 1:
                self.add(Compute("add", (parts.pop(), parts.pop())), _Known((1, 1), True))
                parts.append(len(self.values) - 1)
            self.block.outputs += parts
        return count


@functools.lru_cache(maxsize=64)
def program_of(seed: int, size: int) -> Program:
    """The program of a seed for a world of `size` workers; the same on all of them."""
    return _Maker(seed, size).make()


# -- reading it ------------------------------------------------------------------------------------


def _describe(block: Block) -> Iterable[str]:
    count = block.inputs
    if count:
        yield f"given {_names(range(count))}"
    for position, statement in enumerate(block.statements):
        made = 0 if isinstance(statement, Call) and statement.way == ASYNC else 1
        if isinstance(statement, (Call, Wait)):
            made *= statement.results
        left = f"{_names(range(count, count + made))} = " if made else ""
        count += made
        match statement:
            case Load(parameter):
                yield f"{left}parameter {parameter.name}"
            case Constant(shape, number):
                yield f"{left}constant {number:.3g} of shape {shape}"
            case Compute(operation, operands):
                yield f"{left}{operation}({_names(operands)})"
            case Call(callee, way, third, packing, operands, _):
                by = f" {third}" if way == THIRD else ""
                at = f" (call {position})" if way == ASYNC else ""
                yield f"{left}block {callee} by {way}{by}, a {packing} of ({_names(operands)}){at}"
            case Wait(call, _):
                yield f"{left}wait for call {call}"
    yield f"return a {block.packing} of {_names(block.outputs)}"


def _names(values: Iterable[int]) -> str:
    return ", ".join(f"v{value}" for value in values)


# -- running it without any worker -----------------------------------------------------------------


def interpret(
    program: Program, parameters: dict[str, tp.Tensor], crossings: Crossings | None = None
) -> list[tp.Tensor]:
    """The losses, computed in one process by ordinary function calls.

    With `crossings` it notes the messages that there would be between workers.
    """
    return _interpret(program, program.blocks[0], [], parameters, crossings)


def _interpret(
    program: Program,
    block: Block,
    given: list[tp.Tensor],
    parameters: dict[str, tp.Tensor],
    crossings: Crossings | None,
) -> list[tp.Tensor]:
    values = list(given)
    called: dict[int, list[tp.Tensor]] = {}
    with tp.set_grad_enabled(not block.no_grad and tp.is_grad_enabled()):
        for position, statement in enumerate(block.statements):
            match statement:
                case Load(parameter):
                    values.append(parameters[parameter.name])
                case Constant(shape, number):
                    values.append(tp.full(shape, number, dtype=tp.float64))
                case Compute(operation, operands):
                    values.append(FUNCTIONS[operation](*[values[i] for i in operands]))
                case Call(callee, way, third, _, operands, _):
                    called_block = program.blocks[callee]
                    here, there = block.worker, called_block.worker
                    arguments = [values[i] for i in operands]
                    if crossings is not None:
                        arguments = crossings.cross(here, there, arguments)
                    made = _interpret(program, called_block, arguments, parameters, crossings)
                    results = made
                    if crossings is not None:
                        if way == THIRD:
                            results = crossings.cross(there, third, results)
                            results = crossings.cross(third, here, results)
                        else:
                            results = crossings.cross(there, here, results)
                    if way == TWICE:
                        # Half of each copy.
                        again = made if crossings is None else crossings.cross(there, here, made)
                        results = [
                            one * 0.5 + other * 0.5
                            for one, other in zip(results, again, strict=True)
                        ]
                    if way == ASYNC:
                        called[position] = results
                    else:
                        values.extend(results)
                case Wait(call, _):
                    values.extend(called[call])
        return [values[output] for output in block.outputs]


def leaves(program: Program) -> dict[str, tp.Tensor]:
    """All parameters, as one process holds them."""
    return {
        parameter.name: tp.tensor(parameter.values(), dtype=tp.float64, requires_grad=True)
        for parameter in program.parameters
    }


Gradients = dict[str, Any]


def plain_gradients(program: Program, crossings: Crossings | None = None) -> Gradients:
    """Each parameter's gradient in one process, None where there is none."""
    parameters = leaves(program)
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
            weights[i] += 1

    def total() -> float:
        tensors = {name: tp.tensor(array, dtype=tp.float64) for name, array in arrays.items()}
        with tp.no_grad():
            losses = interpret(program, tensors)
        return sum([w * one.item() for w, one in zip(weights, losses, strict=False)])

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
