"""Modules made of other modules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from tensorplay.nn.module import Module

_Self = TypeVar("_Self", bound="_Numbered")


class _Numbered(Module):
    """Children under the names "0", "1", ..."""

    def __len__(self) -> int:
        return len(self._modules)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))  # type: ignore[arg-type]  # never None here

    def _key(self, index: int) -> str:
        """The name of the child at an index; names may have been given."""
        size = len(self._modules)
        position = index.__index__()
        if not -size <= position < size:
            raise IndexError(f"index {position} is out of range")
        return list(self._modules)[position % size]

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)._of(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        if isinstance(index, slice):
            for name in list(self._modules)[index]:
                del self._modules[name]
        else:
            del self._modules[self._key(index)]
        self._replace(list(self))

    def _replace(self, modules: Iterable[Module]) -> None:
        """Have these children, numbered anew, and no others."""
        self._modules.clear()
        self.extend(modules)

    @classmethod
    def _of(cls: type[_Self], named: list[tuple[str, Module | None]]) -> _Self:
        """A container of some of the children of another."""
        made = cls()
        made.extend([module for _, module in named if module is not None])
        return made

    def __add__(self: _Self, other: Iterable[Module]) -> _Self:
        made = type(self)()
        made.extend([*self, *other])
        return made

    def __iadd__(self: _Self, other: Iterable[Module]) -> _Self:
        return self.extend(other)

    def append(self: _Self, module: Module) -> _Self:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: _Self, modules: Iterable[Module]) -> _Self:
        """Add modules at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self: _Self, index: int, module: Module) -> _Self:
        """Put a module before the one at `index`; returns the container.

        Raises:
            IndexError: The index is out of range.
            TypeError: What is to be put in is no module.
        """
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"index {index} is out of range")
        if not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        modules = list(self)
        modules.insert(index, module)
        self._replace(modules)
        return self

    def pop(self, key: int | slice) -> Module:
        """Take a module out and return it."""
        module: Module = self[key]
        del self[key]
        return module


class Sequential(_Numbered):
    """Calls its modules one after another, each on the last one's result.

    Args:
        modules: The modules; or one dictionary of them by name.

    >>> import tensorplay as tp
    >>> tp.nn.Sequential(tp.nn.Linear(2, 3), tp.nn.ReLU())
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
    )
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)

    @classmethod
    def _of(cls, named: list[tuple[str, Module | None]]) -> Sequential:
        return cls(dict(named))

    def forward(self, input: Any) -> Any:
        """The last module's result."""
        for module in self._modules.values():
            assert module is not None
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list of modules whose parameters are found."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __repr__(self) -> str:
        # Modules in a row that look alike are shown once.
        lines = []
        first = 0
        for text, same in itertools.groupby([repr(module) for module in self]):
            count = len(list(same))
            name = f"{first}" if count == 1 else f"{first}-{first + count - 1}"
            times = "" if count == 1 else f"{count} x "
            indented = text.replace("\n", "\n  ")
            lines.append(f"\n  ({name}): {times}{indented}")
            first += count
        return f"{type(self).__name__}({''.join(lines)}\n)" if lines else f"{type(self).__name__}()"


class ModuleDict(Module):
    """A dictionary of modules whose parameters are found."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take a module out and return it."""
        module: Module = self[key]
        del self[key]
        return module

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules, or put them in the place of those with the same names."""
        for key, module in dict(modules).items():
            self[key] = module
