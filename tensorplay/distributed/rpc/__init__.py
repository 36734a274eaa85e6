"""Remote procedure calls between the ranks of an MPI job, with `torch.distributed.rpc`'s names."""

from tensorplay.distributed.rpc import fork as _fork
from tensorplay.distributed.rpc import job as _job
from tensorplay.distributed.rpc.api import (
    get_worker_info,
    get_world_size,
    init_rpc,
    is_available,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from tensorplay.distributed.rpc.errors import RemoteError, RemoteTraceback, RpcTimeoutError
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.options import BackendType, MPIRpcBackendOptions
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.statistics import Statistics, statistics
from tensorplay.distributed.rpc.worker import WorkerInfo

__all__ = [
    "BackendType",
    "Future",
    "MPIRpcBackendOptions",
    "RRef",
    "RemoteError",
    "RemoteTraceback",
    "RpcTimeoutError",
    "Statistics",
    "WorkerInfo",
    "get_worker_info",
    "get_world_size",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
    "statistics",
]

_job.watch()
_fork.watch()
