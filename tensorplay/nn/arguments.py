"""The types of modules' arguments."""

from __future__ import annotations

from numbers import Real
from typing import Any


def check_integers(**values: Any) -> None:
    """Raise TypeError, which names the argument, unless all values are whole numbers."""
    for name, value in values.items():
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an integer, not {value!r}")


def check_numbers(**values: Any) -> None:
    """Raise TypeError, which names the argument, unless all values are real numbers."""
    for name, value in values.items():
        if not isinstance(value, Real):
            raise TypeError(f"{name} must be a number, not {value!r}")
