"""Losses that want some values apart from others by a margin."""

from __future__ import annotations

from tensorplay.ops.activations import softplus
from tensorplay.ops.linalg import norm
from tensorplay.ops.losses import reduced
from tensorplay.ops.pointwise import relu, sqrt
from tensorplay.ops.selection import minimum, where
from tensorplay.tensor import Tensor, wrap

#: Keeps the length that `cosine_embedding_loss` divides by from being zero.
_LEAST_SQUARE = 1e-12


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The `p`-norm of the differences along the last dimension; `eps` is added to each."""
    return norm(x1 - x2 + eps, p, -1, keepdim)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """How far pairs of vectors are from pointing the same way, or apart.

    Args:
        input1: ``(N, D)`` or ``(D,)``.
        input2: Of the same shape.
        target: ``(N,)`` or no dimensions: 1 for pairs that should agree, -1 for others.
        margin: The cosine that the others may have.

    Raises:
        RuntimeError: The shapes do not fit.
    """
    ndim = input1._array.ndim
    if ndim not in (1, 2) or input2._array.ndim != ndim or target._array.ndim != ndim - 1:
        raise RuntimeError(
            "cosine_embedding_loss: expected inputs of one or two dimensions and a target with "
            f"one less, but got the shapes {input1.shape}, {input2.shape} and {target.shape}"
        )
    dim = ndim - 1
    product = (input1 * input2).sum(dim)
    squares = ((input1 * input1).sum(dim) + _LEAST_SQUARE) * (
        (input2 * input2).sum(dim) + _LEAST_SQUARE
    )
    cosine = product / sqrt(squares)
    agree, differ = wrap(target._array == 1), wrap(target._array == -1)
    loss = where(agree, 1 - cosine, where(differ, relu(cosine - margin), cosine * 0))
    return reduced(loss, reduction)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """By how much `input1` misses being above `input2` (target 1) or below it (target -1)."""
    return reduced(relu(-target * (input1 - input2) + margin), reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """Distances of pairs that should be near (target 1); else what they lack to `margin` (-1)."""
    near, far = wrap(target._array == 1), wrap(target._array == -1)
    loss = where(near, input, where(far, relu(margin - input), input * 0))
    return reduced(loss, reduction)


def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``log(1 + exp(-target * input))``, for targets 1 and -1."""
    return reduced(softplus(-target * input, 1.0, float("inf")), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """By how much the anchor is not nearer to `positive` than to `negative`, by the margin.

    Args:
        swap: Take the distance from `positive` to `negative` where that is less than the anchor's.
    """
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(relu(near - far + margin), reduction)
