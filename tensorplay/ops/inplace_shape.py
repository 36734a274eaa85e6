"""Changes of a tensor's own shape: no element moves, the tensor becomes a view of what it was."""

from __future__ import annotations

from typing import Any

from tensorplay.ops.aliasing import become_view
from tensorplay.ops.shape import squeeze, t, transpose, unsqueeze
from tensorplay.tensor import Tensor


def squeeze_(input: Tensor, dim: Any = None) -> Tensor:
    """`squeeze` of the tensor itself."""
    return become_view(input, lambda base: squeeze(base, dim))


def unsqueeze_(input: Tensor, dim: int) -> Tensor:
    """`unsqueeze` of the tensor itself.

    >>> import tensorplay as tp
    >>> tp.zeros(2).unsqueeze_(0).shape
    (1, 2)
    """
    return become_view(input, lambda base: unsqueeze(base, dim))


def t_(input: Tensor) -> Tensor:
    """`t` of the tensor itself."""
    return become_view(input, t)


def swapaxes_(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`swapaxes` of the tensor itself."""
    return transpose_(input, axis0, axis1)


def transpose_(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """`transpose` of the tensor itself."""
    return become_view(input, lambda base: transpose(base, dim0, dim1))
