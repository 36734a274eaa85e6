"""Layers and losses as functions, without parameters of their own."""

from __future__ import annotations

from tensorplay.ops.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
)
from tensorplay.ops.affine import linear
from tensorplay.ops.classification import cross_entropy, nll_loss, one_hot
from tensorplay.ops.convolution import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from tensorplay.ops.dropout import alpha_dropout, dropout, dropout1d, dropout2d
from tensorplay.ops.embedding import embedding, embedding_bag
from tensorplay.ops.folding import fold, unfold
from tensorplay.ops.losses import l1_loss, mse_loss
from tensorplay.ops.normalisation import (
    batch_norm,
    cosine_similarity,
    group_norm,
    instance_norm,
    layer_norm,
    normalize,
)
from tensorplay.ops.padding import pad
from tensorplay.ops.pointwise import relu, sigmoid, tanh
from tensorplay.ops.pooling import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
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
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "dropout1d",
    "dropout2d",
    "embedding",
    "embedding_bag",
    "fold",
    "group_norm",
    "instance_norm",
    "interpolate",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "max_pool1d",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "relu",
    "sigmoid",
    "softmax",
    "tanh",
    "unfold",
]
