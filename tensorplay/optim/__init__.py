"""Optimizers."""

from tensorplay.optim.adam import Adam, AdamW
from tensorplay.optim.optimizer import Optimizer
from tensorplay.optim.sgd import SGD

__all__ = ["Adam", "AdamW", "Optimizer", "SGD"]
