"""What the tests of this folder have workers call, and how they run a few workers."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.transport.loopback import Weather
from tensorplay.distributed.transport.wire import INLINE_LIMIT

LIMIT = 20.0
"""Seconds after which something that should have happened never will."""

HARSH = Weather(seed=3, hold=0.6, late_bulk=0.7, pause=1e-3)

LONG = INLINE_LIMIT // 8 + 1
"""Elements of an array of doubles that travels out of band."""


def on_first(size: int, program: Callable[[], Any], **options: Any) -> Any:
    """Run `program` on worker 0 of a world; the others only serve."""
    return run_world(size, lambda rank: program() if rank == 0 else None, **options)[0]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(1e-3)


def here() -> int:
    return rpc.get_worker_info().id


def add(a: Any, b: Any = 10) -> Any:
    return a + b


def arguments(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def identity(value: Any) -> Any:
    return value


def fill(value: Any) -> None:
    array = value if isinstance(value, np.ndarray) else value.numpy()
    array[...] = 7


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def count_values() -> int:
    return len(current_agent().rrefs)


def values_at(worker: int) -> int:
    return int(rpc.rpc_sync(worker, count_values))


class Gate:
    """Holds calls up until it is opened; in one process all workers see it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.event = threading.Event()
        self.waiting = threading.Semaphore(0)

    def pass_through(self, value: Any = None) -> Any:
        self.waiting.release()
        assert self.event.wait(2 * LIMIT)
        return value


gates: dict[str, Gate] = {}


def pass_gate(name: str, value: Any = None) -> Any:
    return gates[name].pass_through(value)


def open_gate(name: str) -> None:
    gates[name].event.set()


class Thing:
    """Something with state and methods."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value

    def added(self, other: Any) -> Any:
        return self.value + other

    @staticmethod
    def static(value: int) -> int:
        return 2 * value

    @classmethod
    def named(cls, value: int) -> tuple[str, int]:
        return cls.__name__, value


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be pickled")


class Unloadable:
    """Can be pickled, and not be loaded where the text says so."""

    def __init__(self, where: int) -> None:
        self.where = where

    def __setstate__(self, state: dict[str, Any]) -> None:
        if here() == state["where"]:
            raise KeyError("cannot be loaded")
        self.__dict__.update(state)


def function_of_a_lost_module() -> Any:
    """A function that pickle can name and that nobody can find when it is called."""
    module = types.ModuleType("lost_module")
    exec("def lost(*args): return args", module.__dict__)
    sys.modules["lost_module"] = module
    return module.__dict__["lost"]


class Losing:
    """Takes the module away once it has been pickled."""

    def __reduce__(self) -> Any:
        sys.modules.pop("lost_module", None)
        return (int, ())
