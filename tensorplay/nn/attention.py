"""Attention with several heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.nn import functional, init
from tensorplay.nn.arguments import check_integers, check_numbers
from tensorplay.nn.layers import Linear
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.ops.attention import attention
from tensorplay.ops.creation import empty, zeros
from tensorplay.tensor import Tensor, wrap


class MultiheadAttention(Module):
    """Attention by several heads side by side (Vaswani et al., 2017).

    Args:
        embed_dim: Features of queries and results; each head has ``embed_dim / num_heads``.
        num_heads: How many heads.
        dropout: In training, the share of the attention's weights that is dropped.
        bias: Whether the projections have biases.
        batch_first: Input and output are ``(batch, length, features)`` rather than
            ``(length, batch, features)``.
        kdim: Features of the keys, if not `embed_dim`.
        vdim: Features of the values, if not `embed_dim`.
        dtype: Element type of the parameters.

    >>> import tensorplay as tp
    >>> x = tp.ones(5, 2, 8)
    >>> out, weights = tp.nn.MultiheadAttention(8, 2)(x, x, x)
    >>> out.shape, weights.shape
    ((5, 2, 8), (2, 5, 5))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_integers(
            embed_dim=embed_dim,
            num_heads=num_heads,
            kdim=embed_dim if kdim is None else kdim,
            vdim=embed_dim if vdim is None else vdim,
        )
        check_numbers(dropout=dropout)
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise ValueError("embed_dim must be divisible by num_heads")
        if add_bias_kv or add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn are not supported")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        alike = self.kdim == self.vdim == embed_dim
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        shape = (3 * embed_dim, embed_dim)
        self.register_parameter(
            "in_proj_weight", Parameter(empty(shape, dtype=dtype)) if alike else None
        )
        for name, width in widths.items():
            own = None if alike else Parameter(empty(embed_dim, width, dtype=dtype, device=device))
            self.register_parameter(f"{name}_proj_weight", own)
        self.register_parameter(
            "in_proj_bias", Parameter(zeros(3 * embed_dim, dtype=dtype)) if bias else None
        )
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name, one in self._parameters.items():
            if one is not None and name != "in_proj_bias":
                init.xavier_uniform_(one)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)

    def _projections(self) -> list[tuple[Tensor, Tensor | None]]:
        """Weights and biases for queries, keys and values."""
        whole, size = self.in_proj_weight, self.embed_dim
        if whole is not None:
            weights = list(whole.split(size))
        else:
            weights = [getattr(self, f"{name}_proj_weight") for name in "qkv"]
        bias = self.in_proj_bias
        biases = [None] * 3 if bias is None else list(bias.split(size))
        return list(zip(weights, biases, strict=True))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: ``(L, N, embed_dim)`` (see `batch_first`), or ``(L, embed_dim)`` without a batch.
            key: ``(S, N, kdim)``.
            value: ``(S, N, vdim)``.
            key_padding_mask: ``(N, S)``: True for keys to be passed over; or numbers to be added.
            need_weights: Return the weights as well.
            attn_mask: ``(L, S)`` or ``(N * num_heads, L, S)``: True where a query may *not* look at
                a key; or numbers to be added to the scores.
            average_attn_weights: Return the weights' mean over the heads.
            is_causal: Says that `attn_mask` is the causal one, which must be given.

        Returns:
            What the heads found, of the query's shape; and the weights, ``(N, L, S)`` or, one by
            one, ``(N, num_heads, L, S)``, or None.

        Raises:
            RuntimeError: The shapes do not fit.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = query._array.ndim == 3
        if not batched:
            if query._array.ndim != 2 or key._array.ndim != 2 or value._array.ndim != 2:
                raise RuntimeError(
                    "query, key and value must all have two or all three dimensions, not "
                    f"{query._array.ndim}, {key._array.ndim} and {value._array.ndim}"
                )
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = [one.transpose(0, 1) for one in (query, key, value)]
        batch, length = query._array.shape[:2]
        keys = key._array.shape[1]
        heads = [
            self._by_head(functional.linear(one, weight, bias))
            for one, (weight, bias) in zip((query, key, value), self._projections(), strict=True)
        ]
        mask = self._merged_mask(attn_mask, key_padding_mask, batch, length, keys)
        found, weights = attention(
            heads[0], heads[1], heads[2], mask, self.dropout if self.training else 0.0, False, None
        )
        merged = found.transpose(1, 2).reshape(batch, length, self.embed_dim)
        out: Tensor = self.out_proj(merged)
        shown = None
        if need_weights:
            shown = weights.mean(1) if average_attn_weights else weights
        if not batched:
            return out.squeeze(0), None if shown is None else shown.squeeze(0)
        return (out if self.batch_first else out.transpose(0, 1)), shown

    def _by_head(self, x: Tensor) -> Tensor:
        """``(N, length, embed_dim)`` as ``(N, num_heads, length, head size)``."""
        batch, length, size = x._array.shape
        return x.reshape(batch, length, self.num_heads, size // self.num_heads).transpose(1, 2)

    def _merged_mask(
        self,
        attn_mask: Tensor | None,
        padding: Tensor | None,
        batch: int,
        length: int,
        keys: int,
    ) -> Tensor | None:
        """Both masks as one, to be added to the scores ``(N, num_heads, L, S)``."""
        merged: Tensor | None = None
        if attn_mask is not None:
            whole = (batch * self.num_heads, length, keys)
            if attn_mask._array.shape not in ((length, keys), whole):
                raise RuntimeError(
                    f"The shape of attn_mask is {attn_mask.shape}, but should be "
                    f"{(length, keys)} or {whole}."
                )
            merged = self._as_numbers(attn_mask)
            if merged._array.ndim == 3:
                merged = merged.reshape(batch, self.num_heads, length, keys)
        if padding is not None:
            if padding._array.shape != (batch, keys):
                raise RuntimeError(
                    f"expecting key_padding_mask shape of {(batch, keys)}, but got {padding.shape}"
                )
            numbers = self._as_numbers(padding).reshape(batch, 1, 1, keys)
            merged = numbers if merged is None else merged + numbers
        return merged

    def _as_numbers(self, mask: Tensor) -> Tensor:
        if mask._array.dtype.kind != "b":
            return mask
        dtype = self.out_proj.weight._array.dtype
        return wrap(np.where(mask._array, -np.inf, 0).astype(dtype))
