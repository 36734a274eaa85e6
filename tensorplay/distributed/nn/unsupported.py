"""Methods of modules that a remote module does not have, and says so as PyTorch's does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tensorplay.nn import Module

_USE_REMOTE = ". Please use ``remote_parameters`` instead."
_HOOK = "; register it on the module's own worker, through get_module_rref()"
_INSIDE = "; what is in the module is on its own worker: see get_module_rref()"
_MEMORY = "; its memory is on another worker"

_HINTS = {
    "parameters": _USE_REMOTE,
    "named_parameters": _USE_REMOTE,
    "buffers": _INSIDE,
    "named_buffers": _INSIDE,
    "children": _INSIDE,
    "named_children": _INSIDE,
    "modules": _INSIDE,
    "named_modules": _INSIDE,
    "register_buffer": _INSIDE,
    "register_parameter": _INSIDE,
    "register_module": _INSIDE,
    "add_module": _INSIDE,
    "register_backward_hook": _HOOK,
    "register_full_backward_hook": _HOOK,
    "register_full_backward_pre_hook": _HOOK,
    "register_forward_pre_hook": _HOOK,
    "register_forward_hook": _HOOK,
    "cuda": _MEMORY,
    "ipu": _MEMORY,
    "xpu": _MEMORY,
    "cpu": _MEMORY,
    "type": "; use ``to``",
    "bfloat16": "; NumPy has no such type",
    "share_memory": _MEMORY,
}


def refuse_unsupported(kind: type[Module]) -> None:
    """Have a class refuse all of them, each with its name and what to do instead."""
    for name, hint in _HINTS.items():
        setattr(kind, name, _refusal(name, hint))


def _refusal(name: str, hint: str) -> Callable[..., NoReturn]:
    def refuse(self: Module, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(f"Method ``{name}`` not supported for RemoteModule{hint}")

    refuse.__name__ = name
    refuse.__doc__ = "Not supported: raises ValueError."
    return refuse
