"""Modules, layers and losses."""

from tensorplay.nn import functional, init, utils
from tensorplay.nn.activation import LogSoftmax, ReLU, Sigmoid, Softmax, Tanh
from tensorplay.nn.containers import ModuleDict, ModuleList, Sequential
from tensorplay.nn.convolution import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from tensorplay.nn.dropout import AlphaDropout, Dropout, Dropout1d, Dropout2d
from tensorplay.nn.embedding import Embedding, EmbeddingBag
from tensorplay.nn.layers import Flatten, Identity, Linear, Unflatten, Upsample, ZeroPad2d
from tensorplay.nn.loss import CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from tensorplay.nn.module import Module
from tensorplay.nn.normalisation import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
)
from tensorplay.nn.parameter import Parameter
from tensorplay.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    Fold,
    MaxPool1d,
    MaxPool2d,
    Unfold,
)

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AlphaDropout",
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Embedding",
    "EmbeddingBag",
    "Flatten",
    "Fold",
    "GroupNorm",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "L1Loss",
    "LayerNorm",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "Unflatten",
    "Unfold",
    "Upsample",
    "ZeroPad2d",
    "functional",
    "init",
    "utils",
]
