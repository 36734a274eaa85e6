"""Programs that can be cut at random over workers: what they are made of, and their source.

A program is a tree of *blocks*, functions that each run on a worker of their own.  A block computes
with its inputs and its worker's parameters, and calls other blocks in any of the ways that there
are.  Block 0 is the main program; its results are the losses.

Programs are values: frozen, compared by content, and shown as Python source that makes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

Shape = tuple[int, ...]

#: How a block may be called.
SYNC = "rpc_sync"
ASYNC = "rpc_async"
THEN = "rpc_async, then a callback"
CHAINED = "rpc_async, then a callback that calls a third"
REMOTE = "remote"
TWICE = "remote, fetched twice"
THIRD = "remote, fetched by a third"
KEPT = "remote, kept"
PROXY_SYNC = "rref.rpc_sync()"
PROXY_ASYNC = "rref.rpc_async()"
PROXY_REMOTE = "rref.remote()"
CONTINUED = "async_execution on a third"

#: These give a future, which a `Wait` waits for.
LATER = (ASYNC, THEN, CHAINED)
#: These take part of a third worker.
BY_THIRD = (CHAINED, THIRD, CONTINUED)
#: What these return is the receiver's own: nobody else has the tensors.
FRESH = (SYNC, *LATER, PROXY_SYNC, PROXY_ASYNC, CONTINUED)
WAYS = (
    *(SYNC, SYNC, ASYNC, ASYNC, THEN, CHAINED, REMOTE, TWICE, THIRD, KEPT, KEPT),
    *(PROXY_SYNC, PROXY_ASYNC, PROXY_REMOTE, CONTINUED),
)

#: How values are packed in a message.
PACKINGS = ("list", "tuple", "dict", "nested", "record")

Dtype = Literal["float32", "float64"]


@dataclass(frozen=True)
class Parameter:
    """A leaf on a worker.

    Attributes:
        hooked: A hook changes its gradient, in a way that shows if it is not the whole one.
    """

    name: str
    worker: int
    shape: Shape
    seed: int
    dtype: Dtype = "float64"
    hooked: bool = False

    def values(self) -> np.ndarray[Any, Any]:
        """Its numbers, away from where functions are steep."""
        numbers = np.random.default_rng(self.seed).uniform(-1.0, 1.0, self.shape)
        return np.asarray(numbers, self.dtype)


@dataclass(frozen=True)
class Load:
    """`to` is a parameter of the worker."""

    to: int
    parameter: str


@dataclass(frozen=True)
class Constant:
    """`to` is made on the spot and needs no gradient."""

    to: int
    shape: Shape
    number: float
    dtype: Dtype = "float64"


@dataclass(frozen=True)
class Compute:
    """`to` is made of others; what an operation in place makes is the operand itself."""

    to: int
    operation: str
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """`to` is what another block returns.

    Attributes:
        handle: Stands for the future of the `LATER` ways and the reference of `KEPT`.
        third: The worker that takes part in the ways `BY_THIRD`.
        references: References that are passed along.
        quiet: Made under ``no_grad``.
    """

    to: tuple[int, ...]
    block: int
    way: str
    operands: tuple[int, ...]
    handle: int = -1
    third: int = 0
    packing: str = "list"
    references: tuple[int, ...] = ()
    quiet: bool = False


@dataclass(frozen=True)
class Wait:
    """`to` is what a future gives, or what is fetched through a reference."""

    to: tuple[int, ...]
    handle: int


Statement = Load | Constant | Compute | Call | Wait


@dataclass(frozen=True)
class Block:
    """A function that runs on a worker.

    Attributes:
        worker: Where.
        inputs: The values that it is given.
        references: The references that it is given.
        no_grad: It records nothing.
        packing: How its results are packed.
        statements: What it does.
        outputs: The values that it returns.
    """

    worker: int
    inputs: tuple[int, ...] = ()
    references: tuple[int, ...] = ()
    no_grad: bool = False
    packing: str = "list"
    statements: tuple[Statement, ...] = ()
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A program for a world of `size` workers.

    Attributes:
        start: Where the losses are made, and the passes start.
        smooth: Gradients are those of the values: nothing is detached, no hook changes them.
        passes: For each pass its losses, as positions among block 0's results.
        again: All that happens once more, in the same context.
    """

    seed: int
    size: int
    start: int = 0
    smooth: bool = True
    parameters: tuple[Parameter, ...] = ()
    blocks: tuple[Block, ...] = ()
    passes: tuple[tuple[int, ...], ...] = ((0,),)
    again: bool = False

    @property
    def mixed(self) -> bool:
        """Whether anything in it has few digits."""
        return any(parameter.dtype == "float32" for parameter in self.parameters) or any(
            getattr(one, "dtype", "") == "float32"
            or (isinstance(one, Compute) and one.operation == "to float32")
            for block in self.blocks
            for one in block.statements
        )

    @property
    def differentiable(self) -> bool:
        """Whether difference quotients of the losses tell the gradients."""
        return self.smooth and not self.mixed

    @property
    def steps(self) -> int:
        """How many statements there are, the larger the program."""
        return sum([len(block.statements) for block in self.blocks])

    def callers(self) -> dict[int, tuple[int, Call]]:
        """For each block but the main one, the block that calls it, and the call."""
        return {
            one.block: (number, one)
            for number, block in enumerate(self.blocks)
            for one in block.statements
            if isinstance(one, Call)
        }

    def __str__(self) -> str:
        return source_of(self)


# -- their source ----------------------------------------------------------------------------------


def source_of(program: Program) -> str:
    """Python source of a program, with its steps in words beside it."""
    head = _arguments(program, leave_out=("parameters", "blocks"))
    lines = ["Program(", f"    {head},", "    parameters=("]
    lines += [f"        {_made(parameter)}," for parameter in program.parameters]
    lines += ["    ),", "    blocks=("]
    step = 0
    for number, block in enumerate(program.blocks):
        given = f" given {_names(block.inputs)}" if block.inputs else ""
        lines.append(f"        Block(  # {number}, on worker {block.worker}{given}")
        lines.append(f"            {_arguments(block, leave_out=('statements',))},")
        lines.append("            statements=(")
        for statement in block.statements:
            step += 1
            said = f"# step {step}, worker {block.worker}: {_said(statement, program)}"
            lines.append(f"                {_made(statement)},  {said}")
        lines += ["            ),", "        ),"]
    return "\n".join([*lines, "    ),", ")"])


def _made(value: Any) -> str:
    return f"{type(value).__name__}({_arguments(value)})"


def _arguments(value: Any, leave_out: Iterable[str] = ()) -> str:
    """The arguments that make it, but for those that have their default."""
    return ", ".join(
        f"{one.name}={getattr(value, one.name)!r}"
        for one in fields(value)
        if one.name not in leave_out and getattr(value, one.name) != one.default
    )


def _said(statement: Statement, program: Program) -> str:
    match statement:
        case Load(to, parameter):
            return f"v{to} = parameter {parameter}"
        case Constant(to, shape, number):
            return f"v{to} = {number:.3g} of shape {shape}"
        case Compute(to, operation, operands):
            return f"v{to} = {operation}({_names(operands)})"
        case Wait(to, handle):
            return f"{_names(to)} = what h{handle} gives"
        case Call():
            return "".join(_said_of_call(statement, program))
    raise AssertionError(statement)


def _said_of_call(call: Call, program: Program) -> Iterator[str]:
    left = _names(call.to) or (f"h{call.handle}" if call.handle >= 0 else "")
    if left:
        yield f"{left} = "
    references = "".join([f", h{reference}" for reference in call.references])
    yield f"block {call.block}({_names(call.operands)}{references})"
    yield f" on worker {program.blocks[call.block].worker} by {call.way}"
    if call.way in BY_THIRD:
        yield f", worker {call.third}"
    if call.quiet:
        yield ", under no_grad"


def _names(values: Iterable[int]) -> str:
    return ", ".join(f"v{value}" for value in values)


def program_from(source: str) -> Program:
    """The program of a source, as `source_of` gives it."""
    kinds = (Program, Parameter, Block, Load, Constant, Compute, Call, Wait)
    names = {kind.__name__: kind for kind in kinds}
    program = eval(source, {"__builtins__": {}}, names)
    assert isinstance(program, Program)
    return program
