"""Makes random programs.

A program is run while it is made, in one process: so the maker knows the shape, the dtype and the
size of each value, and whether it needs a gradient.  All workers can make the same program from its
seed, and only the numbers of blocks travel.
"""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

import numpy as np

import tensorplay as tp
from distributed.autograd.program_operations import (
    BINARY,
    CASTS,
    IN_PLACE,
    ROUGH,
    SHRINK,
    SMOOTH,
)
from distributed.autograd.program_plain import Frame, Plain, leaf
from distributed.autograd.programs import (
    FRESH,
    KEPT,
    LATER,
    PACKINGS,
    WAYS,
    Block,
    Call,
    Compute,
    Constant,
    Dtype,
    Load,
    Parameter,
    Program,
    Shape,
    Statement,
    Wait,
)

MOST_BLOCKS = 14
MOST_NUMBERS = 48
"""Of a value."""
LARGEST_NUMBER = 8.0

SHAPES: tuple[Shape, ...] = (
    (),
    (0,),
    (2, 0),
    (1,),
    (3,),
    (2, 3),
    (3, 2),
    (2, 2),
    (1, 3),
    (2, 1, 2),
)


class _Maker:
    def __init__(self, seed: int, size: int) -> None:
        self.draw = random.Random(f"{seed} {size}")
        self.seed, self.size = seed, size
        self.calls = self.draw.choice([0.2, 0.35, 0.5])
        self.unused = self.draw.choice([0.1, 0.5])
        self.own = self.draw.choice([0.1, 0.4])
        #: The losses' differences are what the gradients say.
        self.smooth = self.draw.random() < 0.5
        self.mixed = self.draw.random() < 0.3
        self.parameters: list[Parameter] = []
        self.blocks: list[Block] = []
        self.plain = Plain(self.blocks, {})

    def make(self) -> Program:
        draw = self.draw
        start = draw.randrange(self.size) if draw.random() < 0.2 else 0
        main = _BlockMaker(self, start, [], [], depth=0)
        main.fill(draw.randint(4, 10))
        losses = main.losses(draw.choice([1, 1, 2, 3]))
        main.close(no_grad=False)
        passes = [tuple(range(losses))]
        if draw.random() < 0.3:
            # A second pass over the same graph, from all losses or some, or one of them twice.
            passes.append(tuple(draw.choices(range(losses), k=draw.randint(1, losses))))
        return Program(
            self.seed,
            self.size,
            start,
            self.smooth,
            tuple(self.parameters),
            tuple(self.blocks),
            tuple(passes),
            draw.random() < 0.15,
        )

    def parameter(self, worker: int) -> Parameter:
        draw = self.draw
        here = [parameter for parameter in self.parameters if parameter.worker == worker]
        if here and draw.random() < 0.5:
            return draw.choice(here)
        made = Parameter(
            f"p{len(self.parameters)}",
            worker,
            self.shape(),
            draw.randrange(1 << 30),
            self.dtype(),
            not self.smooth and draw.random() < 0.2,
        )
        self.parameters.append(made)
        self.plain.parameters[made.name] = leaf(made)
        return made

    def shape(self) -> Shape:
        # Rather one that goes with others.
        return self.draw.choice(SHAPES) if self.draw.random() < 0.7 else (2, 2)

    def dtype(self) -> Dtype:
        return "float32" if self.mixed and self.draw.random() < 0.5 else "float64"


class _BlockMaker:
    """Makes one block, and those that it calls; the number of the block is its place."""

    def __init__(
        self, maker: _Maker, worker: int, given: list[Any], references: list[Any], depth: int
    ) -> None:
        self.maker = maker
        self.draw = maker.draw
        self.worker = worker
        self.depth = depth
        self.inputs = tuple(range(len(given)))
        self.references = tuple(range(len(references)))
        self.frame = Frame(maker.plain, worker, dict(enumerate(given)))
        self.frame.handles = dict(enumerate(references))
        self.statements: list[Statement] = []
        self.outputs: tuple[int, ...] = ()
        self.pending: list[tuple[int, int]] = []
        self.kept: list[tuple[int, int]] = [(n, len(one[1])) for n, one in enumerate(references)]
        self.number = len(maker.blocks)
        maker.blocks.append(Block(worker))
        self.touch(list(self.inputs))

    def close(self, *, no_grad: bool) -> None:
        packing = self.draw.choice(PACKINGS)
        self.maker.blocks[self.number] = Block(
            self.worker,
            self.inputs,
            self.references,
            no_grad,
            packing,
            tuple(self.statements),
            self.outputs,
        )

    def fill(self, length: int) -> None:
        if not self.frame.values:
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
            elif self.kept and chance > 0.8:
                handle, count = self.draw.choice(self.kept)
                self.do(Wait(self.new(count), handle))
            else:
                self.compute()
        # Some are never waited for.
        while self.pending and self.draw.random() > self.maker.unused:
            self.wait()

    def do(self, statement: Any) -> None:
        self.frame.do(statement)
        self.statements.append(statement)

    def new_one(self) -> int:
        return len(self.frame.values)

    def new(self, count: int) -> tuple[int, ...]:
        return tuple(range(len(self.frame.values), len(self.frame.values) + count))

    def load(self) -> None:
        self.do(Load(self.new_one(), self.maker.parameter(self.worker).name))

    def constant(self) -> None:
        number = self.draw.uniform(-1, 1)
        self.do(Constant(self.new_one(), self.maker.shape(), number, self.maker.dtype()))

    def recent(self) -> int:
        """A value, rather one of the latest, and rather one that needs a gradient."""
        count = len(self.frame.values)
        for _ in range(3):
            chosen = count - 1 - min(int(self.draw.expovariate(0.4)), count - 1)
            if self.frame.values[chosen].requires_grad:
                break
        return chosen

    def compute(self) -> None:
        draw = self.draw
        for _ in range(5):
            choices = [*SMOOTH, *(list(BINARY) * 3)]
            choices += [] if self.maker.smooth else ROUGH
            choices += list(CASTS) * 2 if self.maker.mixed else []
            operation = draw.choice(choices)
            count = 2 if operation in BINARY else 1
            statement = Compute(
                self.new_one(), operation, tuple(self.recent() for _ in range(count))
            )
            try:
                self.frame.do(statement)
            except (RuntimeError, ValueError, TypeError, IndexError):
                continue  # no such operation on such shapes
            if _is_modest(self.frame.values[statement.to]):
                self.statements.append(statement)
                return
            del self.frame.values[statement.to]

    def touch(self, arrived: list[int]) -> None:
        """Write to a tensor that has just arrived, now and then."""
        if arrived and self.draw.random() < 0.15:
            self.do(Compute(self.new_one(), IN_PLACE, (self.draw.choice(arrived),)))

    def may_call(self) -> bool:
        return self.depth < 4 and len(self.maker.blocks) < MOST_BLOCKS

    def call(self) -> None:
        draw, maker = self.draw, self.maker
        worker = draw.randrange(maker.size)
        if draw.random() < maker.own:
            worker = self.worker
        operands = [self.recent() for _ in range(draw.choice([0, 1, 1, 2, 3]))]
        if operands and draw.random() < 0.1:
            operands.append(operands[0])
        references = [h for h, _ in self.kept if draw.random() < 0.3]
        way = draw.choice(WAYS)
        handle = len(self.frame.handles) if way in LATER or way == KEPT else -1
        quiet = way != KEPT and not maker.smooth and draw.random() < 0.1
        # A call made without recording carries no context: the callee shall not record either.
        recording = tp.is_grad_enabled()
        no_grad = quiet or not recording or (not maker.smooth and draw.random() < 0.15)
        call = Call(
            (),
            len(maker.blocks),
            way,
            tuple(operands),
            handle,
            draw.randrange(maker.size),
            draw.choice(PACKINGS),
            tuple(references),
            quiet,
        )
        arguments, passed = self.frame.arguments(call, worker)
        with tp.set_grad_enabled(recording and not no_grad):
            callee = _BlockMaker(maker, worker, arguments, passed, self.depth + 1)
            callee.fill(draw.randint(1, 6))
            callee.returns(draw.choice([1, 1, 2, 3]), no_grad)
            callee.close(no_grad=no_grad)
            made = [callee.frame.values[output] for output in callee.outputs]
        if handle < 0:
            call = replace(call, to=self.new(len(made)))
        self.frame.finish(call, worker, made)
        self.statements.append(call)
        if way == KEPT:
            self.kept.append((handle, len(made)))
        elif way in LATER:
            self.pending.append((handle, len(made)))
        elif way in FRESH:
            self.touch(list(call.to))

    def wait(self) -> None:
        handle, count = self.pending.pop(self.draw.randrange(len(self.pending)))
        wait = Wait(self.new(count), handle)
        self.do(wait)
        self.touch(list(wait.to))

    def returns(self, count: int, no_grad: bool) -> None:
        """Choose what the block returns: now and then constants, or its inputs as they are."""
        chance = self.draw.random()
        if chance < 0.1:
            self.constant()
            self.outputs = (len(self.frame.values) - 1,)
        elif chance < 0.2 and self.inputs:
            self.outputs = tuple(self.draw.choices(self.inputs, k=count))
        else:
            self.outputs = tuple([self.recent() for _ in range(count)])
        if no_grad:
            # What passes through unchanged would still lead to where it came from.
            made: list[int] = []
            for output in self.outputs:
                made.append(self.new_one())
                self.do(Compute(made[-1], "halve", (output,)))
            self.outputs = tuple(made)

    def losses(self, count: int) -> int:
        """End the main program: sums of values that need a gradient, as its results."""
        candidates = [n for n, value in self.frame.values.items() if value.requires_grad]
        called = {n for one in self.statements if isinstance(one, (Call, Wait)) for n in one.to}
        candidates += 3 * [n for n in candidates if n in called]
        if not candidates:
            self.load()
            candidates = [len(self.frame.values) - 1]
        for _ in range(count):
            parts: list[int] = []
            for operand in self.draw.choices(candidates, k=self.draw.choice([1, 4, 8])):
                parts.append(self.new_one())
                self.do(Compute(parts[-1], SHRINK, (operand,)))
            while len(parts) > 1:
                both = parts.pop(), parts.pop()
                parts.append(self.new_one())
                self.do(Compute(parts[-1], "add", both))
            self.outputs += tuple(parts)
        return count


def _is_modest(value: Any) -> bool:
    numbers = value.detach().numpy()
    return numbers.size <= MOST_NUMBERS and bool(
        np.all(np.isfinite(numbers)) and np.all(np.abs(numbers) < LARGEST_NUMBER)
    )


@functools.lru_cache(maxsize=64)
def program_of(seed: int, size: int) -> Program:
    """The program of a seed for a world of `size` workers; the same on all of them."""
    return _Maker(seed, size).make()
