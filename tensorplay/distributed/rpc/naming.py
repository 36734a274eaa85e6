"""Functions travel by their names: the module's, and the function's in it.

So pickle does it, too, but anew for each call.  Here the name of a function is found once, and what
a name stands for is looked up where it was found before.  The meaning is pickle's: a name stands
for what the receiver's module holds under it at that moment.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from tensorplay.distributed.rpc.errors import FunctionNotFoundError, MissingModuleError

_NAMED_TYPES = frozenset({FunctionType, BuiltinFunctionType, type})
#: Caches are emptied when they have grown so long.
_LIMIT = 4096

_Function = Callable[..., Any]

#: What is sent for a function, its module's dictionary, and its key there.
_names: dict[_Function, tuple[bytes, dict[str, Any], str]] = {}
#: For a name that was received, the module's name and the function's in it.
_places: dict[bytes, tuple[str, str]] = {}


def name_of(function: _Function) -> bytes:
    """The name under which `function` can be sent; empty if it has to be pickled."""
    # Others may be equal without being the same, or refuse to be hashed.
    if type(function) not in _NAMED_TYPES:
        return b""
    known = _names.get(function)
    if known is None:
        known = _names_entry(function)
        if known is None:
            return b""
    name, namespace, key = known
    # A module may have been given another function of that name.
    return name if namespace.get(key) is function else b""


def _names_entry(function: Any) -> tuple[bytes, dict[str, Any], str] | None:
    module_name, key = function.__module__, function.__qualname__
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    if module is None or "." in key:
        return None
    if len(_names) >= _LIMIT:
        _names.clear()
    entry = _names[function] = f"{module_name}\n{key}".encode(), module.__dict__, key
    return entry


def function_not_found(error: Exception) -> RuntimeError:
    """What to raise when a name means nothing here."""
    missing = isinstance(error, ModuleNotFoundError)
    return (MissingModuleError if missing else FunctionNotFoundError)(
        f"{error}. RPC pickler does not serialize function code: functions and classes that are "
        "sent must stand in a module that this worker can import, in the same version; those of "
        "the program itself, above its call of init_rpc"
    )


def named(name: bytes) -> Any:
    """The function of that name here.

    Raises:
        FunctionNotFoundError: The module here has none of that name.
        MissingModuleError: There is no such module here.
    """
    place = _places.get(name)
    if place is None:
        module_name, _, key = name.decode().partition("\n")
        if len(_places) >= _LIMIT:
            _places.clear()
        place = _places[name] = module_name, key
    module_name, key = place
    module = sys.modules.get(module_name)
    try:
        if module is None:
            __import__(module_name)
            module = sys.modules[module_name]
        return getattr(module, key)
    except (AttributeError, ImportError) as error:
        raise function_not_found(error) from error


def name_for_people(function: object) -> str:
    """Module and name of something callable, for people.

    >>> name_for_people(functools.partial(len))
    'builtins.len'
    """
    inner = function
    while type(inner) is functools.partial:
        inner = inner.func
    kind = type(inner)
    # A `__getattr__` of the user's may do anything.
    name = None if hasattr(kind, "__getattr__") else getattr(inner, "__qualname__", None)
    if not isinstance(name, str):
        return f"{kind.__module__}.{kind.__qualname__} object"
    module = getattr(inner, "__module__", None)
    return f"{module}.{name}" if module else name
