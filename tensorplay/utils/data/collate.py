"""Making one batch of several samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.ops.joining import stack
from tensorplay.tensor import Tensor, wrap


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples, all built alike, as one of that build whose leaves are batches.

    Tensors, arrays and numbers become tensors with a dimension more, in front; tuples, lists and
    dictionaries are gone into; strings and bytes become lists.

    Raises:
        TypeError: A sample holds something else.
        RuntimeError: Samples differ in length.

    >>> default_collate([(1, "a"), (2, "b")])
    [tensor([1, 2]), ['a', 'b']]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, (np.ndarray, np.generic)):
        if first.dtype.kind not in dtypes.CATEGORY:
            raise TypeError(f"a batch cannot be made of arrays of type {first.dtype}")
        return wrap(dtypes.normalised(np.stack(batch)))
    if isinstance(first, float):
        # As PyTorch does: Python's numbers keep their precision.
        return wrap(np.array(batch, np.float64))
    if isinstance(first, (bool, int)):
        return wrap(np.array(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        collated = {key: default_collate([one[key] for one in batch]) for key in first}
        return collated if type(first) is dict else _as(type(first), collated)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        kind: Any = type(first)
        return kind(*[default_collate(part) for part in zip(*batch, strict=True)])
    if isinstance(first, Sequence):
        if any(len(one) != len(first) for one in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(part) for part in zip(*batch, strict=True)]
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{type(first).__name__}"
    )


def _as(kind: Any, values: dict[Any, Any]) -> Any:
    try:
        return kind(values)
    except TypeError:
        # It is made in another way.
        return values
