"""Sends functions and classes by value, with the package cloudpickle."""

from __future__ import annotations

import functools
import importlib
import io
import pickle
from collections.abc import Callable
from typing import Any


@functools.cache
def _pickler_class() -> Any:
    cloudpickle = importlib.import_module("cloudpickle")

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]  # may be absent
        def __init__(
            self,
            file: io.BytesIO,
            take_buffer: Callable[[Any], Any] | None,
            table: dict[type, Any],
        ) -> None:
            for cls, reducer in cloudpickle.Pickler.dispatch_table.items():
                table.setdefault(cls, reducer)
            # Before the rest: what is inherited looks here for its table, once.
            self.dispatch_table = table
            super().__init__(file, protocol=5, buffer_callback=take_buffer)

    return Pickler


def make_pickler(
    file: io.BytesIO, take_buffer: Callable[[Any], Any] | None, table: dict[type, Any]
) -> pickle.Pickler:
    """A pickler for one message, which knows by value what cloudpickle does.

    Args:
        file: Where the pickle goes.
        take_buffer: Takes out-of-band buffers; None leaves them in the pickle.
        table: Reducers by class, which come before cloudpickle's.
    """
    pickler: pickle.Pickler = _pickler_class()(file, take_buffer, table)
    return pickler


PicklerMaker = Callable[[io.BytesIO, Callable[[Any], Any] | None, dict[type, Any]], pickle.Pickler]
_maker: list[PicklerMaker | None] = [None]


def send_by_value(maker: PicklerMaker | None) -> None:
    """Have `maker` make the pickler of each message from now on; None for pickle's own."""
    _maker[:] = [maker]


def by_value_maker() -> PicklerMaker | None:
    """What makes the pickler of each message; None if functions go by name."""
    return _maker[0]


def dumps(value: Any) -> bytes:
    """Pickle `value` apart from any message: no references, and tensors as pickle does them."""
    maker = _maker[0]
    if maker is None:
        return pickle.dumps(value)
    file = io.BytesIO()
    maker(file, None, {}).dump(value)
    return file.getvalue()
