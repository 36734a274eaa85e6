"""Differentiable operations, by family; importing this package makes them methods of `Tensor`."""

from tensorplay.ops.guard import guard
from tensorplay.ops.methods import attach

guard(__name__)
attach()
