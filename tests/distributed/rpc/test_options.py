"""Options of programs written for TensorPipe, and constants."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from distributed.rpc.called import Gate, add, on_first, pass_gate
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import TensorPipeRpcBackendOptions, constants


def test_defaults() -> None:
    options = TensorPipeRpcBackendOptions()
    assert (options.num_worker_threads, options.rpc_timeout) == (16, 60.0)
    assert (options.init_method, options.device_maps, options.devices) == ("env://", {}, [])
    assert options.problem() is None


def test_arguments_are_keywords() -> None:
    with pytest.raises(TypeError):
        TensorPipeRpcBackendOptions(16)  # type: ignore[misc]


def test_attributes_can_be_set() -> None:
    options = TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
    options.rpc_timeout = 5
    options.init_method = "tcp://a:1"
    options.num_worker_threads = 3
    assert options.num_worker_threads == 3
    assert options.for_mpi() == rpc.MPIRpcBackendOptions(5, num_worker_threads=3)


@pytest.mark.parametrize("threads", [1, 16, 40])
def test_threads_bound_only_if_given(threads: int) -> None:
    assert TensorPipeRpcBackendOptions().for_mpi().num_worker_threads is None
    options = TensorPipeRpcBackendOptions(num_worker_threads=threads)
    assert options.for_mpi().num_worker_threads == threads


def test_devices_of_the_host() -> None:
    options = TensorPipeRpcBackendOptions(device_maps={"w": {"cpu": "cpu"}}, devices=["cpu"])
    options.set_device_map("v", {"cpu": "cpu"})
    assert options.device_maps == {"w": {"cpu": "cpu"}, "v": {"cpu": "cpu"}}
    assert options.problem() is None


def test_other_devices() -> None:
    mapped, devices = TensorPipeRpcBackendOptions(), TensorPipeRpcBackendOptions()
    mapped.set_device_map("w", {"cpu": 1})
    devices.set_devices(["cuda:0"])
    for options, device in ((mapped, "1"), (devices, "'cuda:0'")):
        problem = options.problem()
        assert isinstance(problem, ValueError)
        assert f"'cpu' only, got {device}: tensors of tensorplay are NumPy" in str(problem)


@pytest.mark.parametrize("seconds", [-1, math.nan, "5", timedelta(seconds=1)])
def test_timeouts_that_do_not_hold(seconds: Any) -> None:
    problem = TensorPipeRpcBackendOptions(rpc_timeout=seconds).problem()
    assert "rpc_timeout must be a number of seconds" in str(problem)


def test_constants() -> None:
    assert constants.DEFAULT_RPC_TIMEOUT_SEC == 60.0
    assert constants.DEFAULT_INIT_METHOD == "env://"
    assert constants.DEFAULT_SHUTDOWN_TIMEOUT == 0
    assert constants.DEFAULT_NUM_WORKER_THREADS == 16
    assert constants.UNSET_RPC_TIMEOUT == -1.0
    assert constants.DEFAULT_PROCESS_GROUP_TIMEOUT.total_seconds() > 2**20


# -- the default timeout, on a worker --------------------------------------------------------------


def test_timeout_is_taken_when_a_call_is_made(gate: Gate) -> None:
    def program() -> None:
        assert rpc.get_rpc_timeout() == 20.0
        unhurried = rpc.rpc_async(1, pass_gate, args=(gate.name, "there"))
        rpc._set_rpc_timeout(0.1)
        assert rpc.get_rpc_timeout() == 0.1
        hurried = rpc.rpc_async(1, pass_gate, args=(gate.name,))
        rpc._set_rpc_timeout(20)
        with pytest.raises(rpc.RpcTimeoutError, match="100 ms"):
            hurried.wait()
        gate.event.set()
        assert unhurried.wait() == "there"
        assert rpc.rpc_sync(1, rpc.get_rpc_timeout) == 20.0

    on_first(2, program)


@pytest.mark.parametrize(
    ("seconds", "kind"),
    [(-1, ValueError), (math.nan, ValueError), ("5", TypeError), (timedelta(1), TypeError)],
)
def test_default_timeouts_that_do_not_hold(seconds: Any, kind: type[Exception]) -> None:
    def program() -> None:
        with pytest.raises(kind, match="rpc_timeout must be"):
            rpc._set_rpc_timeout(seconds)
        assert rpc.get_rpc_timeout() == 20.0

    on_first(1, program)


def test_timeouts_of_calls(gate: Gate) -> None:
    def program() -> None:
        with pytest.raises(ValueError, match="got nan"):
            rpc.rpc_sync(1, add, args=(1, 2), timeout=math.nan)
        with pytest.raises(rpc.RpcTimeoutError):
            rpc.rpc_sync(1, pass_gate, args=(gate.name,), timeout=-5)
        gate.event.set()
        assert rpc.rpc_sync(1, add, args=(1, 2), timeout=-1) == 3

    on_first(2, program)


@pytest.mark.parametrize("kwargs", [5, "ab", [], [("b", 1)], 0, ""])
def test_kwargs_must_be_a_mapping(kwargs: Any) -> None:
    def program() -> None:
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(TypeError, match="kwargs must be a mapping"):
                call(1, add, args=(1,), kwargs=kwargs)
        assert rpc.rpc_sync(1, add, args=(1,), kwargs={}) == 11

    on_first(2, program)
