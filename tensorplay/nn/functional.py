"""Layers and losses as functions, without parameters of their own."""

from __future__ import annotations

import numpy as np

from tensorplay.ops.activations import (
    celu,
    elu,
    gelu,
    glu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    relu6,
    selu,
    silu,
    softmin,
    softplus,
    softsign,
    tanhshrink,
)
from tensorplay.ops.affine import linear
from tensorplay.ops.attention import scaled_dot_product_attention
from tensorplay.ops.classification import cross_entropy, nll_loss, one_hot
from tensorplay.ops.losses import huber_loss, l1_loss, mse_loss, smooth_l1_loss
from tensorplay.ops.margin_losses import (
    cosine_embedding_loss,
    cosine_similarity,
    hinge_embedding_loss,
    margin_ranking_loss,
    normalize,
    pairwise_distance,
    soft_margin_loss,
    triplet_margin_loss,
)
from tensorplay.ops.pointwise import relu, sigmoid, tanh
from tensorplay.ops.probability_losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    gaussian_nll_loss,
    kl_div,
    poisson_nll_loss,
)
from tensorplay.ops.softmax import log_softmax, softmax
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor, wrap

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pairwise_distance",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
    "triplet_margin_loss",
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
