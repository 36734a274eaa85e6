"""Collectives among workers, made of calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from distributed.rpc.called import HARSH, LIMIT, Gate, Unpicklable, add, eventually, pass_gate
from harness.loopback import run_world
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import gathering
from tensorplay.distributed.rpc.api import _all_gather, _barrier, _wait_all_workers
from tensorplay.distributed.rpc.current import current_agent, set_thread_agent

EVERYBODY = ["worker0", "worker1", "worker2"]


def rounds_open() -> int:
    return len(gathering._rounds_of(current_agent())._states)


class SlowToLoad:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(state["seconds"])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_gather(size: int) -> None:
    def program(rank: int) -> Any:
        gathered = _all_gather(rank * 10)
        assert rounds_open() == 0
        assert list(gathered) == sorted(gathered)
        return gathered

    expected = {f"worker{rank}": rank * 10 for rank in range(size)}
    assert run_world(size, program, weather=HARSH) == [expected] * size


def test_rounds_follow_one_another() -> None:
    def program(rank: int) -> Any:
        return [_all_gather((rank, number)) for number in range(30)]

    expected = [{"worker0": (0, i), "worker1": (1, i), "worker2": (2, i)} for i in range(30)]
    assert run_world(3, program, weather=HARSH) == [expected] * 3


def test_subsets_that_are_disjoint_overlap_or_are_single() -> None:
    def program(rank: int) -> Any:
        alone = _all_gather(rank, {f"worker{rank}"})
        pair = _all_gather(rank, [f"worker{rank}", f"worker{rank ^ 1}"])
        everybody = _all_gather(rank)
        outer = _all_gather(rank, ["worker3", "worker0"]) if rank in (0, 3) else None
        return alone, pair, everybody, outer

    def expected(rank: int) -> Any:
        def of(*ranks: int) -> dict[str, int]:
            return {f"worker{r}": r for r in ranks}

        lower = rank & ~1
        outer = of(0, 3) if rank in (0, 3) else None
        return of(rank), of(lower, lower + 1), of(0, 1, 2, 3), outer

    assert run_world(4, program) == [expected(rank) for rank in range(4)]


@pytest.mark.parametrize("what", [_all_gather, lambda rank: _barrier(EVERYBODY)])
def test_three_threads_at_once(what: Callable[[int], Any]) -> None:
    def program(rank: int) -> Any:
        agent = current_agent()
        outcomes = []

        def gather() -> None:
            set_thread_agent(agent)
            for _ in range(5):
                outcomes.append(what(rank))  # noqa: PERF401

        threads = [threading.Thread(target=gather) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        return outcomes

    expected = {"worker0": 0, "worker1": 1, "worker2": 2} if what is _all_gather else None
    assert run_world(3, program, weather=HARSH) == [[expected] * 15] * 3


def test_worker_serves_while_it_waits() -> None:
    def program(rank: int) -> Any:
        if rank == 1:
            assert rpc.rpc_sync(0, add, args=(1, 2)) == 3
            assert rpc.rpc_sync(2, add, args=(1, 2)) == 3
        _wait_all_workers()
        _wait_all_workers()

    run_world(3, program)


def test_barrier_waits_for_the_last(gate: Gate) -> None:
    def program(rank: int) -> float:
        if rank == 2:
            gate.event.wait(LIMIT)
        elif rank == 1:
            threading.Timer(0.05, gate.event.set).start()
        _barrier(EVERYBODY)
        return gate.event.is_set()

    assert run_world(3, program) == [True] * 3


def test_barrier_logs_what_fails(caplog: pytest.LogCaptureFixture) -> None:
    run_world(1, lambda rank: _barrier(["nobody"]))
    assert "could not find destination 'nobody'" in caplog.text


@pytest.mark.parametrize(
    ("names", "problem"),
    [(["worker0", "nobody"], "could not find destination"), (["worker1"], "not itself")],
)
def test_sets_that_do_not_hold(names: list[str], problem: str) -> None:
    def program(rank: int) -> None:
        if rank == 0:
            with pytest.raises(RuntimeError, match=problem):
                _all_gather(None, names)

    run_world(2, program)


def check_timeout(call: Callable[[], Any], *parts: str) -> None:
    begin = time.monotonic()
    with pytest.raises(rpc.RpcTimeoutError) as caught:
        call()
    assert time.monotonic() - begin < LIMIT
    for part in parts:
        assert part in str(caught.value)


def test_follower_that_does_not_come() -> None:
    """The leader tells the others, also those that set themselves no limit."""

    def program(rank: int) -> None:
        text = "Followers ['worker2'] timed out in _all_gather after 0.30 seconds. The first exc"
        if rank == 0:
            # Worker 1 has come.
            eventually(lambda: rounds_open() == 1)
            check_timeout(lambda: _all_gather(0, timeout=0.3), text)
        elif rank == 1:
            check_timeout(lambda: _all_gather(1), text)
        assert rounds_open() == 0

    run_world(3, program)


def test_leader_that_does_not_come() -> None:
    def program(rank: int) -> None:
        if rank:
            check_timeout(
                lambda: _all_gather(0, timeout=0.2), "RPC ran for more than set timeout", "worker0"
            )
            assert rounds_open() == 0

    run_world(2, program)


def test_follower_that_comes_when_the_leader_has_gone(gate: Gate) -> None:
    def program(rank: int) -> None:
        if rank == 0:
            check_timeout(lambda: _wait_all_workers(timeout=0.1), "Followers ['worker1']")
            gate.event.set()
        else:
            gate.event.wait(LIMIT)
            check_timeout(_wait_all_workers, "has stopped waiting for 'worker1'")
        _all_gather(rank)
        assert rounds_open() == 0

    run_world(2, program)


def test_messages_have_the_timeout_of_the_options() -> None:
    def program(rank: int) -> None:
        rpc._set_rpc_timeout(0.1)
        text = "timed out in _all_gather after 0.10 sec" if rank == 0 else "more than set timeout"
        check_timeout(lambda: _all_gather(SlowToLoad(0.5)), text)
        rpc._set_rpc_timeout(20)
        _all_gather(rank)
        eventually(lambda: rounds_open() == 0)

    run_world(3, program)


def test_without_a_timeout_there_is_no_limit_for_the_whole() -> None:
    def program(rank: int) -> Any:
        rpc._set_rpc_timeout(0.5)
        if rank == 1:
            time.sleep(0.8)
        return _all_gather(rank)

    assert run_world(2, program) == [{"worker0": 0, "worker1": 1}] * 2


def test_what_cannot_be_pickled_fails_everywhere() -> None:
    def program(rank: int) -> None:
        if rank == 0:
            with pytest.raises(ValueError, match="cannot be pickled"):
                _all_gather(Unpicklable())
        else:
            with pytest.raises(RuntimeError, match="'worker0' could not send what was gathered"):
                _all_gather(rank)
        assert _all_gather(rank) == {"worker0": 0, "worker1": 1}

    run_world(2, program)


def test_after_another_start_rounds_begin_anew() -> None:
    def first(rank: int) -> None:
        if rank == 0:
            check_timeout(lambda: _all_gather(0, timeout=0.05))

    run_world(2, first)
    assert run_world(2, _all_gather) == [{"worker0": 0, "worker1": 1}] * 2


def test_held_up_serving_threads_do_no_harm(gate: Gate) -> None:
    def program(rank: int) -> Any:
        held = [rpc.rpc_async(0, pass_gate, args=(gate.name,)) for _ in range(5)]
        gathered = _all_gather(rank)
        gate.event.set()
        for call in held:
            call.wait()
        return gathered

    assert run_world(2, program) == [{"worker0": 0, "worker1": 1}] * 2
