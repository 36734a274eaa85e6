"""What programs of torch.distributed.rpc import is there, and works or says why it cannot."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from distributed.rpc.called import Thing, on_first
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.worker import WorkerInfo

NAMES = {
    "": """
        is_available init_rpc shutdown rpc_sync rpc_async remote get_worker_info RRef PyRRef
        WorkerInfo BackendType BackendValue RpcAgent TensorPipeAgent RpcBackendOptions
        TensorPipeRpcBackendOptions backend_registered register_backend
        construct_rpc_backend_options init_backend AllGatherStates method_factory new_method
        RemoteProfilerManager enable_gil_profiling get_rpc_timeout _set_rpc_timeout
        _get_debug_info _rref_context_get_debug_info _is_current_rpc_agent_set
        _get_current_rpc_agent _delete_all_user_and_unforked_owner_rrefs _destroy_rref_context
        _init_rpc_backend _server_process_global_profile functions constants internal api
        backend_registry options server_process_global_profiler _utils _testing
    """,
    ".api": """
        _wait_all _wait_all_workers _all_gather _barrier _use_rpc_pickler _default_pickler
        _thread_local_var _ignore_rref_leak _to_worker_info _rref_typeof_on_owner
        _rref_typeof_on_user _broadcast_to_followers _gather_to_leader _get_current_rpc_agent
        rpc_sync rpc_async remote shutdown get_worker_info
    """,
    ".internal": """
        RPCExecMode PythonUDF RemoteException serialize deserialize _internal_rpc_pickler
        _build_rpc_profiling_key
    """,
    ".constants": """
        DEFAULT_RPC_TIMEOUT_SEC DEFAULT_INIT_METHOD DEFAULT_SHUTDOWN_TIMEOUT
        DEFAULT_NUM_WORKER_THREADS DEFAULT_PROCESS_GROUP_TIMEOUT UNSET_RPC_TIMEOUT
    """,
    ".backend_registry": """
        BackendType backend_registered register_backend construct_rpc_backend_options init_backend
    """,
    ".functions": "async_execution",
    ".options": "TensorPipeRpcBackendOptions",
    ".server_process_global_profiler": "_server_process_global_profile",
    "._utils": "_group_membership_management _update_group_membership",
    "._testing": "is_available",
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module: str) -> None:
    found = importlib.import_module(f"tensorplay.distributed.rpc{module}")
    missing = [name for name in NAMES[module].split() if not hasattr(found, name)]
    assert not missing


def test_futures_are_a_package_of_their_own() -> None:
    """One that costs nothing until it is used, and never needs MPI."""
    code = """
import sys
import tensorplay
assert not [name for name in sys.modules if name.startswith("tensorplay.distributed")]
assert "futures" in dir(tensorplay)
future = tensorplay.futures.Future()
future.set_result(5)
assert tensorplay.futures.wait_all([future]) == [5]
assert tensorplay.futures.collect_all([future]).wait() == [future]
assert tensorplay.futures.Future is tensorplay.distributed.rpc.Future
assert not {"mpi4py", "asyncio", "concurrent", "cloudpickle"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], timeout=50, check=True)


def test_same_things_by_other_names() -> None:
    assert rpc.PyRRef is rpc.RRef
    assert rpc.TensorPipeAgent is rpc.RpcAgent
    assert not rpc._testing.is_available()
    assert rpc.api._default_pickler is rpc.internal._internal_rpc_pickler


# -- what works ------------------------------------------------------------------------------------


def test_agent() -> None:
    assert not rpc._is_current_rpc_agent_set()

    def program() -> None:
        assert rpc._is_current_rpc_agent_set()
        agent = rpc._get_current_rpc_agent()
        assert isinstance(agent, rpc.RpcAgent)
        workers = [WorkerInfo("worker0", 0), WorkerInfo("worker1", 1)]
        assert agent.get_worker_infos() == workers
        assert agent.get_worker_info() == workers[0]
        for worker in ("worker1", 1, workers[1]):
            assert agent.get_worker_info(worker) == rpc.api._to_worker_info(worker) == workers[1]
        with pytest.raises(RuntimeError, match="could not find destination"):
            agent.get_worker_info("nobody")

    on_first(2, program)


def test_class_of_a_reference() -> None:
    def program() -> None:
        mine, theirs = rpc.RRef(Thing(1)), rpc.remote(1, Thing, args=(1,))
        assert rpc.api._rref_typeof_on_owner(mine) is Thing
        assert rpc.api._rref_typeof_on_owner(mine, blocking=False).wait() is Thing
        assert rpc.api._rref_typeof_on_user(theirs) is Thing
        assert rpc.api._rref_typeof_on_user(theirs, 5, False).wait() is Thing

    on_first(2, program)


def test_methods_by_name() -> None:
    def program() -> None:
        rref = rpc.RRef(5)
        method = rpc.method_factory("is_owner", "Say so.")
        assert (method.__name__, method.__doc__, method(rref)) == ("is_owner", "Say so.", True)
        assert rpc.new_method(rref) == 5

    on_first(1, program)


def test_pickler_that_pickles_anyway() -> None:
    with rpc.api._use_rpc_pickler(rpc.api._default_pickler):
        pass


def test_gil_profiling_is_off() -> None:
    rpc.enable_gil_profiling(False)


# -- what cannot be --------------------------------------------------------------------------------


def other_pickler() -> None:
    with rpc.api._use_rpc_pickler(object()):
        pass


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: rpc.enable_gil_profiling(True), "no profiler"),
        (lambda: rpc._server_process_global_profile(), "no profiler"),
        (lambda: rpc.RemoteProfilerManager.set_current_profiling_key("k"), "no profiler"),
        (lambda: rpc._delete_all_user_and_unforked_owner_rrefs(), "drop them"),
        (lambda: rpc._destroy_rref_context(False), "call shutdown"),
        (lambda: rpc._utils._group_membership_management(None, "w", True), "init_rpc and shutdown"),
        (lambda: rpc._utils._update_group_membership(None, [], {}, True), "init_rpc and shutdown"),
        (other_pickler, "_register_reducer adds a rule"),
        (rpc._get_current_rpc_agent, "Current RPC agent is not set! Did you initialize the RPC"),
        (rpc.get_rpc_timeout, "RPC has not been initialized"),
        (lambda: rpc._set_rpc_timeout(5), "RPC has not been initialized"),
        (rpc.api._wait_all_workers, "RPC has not been initialized"),
        (lambda: rpc.api._all_gather(5), "RPC has not been initialized"),
    ],
)
def test_explanations(use: Callable[[], Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        use()


def test_init_rpc_backend_starts_as_init_rpc_does() -> None:
    with pytest.raises(TypeError, match="Argument rpc_backend_options must be"):
        rpc._init_rpc_backend(rpc.BackendType.MPI, None, "w", 0, 1, 5)  # type: ignore[arg-type]
