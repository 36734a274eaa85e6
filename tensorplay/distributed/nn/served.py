"""What runs where a remote module lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorplay.distributed.rpc import RRef
from tensorplay.nn import Module
from tensorplay.nn.state import Misfits, Shape


def make(module_cls: Callable[..., Module], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make a module, and see that it is one."""
    return check(module_cls(*args, **kwargs))


def check(made: object) -> Module:
    """Raise ValueError unless `made` is a module; return it."""
    if not isinstance(made, Module):
        raise ValueError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, but it "
            f"returns an instance of {type(made)}."
        )
    return made


def is_training(value: object) -> bool:
    """Whether a module, which `value` must be, is in training mode."""
    return check(value).training


def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the module."""
    return module(*args, **kwargs)


def parameters(module: Module, recurse: bool) -> list[RRef[Any]]:
    """References to its parameters."""
    return [RRef(parameter) for parameter in module.parameters(recurse)]


def change(module: Module, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call a method of `Module` that changes it and returns it."""
    getattr(module, name)(*args, **kwargs)


def state(module: Module, prefix: str) -> dict[str, Any]:
    """Its `state_dict`."""
    return module.state_dict(prefix=prefix)


def misfits(module: Module, shapes: Mapping[str, Shape]) -> Misfits:
    """How a state with these shapes does not fit it."""
    return module._misfits(shapes)


def load(module: Module, state_dict: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Its `load_state_dict`."""
    return module.load_state_dict(state_dict, **options)


def own_methods(module: Module) -> frozenset[str]:
    """Names of the public methods that its class has beyond those of all modules."""
    kind = type(module)
    names = {name for name in dir(kind) if not name.startswith("_")} - set(dir(Module))
    return frozenset(name for name in names if callable(getattr(kind, name)))
