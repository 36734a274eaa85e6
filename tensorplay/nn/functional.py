"""Layers and losses as functions, without parameters of their own."""

from __future__ import annotations

# First: it puts a check of the arguments around the functions.
from tensorplay.ops import layers as _layers  # noqa: F401
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
    relu,
    relu6,
    selu,
    silu,
    softmin,
    softplus,
    softsign,
    tanhshrink,
)
from tensorplay.ops.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
)
from tensorplay.ops.affine import linear
from tensorplay.ops.attention import scaled_dot_product_attention
from tensorplay.ops.classification import cross_entropy, nll_loss, one_hot
from tensorplay.ops.convolution import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from tensorplay.ops.dropout import alpha_dropout, dropout, dropout1d, dropout2d
from tensorplay.ops.embedding import embedding, embedding_bag
from tensorplay.ops.folding import fold, unfold
from tensorplay.ops.losses import huber_loss, l1_loss, mse_loss, smooth_l1_loss
from tensorplay.ops.margin_losses import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    pairwise_distance,
    soft_margin_loss,
    triplet_margin_loss,
)
from tensorplay.ops.normalisation import (
    batch_norm,
    cosine_similarity,
    group_norm,
    instance_norm,
    layer_norm,
    normalize,
)
from tensorplay.ops.padding import pad
from tensorplay.ops.pointwise import sigmoid, tanh
from tensorplay.ops.pooling import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from tensorplay.ops.probability_losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    gaussian_nll_loss,
    kl_div,
    poisson_nll_loss,
)
from tensorplay.ops.resizing import interpolate
from tensorplay.ops.softmax import log_softmax, softmax

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "dropout1d",
    "dropout2d",
    "elu",
    "embedding",
    "embedding_bag",
    "fold",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "group_norm",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
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
    "unfold",
]
