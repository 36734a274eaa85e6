"""Running random programs distributed, and comparing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

import tensorplay as tp
from distributed.autograd.program_failures import shown
from distributed.autograd.program_maker import program_of
from distributed.autograd.program_operations import FUNCTIONS
from distributed.autograd.program_plain import (
    Gradients,
    constant,
    difference_quotients,
    leaf,
    plain_gradients,
    scaled,
)
from distributed.autograd.programs import (
    CHAINED,
    CONTINUED,
    KEPT,
    LATER,
    PROXY_ASYNC,
    PROXY_REMOTE,
    PROXY_SYNC,
    REMOTE,
    SYNC,
    THEN,
    THIRD,
    TWICE,
    Block,
    Call,
    Compute,
    Constant,
    Load,
    Program,
    Wait,
)
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.functions import async_execution

Values = Sequence[Any]

#: Where workers have a program from: its seed and size, or, if no seed gives it, itself.
Source = tuple[int, int] | Program

PASS_SECONDS = 15.0
"""After which a pass counts as stuck."""


def source_for(program: Program) -> Source:
    """What is sent of a program."""
    made = program_of(program.seed, program.size)
    return (program.seed, program.size) if made == program else program


def from_source(source: Source) -> Program:
    return source if isinstance(source, Program) else program_of(*source)


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

_held: WeakKeyDictionary[Any, dict[Source, dict[str, tp.Tensor]]] = WeakKeyDictionary()
_making = threading.Lock()


def parameters_here(source: Source) -> dict[str, tp.Tensor]:
    """This worker's parameters for a program, made on first use."""
    agent = current_agent()
    with _making:
        mine = _held.setdefault(agent, {})
        if source not in mine:
            mine[source] = {
                one.name: leaf(one)
                for one in from_source(source).parameters
                if one.worker == agent.rank
            }
        return mine[source]


def forget_parameters(source: Source) -> None:
    with _making:
        _held.setdefault(current_agent(), {}).pop(source, None)


# -- what workers do -------------------------------------------------------------------------------


def run_block(source: Source, number: int, given: Any, references: Values = ()) -> Any:
    """Run a block of a program on this worker."""
    block = from_source(source).blocks[number]
    assert block.worker == current_agent().rank
    run = _Run(source, block, unpack(given), references)
    with tp.set_grad_enabled(not block.no_grad):
        return pack(block.packing, run.results())


class Runner:
    """What proxies call: an object on the worker."""

    def run(self, *args: Any) -> Any:
        return run_block(*args)


@async_execution
def run_elsewhere(worker: int, args: tuple[Any, ...]) -> rpc.Future:
    """Run a block on another worker, and go on with its values on this one."""
    return rpc.rpc_async(worker, run_block, args=args).then(scaled_results)


def scaled_results(future: rpc.Future) -> list[Any]:
    return scaled(unpack(future.wait()))


def fetch(reference: rpc.RRef[Any]) -> Any:
    return reference.to_here()


class _Run:
    """A block under way on this worker."""

    def __init__(
        self, source: Source, block: Block, given: Sequence[Any], references: Values
    ) -> None:
        self._source = source
        self._block = block
        self._values: dict[int, Any] = dict(zip(block.inputs, given, strict=True))
        self._handles = dict(zip(block.references, references, strict=True))

    def results(self) -> list[Any]:
        values = self._values
        for statement in self._block.statements:
            match statement:
                case Load(to, parameter):
                    values[to] = parameters_here(self._source)[parameter]
                case Constant(to):
                    values[to] = constant(statement)
                case Compute(to, operation, operands):
                    values[to] = FUNCTIONS[operation](*[values[i] for i in operands])
                case Wait(to, handle):
                    values.update(zip(to, self._wait(handle), strict=True))
                case Call(to, handle=handle, quiet=quiet):
                    with tp.set_grad_enabled(tp.is_grad_enabled() and not quiet):
                        result = self._call(statement)
                    if statement.way in LATER:
                        self._handles[handle] = result, quiet
                    elif statement.way == KEPT:
                        self._handles[handle] = result
                    else:
                        values.update(zip(to, _kept_quiet(result, quiet), strict=True))
        return [values[output] for output in self._block.outputs]

    def _wait(self, handle: int) -> list[Any]:
        waiting = self._handles[handle]
        if isinstance(waiting, tuple):
            future, quiet = waiting
            return _kept_quiet(unpack(future.wait()), quiet)
        return unpack(waiting.to_here())

    def _call(self, call: Call) -> Any:
        worker = from_source(self._source).blocks[call.block].worker
        given = pack(call.packing, [self._values[i] for i in call.operands])
        references = [self._handles[reference] for reference in call.references]
        args = (self._source, call.block, given, references)
        match call.way:
            case way if way == SYNC:
                return unpack(rpc.rpc_sync(worker, run_block, args=args))
            case way if way in LATER:
                return _later(call, rpc.rpc_async(worker, run_block, args=args))
            case way if way == CONTINUED:
                return rpc.rpc_sync(call.third, run_elsewhere, args=(worker, args))
            case way if way == PROXY_SYNC:
                return unpack(rpc.remote(worker, Runner).rpc_sync().run(*args))
            case way if way == PROXY_ASYNC:
                return unpack(rpc.remote(worker, Runner).rpc_async().run(*args).wait())
            case way if way == PROXY_REMOTE:
                return unpack(rpc.remote(worker, Runner).remote().run(*args).to_here())
        reference = rpc.remote(worker, run_block, args=args)
        match call.way:
            case way if way == KEPT:
                return reference
            case way if way == REMOTE:
                return unpack(reference.to_here())
            case way if way == TWICE:
                copies = zip(unpack(reference.to_here()), unpack(reference.to_here()), strict=True)
                return [one * 0.5 + other * 0.5 for one, other in copies]
            case way if way == THIRD:
                return unpack(rpc.rpc_sync(call.third, fetch, args=(reference,)))
        raise AssertionError(call.way)


def _later(call: Call, future: rpc.Future) -> rpc.Future:
    if call.way == THEN:
        return future.then(scaled_results)
    if call.way == CHAINED:
        # A callback that returns a future stands for what that gives.
        return future.then(
            lambda done: rpc.rpc_async(call.third, scaled, args=(unpack(done.wait()),))
        )
    return future


def _kept_quiet(results: Values, quiet: bool) -> list[Any]:
    return [one.detach() for one in results] if quiet else list(results)


def differentiate(
    source: Source, context_id: int, losses: rpc.RRef[Any], timeout: float = PASS_SECONDS
) -> None:
    """The passes of a program, on the worker that has its losses."""
    program = from_source(source)
    values = unpack(losses.local_value())
    for number, chosen in enumerate(program.passes, start=1):
        retain_graph = number < len(program.passes)
        roots = [values[i] for i in chosen]
        dist_autograd.backward(context_id, roots, retain_graph=retain_graph, timeout=timeout)


def gradients_here(source: Source, context_id: int) -> Gradients:
    """The gradients of this worker's parameters."""
    try:
        grads = dist_autograd.get_gradients(context_id)
    except RuntimeError:
        grads = {}  # no message of the context has come here
    found: Gradients = {}
    for name, parameter in parameters_here(source).items():
        grad = grads.pop(parameter, None)
        found[name] = None if grad is None else grad.detach().numpy().copy()
        assert parameter.grad is None
    assert not grads, "gradients of something that is no parameter"
    return found


def distributed_gradients(program: Program, timeout: float = PASS_SECONDS) -> Gradients:
    """Each parameter's gradient, by the workers of this world; this one drives."""
    source = source_for(program)
    found: Gradients = {}
    with dist_autograd.context() as context_id:
        for _ in range(1 + program.again):
            losses = rpc.remote(program.start, run_block, args=(source, 0, None))
            if program.start == current_agent().rank:
                differentiate(source, context_id, losses, timeout)
            else:
                args = (source, context_id, losses, timeout)
                rpc.rpc_sync(program.start, differentiate, args=args)
        with tp.no_grad():
            for worker in range(program.size):
                found |= rpc.rpc_sync(worker, gradients_here, args=(source, context_id))
    for worker in range(program.size):
        rpc.rpc_sync(worker, forget_parameters, args=(source,))
    return found


# -- comparing -------------------------------------------------------------------------------------


def check_program(seed: int, size: int, *, numerically: bool = False) -> None:
    """Compare a program's gradients with those of one process; this worker drives."""
    program = program_of(seed, size)
    with shown(program, check):
        check(program)
    if numerically and program.differentiable:
        check_numerically(program)


def check(program: Program, timeout: float = PASS_SECONDS) -> None:
    """Compare the gradients of a program, of whatever origin, with those of one process."""
    found = distributed_gradients(program, timeout)
    compare(found, plain_gradients(program), tolerance_for(program, 1e-12))


def tolerance_for(program: Program, tolerance: float) -> float:
    """A tolerance; where numbers have seven digits, sums of them depend on their order."""
    return max(tolerance, 1e-4) if program.mixed else tolerance


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
        scale = float(np.abs(array).max(initial=1.0))
        assert found[name].dtype == array.dtype, name
        np.testing.assert_allclose(
            found[name], array, rtol=tolerance, atol=tolerance * scale, err_msg=name
        )
