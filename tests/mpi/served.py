"""Functions that the tests of several files have other ranks call, and a wait with a limit."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay.distributed import rpc

LIMIT = 20.0
"""Seconds after which something that should have happened never will."""


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; fail if it has not within `LIMIT`."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(1e-3)


def here() -> int:
    return rpc.get_worker_info().id


def add(a: Any, b: Any) -> Any:
    return a + b


def identity(value: Any) -> Any:
    return value


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


class Gate:
    """Holds the calls that pass through it until it is opened, and counts them.

    One stands on each rank: `hold` and `open_gate` are called by others.
    """

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.held = 0

    def close(self) -> None:
        self._open.clear()
        self.held = 0

    def open(self) -> None:
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def hold(self) -> None:
        with self._lock:
            self.held += 1
        assert self._open.wait(LIMIT), "the gate was never opened"


gate = Gate()


def hold(value: Any = None) -> Any:
    gate.hold()
    return value


def open_gate() -> None:
    gate.open()
