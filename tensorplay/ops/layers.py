"""The operations that layers and losses consist of; imported with `tensorplay.nn` only."""

from tensorplay.ops import (
    activations,
    adaptive_pooling,
    affine,
    attention,
    classification,
    convolution,
    dropout,
    embedding,
    folding,
    losses,
    margin_losses,
    normalisation,
    padding,
    pooling,
    probability_losses,
    resizing,
)
from tensorplay.ops.guard import guard

MODULES = (
    activations,
    adaptive_pooling,
    affine,
    attention,
    classification,
    convolution,
    dropout,
    embedding,
    folding,
    losses,
    margin_losses,
    normalisation,
    padding,
    pooling,
    probability_losses,
    resizing,
)

for _module in MODULES:
    guard(_module.__name__)
