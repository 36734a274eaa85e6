"""Rows of a table, picked by number, one by one or added up in bags."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops.indexing import getitem
from tensorplay.ops.recording import as_operand, edge_of, wanted
from tensorplay.ops.selection import where
from tensorplay.ops.shape import reshape, unsqueeze
from tensorplay.tensor import Tensor, wrap


class EmbeddingBackward0(Node):
    """Rows picked from a table; `skipped` is the row that gets no gradient, or None."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, rows: int, skipped: int | None) -> tuple[Any, ...]:
        return (_collected(grad, index, rows, skipped),)


class EmbeddingDenseBackward0(Node):
    """Rows added up at their places in a table."""

    __slots__ = ()

    def rule(self, grad: Any, index: Any, rows: int, skipped: int | None) -> tuple[Any, ...]:
        return (_looked_up(grad, index, rows, skipped, True),)


def _look_up(table: Any, index: Any, rows: int, skipped: int | None, as_zero: bool) -> Any:
    """The rows that `index` names; with `as_zero` those of `skipped` are zero."""
    # Not by brackets: a single number would give a view.
    out = np.take(table, index, axis=0)
    if as_zero and skipped is not None:
        out[index == skipped] = 0
    return out


def _collect(values: Any, index: Any, rows: int, skipped: int | None) -> Any:
    """A table of `rows` rows in which each value is added to the row that its index names."""
    width = values.shape[-1]
    out = np.zeros((rows, width), values.dtype)
    # As one long vector: NumPy adds single numbers at places much faster than rows.
    places = (index.reshape(-1, 1).astype(np.intp) * width + np.arange(width)).reshape(-1)
    np.add.at(out.reshape(-1), places, values.reshape(-1))
    if skipped is not None:
        out[skipped] = 0
    return out


def _looked_up(table: Any, index: Any, rows: int, skipped: int | None, as_zero: bool) -> Any:
    if not isinstance(table, Tensor):
        return _look_up(table, index, rows, skipped, as_zero)
    constants = (index, rows, skipped)
    node = EmbeddingBackward0((edge_of(table),), constants) if wanted(table) else None
    return wrap(_look_up(table._array, index, rows, skipped, as_zero), node)


def _collected(values: Any, index: Any, rows: int, skipped: int | None) -> Any:
    if not isinstance(values, Tensor):
        return _collect(values, index, rows, skipped)
    constants = (index, rows, skipped)
    node = EmbeddingDenseBackward0((edge_of(values),), constants) if wanted(values) else None
    return wrap(_collect(values._array, index, rows, skipped), node)


def _check_table(name: str, input: Tensor, weight: Tensor, padding_idx: int | None) -> int | None:
    """The padding's row counted from the front.

    Raises:
        RuntimeError: The table is no matrix, or the input is not integer.
        IndexError: A number lies outside the table.
        ValueError: The padding does.
    """
    index, table = as_operand(input, "input")._array, as_operand(weight, "weight")._array
    if table.ndim != 2:
        raise RuntimeError(f"{name}(): 'weight' must be 2-D, not of shape {list(table.shape)}")
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"{name}(): expected integers as input, not {index.dtype}")
    rows = len(table)
    if index.size and not 0 <= index.min() <= index.max() < rows:
        raise IndexError(
            f"{name}(): index out of range in self: the numbers must lie between 0 and {rows - 1}, "
            f"but reach from {index.min()} to {index.max()}"
        )
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"{name}(): Padding_idx must be within num_embeddings ({rows})")
    return padding_idx % rows


def refuse_unsupported(
    name: str, max_norm: float | None, scale_grad_by_freq: bool, sparse: bool
) -> None:
    """Raise if an option is set that PyTorch's embeddings have and these have not.

    Raises:
        NotImplementedError: One is.
    """
    options = {
        "max_norm": max_norm is not None,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }
    for option, given in options.items():
        if given:
            raise NotImplementedError(f"{name}(): {option} is not supported")


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a table that numbers name.

    Args:
        input: Numbers of rows, of any shape.
        weight: ``(rows, width)``.
        padding_idx: This row gets no gradient.
        max_norm: Not supported, like all that follow.

    Returns:
        ``(*, width)``, where ``*`` is the shape of `input`.

    Raises:
        RuntimeError: `weight` is no matrix, or `input` not integer.
        IndexError: A number lies outside the table.
        NotImplementedError: An option is not supported.

    >>> import tensorplay as tp
    >>> tp.nn.functional.embedding(tp.tensor([1, 0]), tp.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    refuse_unsupported("embedding", max_norm, scale_grad_by_freq, sparse)
    skipped = _check_table("embedding", input, weight, padding_idx)
    rows = len(weight._array)
    result: Tensor = _looked_up(weight, input._array, rows, skipped, False)
    return result


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """For each bag of numbers the sum, the mean or the maximum of the rows that they name.

    Args:
        input: ``(B, L)``: `B` bags of `L` numbers; or all bags' numbers one after the other.
        weight: ``(rows, width)``.
        offsets: ``(B,)``, beside a one-dimensional input: where each bag begins.
        max_norm: Not supported, like `scale_grad_by_freq` and `sparse`.
        mode: ``"sum"``, ``"mean"`` or ``"max"``.
        per_sample_weights: Of the input's shape: a factor for each row; for ``"sum"`` only.
        include_last_offset: `offsets` also says where the last bag ends.
        padding_idx: This number does not count.

    Returns:
        ``(B, width)``; an empty bag gives zeros.

    Raises:
        RuntimeError: The shapes or types do not fit.
        ValueError: The arguments contradict one another.
        IndexError: A number lies outside the table.
        NotImplementedError: An option is not supported.

    >>> import tensorplay as tp
    >>> table = tp.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> numbers, starts = tp.tensor([1, 0, 1]), tp.tensor([0, 2])
    >>> tp.nn.functional.embedding_bag(numbers, table, starts, mode="sum")
    tensor([[4., 6.],
            [3., 4.]])
    """
    name = "embedding_bag"
    refuse_unsupported(name, max_norm, scale_grad_by_freq, sparse)
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    skipped = _check_table(name, input, weight, padding_idx)
    index = input._array.reshape(-1)
    bounds = _bounds(input._array, offsets, include_last_offset)
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(
                f"embedding_bag: per_sample_weights was not None, but it is for mode='sum' only, "
                f"not mode='{mode}'"
            )
        if per_sample_weights._array.shape != input._array.shape:
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({list(per_sample_weights.shape)}) is not "
                f"None, then it must have the same shape as the input ({list(input.shape)})"
            )
    bags = len(bounds) - 1
    bag = np.repeat(np.arange(bags), np.diff(bounds))
    factors = None if per_sample_weights is None else reshape(per_sample_weights, -1)
    if bounds[-1] < len(index):
        index = index[: bounds[-1]]
        factors = None if factors is None else getitem(factors, slice(bounds[-1]))
    if skipped is not None:
        counts = index != skipped
        index, bag = index[counts], bag[counts]
        factors = None if factors is None else getitem(factors, counts)
    rows = len(weight._array)
    if mode == "max":
        return _maxima(weight, index, bag, bags)
    picked = _looked_up(weight, index, rows, None, False)
    if factors is not None:
        picked = picked * unsqueeze(factors, 1)
    out: Tensor = _collected(picked, bag, bags, None)
    if mode == "mean":
        sizes = np.maximum(np.bincount(bag, minlength=bags), 1).astype(weight._array.dtype)
        out = out / wrap(sizes[:, None])
    return out


def _bounds(index: Any, offsets: Tensor | None, include_last_offset: bool) -> Any:
    """Where the bags begin and, last, where all end."""
    if index.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
                "of fixed length sequences"
            )
        return np.arange(len(index) + 1) * index.shape[1]
    if index.ndim != 1:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {index.ndim}"
        )
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    given = offsets._array
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError("offsets has to be a 1D Tensor of integers")
    if include_last_offset and not len(given):
        raise ValueError("include_last_offset: number of offsets should be at least 1")
    bounds = given if include_last_offset else np.append(given, len(index))
    if len(bounds) > 1 and bounds[0] != 0:
        raise RuntimeError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {bounds[0]}"
        )
    if (np.diff(bounds) < 0).any() or bounds[-1] > len(index):
        raise RuntimeError(
            f"embedding_bag(): offsets must not fall, nor pass the input's length {len(index)}"
        )
    return bounds


def _maxima(weight: Tensor, index: Any, bag: Any, bags: int) -> Tensor:
    """The maximum of each column over the rows of each bag; zero for an empty one."""
    sizes = np.bincount(bag, minlength=bags)
    if not index.size:
        return wrap(np.zeros((bags, weight._array.shape[1]), weight._array.dtype))
    starts = np.cumsum(sizes) - sizes
    # Each bag as long as the longest: shorter ones repeat their last number.
    longest = np.arange(sizes.max())
    places = starts[:, None] + np.minimum(longest, np.maximum(sizes - 1, 0)[:, None])
    numbers = index[np.minimum(places, len(index) - 1)]
    best = np.argmax(weight._array[numbers], axis=1)
    rows = np.take_along_axis(numbers, best, axis=1)
    out = getitem(weight, (wrap(rows), wrap(np.arange(rows.shape[1]))))
    if (sizes == 0).any():
        out = where(wrap((sizes > 0)[:, None]), out, 0.0)
    return out
