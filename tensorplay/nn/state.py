"""A module's values: collecting, loading and converting them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorplay import dtypes
from tensorplay.nn import elsewhere
from tensorplay.tensor import Tensor, wrap

if TYPE_CHECKING:
    from tensorplay.nn.module import Module


Shape = tuple[int, ...]


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


#: The name under which a module's extra state is saved.
EXTRA = "_extra_state"


def members(module: Module, prefix: str = "") -> dict[str, Tensor]:
    """All parameters and saved buffers under their dotted names."""
    return {
        path + name: tensor
        for path, one in _with_paths(module, prefix)
        for name, tensor in (*one._parameters.items(), *one._buffers.items())
        if tensor is not None and name not in one._not_saved
    }


def _with_paths(module: Module, prefix: str) -> Iterator[tuple[str, Module]]:
    """The module and all within it, with what the names of their members begin with."""
    stack = [(prefix, module)]
    while stack:
        path, one = stack.pop()
        yield path, one
        children = [
            (f"{path}{name}.", child) for name, child in one._modules.items() if child is not None
        ]
        stack.extend(reversed(children))


def _with_extra_state(module: Module, prefix: str = "") -> dict[str, Module]:
    """The modules that have extra state, by its name."""
    from tensorplay.nn.module import Module as Base

    return {
        path + EXTRA: one
        for path, one in _with_paths(module, prefix)
        if type(one).get_extra_state is not Base.get_extra_state
    }


def collect(module: Module, prefix: str, keep_vars: bool) -> dict[str, Any]:
    """What `Module.state_dict` returns."""
    found: dict[str, Any] = {
        name: tensor if keep_vars else tensor.detach()
        for name, tensor in members(module, prefix).items()
    }
    for name, one in _with_extra_state(module, prefix).items():
        found[name] = one.get_extra_state()
    return found


class Misfits(NamedTuple):
    """How a state does not fit a module.

    Attributes:
        missing: Names that it lacks.
        unexpected: Names that it has too many.
        sizes: Names, with the shape in the state and that in the module, where these differ.
    """

    missing: list[str]
    unexpected: list[str]
    sizes: list[tuple[str, Shape, Shape]]

    def under(self, path: str) -> Misfits:
        """The same with a prefix to all names."""
        return Misfits(
            [path + name for name in self.missing],
            [path + name for name in self.unexpected],
            [(path + name, given, own) for name, given, own in self.sizes],
        )

    def refuse(self, module: Module, strict: bool) -> None:
        """Raise if there are any that count: all in one error."""
        problems = []
        for what, wrong in (("Missing", self.missing), ("Unexpected", self.unexpected)):
            if strict and wrong:
                names = ", ".join([f'"{name}"' for name in wrong])
                problems.append(f"{what} key(s) in state_dict: {names}.")
        problems += [
            f"size mismatch for {name}: copying a param with shape {given} from checkpoint, the "
            f"shape in current model is {own}."
            for name, given, own in self.sizes
        ]
        if problems:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(module).__name__}:\n\t"
                + "\n\t".join(problems)
            )


def shapes_of(values: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes in a state, which are all that `misfits` needs to know of its values."""
    if not isinstance(values, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(values)}.")
    return {
        name: tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        for name, value in values.items()
    }


def misfits(module: Module, shapes: Mapping[str, Shape]) -> Misfits:
    """How a state with these shapes does not fit a module and all within it, here or elsewhere."""
    here, apart = elsewhere.divided(module, shapes)
    own = members(module)
    extra = _with_extra_state(module)
    found = Misfits(
        [name for name in (*own, *extra) if name not in here],
        [name for name in here if name not in own and name not in extra],
        [
            (name, here[name], tensor._array.shape)
            for name, tensor in own.items()
            if name in here and here[name] != tensor._array.shape
        ],
    )
    for path, one, part in apart:
        there = one._misfits(part).under(path)
        found = Misfits(
            found.missing + there.missing,
            found.unexpected + there.unexpected,
            found.sizes + there.sizes,
        )
    return found


def load(module: Module, values: Mapping[str, Any], assign: bool) -> None:
    """Load a state that fits, but for names."""
    here, apart = elsewhere.divided(module, values)
    for _, one, part in apart:
        one.load_state_dict(part, False, assign)
    for name, tensor in members(module).items():
        if name not in here:
            continue
        array = _array_of(here[name])
        if assign:
            tensor.data = wrap(dtypes.normalised(array))
        else:
            replace_values(tensor, array)
    for name, one in _with_extra_state(module).items():
        if name in here:
            one.set_extra_state(here[name])


def _array_of(value: Any) -> np.ndarray[Any, Any]:
    return value._array if isinstance(value, Tensor) else np.asarray(value)


def replace_values(tensor: Tensor, array: Any) -> None:
    """Give a tensor new values, in a new array, since graphs may still hold the old one."""
    tensor._array = np.array(array, tensor._array.dtype)
    tensor._version = [0]


def convert(module: Module, dtype: np.dtype[Any], kinds: str = "") -> None:
    """Give members another type.

    Args:
        kinds: The kinds of types that are converted; by default floating-point ones, and complex
            ones only to another complex type.
    """
    kinds = kinds or ("fc" if dtype.kind == "c" else "f")
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
