"""Optimizers, and schedules of their learning rates."""

from tensorplay.optim import lr_scheduler
from tensorplay.optim.adadelta import Adadelta
from tensorplay.optim.adagrad import Adagrad
from tensorplay.optim.adam import Adam, AdamW
from tensorplay.optim.adamax import Adamax
from tensorplay.optim.optimizer import Optimizer
from tensorplay.optim.rmsprop import RMSprop
from tensorplay.optim.rprop import Rprop
from tensorplay.optim.sgd import SGD

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Optimizer",
    "RMSprop",
    "Rprop",
    "SGD",
    "lr_scheduler",
]
