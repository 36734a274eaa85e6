"""Modules, layers and losses."""

from tensorplay.nn import functional, init, utils
from tensorplay.nn.activation import LogSoftmax, ReLU, Sigmoid, Softmax, Tanh
from tensorplay.nn.containers import ModuleDict, ModuleList, Sequential
from tensorplay.nn.layers import Dropout, Flatten, Identity, Linear
from tensorplay.nn.loss import CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter

__all__ = [
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "L1Loss",
    "Linear",
    "LogSoftmax",
    "MSELoss",
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
    "functional",
    "init",
    "utils",
]
