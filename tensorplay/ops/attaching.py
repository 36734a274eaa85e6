"""How operations become methods of `Tensor`: at once, or when they are first used.

Most programs need few of the operations, and importing all of them would double the time that it
takes to import the package.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from tensorplay.ops.guard import guard, guarded, takes_tensors
from tensorplay.ops.writing import writing
from tensorplay.tensor import Tensor

#: These look themselves for memory that must not be written to.
_CHECKED = frozenset({"add_", "div_", "mul_", "pow_", "sub_"})


def as_method(function: Any, name: str) -> Any:
    """What stands on `Tensor` under `name` for a function."""
    if not name.startswith("__") and takes_tensors(function):
        function = guarded(function)
    if name.endswith("_") and not name.endswith("__") and name not in _CHECKED:
        function = writing(function)
    module = sys.modules[function.__module__]
    if getattr(module, function.__qualname__, None) is not function:
        # Made by a function that makes many, or guarded there: pickle must find it by its name.
        function.__name__ = name
        function.__qualname__ = f"Tensor.{name}"
        function.__module__ = Tensor.__module__
    return function


def loaded(name: str) -> ModuleType:
    """A module of this package, its public functions guarded."""
    module = importlib.import_module(f"tensorplay.ops.{name}")
    guard(module.__name__)
    return module


class Later:
    """Stands on `Tensor` for a function of a module of this package, until it is first used.

    Attributes:
        attribute: The name under which it stands there.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name
        self.attribute = name

    @property
    def function(self) -> Any:
        """The function; its module is imported."""
        return getattr(loaded(self._module), self._name)

    def __get__(self, tensor: Tensor | None, kind: type[Tensor]) -> Any:
        method = as_method(self.function, self.attribute)
        setattr(Tensor, self.attribute, method)
        return method.__get__(tensor, kind)

    def __call__(self, tensor: Tensor) -> Any:
        """As the getter of a property."""
        return self.function(tensor)


class LaterModule:
    """Stands for a module of this package: its attributes are `Later`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Later:
        return Later(self._name, name)
