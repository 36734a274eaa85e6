"""Differentiable operations, by family; importing this package makes them methods of `Tensor`."""

from tensorplay.ops.methods import attach

attach()
