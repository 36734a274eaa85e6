"""The counters of workers, on the loopback."""

from __future__ import annotations

import dataclasses
import inspect
import re

import numpy as np
import pytest

from distributed.rpc.called import Gate, gates
from harness.loopback import run_world
from tensorplay.distributed import rpc


def fail() -> None:
    raise ValueError("of the callee")


def wait_at(name: str) -> None:
    assert gates[name].event.wait(30)


def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


def test_every_field_is_documented() -> None:
    # Python 3.13 takes the indentation off, older ones do not.
    text = inspect.cleandoc(rpc.Statistics.__doc__ or "")
    documented = re.findall(r"^    (\w+): ", text, re.MULTILINE)
    assert documented == [field.name for field in dataclasses.fields(rpc.Statistics)]


def test_calls_and_bytes() -> None:
    def program(rank: int) -> rpc.Statistics | None:
        if rank == 0:
            rpc.rpc_sync(1, double, args=(np.zeros(20_000),))
            with pytest.raises(ValueError, match="of the callee"):
                rpc.rpc_sync(1, fail)
            return rpc.statistics()
        return None

    counters = run_world(2, program)[0]
    assert (counters.calls_made, counters.calls_failed, counters.calls_timed_out) == (2, 1, 0)
    assert (counters.calls_outstanding, counters.calls_executing) == (0, 0)
    assert counters.bytes_sent > 160_000
    assert counters.bytes_received > 160_000
    assert counters.messages_received >= 2


def test_timeouts_and_executing(gate: Gate) -> None:
    def program(rank: int) -> tuple[rpc.Statistics, rpc.Statistics] | None:
        if rank == 0:
            with pytest.raises(rpc.RpcTimeoutError):
                rpc.rpc_sync(1, wait_at, args=(gate.name,), timeout=0.05)
            there = rpc.rpc_sync(1, rpc.statistics)
            gate.event.set()
            return rpc.statistics(), there
        return None

    here, there = run_world(2, program)[0]
    assert (here.calls_made, here.calls_failed, here.calls_timed_out) == (2, 1, 1)
    # The one that waits, and the one that asks.
    assert there.calls_executing == 2
    assert there.serving_threads > there.idle_threads


def test_references() -> None:
    def program(rank: int) -> int:
        kept = [rpc.RRef(i) for i in range(3)]
        count = rpc.statistics().values_owned
        del kept
        return count

    assert run_world(2, program) == [3, 3]
