"""A module that lives on another worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tensorplay.distributed.nn import served
from tensorplay.distributed.nn.remote_device import parse_remote_device
from tensorplay.distributed.nn.unsupported import refuse_unsupported
from tensorplay.distributed.rpc import RRef, remote
from tensorplay.distributed.rpc.current import agent_or_none, current_agent
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT
from tensorplay.distributed.rpc.serialization import Packed, register_reducer
from tensorplay.nn import Module
from tensorplay.nn.state import IncompatibleKeys
from tensorplay.tensor import Tensor


class RemoteModule(Module):
    """Makes a module on another worker, and calls it there.

    In an autograd context gradients flow through `forward`; those of the module's parameters are
    in the context on its worker.

    It may be part of another module.  Then its parameters are not among those of the parent
    (`remote_parameters` has them), and all else that the parent does to its children is done to the
    module there: `train`, `eval`, `state_dict`, `load_state_dict`, `apply`, `requires_grad_`,
    `zero_grad`, `to` and its kin.  Methods of the module's own class can be called on this one and
    run there; their arguments and results are copies.  What else modules have, hooks say, raises
    ValueError.

    It can be sent to other workers in calls, and is the same module there.

    Args:
        remote_device: The worker, as in ``"worker1"``, ``"worker1/cpu"`` or ``"rank:1"``.
        module_cls: Class of the module, or a function that makes one there.
        args, kwargs: What to make it with.

    Attributes:
        on: The worker's name or rank, as given.
        device: ``"cpu"``.
        module_rref: Reference to the module.

    Raises:
        RuntimeError: RPC has not been initialised, or there is no such worker or device.
        TypeError: `remote_device` is no string, `module_cls` cannot be called, or `args` is neither
            a tuple nor a list.
        ValueError: `remote_device` cannot be read, or `module_cls` does not make a `Module`.
        Exception: What making the module raised.

    Local: the worker serves.

    >>> import tensorplay as tp
    >>> from tensorplay.distributed.nn import RemoteModule
    >>> layer = RemoteModule("worker1", tp.nn.Linear, args=(3, 2))
    >>> layer(tp.ones(4, 3)).shape
    (4, 2)
    >>> len(layer.remote_parameters())
    2
    """

    _lives_elsewhere: ClassVar[bool] = True

    on: str | int
    device: str
    module_rref: RRef[Module]
    _own_methods: frozenset[str] | None

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., Module],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        place = parse_remote_device(remote_device)
        if agent_or_none() is None:
            raise RuntimeError("RemoteModule only works in RPC. Call rpc.init_rpc first.")
        if not callable(module_cls):
            raise TypeError(f"module_cls must be callable, got a {type(module_cls).__name__}")
        args = () if args is None else args
        if not isinstance(args, (tuple, list)):
            raise TypeError(
                f"args must be a tuple or a list of arguments, got {type(args).__name__}; for a "
                "single argument write args=(value,)"
            )
        made = remote(place.worker, served.make, (module_cls, tuple(args), dict(kwargs or {})))
        # What went wrong there is raised here, not at first use.
        made._wait_for_creation()
        self._fill(place.worker, place.device, made)

    def _fill(self, on: str | int, device: str, module_rref: RRef[Any]) -> None:
        self.on = on
        self.device = device
        self.module_rref = module_rref
        self._own_methods = None

    @staticmethod
    def init_from_module_rref(remote_device: str, module_rref: RRef[Module]) -> RemoteModule:
        """A remote module for a module that exists already.

        Args:
            remote_device: The worker that it lives on.
            module_rref: Reference to it.

        Raises:
            ValueError: It lives on another worker, or is no module.
            Exception: What the call that was to make it raised.
        """
        on, device = parse_remote_device(remote_device)
        if current_agent().resolve(on) != module_rref.owner():
            raise ValueError(
                f"remote_device is {remote_device!r}, but the module lives on worker "
                f"{module_rref.owner_name()!r}"
            )
        module = _attach(on, device, module_rref, True)
        training: bool = module._run(served.is_training)
        module.training = training
        return module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module there and wait for its output."""
        return self._run(served.call, args, kwargs)

    def forward_async(self, *args: Any, **kwargs: Any) -> Future:
        """Run the module there; returns at once with a `Future` of its output."""
        return self._start(served.call, (args, kwargs), waits=False)

    def remote_parameters(self, recurse: bool = True) -> list[RRef[Any]]:
        """References to the module's parameters, for a `DistributedOptimizer`.

        Args:
            recurse: Those of modules within it, too.
        """
        found: list[RRef[Any]] = self._run(served.parameters, recurse)
        return found

    def get_module_rref(self) -> RRef[Module]:
        """Reference to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> RemoteModule:
        """Put the module there into training mode, or out of it."""
        self._change("train", mode)
        self.training = mode
        return self

    def requires_grad_(self, requires_grad: bool = True) -> RemoteModule:
        """Say whether the module's parameters require grad."""
        return self._change("requires_grad_", requires_grad)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop what local backward passes there have left in ``.grad``, or set it to zero.

        Gradients of distributed passes are in their contexts.
        """
        self._change("zero_grad", set_to_none)

    def apply(self, fn: Callable[[Module], None]) -> RemoteModule:
        """Call `fn`, a function that can be sent, on all modules there."""
        return self._change("apply", fn)

    def to(self, *args: Any, **kwargs: Any) -> RemoteModule:
        """Convert the module there; arguments as for `Module.to`."""
        return self._change("to", *args, **kwargs)

    def float(self) -> RemoteModule:
        """Convert the module there to float32."""
        return self._change("float")

    def double(self) -> RemoteModule:
        """Convert the module there to float64."""
        return self._change("double")

    def half(self) -> RemoteModule:
        """Convert the module there to float16."""
        return self._change("half")

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Names and copies of all parameters and saved buffers of the module there.

        Args:
            destination: A dictionary to write to; by default a new one.
            prefix: What the names begin with.
            keep_vars: Not used: what arrives here are copies.
        """
        found: dict[str, Any] = self._run(served.state, prefix)
        if destination is None:
            return found
        destination.update(found)
        return destination

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values into the parameters and buffers there; arguments as for `Module`."""
        values = {
            name: value.detach() if isinstance(value, Tensor) else value
            for name, value in state_dict.items()
        }
        options = {"strict": strict, "assign": True} if assign else {"strict": strict}
        found: IncompatibleKeys = self._run(served.load, values, options)
        return found

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._start(function, args, waits=True).wait()

    def _start(self, function: Callable[..., Any], args: tuple[Any, ...], *, waits: bool) -> Future:
        return current_agent().call_on_value(
            self.module_rref, function, args, None, UNSET_RPC_TIMEOUT, waits=waits
        )

    def _change(self, name: str, *args: Any, **kwargs: Any) -> RemoteModule:
        self._run(served.change, name, args, kwargs)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "module_rref" not in self.__dict__:
            return super().__getattr__(name)
        if self._own_methods is None:
            self._own_methods = self._run(served.own_methods)
        if name not in self._own_methods:
            raise AttributeError(
                f"'RemoteModule' object has no attribute {name!r}, and the module on worker "
                f"{self.module_rref.owner_name()!r} has no method of that name. To read an "
                "attribute, have its worker call a function that returns it, on get_module_rref()"
            )
        return getattr(self.module_rref.rpc_sync(), name)

    def extra_repr(self) -> str:
        """Where the module lives, for `repr`."""
        return f"on={self.module_rref.owner_name()!r}, device={self.device!r}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError(
            "Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when "
            "using RPC"
        )


refuse_unsupported(RemoteModule)


def _attach(on: str | int, device: str, module_rref: RRef[Any], training: bool) -> RemoteModule:
    module = RemoteModule.__new__(RemoteModule)
    Module.__init__(module)
    module._fill(on, device, module_rref)
    module.training = training
    return module


def _reduce_remote_module(module: RemoteModule, packed: Packed) -> tuple[Any, ...]:
    return (_attach, (module.on, module.device, module.module_rref, module.training))


register_reducer(RemoteModule, _reduce_remote_module)
