"""Checking gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorplay.autograd.api import grad
from tensorplay.tensor import Tensor, wrap

Array = np.ndarray[Any, Any]


class GradcheckError(RuntimeError):
    """A gradient that a backward rule gave is not the one that finite differences give."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compare the gradients of a function with central differences, element by element.

    Args:
        func: Takes the inputs, returns a tensor or several.
        inputs: Those that require grad are checked; they must be float64 or complex128.  Real and
            imaginary parts, of inputs and of outputs, are looked at one by one.
        eps: By how much each element is moved to either side.
        atol: Absolute tolerance.
        rtol: Tolerance relative to the numerical value.
        raise_exception: Raise on a mismatch, rather than return False.

    Raises:
        GradcheckError: A gradient is wrong; the message shows which, and both values.
        ValueError: No input requires grad, or one that does is of another type than these.

    >>> import tensorplay as tp
    >>> x = tp.randn(3, dtype=tp.float64, requires_grad=True)
    >>> tp.autograd.gradcheck(lambda x: x * x.exp(), x)
    True
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, one in enumerate(given) if isinstance(one, Tensor) and one._requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the "
            "them have requires_grad=True."
        )
    for i in checked:
        if given[i]._array.dtype not in (np.float64, np.complex128):
            raise ValueError(
                f"Input #{i} requires gradient and is not a double precision floating point: "
                f"{given[i]._array.dtype} is too coarse for finite differences"
            )
    try:
        _compare(func, given, checked, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """As `gradcheck`, for the gradients of the gradients.

    Args:
        grad_outputs: Gradients of the outputs to start from, of their types; by default drawn at
            random, always the same ones.
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    differentiable = [
        i for i, one in enumerate(given) if isinstance(one, Tensor) and one._requires_grad
    ]
    if grad_outputs is None:
        drawn = np.random.default_rng(0)
        starts = [_leaf(_drawn_like(out._array, drawn)) for out in _outputs(func, given)]
    else:
        starts = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = len(given)

    def gradients(*args: Any) -> Any:
        outputs = _outputs(func, args[:count])
        wanted = [args[i] for i in differentiable]
        found = grad(outputs, wanted, args[count:], create_graph=True, allow_unused=True)
        return tuple([one for one in found if one is not None and one._requires_grad])

    return gradcheck(
        gradients,
        (*given, *starts),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
    )


def _leaf(array: Array) -> Tensor:
    leaf = wrap(array)
    leaf.requires_grad = True
    return leaf


def _drawn_like(array: Array, source: np.random.Generator) -> Array:
    """Random numbers, float64 or complex128, for an array."""
    drawn = np.empty(array.shape, np.complex128 if array.dtype.kind == "c" else np.float64)
    _parts(drawn)[...] = source.standard_normal(_parts(drawn).shape)
    return drawn


def _parts(array: Array) -> Array:
    """The numbers as one row, each complex one as its real and then its imaginary part.

    A view, if the elements lie in row order.
    """
    return np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)


def _outputs(func: Callable[..., Any], args: Sequence[Any]) -> list[Tensor]:
    """The function's results that can be differentiated."""
    result = func(*args)
    several = result if isinstance(result, (tuple, list)) else (result,)
    return [one for one in several if isinstance(one, Tensor) and one._requires_grad]


def _compare(
    func: Callable[..., Any],
    given: tuple[Any, ...],
    checked: list[int],
    eps: float,
    atol: float,
    rtol: float,
) -> None:
    outputs = _outputs(func, given)
    if not outputs:
        raise ValueError("gradcheck: none of the function's outputs requires grad")
    for i in checked:
        numerical = _numerical(func, given, i, len(outputs), eps)
        for number, output in enumerate(outputs):
            analytical = _analytical(output, given[i], f"output {number}, input {i}")
            if not np.allclose(analytical, numerical[number], rtol=rtol, atol=atol):
                raise GradcheckError(
                    f"Jacobian mismatch for output {number} with respect to input {i} (one row "
                    "for each element of the output; of complex ones for each part),\n"
                    f"numerical:\n{numerical[number]}\nanalytical:\n{analytical}"
                )


def _numerical(
    func: Callable[..., Any], given: tuple[Any, ...], i: int, outputs: int, eps: float
) -> list[Array]:
    """For each output the Jacobian with respect to input `i`, by central differences."""

    def values(moved: Array) -> list[Array]:
        args = list(given)
        args[i] = _leaf(moved)
        return [_parts(one._array).copy() for one in _outputs(func, args)]

    columns: list[list[Array]] = [[] for _ in range(outputs)]
    start = given[i]._array
    for place in range(_parts(start).size):
        up, down = start.copy(), start.copy()
        _parts(up)[place] += eps
        _parts(down)[place] -= eps
        moved = _parts(up)[place] - _parts(down)[place]
        for column, above, below in zip(columns, values(up), values(down), strict=True):
            column.append((above - below) / moved)
    sizes = [one.size for one in values(start.copy())]
    return [
        np.stack(column, axis=1) if column else np.zeros((size, 0))
        for column, size in zip(columns, sizes, strict=True)
    ]


def _analytical(output: Tensor, input: Tensor, what: str) -> Array:
    """The Jacobian of an output with respect to an input, by the backward rules, row by row."""
    start = np.zeros(output._array.shape, output._array.dtype)
    rows = np.zeros((_parts(start).size, _parts(input._array).size))
    for number in range(len(rows)):
        start = np.zeros_like(start)
        _parts(start)[number] = 1
        (row,) = grad(output, input, wrap(start), retain_graph=True, allow_unused=True)
        if row is None:
            continue
        if row._array.shape != input._array.shape or row._array.dtype != input._array.dtype:
            raise GradcheckError(
                f"the gradient ({what}) has shape {row._array.shape} and type {row._array.dtype}, "
                f"not those of the input: {input._array.shape}, {input._array.dtype}"
            )
        rows[number] = _parts(row._array)
    return rows
