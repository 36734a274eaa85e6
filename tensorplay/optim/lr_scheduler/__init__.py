"""Schedules of learning rates, with `torch.optim.lr_scheduler`'s names."""

from tensorplay.optim.lr_scheduler.base import LRScheduler
from tensorplay.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from tensorplay.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from tensorplay.optim.lr_scheduler.factors import LambdaLR, MultiplicativeLR
from tensorplay.optim.lr_scheduler.one_cycle import OneCycleLR
from tensorplay.optim.lr_scheduler.plateau import ReduceLROnPlateau
from tensorplay.optim.lr_scheduler.steps import ExponentialLR, MultiStepLR, StepLR
from tensorplay.optim.lr_scheduler.warmup import ConstantLR, LinearLR, PolynomialLR

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
