"""What operations on stacks of matrices share: checks, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.ops.recording import as_operand


class LinAlgError(RuntimeError, np.linalg.LinAlgError):
    """A matrix is singular, or a decomposition did not converge."""


def matrices(
    value: Any, what: str, square: bool = False, complex_too: bool = False
) -> np.ndarray[Any, Any]:
    """The array of a tensor that must be a matrix or a stack of matrices.

    Raises:
        TypeError: It is not a tensor.
        RuntimeError: It has too few dimensions, elements of another type than float32 and float64
            (and with `complex_too` complex64 and complex128), or, with `square`, not as many rows
            as columns.
    """
    x = as_operand(value, f"{what}: input")._array
    if x.ndim < 2:
        raise RuntimeError(
            f"{what}: The input tensor A must have at least 2 dimensions, got {x.ndim}."
        )
    if not (complex_too and x.dtype.kind == "c"):
        _check_real(x, what)
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"{what}: A must be batches of square matrices, but they are {x.shape[-2]} by "
            f"{x.shape[-1]} matrices"
        )
    return x


def _check_real(x: np.ndarray[Any, Any], what: str) -> None:
    """Raise unless the elements are real and of a type that LAPACK has."""
    if x.dtype.kind == "c":
        raise RuntimeError(f"{what}: complex matrices are not supported")
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        raise RuntimeError(
            f"{what}: Expected a floating point tensor, float32 or float64, as input. Got {x.dtype}"
        )


def computed(what: str, function: Any, *arrays: Any, **options: Any) -> Any:
    """``function(*arrays)``, a function of NumPy's, with this module's error.

    Raises:
        LinAlgError: A matrix does not allow it.
    """
    try:
        return function(*arrays, **options)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{what}: {error}") from None
