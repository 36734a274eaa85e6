"""Running random programs distributed, and comparing.

    python program_runs.py SEED SIZE

prints a program and runs it on workers of one process.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

import tensorplay as tp
from distributed.autograd.programs import (
    ASYNC,
    FUNCTIONS,
    REMOTE,
    SYNC,
    THIRD,
    TWICE,
    Block,
    Call,
    Compute,
    Constant,
    Gradients,
    Load,
    Program,
    Wait,
    difference_quotients,
    plain_gradients,
    program_of,
)
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent

Values = Sequence[Any]

# -- values in messages ----------------------------------------------------------------------------


@dataclass
class Record:
    """A packing of the program's own."""

    first: Any
    rest: list[Any]


def pack(packing: str, values: Values) -> Any:
    match packing:
        case "list":
            return list(values)
        case "tuple":
            return tuple(values)
        case "dict":
            return {f"value {i}": value for i, value in enumerate(values)}
        case "nested":
            packed: Any = None
            for value in reversed(values):
                packed = ({"head": value}, [packed])
            return packed
    return Record(values[0], list(values[1:])) if values else None


def unpack(packed: Any) -> list[Any]:
    match packed:
        case None:
            return []
        case dict():
            return list(packed.values())
        case ({"head": head}, [tail]):
            return [head, *unpack(tail)]
        case Record(first, rest):
            return [first, *rest]
    return list(packed)


# -- parameters of a worker ------------------------------------------------------------------------

_held: WeakKeyDictionary[Any, dict[tuple[int, int], dict[str, tp.Tensor]]] = WeakKeyDictionary()
_making = threading.Lock()


def parameters_here(program: Program) -> dict[str, tp.Tensor]:
    """This worker's parameters for a program, made on first use."""
    agent = current_agent()
    with _making:
        mine = _held.setdefault(agent, {})
        key = (program.seed, program.size)
        if key not in mine:
            mine[key] = {
                one.name: tp.tensor(one.values(), dtype=tp.float64, requires_grad=True)
                for one in program.parameters
                if one.worker == agent.rank
            }
        return mine[key]


def forget_parameters(seed: int, size: int) -> None:
    with _making:
        _held.setdefault(current_agent(), {}).pop((seed, size), None)


# -- what workers do -------------------------------------------------------------------------------


def run_block(seed: int, size: int, number: int, given: Any) -> Any:
    """Run a block of a program on this worker."""
    program = program_of(seed, size)
    block = program.blocks[number]
    assert block.worker == current_agent().rank
    with tp.set_grad_enabled(not block.no_grad):
        return pack(block.packing, _run(program, block, unpack(given)))


def _run(program: Program, block: Block, values: list[Any]) -> list[Any]:
    waiting: dict[int, Any] = {}
    for position, statement in enumerate(block.statements):
        match statement:
            case Load(parameter):
                values.append(parameters_here(program)[parameter.name])
            case Constant(shape, number):
                values.append(tp.full(shape, number, dtype=tp.float64))
            case Compute(operation, operands):
                values.append(FUNCTIONS[operation](*[values[i] for i in operands]))
            case Call(_, way, _, _, operands, _):
                result = _call(program, statement, [values[i] for i in operands])
                if way == ASYNC:
                    waiting[position] = result
                else:
                    values.extend(result)
            case Wait(call, _):
                values.extend(unpack(waiting[call].wait()))
    return [values[output] for output in block.outputs]


def _call(program: Program, call: Call, operands: Values) -> Any:
    worker = program.blocks[call.block].worker
    args = (program.seed, program.size, call.block, pack(call.packing, operands))
    match call.way:
        case way if way == SYNC:
            return unpack(rpc.rpc_sync(worker, run_block, args=args))
        case way if way == ASYNC:
            return rpc.rpc_async(worker, run_block, args=args)
    reference = rpc.remote(worker, run_block, args=args)
    match call.way:
        case way if way == REMOTE:
            return unpack(reference.to_here())
        case way if way == TWICE:
            copies = zip(unpack(reference.to_here()), unpack(reference.to_here()), strict=True)
            return [one * 0.5 + other * 0.5 for one, other in copies]
        case way if way == THIRD:
            return unpack(rpc.rpc_sync(call.third, fetch, args=(reference,)))
    raise AssertionError(call.way)


def fetch(reference: rpc.RRef[Any]) -> Any:
    return reference.to_here()


def differentiate(seed: int, size: int, context_id: int, losses: rpc.RRef[Any]) -> None:
    """The passes of a program, on the worker that has its losses."""
    program = program_of(seed, size)
    values = unpack(losses.local_value())
    for number, chosen in enumerate(program.passes, start=1):
        retain_graph = number < len(program.passes)
        roots = [values[i] for i in chosen]
        dist_autograd.backward(context_id, roots, retain_graph=retain_graph)


def gradients_here(seed: int, size: int, context_id: int) -> Gradients:
    """The gradients of this worker's parameters."""
    program = program_of(seed, size)
    try:
        grads = dist_autograd.get_gradients(context_id)
    except RuntimeError:
        grads = {}  # no message of the context has come here
    found: Gradients = {}
    for name, parameter in parameters_here(program).items():
        grad = grads.pop(parameter, None)
        found[name] = None if grad is None else grad.detach().numpy().copy()
        assert parameter.grad is None
    assert not grads, "gradients of something that is no parameter"
    return found


def distributed_gradients(program: Program) -> Gradients:
    """Each parameter's gradient, by the workers of this world; this one drives."""
    seed, size = program.seed, program.size
    key = (seed, size)
    found: Gradients = {}
    with dist_autograd.context() as context_id:
        losses = rpc.remote(program.start, run_block, args=(*key, 0, None))
        if program.start == current_agent().rank:
            differentiate(*key, context_id, losses)
        else:
            rpc.rpc_sync(program.start, differentiate, args=(*key, context_id, losses))
        with tp.no_grad():
            for worker in range(size):
                found |= rpc.rpc_sync(worker, gradients_here, args=(*key, context_id))
    for worker in range(size):
        rpc.rpc_sync(worker, forget_parameters, args=key)
    return found


# -- comparing -------------------------------------------------------------------------------------


def check_program(seed: int, size: int, *, numerically: bool = False) -> None:
    """Compare a program's gradients with those of one process; this worker drives."""
    program = program_of(seed, size)
    with shown(program):
        compare(distributed_gradients(program), plain_gradients(program), 1e-12)
    if numerically:
        check_numerically(program)


@contextlib.contextmanager
def shown(program: Program) -> Iterator[None]:
    """An error within it shows the program, too."""
    try:
        yield
    except Exception as error:
        rerun = f"python tests/distributed/autograd/program_runs.py {program.seed} {program.size}"
        raise AssertionError(f"{error}\n\n{program}\n\nrerun: {rerun}") from error


def check_numerically(program: Program) -> None:
    """Compare a smooth program's gradients in one process with differences."""
    quotients = difference_quotients(program)
    expected = plain_gradients(program)
    for name, quotient in quotients.items():
        if expected[name] is None:
            quotients[name] = None
            assert not quotient.any(), name
    compare(expected, quotients, 1e-6)


def compare(found: Gradients, expected: Gradients, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if array is None or found[name] is None:
            assert found[name] is array, f"{name}: {found[name]} where {array} was expected"
            continue
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(
            found[name], array, rtol=tolerance, atol=tolerance * scale, err_msg=name
        )


def main() -> None:
    from harness.loopback import run_world

    seed, size = map(int, sys.argv[1:])
    program = program_of(seed, size)
    print(program)
    drive: Callable[[], None] = functools.partial(
        check_program, seed, size, numerically=program.smooth
    )
    run_world(size, lambda rank: drive() if rank == 0 else None)
    print({name: None if g is None else g.tolist() for name, g in plain_gradients(program).items()})


if __name__ == "__main__":
    main()
