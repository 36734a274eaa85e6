"""Modules that are lists and dictionaries of parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.tensor import Tensor


def _as_member(value: Any) -> Any:
    """Tensors become parameters; anything else is kept as it is."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _described(name: str, value: Any) -> str:
    if isinstance(value, Tensor):
        sizes = "x".join([str(size) for size in value.shape])
        return f"({name}): {type(value).__name__} containing: [{value.dtype} of size {sizes}]"
    return f"({name}): Object of type: {type(value).__name__}"


class ParameterList(Module):
    """A list of parameters that are found like those set as attributes.

    Tensors that are put in become parameters.

    >>> import tensorplay as tp
    >>> held = tp.nn.ParameterList([tp.ones(2), tp.zeros(3)])
    >>> [name for name, _ in held.named_parameters()]
    ['0', '1']
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(values or ())

    def _name(self, index: int) -> str:
        position = index.__index__()
        if not -self._size <= position < self._size:
            raise IndexError(f"index {position} is out of range")
        return str(position % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, self._name(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), _as_member(value))

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end; returns the container."""
        setattr(self, str(self._size), _as_member(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end; returns the container.

        Raises:
            TypeError: What is given is one tensor, or cannot be iterated over.
        """
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join([_described(str(i), value) for i, value in enumerate(self)])


class ParameterDict(Module):
    """A dictionary of parameters that are found like those set as attributes.

    Tensors that are put in become parameters.  Names must not have a dot in them.
    """

    def __init__(
        self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None
    ) -> None:
        super().__init__()
        # Its order is that of the dictionary; the values are attributes.
        self._names: dict[str, None] = {}
        self.update(parameters or {})

    def __getitem__(self, key: str) -> Any:
        if key not in self._names:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Index given to ParameterDict must be a string, not {key!r}")
        value = _as_member(value)
        if key not in self._names and isinstance(value, Parameter):
            self.register_parameter(key, value)
        else:
            setattr(self, key, value)
        self._names[key] = None

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._names)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._names))

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._names))

    def __contains__(self, key: str) -> bool:
        return key in self._names

    def __or__(self, other: Mapping[str, Any]) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ior__(self, other: Mapping[str, Any]) -> ParameterDict:
        self.update(other)
        return self

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._names.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return [self[key] for key in self._names]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return [(key, self[key]) for key in self._names]

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter with a name, or `default`."""
        return self[key] if key in self._names else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter with a name, which is put in if it is not there."""
        if key not in self._names:
            self[key] = default
        return self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new container with these names, all with one value."""
        return ParameterDict([(key, default) for key in keys])

    def copy(self) -> ParameterDict:
        """A new container of the same parameters."""
        return ParameterDict(self.items())

    def clear(self) -> None:
        """Take all parameters out."""
        for key in list(self._names):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take a parameter out and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last parameter out; returns its name and itself."""
        key = list(self._names)[-1]
        return key, self.pop(key)

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add parameters, or put them in the place of those with the same names.

        Those of a plain dictionary in the order of their names, as in PyTorch.
        """
        pairs = dict(parameters)
        plain = isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict)
        for key in sorted(pairs) if plain else pairs:
            self[key] = pairs[key]

    def extra_repr(self) -> str:
        return "\n".join([_described(key, self[key]) for key in self._names])
