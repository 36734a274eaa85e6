"""Backends by name, and how `init_rpc` uses one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from distributed.rpc.called import add
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc import BackendType, backend_registry
from tensorplay.distributed.rpc.worker import WorkerInfo
from tensorplay.distributed.transport.loopback import LoopbackWorld


class Options(rpc.RpcBackendOptions):
    pass


def construct(rpc_timeout: float, init_method: str, **kwargs: Any) -> Any:
    return Options(rpc_timeout, init_method), kwargs


def crashed(error: BaseException) -> None:
    raise error


@pytest.fixture
def given() -> Iterator[dict[str, Any]]:
    """Yield what the backend "alone" is started with; its worker is alone in a world of one."""
    arguments: dict[str, Any] = {}

    def init(**kwargs: Any) -> Any:
        arguments.update(kwargs)
        options = rpc.MPIRpcBackendOptions(rpc_timeout=7, switch_interval=None)
        transport = LoopbackWorld(1).transport(0)
        return rpc.RpcAgent([WorkerInfo("alone", 0)], transport, options, crashed)

    rpc.register_backend("alone", lambda *args, **kwargs: Options(*args), init)
    yield arguments
    member = BackendType._members.pop("alone")
    assert member is BackendType.alone  # type: ignore[attr-defined]
    del BackendType.alone  # type: ignore[attr-defined]


def test_members() -> None:
    assert list(BackendType) == [BackendType.MPI, BackendType.TENSORPIPE]
    assert len(BackendType) == 2
    assert BackendType["MPI"] is BackendType.MPI
    assert BackendType.__members__ == {"MPI": BackendType.MPI, "TENSORPIPE": BackendType.TENSORPIPE}
    assert BackendType.MPI in BackendType
    assert "MPI" not in BackendType
    assert (BackendType.TENSORPIPE.name, repr(BackendType.MPI)) == ("TENSORPIPE", "BackendType.MPI")
    assert pickle.loads(pickle.dumps(BackendType.MPI)) is BackendType.MPI


def test_tensorpipe_is_started_as_mpi_is() -> None:
    mpi, tensorpipe = BackendType.MPI.value, BackendType.TENSORPIPE.value
    assert mpi.init_backend_handler is tensorpipe.init_backend_handler


def test_options_of_backends() -> None:
    options = rpc.construct_rpc_backend_options(BackendType.MPI, 5, cloudpickle=False)
    assert options == rpc.MPIRpcBackendOptions(5)
    options = rpc.construct_rpc_backend_options(
        BackendType.TENSORPIPE, init_method="tcp://a:1", num_worker_threads=8, _transports=["uv"]
    )
    assert isinstance(options, rpc.TensorPipeRpcBackendOptions)
    assert (options.rpc_timeout, options.init_method) == (60.0, "tcp://a:1")
    assert options.num_worker_threads == 8


def test_timeout_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORPLAY_RPC_TIMEOUT", "7")
    _, options = backend_registry.choose(None, None)
    assert options.rpc_timeout == 7
    assert rpc.construct_rpc_backend_options(BackendType.MPI, 5).rpc_timeout == 5


@pytest.mark.usefixtures("given")
def test_registering() -> None:
    assert rpc.backend_registered("alone")
    assert not rpc.backend_registered("nobody")
    with pytest.raises(RuntimeError, match=r"^RPC backend alone: already registered$"):
        rpc.register_backend("alone", construct, construct)
    assert backend_registry.BackendType.alone in BackendType  # type: ignore[attr-defined]


def test_init_rpc_uses_the_backend(given: dict[str, Any]) -> None:
    backend = BackendType["alone"]
    options = Options(rpc_timeout=3)
    comm = object()
    rpc.init_rpc("w", backend, 2, 3, options, comm=comm)
    try:
        assert given == {
            "store": None,
            "name": "w",
            "rank": 2,
            "world_size": 3,
            "rpc_backend_options": options,
            "comm": comm,
        }
        assert given["rpc_backend_options"] is options
        assert rpc.get_worker_info() == WorkerInfo("alone", 0)
        assert rpc.rpc_sync("alone", add, args=(1, 2)) == 3
        assert rpc.get_rpc_timeout() == 7
        with pytest.raises(RuntimeError, match="RPC is already initialized"):
            rpc.init_rpc("w", backend)
    finally:
        rpc.shutdown()


def test_options_are_made_by_the_backend(given: dict[str, Any]) -> None:
    rpc.init_rpc(backend=BackendType["alone"])
    rpc.shutdown()
    assert isinstance(given["rpc_backend_options"], Options)
    assert given["rpc_backend_options"].rpc_timeout == 60.0
    assert "comm" not in given


def test_init_backend_calls_the_handler(given: dict[str, Any]) -> None:
    agent = rpc.init_backend(BackendType["alone"], rank=5)
    assert isinstance(agent, rpc.RpcAgent)
    assert given == {"rank": 5}


def test_handler_that_returns_no_agent() -> None:
    rpc.register_backend("broken", lambda *args: Options(), lambda **kwargs: 5)
    try:
        with pytest.raises(TypeError, match="broken must return an RpcAgent, got int"):
            rpc.init_rpc("w", BackendType["broken"])
        assert not rpc._is_current_rpc_agent_set()
    finally:
        del BackendType._members["broken"], BackendType.broken  # type: ignore[attr-defined]


@pytest.mark.usefixtures("given")
def test_leak_is_an_error_if_it_is_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc.api, "_ignore_rref_leak", False)
    rpc.init_rpc(backend=BackendType["alone"])
    rref = rpc.RRef(5)
    with pytest.raises(RuntimeError, match=r"Leaking RRefs: .* 1 values of worker 'alone'"):
        rpc.shutdown()
    assert not rpc._is_current_rpc_agent_set()
    del rref


@pytest.mark.parametrize(
    ("backend", "options", "text"),
    [
        ("MPI", None, "Argument backend must be a member of BackendType"),
        (None, 5, "Argument rpc_backend_options must be an instance of RpcBackendOptions"),
        (None, Options(), "Could not infer backend for options"),
        (BackendType.MPI, Options(), "must be a `TensorPipeRpcBackendOptions`"),
        (BackendType.TENSORPIPE, Options(), "must be a `TensorPipeRpcBackendOptions`"),
        (
            None,
            rpc.TensorPipeRpcBackendOptions(rpc_timeout="5"),  # type: ignore[arg-type]
            "incompatible constructor arguments",
        ),
    ],
)
def test_kinds_that_are_wrong(backend: Any, options: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        rpc.init_rpc("w", backend, rpc_backend_options=options)
    assert not rpc._is_current_rpc_agent_set()
