"""Distributed automatic differentiation, with `torch.distributed.autograd`'s names."""

from tensorplay.distributed.autograd.api import (
    backward,
    context,
    get_gradients,
    is_available,
    is_initialized,
)
from tensorplay.distributed.autograd.context import DistAutogradContext

__all__ = [
    "DistAutogradContext",
    "backward",
    "context",
    "get_gradients",
    "is_available",
    "is_initialized",
]
