"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from tensorplay.ops.joining import cat
from tensorplay.tensor import Tensor, wrap


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters' elements, one after another, as one vector; differentiable."""
    return cat([one.reshape(-1) for one in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give the parameters new values: the elements of a vector, one after another.

    The parameters get arrays of their own, so that graphs and messages which hold the old values
    stay as they are.

    Raises:
        TypeError: `vec` is no tensor.
        RuntimeError: It does not have as many elements as the parameters together.

    >>> import tensorplay as tp
    >>> w, b = tp.zeros(2), tp.zeros(1)
    >>> tp.nn.utils.vector_to_parameters(tp.tensor([1.0, 2.0, 3.0]), [w, b])
    >>> w, b
    (tensor([1., 2.]), tensor([3.]))
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"vec must be a Tensor, not {type(vec).__name__}")
    owners = list(parameters)
    needed = sum(one._array.size for one in owners)
    if vec._array.shape != (needed,):
        raise RuntimeError(
            f"the parameters have {needed} elements together, the vector has the shape {vec.shape}"
        )
    start = 0
    for one in owners:
        stop = start + one._array.size
        piece = vec._array[start:stop].reshape(one._array.shape)
        one.data = wrap(piece.astype(one._array.dtype))
        start = stop
