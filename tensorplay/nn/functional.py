"""Layers and losses as functions, without parameters of their own."""

from __future__ import annotations

import numpy as np

from tensorplay.ops.affine import linear
from tensorplay.ops.classification import cross_entropy, nll_loss, one_hot
from tensorplay.ops.losses import l1_loss, mse_loss
from tensorplay.ops.padding import pad
from tensorplay.ops.pointwise import relu, sigmoid, tanh
from tensorplay.ops.softmax import log_softmax, softmax
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor, wrap

__all__ = [
    "cross_entropy",
    "dropout",
    "l1_loss",
    "linear",
    "log_softmax",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "pad",
    "relu",
    "sigmoid",
    "softmax",
    "tanh",
]


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability `p`, and scale the others by ``1 / (1 - p)``.

    Args:
        training: If False, the input is returned as it is.

    Raises:
        ValueError: `p` is not between 0 and 1.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    array = input._array
    if p == 1.0:
        return input * 0
    drawn = default_generator.draw("random", array.shape, dtype=np.float32)
    kept = np.multiply(drawn >= p, 1 / (1 - p), dtype=array.dtype)
    result: Tensor = input * wrap(kept)
    return result
