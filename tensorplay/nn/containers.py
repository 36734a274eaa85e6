"""Modules made of other modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tensorplay.nn.module import Module


class _Numbered(Module):
    """Children under the names "0", "1", ..."""

    def __len__(self) -> int:
        return len(self._modules)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))  # type: ignore[arg-type]  # never None here

    def _key(self, index: int) -> str:
        size = len(self._modules)
        position = index.__index__()
        if not -size <= position < size:
            raise IndexError(f"index {position} is out of range")
        return str(position % size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)._of(list(self)[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[self._key(index)] = module

    def __delitem__(self, index: int | slice) -> None:
        kept = list(self)
        del kept[index]
        self._modules.clear()
        self.extend(kept)

    @classmethod
    def _of(cls, modules: list[Module]) -> _Numbered:
        raise NotImplementedError

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; returns the container."""
        for module in modules:
            self.append(module)
        return self


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
        if len(modules) == 1 and isinstance(modules[0], dict):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)

    @classmethod
    def _of(cls, modules: list[Module]) -> Sequential:
        return cls(*modules)

    def _key(self, index: int) -> str:
        # The names may have been given.
        return list(self._modules)[int(super()._key(index))]

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

    @classmethod
    def _of(cls, modules: list[Module]) -> ModuleList:
        return cls(modules)

    def insert(self, index: int, module: Module) -> None:
        """Put a module before the one at `index`."""
        all_modules = list(self)
        all_modules.insert(index, module)
        self._modules.clear()
        self.extend(all_modules)


class ModuleDict(Module):
    """A dictionary of modules whose parameters are found."""

    def __init__(self, modules: dict[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            self.add_module(name, module)

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()
