"""References to parameters, by their owners; and waiting for what several owners do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tensorplay.distributed.rpc import RRef
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.futures import Future
from tensorplay.nn import Module
from tensorplay.tensor import Tensor


class NotAReferenceError(TypeError, AttributeError):
    """Something stands where a reference to a parameter should (AttributeError, as in PyTorch)."""


def check_references(params: Iterable[Any], user: str) -> list[RRef[Any]]:
    """The elements of `params`, all of them references.

    Args:
        params: What the user gave.
        user: Who needs them, for the error.

    Raises:
        NotAReferenceError: One is something else.
    """
    if isinstance(params, (Tensor, RRef, Module, str)) or not isinstance(params, Iterable):
        raise NotAReferenceError(
            f"{user} needs a list of RRefs to parameters, got a {type(params).__name__}"
        )
    found = list(params)
    for i, one in enumerate(found):
        if not isinstance(one, RRef):
            hint = "; for a parameter of this worker give RRef(parameter)"
            raise NotAReferenceError(
                f"{user} needs RRefs to parameters: element {i} is of type {type(one).__name__}"
                + (hint if isinstance(one, Tensor) else "")
            )
    return found


def by_owner(rrefs: Sequence[RRef[Any]]) -> dict[int, list[int]]:
    """For each owner's rank the positions of its references."""
    found: dict[int, list[int]] = {}
    for i, rref in enumerate(rrefs):
        found.setdefault(rref.owner().id, []).append(i)
    return found


def parameter_of(rref: RRef[Any]) -> Tensor:
    """The parameter itself, on its owner.

    Raises:
        TypeError: The reference is to something else.
    """
    value = rref.local_value()
    if not isinstance(value, Tensor):
        here = rref.owner_name()
        hint = "; use its remote_parameters()" if isinstance(value, Module) else ""
        raise TypeError(
            f"can only optimize Tensors, but a reference to worker {here!r} leads to a "
            f"{type(value).__name__}{hint}"
        )
    return value


def wait_for_all(calls: Iterable[tuple[int, Future]], doing: str) -> list[Any]:
    """The results of calls to several workers, when all have ended.

    Args:
        calls: Rank of the callee and future of its answer.
        doing: What is being done, for the error.

    Raises:
        Exception: What the first of those that failed raised; all are named in its notes.
    """
    results = []
    errors: list[tuple[str, Exception]] = []
    for rank, call in calls:
        try:
            results.append(call.wait())
        except Exception as error:
            errors.append((current_agent().workers[rank].name, error))
    if not errors:
        return results
    first = _with_notes(errors, doing)
    try:
        raise first
    finally:
        # The traceback holds this frame: no cycle keeps what the caller's frames hold.
        del first, errors


def _with_notes(errors: Sequence[tuple[str, Exception]], doing: str) -> Exception:
    """The first of several errors, with a note for each of them."""
    _, first = errors[0]
    if hasattr(first, "add_note"):  # since Python 3.11
        for worker, error in errors:
            summary = f"{type(error).__name__}: {error}".splitlines()[0]
            first.add_note(f"{doing} failed on worker {worker!r}: {summary}")
    return first
