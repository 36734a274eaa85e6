"""Counting the messages of the passes of random programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import tensorplay as tp
from distributed.autograd.crossings import Crossings
from distributed.autograd.driving import context_of, eventually
from distributed.autograd.program_failures import shown
from distributed.autograd.program_maker import program_of
from distributed.autograd.program_plain import plain_gradients
from distributed.autograd.program_runs import (
    PASS_SECONDS,
    differentiate,
    forget_parameters,
    run_block,
    source_for,
)
from distributed.autograd.programs import Program
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.autograd.statistics import Statistics
from tensorplay.distributed.rpc.current import current_agent


def calls_outstanding() -> int:
    return rpc.statistics().calls_outstanding


def is_quiet() -> bool:
    """Whether all calls among all workers have been answered; this worker asks."""
    others = [worker.id for worker in current_agent().workers if worker.id != current_agent().rank]
    return not calls_outstanding() and not any(
        rpc.rpc_sync(other, calls_outstanding) for other in others
    )


def slice_here(context_id: int) -> tuple[int, int, set[int]]:
    """Of a context on this worker: send and recv functions towards others, and whom it knows."""
    try:
        context = context_of(context_id)
    except RuntimeError:
        return 0, 0, set()
    here = current_agent().rank
    sends = [one for one in context._send_functions().values() if one.peer != here]
    recvs = [one for one in context._recv_functions().values() if one.peer != here]
    return len(sends), len(recvs), context._known_worker_ids() - {here}


def check_counts(seed: int, size: int) -> Statistics:
    """Run a program's passes when all is quiet: each sends what the design says, and no more.

    This worker drives.  Returns what all workers have sent.
    """
    # Once: pairs that the first time has left over would be counted with the second.
    program = replace(program_of(seed, size), again=False)
    with shown(program, check_counts_of):
        return check_counts_of(program)


def check_counts_of(program: Program, timeout: float = PASS_SECONDS) -> Statistics:
    """The same for a program of whatever origin."""
    source = source_for(program)
    expected = Crossings()
    plain_gradients(program, expected)
    everybody = range(program.size)
    with dist_autograd.context() as context_id:
        losses = rpc.remote(program.start, run_block, args=(source, 0, None))
        eventually(is_quiet)
        with tp.no_grad():
            slices = [rpc.rpc_sync(one, slice_here, args=(context_id,)) for one in everybody]
            before = [rpc.rpc_sync(one, dist_autograd.statistics) for one in everybody]
        rpc.rpc_sync(program.start, differentiate, args=(source, context_id, losses, timeout))
        with tp.no_grad():
            after = [rpc.rpc_sync(one, dist_autograd.statistics) for one in everybody]
    for one in everybody:
        rpc.rpc_sync(one, forget_parameters, args=(source,))
    sent = difference(after, before)
    passes = len(program.passes)
    pairs = sum([recvs for _, recvs, _ in slices])
    assert pairs == sum([sends for sends, _, _ in slices]) == expected.pairs
    assert sent.gradients_sent == len(expected.used)
    assert sent.answers_sent == passes * pairs
    assert sent.answer_messages_sent <= sent.answers_sent
    assert sent.late_answers_sent == 0
    known = {one: slices[one][2] for one in everybody}
    assert sent.reports_sent == passes * (len(closure(program.start, known)) - 1)
    # At most one from one worker to another, none to the one that has started the pass.
    others = [ranks - {program.start} for ranks in known.values()]
    assert sent.notices_sent <= passes * sum(map(len, others))
    return sent


def difference(after: Sequence[Statistics], before: Sequence[Statistics]) -> Statistics:
    """What all workers together have sent between two readings of their counters."""
    return Statistics(
        *[
            sum([getattr(a, one.name) - getattr(b, one.name) for a, b in pairs])
            for pairs in [list(zip(after, before, strict=True))]
            for one in fields(Statistics)
        ]
    )


def closure(start: int, known: dict[int, set[int]]) -> set[int]:
    """All that a worker knows, that those know, and so on, and itself."""
    found, stack = {start}, [start]
    while stack:
        new = known[stack.pop()] - found
        found |= new
        stack += new
    return found
