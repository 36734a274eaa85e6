"""The text of a dump, of made-up states."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tensorplay.distributed.rpc.dump import (
    ExecutedCall,
    OutstandingCall,
    State,
    ThreadState,
    text_of,
)
from tensorplay.distributed.rpc.naming import name_for_people

FULL = State(
    rank=1,
    size=4,
    name="trainer",
    host="node7",
    pid=123,
    asked_by="rank 3",
    threads=[
        ThreadState("MainThread", stack=['File "a.py", line 3, in main', "  wait()"]),
        ThreadState("serving 1", serves=True, task="CALL 8 of ps (rank 0)", stack=[]),
    ],
    outstanding=[
        OutstandingCall(5, "ps (rank 0)", "model.forward", 12.34, 47.66, 281474976710657),
        OutstandingCall(6, "ps (rank 0)", None, 0.0),
        OutstandingCall(7, "ps (rank 0)", "model.late", 60.2, -0.2),
    ],
    executed=[ExecutedCall(8, "ps (rank 0)", "CALL", "model.backward", 3.0, "serving 1")],
    queued=2,
    autograd=["context 1: here"],
    shutdown=["has been called here"],
    counters={"calls_made": 3, "calls_served": 4},
)


def test_everything_is_in_the_text() -> None:
    assert text_of(FULL) == (
        "[rank 1] ==== tensorplay: trainer (rank 1 of 4), pid 123 on node7, asked by rank 3\n"
        "[rank 1]   calls that this worker waits for:\n"
        "[rank 1]     call 5 to ps (rank 0): model.forward, for 12.3 s, times out in 47.7 s, "
        "context 281474976710657\n"
        "[rank 1]     call 6 to ps (rank 0): function not known, for 0.0 s, no timeout\n"
        "[rank 1]     call 7 to ps (rank 0): model.late, for 60.2 s, times out in 0.0 s\n"
        "[rank 1]   calls that this worker executes:\n"
        "[rank 1]     CALL 8 of ps (rank 0): model.backward, for 3.0 s, on thread 'serving 1'\n"
        "[rank 1]   tasks that wait for a thread or a value: 2\n"
        "[rank 1]   autograd contexts and passes:\n"
        "[rank 1]     context 1: here\n"
        "[rank 1]   shutdown:\n"
        "[rank 1]     has been called here\n"
        "[rank 1]   counters: calls_made 3, calls_served 4\n"
        "[rank 1]   threads: 2\n"
        "[rank 1]   thread 'MainThread'\n"
        '[rank 1]     File "a.py", line 3, in main\n'
        "[rank 1]       wait()\n"
        "[rank 1]   thread 'serving 1' (serving thread), executes CALL 8 of ps (rank 0)\n"
        "[rank 1] ==== end of trainer\n"
    )


def test_state_of_a_worker_that_does_nothing() -> None:
    text = text_of(State(0, 1, "worker0", "node1", 1, "a signal"))
    assert "calls that this worker waits for: none\n" in text
    assert "calls that this worker executes: none\n" in text
    assert "autograd contexts and passes: none\n" in text


class _Callable:
    def __call__(self) -> None: ...

    def __getattr__(self, name: str) -> object:
        raise AssertionError("user code runs")


class _Class:
    def method(self) -> None: ...

    @classmethod
    def of_class(cls) -> None: ...


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (len, "builtins.len"),
        (np.dot, "numpy.dot"),
        (test_everything_is_in_the_text, f"{__name__}.test_everything_is_in_the_text"),
        (_Class, f"{__name__}._Class"),
        (_Class.of_class, f"{__name__}._Class.of_class"),
        (_Class().method, f"{__name__}._Class.method"),
        (partial(partial(len), ()), "builtins.len"),
    ],
)
def test_names_of_functions(function: object, name: str | None) -> None:
    assert name_for_people(function) == name


def test_name_of_an_object_runs_no_code_of_it() -> None:
    assert name_for_people(_Callable()) == f"{__name__}._Callable object"
