"""Starting, waiting together and sending functions by value, on the ranks of an MPI job."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from datetime import timedelta
from typing import Any

import pytest

from mpi.conftest import RpcWorld
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.errors import WorkerNameError
from tensorplay.futures import collect_all, wait_all

pytestmark = pytest.mark.mpi


def add(a: Any, b: Any) -> Any:
    return a + b


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"backend": "MPI"}, TypeError, "Argument backend must be a member of BackendType"),
        (
            {"rpc_backend_options": 5},
            TypeError,
            "Argument rpc_backend_options must be an instance of RpcBackendOptions",
        ),
        ({"rpc_backend_options": rpc.RpcBackendOptions()}, TypeError, "Could not infer backend"),
        (
            {"rpc_backend_options": rpc.MPIRpcBackendOptions(rpc_timeout=math.nan)},
            ValueError,
            "rpc_timeout must be a number of seconds",
        ),
        (
            {
                "rpc_backend_options": rpc.TensorPipeRpcBackendOptions(
                    rpc_timeout=timedelta(seconds=5)  # type: ignore[arg-type]
                )
            },
            TypeError,
            "incompatible constructor arguments",
        ),
        (
            {"rpc_backend_options": rpc.TensorPipeRpcBackendOptions(devices=["cuda:0"])},
            ValueError,
            "'cpu' only, got 'cuda:0'",
        ),
        ({"name": 5}, WorkerNameError, "Worker name must be a string"),
        ({"rank": "0"}, TypeError, "rank must be an int"),
        ({"world_size": 99}, ValueError, "world_size=99 was given"),
    ],
)
def test_what_one_rank_has_wrong_is_raised_on_all(
    world: RpcWorld, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    guilty = world.rank == world.size - 1
    with pytest.raises(kind, match=text) as caught:
        rpc.init_rpc(**(arguments if guilty else {}))
    assert type(caught.value) is kind
    assert not rpc._is_current_rpc_agent_set()
    rpc.init_rpc()
    assert rpc.rpc_sync(world.next, add, args=(1, 2)) == 3
    rpc.shutdown()


def test_program_of_tensorpipe_starts(world: RpcWorld) -> None:
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=8, rpc_timeout=20, init_method="tcp://localhost:29500"
    )
    rpc.init_rpc(
        f"trainer{world.rank}",
        backend=rpc.BackendType.TENSORPIPE,
        rank=world.rank,
        world_size=world.size,
        rpc_backend_options=options,
    )
    assert rpc.get_rpc_timeout() == 20
    assert rpc.rpc_sync(f"trainer{world.next}", add, args=(1, 2)) == 3
    rpc.shutdown()


def test_gathering(rpc_world: RpcWorld) -> None:
    everybody = {f"worker{rank}": rank for rank in rpc_world.everybody}
    for _ in range(3):
        assert rpc.api._all_gather(rpc_world.rank) == everybody
    half = [name for name, rank in everybody.items() if rank % 2 == rpc_world.rank % 2]
    assert list(rpc.api._all_gather(None, half)) == half
    rpc.api._barrier(everybody)
    rpc.api._wait_all_workers()
    rpc.api._wait_all_workers()


def test_gathering_begins_anew_after_shutdown(world: RpcWorld) -> None:
    rpc.init_rpc()
    if world.rank == 0 and world.size > 1:
        with pytest.raises(rpc.RpcTimeoutError, match="Followers"):
            rpc.api._all_gather(None, timeout=0.05)
    rpc.shutdown()
    rpc.init_rpc()
    assert len(rpc.api._all_gather(world.rank)) == world.size
    rpc.shutdown()


def test_futures_together(rpc_world: RpcWorld) -> None:
    def calls() -> list[Any]:
        return [rpc.rpc_async(to, add, args=(to, 1)) for to in rpc_world.everybody]

    expected = [to + 1 for to in rpc_world.everybody]
    assert wait_all(calls()) == expected
    assert [call.wait() for call in collect_all(calls()).wait()] == expected
    completed = concurrent.futures.as_completed(calls(), 20)  # type: ignore[type-var]
    assert sorted(call.wait() for call in completed) == expected

    async def program() -> list[Any]:
        return list(await asyncio.gather(*calls()))

    assert asyncio.run(program()) == expected
    with rpc.api._wait_all():
        waited = calls()
    assert all(call.done() for call in waited)


def test_functions_by_value(world: RpcWorld) -> None:
    pytest.importorskip("cloudpickle")
    rpc.init_rpc(rpc_backend_options=rpc.MPIRpcBackendOptions(cloudpickle=True))
    offset = world.rank
    assert rpc.rpc_sync(world.next, lambda x: x + offset, args=(1,)) == world.rank + 1
    rpc.shutdown()
    rpc.init_rpc()
    with pytest.raises(Exception, match=r"MPIRpcBackendOptions\(cloudpickle=True\)"):
        rpc.rpc_sync(world.next, lambda: 1)
    rpc.shutdown()
