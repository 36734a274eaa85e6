"""Before anybody starts, all agree; or the same error is raised on all."""

from __future__ import annotations

import importlib.util
import math
import threading
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import start
from tensorplay.distributed.rpc.errors import WorkerNameError
from tensorplay.distributed.rpc.options import MPIRpcBackendOptions
from tensorplay.distributed.rpc.worker import WorkerInfo, check_name
from tensorplay.distributed.settings import Settings
from tensorplay.distributed.transport.loopback import LoopbackWorld

BOTH = (ValueError, RuntimeError)


def agree(size: int, **lists: list[Any]) -> list[Any]:
    """Have `size` workers agree, each with its items of `lists`; results or errors by rank."""
    world = LoopbackWorld(size)
    outcomes: list[Any] = [None] * size

    def worker(rank: int) -> None:
        given = {name: values[rank] for name, values in lists.items()}
        arguments = {"name": None, "rank": None, "world_size": None, "options": None, **given}
        arguments["options"] = arguments["options"] or MPIRpcBackendOptions()
        try:
            outcomes[rank] = start.agree(world.transport(rank), **arguments)
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


def check_all_raise(outcomes: list[Any], kind: type[Exception], *parts: str) -> None:
    for outcome in outcomes:
        assert type(outcome) is kind, outcome
        for part in parts:
            assert part in str(outcome)
    assert len({str(outcome) for outcome in outcomes}) == 1


def test_default_names() -> None:
    expected = [WorkerInfo("worker0", 0), WorkerInfo("worker1", 1), WorkerInfo("worker2", 2)]
    assert agree(3) == [expected] * 3


def test_given_names() -> None:
    expected = [WorkerInfo("ps", 0), WorkerInfo("worker1", 1), WorkerInfo("trainer:1-a_B", 2)]
    assert agree(3, name=["ps", None, "trainer:1-a_B"]) == [expected] * 3


@pytest.mark.parametrize("rank", [[None, -1, 2], [0, 1, 2]])
@pytest.mark.parametrize("world_size", [[None, -1, 0], [3, 3, 3]])
def test_arguments_that_agree(rank: list[Any], world_size: list[Any]) -> None:
    outcomes = agree(3, rank=rank, world_size=world_size)
    assert all(len(outcome) == 3 for outcome in outcomes)


def test_rank_that_disagrees() -> None:
    outcomes = agree(3, rank=[0, 2, 2])
    check_all_raise(outcomes, ValueError, "rank 1", "rank=2 was given, but MPI says 1")


def test_world_size_that_disagrees() -> None:
    outcomes = agree(3, world_size=[3, 3, 4])
    check_all_raise(outcomes, ValueError, "rank 2", "world_size=4 was given, but MPI says 3")


def test_every_problem_is_named() -> None:
    outcomes = agree(3, world_size=[3, 2, 3], name=["", None, None])
    check_all_raise(outcomes, WorkerNameError, "rank 0: Worker name must be non-empty", "rank 1:")
    assert all(isinstance(outcome, kind) for outcome in outcomes for kind in BOTH)


def test_names_that_are_equal() -> None:
    outcomes = agree(4, name=["a", "same", "b", "same"])
    check_all_raise(outcomes, RuntimeError, "'same' is not unique", "[1, 3]")


def test_given_name_that_equals_a_default_one() -> None:
    outcomes = agree(2, name=["worker1", None])
    check_all_raise(outcomes, RuntimeError, "'worker1' is not unique")


def test_versions_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(LoopbackWorld):
        def allgather(self, rank: int, value: Any) -> list[Any]:
            if rank == 1:
                value = (value[0], value[1] + 1, *value[2:])
            return super().allgather(rank, value)

    world = Newer(2)
    outcomes: list[Any] = [None, None]

    def worker(rank: int) -> None:
        try:
            start.agree(world.transport(rank), None, None, None, MPIRpcBackendOptions())
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    check_all_raise(outcomes, RuntimeError, "versions that differ")


@pytest.mark.parametrize("name", ["a", "A-b_c:9", "x" * 127, "0"])
def test_names_that_hold(name: str) -> None:
    assert check_name(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must be non-empty"),
        ("x" * 128, "shorter than 128"),
        ("a b", "must match"),
        ("a/b", "must match"),
        ("é", "must match"),
        ("a\n", "must match"),
        (5, "must be a string"),
    ],
)
def test_names_that_do_not_hold(name: Any, problem: str) -> None:
    assert problem in str(check_name(name))
    check_all_raise(agree(2, name=["fine", name]), WorkerNameError, "rank 1: ", problem)


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"rpc_timeout": -1}, ValueError, "rpc_timeout must be"),
        ({"rpc_timeout": math.nan}, ValueError, "rpc_timeout must be"),
        ({"rpc_timeout": math.inf}, ValueError, "0 for no limit"),
        ({"rpc_timeout": "5"}, TypeError, "rpc_timeout must be"),
        ({"rpc_timeout": None}, TypeError, "rpc_timeout must be"),
        ({"rpc_timeout": True}, TypeError, "rpc_timeout must be"),
        ({"rpc_timeout": timedelta(seconds=5)}, TypeError, "incompatible constructor arguments"),
        ({"switch_interval": 0}, ValueError, "switch_interval must be"),
        ({"switch_interval": -1.0}, ValueError, "switch_interval must be"),
        ({"switch_interval": "1"}, ValueError, "switch_interval must be"),
        ({"num_worker_threads": 0}, ValueError, "num_worker_threads must be positive"),
        ({"num_worker_threads": 2.0}, TypeError, "num_worker_threads must be an int"),
        ({"num_worker_threads": True}, TypeError, "num_worker_threads must be an int"),
    ],
)
def test_options_that_do_not_hold(
    options: dict[str, Any], kind: type[Exception], problem: str
) -> None:
    given = [MPIRpcBackendOptions(), MPIRpcBackendOptions(**options)]
    check_all_raise(agree(2, options=given), kind, "rank 1: ", problem)


@pytest.mark.parametrize("argument", ["rank", "world_size"])
@pytest.mark.parametrize("value", ["1", 1.5, np.zeros(3), lambda: 1])
def test_ranks_and_sizes_that_are_none(argument: str, value: Any) -> None:
    outcomes = agree(2, **{argument: [value, None]})
    check_all_raise(outcomes, TypeError, f"rank 0: {argument} must be an int")


def test_integers_of_numpy_are_ranks() -> None:
    assert all(len(outcome) == 2 for outcome in agree(2, rank=[np.int64(0), np.int32(1)]))


def test_name_that_cannot_travel() -> None:
    check_all_raise(agree(2, name=[lambda: 1, None]), WorkerNameError, "must be a string")


def test_first_of_several_problems_tells_the_kind() -> None:
    outcomes = agree(3, world_size=[3, "3", 4])
    check_all_raise(outcomes, TypeError, "rank 1: world_size must be", "rank 2: world_size=4")


def test_problem_found_before() -> None:
    outcomes = agree(3, problem=[None, TypeError("found before"), None])
    check_all_raise(outcomes, TypeError, "rank 1: found before")


def test_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    outcomes = agree(2, options=[MPIRpcBackendOptions(cloudpickle=True), None])
    check_all_raise(outcomes, ImportError, "rank 0: ", "pip install cloudpickle")


@pytest.mark.parametrize(
    "options",
    [{}, {"rpc_timeout": 0}, {"switch_interval": None}, {"num_worker_threads": 1}],
)
def test_options_that_hold(options: dict[str, Any]) -> None:
    assert MPIRpcBackendOptions(**options).problem() is None


def test_kinds_of_arguments_are_checked_before_mpi_starts() -> None:
    with pytest.raises(TypeError, match="Argument backend must be a member of BackendType"):
        rpc.init_rpc("w", backend="MPI")  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match="Argument rpc_backend_options must be an instance of RpcBackendOptions"
    ):
        rpc.init_rpc("w", rpc_backend_options=5)  # type: ignore[arg-type]


def test_worker_info() -> None:
    info = WorkerInfo("w", 3)
    assert repr(info) == "WorkerInfo(id=3, name=w)"
    assert info == WorkerInfo("w", 3)
    assert info != WorkerInfo("w", 4)
    assert info != WorkerInfo("v", 3)
    assert info != 3
    assert hash(info) == 3


def test_problems_of_settings_are_raised_on_all() -> None:
    outcomes = agree(3, problem=[None, ValueError("TENSORPLAY_LOG must be loud"), None])
    check_all_raise(outcomes, ValueError, "rank 1: TENSORPLAY_LOG must be loud")


def test_settings_that_must_agree_and_do_not() -> None:
    outcomes = agree(3, settings=[Settings(), Settings(rpc_timeout=5.0), Settings()])
    check_all_raise(
        outcomes, RuntimeError, "TENSORPLAY_RPC_TIMEOUT is 60.0 on ranks 0, 2 but 5.0 on rank 1"
    )


def test_settings_that_may_differ() -> None:
    outcomes = agree(2, settings=[Settings(log="debug"), Settings(dump_signal=None)])
    assert all(len(outcome) == 2 for outcome in outcomes)


def test_what_all_complain_of_is_said_once() -> None:
    outcomes = agree(3, world_size=[4, 4, 4])
    check_all_raise(outcomes, ValueError)
    assert str(outcomes[0]).count("world_size=4") == 1
    assert "all ranks: " in str(outcomes[0])
