"""A module's values: collecting, loading and converting them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorplay.nn import elsewhere
from tensorplay.tensor import Tensor

if TYPE_CHECKING:
    from tensorplay.nn.module import Module


class IncompatibleKeys(NamedTuple):
    """Names that a loaded state lacked, and names that it had too many."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


def check_name(module: Module, name: str, place: Mapping[str, Any]) -> None:
    """Raise if a new member cannot have that name."""
    if not isinstance(name, str):
        raise TypeError(f"the name should be a string, not {type(name).__name__}")
    if not name or "." in name:
        raise KeyError(f"the name must not be empty nor contain '.', got {name!r}")
    if name not in place and hasattr(module, name):
        raise KeyError(f"attribute '{name}' already exists")


def members(module: Module, prefix: str = "") -> dict[str, Tensor]:
    """All parameters and saved buffers under their dotted names."""
    found: dict[str, Tensor] = {}
    stack = [(prefix, module)]
    while stack:
        path, one = stack.pop()
        for name, tensor in (*one._parameters.items(), *one._buffers.items()):
            if tensor is not None and name not in one._not_saved:
                found[path + name] = tensor
        children = [(f"{path}{name}.", child) for name, child in one._modules.items() if child]
        stack.extend(reversed(children))
    return found


def collect(module: Module, prefix: str) -> dict[str, Tensor]:
    """What `Module.state_dict` returns."""
    return {name: tensor.detach() for name, tensor in members(module, prefix).items()}


def load(module: Module, values: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
    """What `Module.load_state_dict` does."""
    own = members(module)
    missing = [name for name in own if name not in values]
    unexpected = [name for name in values if name not in own]
    problems = []
    if strict and unexpected:
        names = ", ".join([f'"{name}"' for name in unexpected])
        problems.append(f"Unexpected key(s) in state_dict: {names}.")
    if strict and missing:
        names = ", ".join([f'"{name}"' for name in missing])
        problems.append(f"Missing key(s) in state_dict: {names}.")
    arrays = {name: _array_of(values[name]) for name in own if name in values}
    problems += [
        f"size mismatch for {name}: copying a param with shape {array.shape} from checkpoint, the "
        f"shape in current model is {own[name]._array.shape}."
        for name, array in arrays.items()
        if array.shape != own[name]._array.shape
    ]
    if problems:
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t"
            + "\n\t".join(problems)
        )
    for name, array in arrays.items():
        replace_values(own[name], array)
    return IncompatibleKeys(missing, unexpected)


def _array_of(value: Any) -> np.ndarray[Any, Any]:
    return value._array if isinstance(value, Tensor) else np.asarray(value)


def replace_values(tensor: Tensor, array: Any) -> None:
    """Give a tensor new values, in a new array, since graphs may still hold the old one."""
    tensor._array = np.array(array, tensor._array.dtype)
    tensor._version = [0]


def convert(module: Module, dtype: np.dtype[Any]) -> None:
    """Give all floating-point members another type; complex ones only another complex one."""
    kinds = "fc" if dtype.kind == "c" else "f"
    for other in elsewhere.children(module):
        other.to(dtype)
    for one in module.modules():
        for tensor in (*one._parameters.values(), *one._buffers.values()):
            if tensor is None:
                continue
            for held in (tensor, tensor._grad):
                if held is not None and held._array.dtype.kind in kinds:
                    held._array = held._array.astype(dtype)
                    held._version = [0]


def reset_grad(tensor: Tensor, set_to_none: bool) -> None:
    """Drop a gradient, or put zeros in its place (in a new array: somebody may hold the old)."""
    if set_to_none:
        tensor._grad = None
    elif tensor._grad is not None:
        tensor._grad._array = np.zeros_like(tensor._grad._array)
        tensor._grad._version = [0]
        tensor._grad._node = None
        tensor._grad._requires_grad = False
