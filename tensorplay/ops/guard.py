"""A clear error for whoever gives a public function something else where it wants a tensor.

Methods and the operations themselves call one another without this: it stands only around what
programs call by name.
"""

from __future__ import annotations

import inspect
import sys
from types import FunctionType
from typing import Any

from tensorplay.tensor import Tensor

_KINDS = ("Tensor", "Tensor | None")


def refusal(
    function: Any, function_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TypeError | None:
    """What to raise for the first argument that should be a tensor and is not; None without one."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    for position, (name, parameter) in enumerate(signature.parameters.items(), 1):
        value = given.get(name)
        if parameter.annotation not in _KINDS or name not in given or isinstance(value, Tensor):
            continue
        if value is not None or parameter.annotation == "Tensor":
            return not_a_tensor(function_name, name, position, value)
    return None


def not_a_tensor(function: str, name: str, position: int, value: Any) -> TypeError:
    """The error for an argument that should be a tensor."""
    kind = type(value)
    own = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    hint = "" if value is None else "; make it one with tensorplay.tensor()"
    return TypeError(
        f"{function}(): argument {name!r} (position {position}) must be a Tensor, not {own}{hint}"
    )


def takes_tensors(function: Any) -> bool:
    """Whether the function takes a second tensor beside its first argument."""
    kinds = list(getattr(function, "__annotations__", {}).values())[:-1]
    return any(kind in _KINDS for kind in kinds[1:])


def guarded(function: Any) -> Any:
    """The function, with a clear error for what should be a tensor and is not."""
    tensor_class = Tensor
    refused = refusal
    function_name = function.__name__

    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            if not args or args[0].__class__ is tensor_class or isinstance(args[0], tensor_class):
                return function(*args, **kwargs)
        except (AttributeError, TypeError):
            error = refused(function, function_name, args, kwargs)
            if error is None:
                raise
            raise error from None
        error = refused(function, function_name, args, kwargs)
        if error is not None:
            raise error
        return function(*args, **kwargs)

    # With the function's own globals, so that doctest knows where it is from.
    outer = FunctionType(
        checked.__code__, function.__globals__, function.__name__, None, checked.__closure__
    )
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(outer, attribute, getattr(function, attribute))
    outer.__wrapped__ = function  # type: ignore[attr-defined]
    return outer


def guard(package: str) -> None:
    """Put guarded functions in the place of the public ones of a module and those beneath it.

    Only those that take a tensor first and have no check of their own.
    """
    for module_name, module in list(sys.modules.items()):
        if not f"{module_name}.".startswith(f"{package}."):
            continue
        for name, function in list(vars(module).items()):
            if name.startswith("_") or type(function) is not FunctionType:
                continue
            own = function.__module__ == module_name and function.__name__ == name
            if not own or hasattr(function, "__wrapped__"):
                continue
            first = next(iter(function.__annotations__.values()), None)
            checks = "not_a_tensor" in function.__code__.co_names
            if first == "Tensor" and not checks and function.__annotations__["return"] != "bool":
                setattr(module, name, guarded(function))
