"""Who takes part: names and ranks."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9_:-]+")
_NAME_LIMIT = 128


class WorkerInfo:
    """Name and rank of a worker.

    Attributes:
        name: Unique in its world.
        id: Its rank.

    A call `to` one goes by its name.  Two are equal if both are.

    >>> from tensorplay.distributed import rpc
    >>> rpc.get_worker_info("worker1") == rpc.WorkerInfo("worker1", 1)
    True
    """

    __slots__ = ("id", "name")

    def __init__(self, name: str, id: int) -> None:
        self.name = name
        self.id = id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkerInfo) and (other.name, other.id) == (self.name, self.id)

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


def check_name(name: object) -> str | None:
    """What is wrong with a worker's name; None if nothing is."""
    if not isinstance(name, str):
        return f"Worker name must be a string, got {type(name).__name__}"
    if not name:
        return "Worker name must be non-empty"
    if len(name) >= _NAME_LIMIT:
        return f"Worker name must be shorter than {_NAME_LIMIT}, got {len(name)} characters"
    if not _NAME.fullmatch(name):
        return f"Worker name must match {_NAME.pattern} (letters, digits, '_', '-', ':'): {name!r}"
    return None
