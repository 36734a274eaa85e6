"""The options of optimizers: which there are, and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorplay.tensor import Tensor

#: Options that choose among PyTorch's implementations of a step, with their defaults.  They are
#: taken and kept, so that its programs and saved states fit, and change nothing here.
_IMPLEMENTATION = {"foreach": None, "capturable": False, "differentiable": False, "fused": None}


def implementation(
    kind: type[Any], given: Mapping[str, Any], *names: str
) -> dict[str, bool | None]:
    """The options of `kind` that say how its step is computed, as given or by default.

    Args:
        kind: The optimizer.
        given: Further keyword arguments of its constructor.
        names: Which of these options PyTorch's optimizer of that name has.

    Raises:
        TypeError: Another argument was given.
        ValueError: The step itself is to be differentiable.
    """
    for name in given:
        if name not in names:
            raise TypeError(f"{kind.__name__} got an unexpected keyword argument {name!r}")
    if given.get("differentiable"):
        raise ValueError(f"{kind.__name__}: steps cannot be differentiated here")
    return {name: given.get(name, _IMPLEMENTATION[name]) for name in names}


_SPECIAL = (Tensor, np.generic)


def check_not_negative(**values: Any) -> None:
    """Raise ValueError if one of the values, given under its name in PyTorch, is below zero."""
    for name, value in values.items():
        if not value >= 0.0:
            what = {"lr": "learning rate", "eps": "epsilon value"}.get(name, f"{name} value")
            raise ValueError(f"Invalid {what}: {value}")


def check_betas(betas: tuple[float, float]) -> None:
    """Raise ValueError unless both shares lie in [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def plain(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """A group whose options are Python's own numbers, which leave an array's type as it is."""
    if not any(isinstance(value, _SPECIAL) for value in group.values()):
        return group
    return {
        name: value.item() if isinstance(value, _SPECIAL) else value
        for name, value in group.items()
    }
