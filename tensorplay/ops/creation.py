"""New tensors from data, and filled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.devices import check_device
from tensorplay.ops.recording import cast
from tensorplay.ops.shape import sizes
from tensorplay.tensor import Tensor, wrap


def finished(array: Any, requires_grad: bool, device: Any = None) -> Tensor:
    """A new leaf on a fresh array."""
    check_device(device)
    tensor = wrap(array)
    if requires_grad:
        tensor.requires_grad_()
    return tensor


def _plain(data: Any) -> Any:
    """Nested lists with tensors in them, as nested lists of numbers."""
    if isinstance(data, Tensor):
        return data._array
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return data


def _array_of(data: Any, dtype: Any) -> Any:
    """An array of the data's own type, or of `dtype`; not a copy if it need not be one."""
    if isinstance(data, Tensor):
        array = data._array
    elif isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array_interface__"):
        array = np.asarray(data)
    else:
        array = np.asarray(_plain(data))
        if dtype is not None:
            pass  # through no other type: Python's numbers have double precision
        elif array.dtype.kind == "f" and not _numpy_typed(data):
            array = array.astype(dtypes.get_default_dtype())
        elif array.dtype.kind == "c" and not _numpy_typed(data):
            array = array.astype(dtypes.complex_like(dtypes.get_default_dtype()))
        elif not array.size:
            array = array.astype(dtypes.get_default_dtype())
    array = dtypes.normalised(array)
    return array if dtype is None else array.astype(dtypes.as_dtype(dtype), copy=False)


def _numpy_typed(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, (np.ndarray, np.generic, Tensor))


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new leaf holding a copy of `data`.

    Args:
        data: A number, nested lists of numbers, an array or a tensor.
        dtype: Element type.  By default that of an array; for Python's numbers the default
            floating-point type, int64 or bool.

    >>> import tensorplay as tp
    >>> tp.tensor([[1.0, 2.0], [3.0, 4.0]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    check_device(device)
    array = _array_of(data, dtype)
    return finished(array.copy(), requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, on the same memory where that is possible."""
    check_device(device)
    if isinstance(data, Tensor):
        return data if dtype is None else cast(data, dtypes.as_dtype(dtype))
    return wrap(_array_of(data, dtype))


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on the array's memory: what is written through one is seen through the other."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. Conversion: "
            "array.astype(array.dtype.newbyteorder('='))"
        )
    return wrap(dtypes.normalised(array))


def _filled(name: str, make: Callable[..., Any], doc: str) -> Any:
    def create(
        *sizes_of_it: Any,
        size: Any = None,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        check_device(device)
        dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
        return finished(make(sizes(sizes_of_it, size), dtype), requires_grad)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = doc
    return create


zeros = _filled("zeros", np.zeros, "A tensor of zeros; sizes as arguments or one sequence.")
ones = _filled("ones", np.ones, "A tensor of ones; sizes as arguments or one sequence.")
empty = _filled("empty", np.empty, "A tensor of unspecified values; sizes as for `zeros`.")


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of `fill_value`, whose type it takes if `dtype` is not given."""
    check_device(device)
    value = _array_of(fill_value, dtype)
    return finished(np.full(sizes((size,)), value, value.dtype), requires_grad)


def zeros_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Zeros of the input's shape and type."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Ones of the input's shape and type."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Unspecified values in the input's shape and type."""
    dtype = input._array.dtype if dtype is None else dtypes.as_dtype(dtype)
    return finished(np.empty(input._array.shape, dtype), requires_grad, device)


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`fill_value` throughout, in the input's shape and type."""
    dtype = input._array.dtype if dtype is None else dtypes.as_dtype(dtype)
    return finished(np.full(input._array.shape, fill_value, dtype), requires_grad, device)


def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The numbers from `start` (0 if only one is given) up to, not including, `end`."""
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError("arange() needs at least the number to end at")
    start = 0 if start is None else start
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is None:
        whole = all(hasattr(number, "__index__") for number in (start, end, step))
        dtype = dtypes.int64 if whole else dtypes.get_default_dtype()
    return finished(
        np.arange(start, end, step).astype(dtypes.as_dtype(dtype)), requires_grad, device
    )


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers at equal distances from `start` to `end`, both included."""
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    return finished(np.linspace(start, end, steps).astype(dtype), requires_grad, device)


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` powers of `base`, whose exponents are those of `linspace`.

    >>> import tensorplay as tp
    >>> tp.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    powers = np.logspace(start, end, steps, base=base)
    return finished(powers.astype(dtype), requires_grad, device)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The identity matrix, ``n x n`` or ``n x m``."""
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    return finished(np.eye(n, m, dtype=dtype), requires_grad, device)


def _made_like(make: Any, name: str, doc: str) -> Any:
    def create(
        input: Tensor,
        *size: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        dtype = input._array.dtype if dtype is None else dtype
        result: Tensor = make(*size, dtype=dtype, device=device, requires_grad=requires_grad)
        return result

    create.__name__ = create.__qualname__ = name
    create.__doc__ = doc
    return create


new_zeros = _made_like(zeros, "new_zeros", "`zeros` of the tensor's type, unless one is given.")
new_ones = _made_like(ones, "new_ones", "`ones` of the tensor's type, unless one is given.")
new_empty = _made_like(empty, "new_empty", "`empty` of the tensor's type, unless one is given.")


def new_full(
    input: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`full` of the tensor's type, unless one is given."""
    dtype = input._array.dtype if dtype is None else dtype
    return full(size, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def new_tensor(
    input: Tensor,
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A copy of `data` as a new leaf of the tensor's type, unless one is given."""
    dtype = input._array.dtype if dtype is None else dtype
    return tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
