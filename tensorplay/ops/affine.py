"""The affine map of a linear layer, as one operation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.guard import not_a_tensor
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.tensor import Tensor, wrap

#: Of so few rows in single precision OpenBLAS computes the transposed product up to twice as fast,
#: and turning the result is cheap beside it; not for so few multiplications.
_FEW_ROWS = 32
_SMALL = 65_536


class AddmmBackward0(Node):
    """``x @ weight.T + bias``, with the leading dimensions of `x` taken as one."""

    __slots__ = ()
    lift = (0, 1)

    def rule(self, grad: Any, x: Any, weight: Any) -> tuple[Any, ...]:
        inner, outer = self.edges[:2]
        count = math.prod(grad.shape[:-1])
        rows = grad if grad.ndim == 2 else grad.reshape(count, grad.shape[-1])
        for_x = for_weight = None
        if inner is not None:
            for_x = dual.product(rows, weight.conj())
            if grad.ndim != 2:
                for_x = for_x.reshape(*grad.shape[:-1], weight.shape[-1])
        if outer is not None:
            columns = x if x.ndim == 2 else x.reshape(count, x.shape[-1])
            for_weight = dual.product(rows.T, columns.conj())
        if len(self.edges) == 2:
            return (for_x, for_weight)
        return (
            for_x,
            for_weight,
            None if self.edges[2] is None else dual.sum_over(rows, (0,)),
        )


def _map(x: Any, w: Any, b: Any) -> Any:
    """The affine map of arrays."""
    rows = len(x)
    if (
        x.ndim == 2
        and rows <= _FEW_ROWS
        and 4 * rows <= len(w)
        and x.size * len(w) > _SMALL
        and x.dtype.char == "f"
    ):
        turned = w.dot(x.T).T
        return np.ascontiguousarray(turned) if b is None else np.add(turned, b, order="C")
    # `dot` goes through BLAS for no more than two dimensions.
    if x.ndim <= 2:
        out = x.dot(w.T)
    else:
        lead = x.shape[:-1]
        out = x.reshape(math.prod(lead), x.shape[-1]).dot(w.T).reshape(*lead, len(w))
    if b is not None:
        out += b
    return out


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``.

    Args:
        input: ``(*, in_features)``, with any leading dimensions.
        weight: ``(out_features, in_features)``.
        bias: ``(out_features,)``, or None.

    Raises:
        RuntimeError: The shapes do not fit, or the types differ.

    >>> import tensorplay as tp
    >>> tp.nn.functional.linear(tp.ones(1, 2), tp.ones(3, 2), tp.ones(3))
    tensor([[3., 3., 3.]])
    """
    try:
        x, w = input._array, weight._array
    except AttributeError:
        known = isinstance(input, Tensor)
        name, position, value = ("weight", 2, weight) if known else ("input", 1, input)
        raise not_a_tensor("linear", name, position, value) from None
    b = None
    if x.dtype is not w.dtype and x.dtype != w.dtype:
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but got {x.dtype} and {w.dtype}"
        )
    if w.ndim != 2 or not x.ndim or x.shape[-1] != w.shape[1]:
        raise RuntimeError(
            f"linear(): an input of shape {x.shape} and a weight of shape {w.shape} do not fit"
        )
    if bias is not None:
        b = bias._array
        if b.shape != w.shape[:1] or b.dtype != x.dtype:
            raise RuntimeError(
                f"linear(): the bias must have the shape {(w.shape[0],)} and type {x.dtype}, not "
                f"{b.shape} and {b.dtype}"
            )
    out = _map(x, w, b)
    operands = (input, weight) if bias is None else (input, weight, bias)
    if not wanted(*operands):
        return wrap(out)
    edges = tuple([edge_of(one) for one in operands])
    # Each factor is saved only if the other's gradient is wanted.
    keep_x, keep_w = edges[1] is not None, edges[0] is not None
    versions = ((input._version,) if keep_x else ()) + ((weight._version,) if keep_w else ())
    saved = (x if keep_x else None, w if keep_w else None)
    return wrap(out, AddmmBackward0(edges, saved, versions))
