"""A module that lives on another worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorplay.distributed.nn.remote_device import parse_remote_device
from tensorplay.distributed.rpc import RRef, remote
from tensorplay.distributed.rpc.current import agent_or_none, current_agent
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.serialization import Packed, register_reducer
from tensorplay.nn import Module


class RemoteModule(Module):
    """Makes a module on another worker, and calls it there.

    In an autograd context gradients flow through `forward`; those of the module's parameters are
    in the context on its worker.

    Args:
        remote_device: The worker, as in ``"worker1"``, ``"worker1/cpu"`` or ``"rank:1"``.
        module_cls: Class of the module, or a function that makes one there.
        args, kwargs: What to make it with.

    Attributes:
        on: The worker's name or rank, as given.
        device: ``"cpu"``.
        module_rref: Reference to the module.

    Raises:
        RuntimeError: RPC has not been initialised, or there is no such worker.
        ValueError: `remote_device` cannot be read, or `module_cls` does not make a `Module`.
        Exception: What making the module raised.
    """

    on: str | int
    device: str
    module_rref: RRef[Module]

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., Module],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if agent_or_none() is None:
            raise RuntimeError("RemoteModule only works in RPC. Call rpc.init_rpc first.")
        self.on, self.device = parse_remote_device(remote_device)
        made = remote(self.on, _make, (module_cls, tuple(args or ()), kwargs or {}))
        # What went wrong there is raised here, not at first use.
        made._wait_for_creation()
        self.module_rref = made

    @staticmethod
    def init_from_module_rref(remote_device: str, module_rref: RRef[Module]) -> RemoteModule:
        """A remote module for a module that exists already."""
        return _attach(*parse_remote_device(remote_device), module_rref)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module there and wait for its output."""
        return self._run(_call, (args, kwargs), UNSET_RPC_TIMEOUT, waits=True).wait()

    def forward_async(self, *args: Any, **kwargs: Any) -> Future:
        """Run the module there; returns at once with a `Future` of its output."""
        return self._run(_call, (args, kwargs), UNSET_RPC_TIMEOUT, waits=False)

    def remote_parameters(self, recurse: bool = True) -> list[RRef[Any]]:
        """References to the module's parameters, for a `DistributedOptimizer`."""
        found: list[RRef[Any]] = self._run(
            _parameters, (recurse,), UNSET_RPC_TIMEOUT, waits=True
        ).wait()
        return found

    def get_module_rref(self) -> RRef[Module]:
        """Reference to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> RemoteModule:
        """Put the module there into training mode, or out of it."""
        self._run(_train, (mode,), UNSET_RPC_TIMEOUT, waits=True).wait()
        self.training = mode
        return self

    def _run(
        self, function: Callable[..., Any], args: Sequence[Any], timeout: float, *, waits: bool
    ) -> Future:
        return current_agent().call_on_value(
            self.module_rref, function, args, None, timeout, waits=waits
        )

    def extra_repr(self) -> str:
        """Where the module lives, for `repr`."""
        return f"on={self.module_rref.owner_name()!r}, device={self.device!r}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            "Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when "
            "using RPC"
        )


def _attach(on: str | int, device: str, module_rref: RRef[Module]) -> RemoteModule:
    module = RemoteModule.__new__(RemoteModule)
    Module.__init__(module)
    module.on = on
    module.device = device
    module.module_rref = module_rref
    return module


def _reduce_remote_module(module: RemoteModule, packed: Packed) -> tuple[Any, ...]:
    return (_attach, (module.on, module.device, module.module_rref))


register_reducer(RemoteModule, _reduce_remote_module)


def _make(module_cls: Callable[..., Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, Module):
        raise ValueError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, but it "
            f"returns an instance of {type(module)}."
        )
    return module


def _call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return module(*args, **kwargs)


def _parameters(module: Module, recurse: bool) -> list[RRef[Any]]:
    return [RRef(parameter) for parameter in module.parameters(recurse)]


def _train(module: Module, mode: bool) -> None:
    module.train(mode)
