"""The ways in which a worker can be started, by name.

`register_backend` adds one: its init handler is what `init_rpc` calls to get the worker's agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

from tensorplay.distributed.rpc.constants import DEFAULT_INIT_METHOD
from tensorplay.distributed.rpc.options import (
    MPIRpcBackendOptions,
    RpcBackendOptions,
    TensorPipeRpcBackendOptions,
)
from tensorplay.distributed.settings import default_rpc_timeout


class BackendValue(NamedTuple):
    """What makes a backend.

    Attributes:
        construct_rpc_backend_options_handler: Makes its options; see
            `construct_rpc_backend_options`.
        init_backend_handler: Makes a worker's agent, not yet started; see `init_backend`.
    """

    construct_rpc_backend_options_handler: Callable[..., Any]
    init_backend_handler: Callable[..., Any]


class _Members(type):
    """Makes `BackendType` look like an enumeration, one that can grow."""

    _members: dict[str, BackendType]

    def __iter__(cls) -> Iterator[BackendType]:
        return iter(cls._members.values())

    def __len__(cls) -> int:
        return len(cls._members)

    def __contains__(cls, member: object) -> bool:
        return member in cls._members.values()

    def __getitem__(cls, name: str) -> BackendType:
        return cls._members[name]

    @property
    def __members__(cls) -> dict[str, BackendType]:
        return dict(cls._members)


class BackendType(metaclass=_Members):
    """The ways in which messages can travel.

    ``BackendType.MPI`` is the one there is; ``BackendType.TENSORPIPE`` is another name for it, so
    that programs written for TensorPipe start.  `register_backend` adds further members.

    Attributes:
        name: The member's name.
        value: Its handlers.

    >>> BackendType.MPI
    BackendType.MPI
    >>> BackendType["TENSORPIPE"] in BackendType
    True
    """

    MPI: ClassVar[BackendType]
    TENSORPIPE: ClassVar[BackendType]
    _members: ClassVar[dict[str, BackendType]] = {}

    def __init__(self, name: str, value: BackendValue) -> None:
        self.name = name
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return (_member, (self.name,))

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


def _member(name: str) -> BackendType:
    return BackendType[name]


def backend_registered(backend_name: str) -> bool:
    """Whether there is a backend of that name.  Local.

    >>> backend_registered("MPI")
    True
    """
    return backend_name in BackendType._members


def register_backend(
    backend_name: str,
    construct_rpc_backend_options_handler: Callable[..., Any],
    init_backend_handler: Callable[..., Any],
) -> BackendType:
    """Add a backend, on this process.  Local.

    Args:
        backend_name: Its name in `BackendType`.
        construct_rpc_backend_options_handler: Called with ``rpc_timeout``, ``init_method`` and
            further keywords; returns `RpcBackendOptions`.
        init_backend_handler: Called with ``store`` (None), ``name``, ``rank``, ``world_size`` and
            ``rpc_backend_options``, and with ``comm`` if one was given; returns an `RpcAgent`,
            which `init_rpc` starts.

    Raises:
        RuntimeError: There is one of that name.
    """
    if backend_registered(backend_name):
        raise RuntimeError(f"RPC backend {backend_name}: already registered")
    value = BackendValue(construct_rpc_backend_options_handler, init_backend_handler)
    member = BackendType._members[backend_name] = BackendType(backend_name, value)
    setattr(BackendType, backend_name, member)
    return member


def construct_rpc_backend_options(
    backend: BackendType,
    rpc_timeout: float | None = None,
    init_method: str = DEFAULT_INIT_METHOD,
    **kwargs: Any,
) -> Any:
    """Options for `backend`, made by its handler.  Local.

    Args:
        backend: A member of `BackendType`.
        rpc_timeout: Seconds until a call without a timeout of its own fails; 0 for no limit.  By
            default what the environment says (``TENSORPLAY_RPC_TIMEOUT``), else 60.
        init_method: For backends that need one.
        kwargs: Further options of that backend.

    >>> from tensorplay.distributed import rpc
    >>> options = rpc.construct_rpc_backend_options(rpc.BackendType.MPI, num_worker_threads=2)
    >>> options.num_worker_threads, options.rpc_timeout
    (2, 60.0)
    """
    construct = backend.value.construct_rpc_backend_options_handler
    seconds = default_rpc_timeout() if rpc_timeout is None else rpc_timeout
    return construct(seconds, init_method, **kwargs)


def init_backend(backend: BackendType, *args: Any, **kwargs: Any) -> Any:
    """An agent of `backend`, made by its handler; not yet started.  Collective, if that is.

    For those who write a backend; programs call `init_rpc`.
    """
    return backend.value.init_backend_handler(*args, **kwargs)


def choose(backend: Any, options: Any) -> tuple[BackendType, RpcBackendOptions]:
    """The backend and options that `init_rpc` was asked for; None stands for not given.

    Raises:
        TypeError: They are not what they should be, or do not go together.
    """
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    if options is None:
        backend = backend or BackendType.MPI
        options = construct_rpc_backend_options(backend)
    if not isinstance(options, RpcBackendOptions):
        raise TypeError(
            "Argument rpc_backend_options must be an instance of RpcBackendOptions, such as "
            "MPIRpcBackendOptions"
        )
    ours = isinstance(options, (MPIRpcBackendOptions, TensorPipeRpcBackendOptions))
    if backend is None:
        if not ours:
            raise TypeError(f"Could not infer backend for options {options}")
        backend = BackendType.MPI
    if backend in (BackendType.MPI, BackendType.TENSORPIPE) and not ours:
        raise TypeError(
            "`rpc_backend_options` must be a `TensorPipeRpcBackendOptions` or a "
            "`MPIRpcBackendOptions`"
        )
    return backend, options
