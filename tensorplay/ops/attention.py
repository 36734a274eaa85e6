"""Attention: averages of values, weighted by how well keys answer queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.ops.linalg import matmul
from tensorplay.ops.recording import as_operand
from tensorplay.ops.softmax import softmax
from tensorplay.random import default_generator
from tensorplay.tensor import Tensor, wrap


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value``.

    Args:
        query: ``(*, L, E)``.
        key: ``(*, S, E)``.
        value: ``(*, S, V)``.
        attn_mask: Broadcast to ``(*, L, S)``: booleans, True where a query may look at a key; or
            numbers that are added to the scores.
        dropout_p: The share of the weights that is dropped (whether in training or not).
        is_causal: Each query looks only at keys that do not come after it; not with a mask.
        scale: By default ``1 / sqrt(E)``.
        enable_gqa: Not supported.

    Returns:
        ``(*, L, V)``.  Zeros for a query that may look at no key.

    Raises:
        RuntimeError: The shapes do not fit, or both a mask and `is_causal` are given.

    >>> import tensorplay as tp
    >>> F = tp.nn.functional
    >>> F.scaled_dot_product_attention(tp.zeros(1, 2), tp.ones(2, 2), tp.tensor([[1.0], [3.0]]))
    tensor([[2.]])
    """
    if enable_gqa:
        raise RuntimeError("scaled_dot_product_attention: enable_gqa is not supported")
    out, _ = attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return out


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """As `scaled_dot_product_attention`, which see; returns the weights too, before dropout."""
    for one, what in ((query, "query"), (key, "key"), (value, "value")):
        if as_operand(one, what)._array.ndim < 2:
            raise RuntimeError(f"{what} must have at least two dimensions, not {one._array.ndim}")
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
        length, keys = query._array.shape[-2], key._array.shape[-2]
        attn_mask = wrap(np.tri(length, keys, dtype=np.bool_))
    if scale is None:
        scale = 1 / math.sqrt(query._array.shape[-1])
    scores = matmul(query * scale, key.transpose(-2, -1))
    hidden: Any = None
    if attn_mask is not None:
        if attn_mask._array.dtype.kind == "b":
            allowed = attn_mask._array
            scores = scores + wrap(np.where(allowed, 0, -np.inf).astype(scores._array.dtype))
        else:
            scores = scores + attn_mask
        # Where no key may be looked at, all scores are -inf.
        hidden = np.isneginf(scores._array).all(-1, keepdims=True)
        if not hidden.any():
            hidden = None
        else:
            scores = scores.where(wrap(~hidden), 0.0)
    weights = softmax(scores, -1)
    if hidden is not None:
        weights = weights * wrap((~hidden).astype(weights._array.dtype))
    kept = weights
    if dropout_p:
        if not 0.0 <= dropout_p <= 1.0:
            raise RuntimeError(
                f"dropout probability has to be between 0 and 1, but got {dropout_p}"
            )
        drawn = default_generator.draw("random", weights._array.shape, dtype=np.float32)
        factor = 1 / (1 - dropout_p) if dropout_p < 1 else 0
        kept = weights * wrap(np.multiply(drawn >= dropout_p, factor, dtype=weights._array.dtype))
    return matmul(kept, value), weights
