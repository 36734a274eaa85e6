"""Optimizers over the parameters of many workers, with `torch.distributed.optim`'s names."""

from tensorplay.distributed.optim.clipping import clip_grad_norm_
from tensorplay.distributed.optim.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "clip_grad_norm_"]
