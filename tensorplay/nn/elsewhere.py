"""Modules within a module that stand for modules on other workers.

Such a class sets `Module._lives_elsewhere`.  It has no members of its own here; what a parent does
to all modules within is done to it by its own methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorplay.nn.module import Module


def children(module: Module) -> list[Module]:
    """The modules within, at any depth, that stand for others; each once."""
    return [one for one in module.modules() if one._lives_elsewhere and one is not module]


def _with_paths(module: Module) -> Iterator[tuple[str, Module]]:
    """The same, under each of their dotted names, followed by a dot."""
    stack = [("", module)]
    while stack:
        path, one = stack.pop()
        if one._lives_elsewhere and one is not module:
            yield path, one
        found = [
            (f"{path}{name}.", child) for name, child in one._modules.items() if child is not None
        ]
        stack.extend(reversed(found))


def collect(module: Module, prefix: str) -> dict[str, Any]:
    """The part of `Module.state_dict` that comes from elsewhere."""
    found: dict[str, Any] = {}
    for path, one in _with_paths(module):
        found |= one.state_dict(prefix=prefix + path)
    return found


def divided(
    module: Module, values: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[tuple[str, Module, dict[str, Any]]]]:
    """A state, divided among the processes.

    Returns:
        What is for this process; and paths of the modules elsewhere, themselves, and what is for
        each, under its own names.
    """
    apart = []
    for path, one in _with_paths(module):
        own = {name[len(path) :]: value for name, value in values.items() if name.startswith(path)}
        values = {name: value for name, value in values.items() if not name.startswith(path)}
        apart.append((path, one, own))
    return values, apart
