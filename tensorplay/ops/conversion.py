"""From tensors to Python and NumPy, to other element types, and out of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.devices import check_device, is_device
from tensorplay.ops.creation import tensor
from tensorplay.ops.recording import cast
from tensorplay.ops.shape import clone
from tensorplay.tensor import Tensor, wrap


def detach(input: Tensor) -> Tensor:
    """A tensor on the same memory that has no place in the graph."""
    tensor = wrap(input._array)
    tensor._version = input._version
    return tensor


def item(input: Tensor) -> Any:
    """The only element, as a Python number.

    Raises:
        RuntimeError: There is not exactly one element.
    """
    if input._array.size != 1:
        raise RuntimeError(
            f"a Tensor with {input._array.size} elements cannot be converted to Scalar"
        )
    return input._array.item()


def tolist(input: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    return input._array.tolist()


def numpy(input: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """The values as an array on the same memory.

    Raises:
        RuntimeError: The tensor requires grad (writes into the array would go unseen); detach it
            first, or pass ``force=True``.
    """
    if input._requires_grad and not force:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    return input._array


def to(input: Tensor, *args: Any, dtype: Any = None, copy: bool = False, **others: Any) -> Tensor:
    """The tensor with another element type; itself if nothing changes and no copy is asked for.

    Args:
        args: A dtype, a tensor whose dtype is meant, or a device (``"cpu"``).
        others: `device` and `non_blocking`, which change nothing.
    """
    device = others.get("device")
    for arg in args:
        if isinstance(arg, Tensor):
            dtype = arg._array.dtype
        elif is_device(arg):
            device = arg
        elif arg is not None and not isinstance(arg, bool):
            dtype = arg
    check_device(device)
    out = input if dtype is None else cast(input, dtypes.as_dtype(dtype))
    return clone(out) if copy and out is input else out


def to_array(input: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """What ``numpy.asarray(tensor)`` gives."""
    array = numpy(input)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError("a change of the element type needs a copy")
        return array.astype(dtype)
    return array.copy() if copy else array


def truth(input: Tensor) -> bool:
    """The truth of a single element.

    Raises:
        RuntimeError: There is not exactly one element.
    """
    if input._array.size != 1:
        raise RuntimeError(
            f"Boolean value of Tensor with {input._array.size} values is ambiguous"
            if input._array.size
            else "Boolean value of Tensor with no values is ambiguous"
        )
    return bool(input._array.item())


def index(input: Tensor) -> int:
    """A tensor with one whole number, used where Python wants an index.

    Raises:
        TypeError: It holds something else.
    """
    array = input._array
    if array.size != 1 or array.dtype.kind not in "biu":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(array.item())


def type(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The tensor with another element type; without one, the name of the type that it has.

    Args:
        dtype: A dtype, or a name as this function gives it.

    >>> import tensorplay as tp
    >>> tp.ones(1).type()
    'torch.FloatTensor'
    >>> tp.ones(1).type("torch.LongTensor").dtype
    dtype('int64')
    """
    if dtype is None:
        return f"torch.{_TYPE_NAMES[input._array.dtype]}"
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        for known, type_name in _TYPE_NAMES.items():
            if name == type_name:
                dtype = known
    return cast(input, dtypes.as_dtype(dtype))


_TYPE_NAMES = {
    dtypes.float16: "HalfTensor",
    dtypes.float32: "FloatTensor",
    dtypes.float64: "DoubleTensor",
    dtypes.uint8: "ByteTensor",
    dtypes.int8: "CharTensor",
    dtypes.int16: "ShortTensor",
    dtypes.int32: "IntTensor",
    dtypes.int64: "LongTensor",
    dtypes.bool: "BoolTensor",
    dtypes.complex64: "ComplexFloatTensor",
    dtypes.complex128: "ComplexDoubleTensor",
}


def result_type(tensor1: Any, tensor2: Any) -> dtypes.dtype:
    """The type that an operation on two tensors or numbers computes in.

    >>> import tensorplay as tp
    >>> tp.result_type(tp.ones(1, dtype=tp.int64), 1.0)
    dtype('float32')
    """
    groups: tuple[list[dtypes.dtype], ...] = ([], [], [])
    for one in (tensor1, tensor2):
        if isinstance(one, Tensor):
            groups[0 if one._array.ndim else 1].append(one._array.dtype)
        else:
            groups[2].append(tensor(one)._array.dtype)
    return dtypes.result_type(*groups)


def cpu(input: Tensor) -> Tensor:
    """The tensor itself: it lives in main memory already."""
    return input


def formatted_by(input: Tensor, specification: str) -> str:
    """What ``f"{tensor:.3f}"`` gives: without dimensions it is formatted as a number."""
    if input._array.ndim == 0:
        return format(input._array.item(), specification)
    return object.__format__(input, specification)
