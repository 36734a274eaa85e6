"""What all workers must agree on before any of them begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.worker import WorkerInfo, check_name
from tensorplay.distributed.settings import Settings, disagreements, name_ranks
from tensorplay.distributed.transport.wire import PROTOCOL_VERSION


class _Gathering(Protocol):
    rank: int
    size: int

    def allgather(self, value: Any) -> list[Any]: ...


class _Claim(NamedTuple):
    """What one worker brings: its name, or what is wrong with its arguments or settings."""

    name: str
    protocol: int
    settings: Settings
    problem: str | None


def agree(
    transport: _Gathering,
    name: str | None,
    rank: int | None,
    world_size: int | None,
    options: MPIRpcBackendOptions,
    settings: Settings | None = None,
    problems_of_settings: Sequence[str] = (),
) -> list[WorkerInfo]:
    """All workers, in the order of their ranks.  Collective.

    `settings` is what the environment says, and `problems_of_settings` what is wrong with it.

    Every worker sees the same claims and so comes to the same verdict: all go on, or all raise.

    Raises:
        ValueError: An argument or a setting of some worker does not hold.
        RuntimeError: The names, versions or settings of the workers do not fit together.
    """
    if name is None:
        name = f"worker{transport.rank}"
    problem = check_name(name) or options.problem() or _disagreement(transport, rank, world_size)
    problem = problem or "; ".join(problems_of_settings) or None
    claim_here = (name, PROTOCOL_VERSION, settings or Settings(), problem)
    claims = [_Claim(*claim) for claim in transport.allgather(claim_here)]
    complaints: dict[str, list[int]] = {}
    for i, claim in enumerate(claims):
        if claim.problem is not None:
            complaints.setdefault(claim.problem, []).append(i)
    if complaints:
        said = [
            f"{name_ranks(ranks, transport.size)}: {what}" for what, ranks in complaints.items()
        ]
        raise ValueError("init_rpc: " + "; ".join(said))
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


def _disagreement(transport: _Gathering, rank: int | None, world_size: int | None) -> str | None:
    if rank not in (None, -1, transport.rank):
        return f"rank={rank} was given, but MPI says {transport.rank}"
    if world_size not in (None, -1, 0, transport.size):
        return f"world_size={world_size} was given, but MPI says {transport.size}"
    return None
