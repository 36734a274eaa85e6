"""What all workers must agree on before any of them begins."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any, NamedTuple, Protocol

from tensorplay.distributed.rpc.errors import WorkerNameError
from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.worker import WorkerInfo, check_name
from tensorplay.distributed.settings import Settings, disagreements, name_ranks
from tensorplay.distributed.transport.wire import PROTOCOL_VERSION


class _Gathering(Protocol):
    rank: int
    size: int

    def allgather(self, value: Any) -> list[Any]: ...


class _Claim(NamedTuple):
    """What one worker brings: its name, or kind and text of what is wrong with its arguments."""

    name: str
    protocol: int
    settings: Settings
    problem: tuple[str, str] | None


#: The kinds of problem that there are, by name: exceptions themselves might not travel whole.
_KINDS = {kind.__name__: kind for kind in (WorkerNameError, TypeError, ValueError, ImportError)}


def agree(
    transport: _Gathering,
    name: str | None,
    rank: int | None,
    world_size: int | None,
    options: MPIRpcBackendOptions,
    problem: Exception | None = None,
    settings: Settings | None = None,
) -> list[WorkerInfo]:
    """All workers, in the order of their ranks.  Collective.

    Every worker sees the same claims and so comes to the same verdict: all go on, or all raise.

    Args:
        transport: Gathers the claims.
        name: As `init_rpc` was given it.
        rank: As `init_rpc` was given it.
        world_size: As `init_rpc` was given it.
        options: This worker's options.
        problem: What is wrong already with this worker's arguments or settings.
        settings: What the environment says.

    Raises:
        ValueError: An argument or a setting of some worker does not hold; a `WorkerNameError` if
            it is a name.
        TypeError: An argument is not what it should be.  If several workers have a problem, the
            first one's tells which is raised.
        ImportError: A worker lacks a package that its options ask for.
        RuntimeError: The names, versions or settings of the workers do not fit together.
    """
    if name is None:
        name = f"worker{transport.rank}"
    problem = problem or _problem(transport, name, rank, world_size, options)
    told = None if problem is None else (_kind(problem), str(problem))
    # A name that is no string might not even travel.
    own = (name if told is None else "", PROTOCOL_VERSION, settings or Settings(), told)
    claims = [_Claim(*claim) for claim in transport.allgather(own)]
    complaints: dict[tuple[str, str], list[int]] = {}
    for i, claim in enumerate(claims):
        if claim.problem is not None:
            complaints.setdefault(claim.problem, []).append(i)
    if complaints:
        kind = _KINDS[next(iter(complaints))[0]]
        said = [
            f"{name_ranks(ranks, transport.size)}: {text}"
            for (_, text), ranks in complaints.items()
        ]
        raise kind("init_rpc: " + "; ".join(said))
    protocols = {claim.protocol for claim in claims}
    if len(protocols) > 1:
        raise RuntimeError(f"the workers run versions that differ on the wire: {sorted(protocols)}")
    differing = disagreements([claim.settings for claim in claims])
    if differing:
        raise RuntimeError(
            f"init_rpc: {'; '.join(differing)}. Ranks must agree on it: have the launcher pass the "
            "environment on to all of them"
        )
    for repeated, count in Counter(claim.name for claim in claims).items():
        if count > 1:
            ranks = [i for i, claim in enumerate(claims) if claim.name == repeated]
            raise RuntimeError(
                f"Worker name {repeated!r} is not unique: ranks {ranks} have it. Give each worker "
                "a name of its own, or none to get worker<rank>"
            )
    return [WorkerInfo(claim.name, i) for i, claim in enumerate(claims)]


def _kind(problem: Exception) -> str:
    return next((name for name, kind in _KINDS.items() if isinstance(problem, kind)), "ValueError")


def _problem(
    transport: _Gathering,
    name: str,
    rank: int | None,
    world_size: int | None,
    options: MPIRpcBackendOptions,
) -> Exception | None:
    text = check_name(name)
    if text is not None:
        return WorkerNameError(text)
    return (
        options.problem()
        or _disagreement("rank", rank, {-1, transport.rank}, transport.rank)
        or _disagreement("world_size", world_size, {-1, 0, transport.size}, transport.size)
    )


def _disagreement(argument: str, given: object, allowed: set[int], own: int) -> Exception | None:
    if given is None:
        return None
    try:
        number = operator.index(given)  # type: ignore[arg-type]  # raises TypeError if it is none
    except TypeError:
        return TypeError(f"{argument} must be an int, got {type(given).__name__}")
    if number not in allowed:
        return ValueError(f"{argument}={number} was given, but MPI says {own}")
    return None
