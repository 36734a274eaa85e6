"""Initial values for parameters.  Each function writes into its tensor and returns it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.random import Generator, default_generator
from tensorplay.tensor import Tensor

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}

#: `trunc_normal_` draws until all numbers lie within the bounds: not more than so rarely.
_LEAST_CHANCE = 1e-3


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity's weights are scaled to keep the variance.

    Args:
        nonlinearity: ``"linear"``, ``"sigmoid"``, ``"tanh"``, ``"relu"``, ``"leaky_relu"``, ...
        param: The negative slope of ``"leaky_relu"``, 0.01 by default.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _write(tensor: Tensor, values: Any) -> Tensor:
    tensor._array[...] = values
    tensor._version[0] += 1
    return tensor


def _draw(tensor: Tensor, method: str, generator: Generator | None, *args: Any) -> Tensor:
    """Write random numbers; into real and imaginary parts of complex ones each."""
    array = tensor._array
    if array.dtype.kind == "c":
        array = dtypes.parts(array)
    array[...] = (generator or default_generator).draw(method, *args, size=array.shape)
    tensor._version[0] += 1
    return tensor


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Numbers drawn evenly from ``[a, b)``; of complex ones each part."""
    return _draw(tensor, "uniform", generator, a, b)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Numbers from the normal distribution; of complex ones each part has half the variance."""
    if tensor._array.dtype.kind == "c":
        _draw(tensor, "normal", generator, 0.0, std * math.sqrt(0.5))
        return _write(tensor, tensor._array + mean)
    return _draw(tensor, "normal", generator, mean, std)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same number everywhere."""
    return _write(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return _write(tensor, 1)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return _write(tensor, 0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor._array.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return _write(tensor, np.eye(*tensor._array.shape))


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output has, and how many outputs each input."""
    shape = tensor._array.shape
    if len(shape) < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Evenly drawn, for layers with as many inputs as outputs (Glorot and Bengio, 2010)."""
    fan_in, fan_out = _fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """As `xavier_uniform_`, from the normal distribution."""
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of fan_in, fan_out")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Evenly drawn, for layers followed by a rectifier (He et al., 2015).

    Args:
        a: The rectifier's negative slope.
        mode: Keep the variance of the forward pass (``"fan_in"``) or of the backward pass
            (``"fan_out"``).
        nonlinearity: As for `calculate_gain`.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """As `kaiming_uniform_`, from the normal distribution."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers from the normal distribution, drawn again where they are outside of ``[a, b]``.

    Raises:
        ValueError: Hardly any number of the distribution lies between the bounds.
    """
    low, high = (a - mean) / std, (b - mean) / std
    if (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2 < _LEAST_CHANCE:
        raise ValueError(f"next to no number of the distribution lies between {a} and {b}")
    source = generator or default_generator
    values = np.empty(tensor._array.size)
    wrong = np.arange(values.size)
    while wrong.size:
        drawn = source.draw("standard_normal", wrong.size)
        values[wrong] = drawn
        wrong = wrong[(drawn < low) | (drawn > high)]
    return _write(tensor, values.reshape(tensor._array.shape) * std + mean)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """A matrix, of all dimensions but the first taken as one, with orthogonal rows or columns.

    Args:
        gain: The length of these rows or columns.

    Raises:
        ValueError: The tensor has fewer than two dimensions.
    """
    shape = tensor._array.shape
    if len(shape) < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if not tensor._array.size:
        return tensor
    rows, columns = shape[0], math.prod(shape[1:])
    longer, shorter = max(rows, columns), min(rows, columns)
    drawn = (generator or default_generator).draw("standard_normal", (longer, shorter))
    q, r = np.linalg.qr(drawn)
    # With these signs all orthogonal matrices are equally likely.
    q *= np.sign(np.diagonal(r))
    return _write(tensor, (q if rows >= columns else q.T).reshape(shape) * gain)


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weights that pass the channels of each group on as they are.

    Raises:
        ValueError: The tensor has not 3 to 5 dimensions, or the groups do not go into the first.
    """
    shape = tensor._array.shape
    if len(shape) not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    outputs = shape[0] // groups
    count = min(outputs, shape[1])
    values = np.zeros(shape, tensor._array.dtype)
    centre = tuple([size // 2 for size in shape[2:]])
    for group in range(groups):
        channels = np.arange(count)
        values[(group * outputs + channels, channels, *centre)] = 1
    return _write(tensor, values)
