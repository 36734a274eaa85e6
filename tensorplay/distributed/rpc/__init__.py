"""Remote procedure calls between the ranks of an MPI job, with `torch.distributed.rpc`'s names.

``docs/rpc.md`` is a guide.  Examples with ``>>>`` in this package are typed on ``worker0`` of two,
between `init_rpc` and `shutdown`.

>>> from tensorplay.distributed import rpc
>>> rpc.rpc_sync("worker1", max, args=(1, 2))
2
"""

from tensorplay.distributed.rpc import (
    _testing,
    _utils,
    api,
    backend_registry,
    constants,
    functions,
    internal,
    options,
    server_process_global_profiler,
)
from tensorplay.distributed.rpc import fork as _fork
from tensorplay.distributed.rpc import (
    job as _job,
)
from tensorplay.distributed.rpc.api import (
    _init_rpc_backend,
    _set_rpc_timeout,
    get_rpc_timeout,
    get_worker_info,
    get_world_size,
    init_rpc,
    is_available,
    remote,
    rpc_async,
    rpc_sync,
    shutdown,
)
from tensorplay.distributed.rpc.backend_registry import (
    BackendType,
    BackendValue,
    backend_registered,
    construct_rpc_backend_options,
    init_backend,
    register_backend,
)
from tensorplay.distributed.rpc.compatibility import (
    PyRRef,
    RemoteProfilerManager,
    RpcAgent,
    TensorPipeAgent,
    _delete_all_user_and_unforked_owner_rrefs,
    _destroy_rref_context,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    enable_gil_profiling,
    method_factory,
    new_method,
)
from tensorplay.distributed.rpc.debug_info import (
    _get_debug_info,
    _rref_context_get_debug_info,
)
from tensorplay.distributed.rpc.errors import (
    FunctionNotFoundError,
    MissingModuleError,
    RemoteError,
    RemoteTraceback,
    RpcTimeoutError,
    WorkerLeftError,
)
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.gathering import AllGatherStates
from tensorplay.distributed.rpc.options import (
    MPIRpcBackendOptions,
    RpcBackendOptions,
    TensorPipeRpcBackendOptions,
)
from tensorplay.distributed.rpc.rref import RRef
from tensorplay.distributed.rpc.server_process_global_profiler import (
    _server_process_global_profile,
)
from tensorplay.distributed.rpc.statistics import Statistics, statistics
from tensorplay.distributed.rpc.worker import WorkerInfo

__all__ = [
    "AllGatherStates",
    "BackendType",
    "FunctionNotFoundError",
    "Future",
    "MPIRpcBackendOptions",
    "MissingModuleError",
    "BackendValue",
    "PyRRef",
    "RRef",
    "RemoteError",
    "RemoteProfilerManager",
    "RemoteTraceback",
    "RpcAgent",
    "RpcBackendOptions",
    "RpcTimeoutError",
    "Statistics",
    "TensorPipeAgent",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "WorkerLeftError",
    "backend_registered",
    "construct_rpc_backend_options",
    "enable_gil_profiling",
    "functions",
    "get_rpc_timeout",
    "get_worker_info",
    "get_world_size",
    "init_backend",
    "init_rpc",
    "is_available",
    "method_factory",
    "new_method",
    "register_backend",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
    "statistics",
]

_job.watch()
_fork.watch()
