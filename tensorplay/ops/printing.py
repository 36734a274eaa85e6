"""How a tensor prints: as PyTorch prints it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.tensor import Tensor

#: More elements than this, and only the ends of each dimension are shown.
THRESHOLD = 1000
#: Characters in a line.
WIDTH = 80
#: Types that need not be named: a literal of Python's gives them.
_OBVIOUS = frozenset({dtypes.int64, dtypes.bool})


def formatted(tensor: Tensor) -> str:
    """The tensor's ``repr``."""
    array = tensor._array
    prefix = "Parameter containing:\ntensor(" if type(tensor).__name__ == "Parameter" else "tensor("
    notes = []
    if array.size == 0 and array.shape != (0,):
        notes.append(f"size={array.shape}")
    dtype = array.dtype
    default = dtypes.get_default_dtype()
    if (dtype not in _OBVIOUS or not array.size) and dtype not in (
        default,
        dtypes.complex_like(default),
    ):
        notes.append(f"dtype={dtype}")
    if tensor._node is not None:
        notes.append(f"grad_fn=<{tensor._node.name()}>")
    elif tensor._requires_grad:
        notes.append("requires_grad=True")
    body = _values(array)
    if not notes:
        return f"{prefix}{body})"
    tail = ", ".join(notes)
    last = len(body) - body.rfind("\n") + 1
    separator = ",\n       " if last + len(tail) + 8 > WIDTH else ", "
    return f"{prefix}{body}{separator}{tail})"


def _values(array: np.ndarray[Any, Any]) -> str:
    if array.size == 0:
        return "[]"
    formatter = None
    if array.dtype.kind == "f":
        formatter = _float_format(array)
    elif array.dtype.kind == "c":
        formatter = _complex_format(array)
    if array.ndim == 0:
        value = array.item()
        return formatter(value) if formatter else str(value)
    text = np.array2string(
        array,
        max_line_width=WIDTH,
        separator=", ",
        prefix="tensor(",
        threshold=THRESHOLD,
        formatter={"float_kind": formatter, "complex_kind": formatter} if formatter else None,
        precision=4,
    )
    return text.replace(", ..., ", ",  ..., ")


def _complex_format(array: np.ndarray[Any, Any]) -> Any:
    """Real and imaginary parts, each in its own style."""
    real, imaginary = _float_format(array.real), _float_format(array.imag)

    def show(value: complex) -> str:
        second = imaginary(value.imag).lstrip()
        sign = "" if second.startswith("-") else "+"
        return f"{real(value.real)}{sign}{second}j"

    return show


def _float_format(array: np.ndarray[Any, Any]) -> Any:
    """Four digits after the point; none for whole numbers; powers of ten where sizes differ."""
    finite = np.abs(array[np.isfinite(array)]).astype(np.float64)
    nonzero = finite[finite > 0]
    whole = bool((finite == np.ceil(finite)).all())
    if not nonzero.size:
        style = "{:.0f}."
    else:
        low, high = float(nonzero.min()), float(nonzero.max())
        if whole:
            style = "{:.4e}" if high / low > 1000 or high > 1e8 else "{:.0f}."
        else:
            wide = high / low > 1000 or high > 1e8 or low < 1e-4
            style = "{:.4e}" if wide else "{:.4f}"
    texts = [style.format(value) for value in array[np.isfinite(array)].ravel()[:THRESHOLD]]
    width = max([len(text) for text in texts], default=0)

    def show(value: float) -> str:
        text = style.format(value) if np.isfinite(value) else str(float(value))
        return text if array.ndim == 0 else text.rjust(width)

    return show
