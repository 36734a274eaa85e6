"""How a worker's RPC behaves."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorplay.distributed.rpc.constants import (
    DEFAULT_INIT_METHOD,
    DEFAULT_NUM_WORKER_THREADS,
)
from tensorplay.distributed.rpc.constants import (
    DEFAULT_RPC_TIMEOUT_SEC as DEFAULT_RPC_TIMEOUT_SEC,
)
from tensorplay.distributed.rpc.constants import (
    UNSET_RPC_TIMEOUT as UNSET_RPC_TIMEOUT,
)
from tensorplay.distributed.settings import default_rpc_timeout


@dataclass(eq=False)
class RpcBackendOptions:
    """What the options of all backends have.

    Attributes:
        rpc_timeout: Seconds until a call without a timeout of its own fails; 0 for no limit.
        init_method: For backends that need one; MPI ranks know each other.
    """

    rpc_timeout: float = field(default_factory=default_rpc_timeout)
    init_method: str = DEFAULT_INIT_METHOD

    def problem(self) -> Exception | None:
        """What is wrong with the options, to be raised; None if nothing is."""
        return timeout_problem(self.rpc_timeout)


@dataclass
class MPIRpcBackendOptions(RpcBackendOptions):
    """Options of `init_rpc`.

    Attributes:
        rpc_timeout: Seconds until a call without a timeout of its own fails; 0 for no limit.  By
            default what the environment says (``TENSORPLAY_RPC_TIMEOUT``), else 60.
        init_method: Not used.
        switch_interval: Seconds for which a thread may keep the interpreter lock while others want
            it (`sys.setswitchinterval`), from `init_rpc` to `shutdown`.  It bounds how long a
            worker whose main thread is busy in Python keeps a caller waiting.  None leaves it.
        num_worker_threads: How many requests this worker executes at once; None for no bound.
            One that waits for a call or a value does not count meanwhile.
        cloudpickle: Send by value what other workers may not find by its name: lambdas, closures,
            and the functions and classes of a notebook or script (``__main__``).  They bring copies
            of the globals that they use, and a class arrives as a copy, too.  Needs the package
            cloudpickle.

    >>> MPIRpcBackendOptions(rpc_timeout=5).rpc_timeout
    5
    """

    switch_interval: float | None = 1e-4
    num_worker_threads: int | None = None
    cloudpickle: bool = False

    def problem(self) -> Exception | None:
        """What is wrong with the options, to be raised; None if nothing is."""
        interval: object = self.switch_interval
        if interval is not None and not (isinstance(interval, (int, float)) and interval > 0):
            return ValueError(f"switch_interval must be positive or None, got {interval!r}")
        threads: object = self.num_worker_threads
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            return TypeError(f"num_worker_threads must be an int or None, got {threads!r}")
        if isinstance(threads, int) and threads < 1:
            return ValueError(f"num_worker_threads must be positive, got {threads}")
        if self.cloudpickle and importlib.util.find_spec("cloudpickle") is None:
            return ImportError(
                "MPIRpcBackendOptions(cloudpickle=True) needs the package cloudpickle: "
                "pip install cloudpickle, or the extra 'cloudpickle' of tensorplay-mpi"
            )
        return super().problem()


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """The options of programs written for TensorPipe: the same, as far as they concern MPI.

    Args:
        num_worker_threads: How many requests this worker executes at once.  If it is given neither
            here nor by setting the attribute, that reads 16, and there is no bound.
        rpc_timeout: Seconds until a call without a timeout of its own fails; 0 for no limit.
        init_method: Ignored.
        device_maps: Must name no device but "cpu", since tensors are NumPy arrays.
        devices: The same.

    >>> TensorPipeRpcBackendOptions(rpc_timeout=5).num_worker_threads
    16
    """

    def __init__(
        self,
        *,
        num_worker_threads: int | None = None,
        rpc_timeout: float | None = None,
        init_method: str = DEFAULT_INIT_METHOD,
        device_maps: Mapping[str, Mapping[Any, Any]] | None = None,
        devices: Sequence[Any] | None = None,
        _transports: Sequence[str] | None = None,
        _channels: Sequence[str] | None = None,
    ) -> None:
        super().__init__(default_rpc_timeout() if rpc_timeout is None else rpc_timeout, init_method)
        self._threads = num_worker_threads
        self.device_maps = {worker: dict(found) for worker, found in (device_maps or {}).items()}
        self.devices = list(devices or ())

    @property
    def num_worker_threads(self) -> int:
        """How many requests this worker executes at once."""
        return DEFAULT_NUM_WORKER_THREADS if self._threads is None else self._threads

    @num_worker_threads.setter
    def num_worker_threads(self, number: int) -> None:
        self._threads = number

    def set_device_map(self, to: str, device_map: Mapping[Any, Any]) -> None:
        """Add to the device map of a worker; `init_rpc` refuses devices other than "cpu"."""
        self.device_maps.setdefault(to, {}).update(device_map)

    def set_devices(self, devices: Sequence[Any]) -> None:
        """Set this worker's devices; `init_rpc` refuses others than "cpu"."""
        self.devices = list(devices)

    def problem(self) -> Exception | None:
        """What is wrong with the options, to be raised; None if nothing is."""
        maps = self.device_maps.values()
        named = [device for found in maps for pair in found.items() for device in pair]
        for device in [*named, *self.devices]:
            if str(device) != "cpu":
                return ValueError(
                    f"device maps and devices may name 'cpu' only, got {device!r}: tensors of "
                    "tensorplay are NumPy arrays, in the memory of the host"
                )
        return self.for_mpi().problem()

    def for_mpi(self) -> MPIRpcBackendOptions:
        """The same as options of the MPI backend."""
        return MPIRpcBackendOptions(rpc_timeout=self.rpc_timeout, num_worker_threads=self._threads)


#: Seconds: beyond this, clocks have no finer steps than a second.
LONGEST_TIMEOUT = 2.0**53


def timeout_problem(seconds: object) -> Exception | None:
    """What is wrong with a default timeout, to be raised; None if nothing is."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return TypeError(
            "incompatible constructor arguments: rpc_timeout must be a number of seconds, got "
            f"{seconds!r}"
        )
    if not (0 <= seconds <= LONGEST_TIMEOUT):
        return ValueError(
            f"rpc_timeout must be a number of seconds, 0 or more, got {seconds!r}; 0 for no limit"
        )
    return None
