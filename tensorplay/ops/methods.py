"""Which operations are methods and operators of `Tensor`, and under which names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorplay import dtypes
from tensorplay.autograd import api, hooks
from tensorplay.ops import (
    arithmetic,
    comparison,
    complex_numbers,
    conversion,
    extrema,
    gathering,
    indexing,
    inplace,
    joining,
    linalg,
    pointwise,
    power,
    printing,
    reduction,
    selection,
    shape,
    softmax,
)
from tensorplay.ops.recording import cast
from tensorplay.tensor import Tensor

OPERATORS: dict[str, Any] = {
    "__abs__": pointwise.abs,
    "__add__": arithmetic.add_operator,
    "__and__": comparison.bitwise_and,
    "__array__": conversion.to_array,
    "__bool__": conversion.truth,
    "__eq__": comparison.eq,
    "__ge__": comparison.ge,
    "__getitem__": indexing.getitem,
    "__gt__": comparison.gt,
    "__iadd__": inplace.add_,
    "__imul__": inplace.mul_,
    "__invert__": comparison.bitwise_not,
    "__ipow__": inplace.pow_,
    "__isub__": inplace.sub_,
    "__itruediv__": inplace.div_,
    "__le__": comparison.le,
    "__lt__": comparison.lt,
    "__matmul__": linalg.matmul,
    "__mul__": arithmetic.mul_operator,
    "__ne__": comparison.ne,
    "__neg__": pointwise.neg,
    "__or__": comparison.bitwise_or,
    "__pow__": power.pow,
    "__radd__": arithmetic.add_operator,
    "__repr__": printing.formatted,
    "__rmul__": arithmetic.mul_operator,
    "__rpow__": power.reflected_pow,
    "__rsub__": arithmetic.reflected(arithmetic.sub_operator),
    "__rtruediv__": arithmetic.reflected(arithmetic.div_operator, divide=True),
    "__setitem__": inplace.setitem,
    "__sub__": arithmetic.sub_operator,
    "__truediv__": arithmetic.div_operator,
    "__xor__": comparison.bitwise_xor,
}

METHODS: dict[str, Any] = {
    "abs": pointwise.abs,
    "add": arithmetic.add,
    "add_": inplace.add_,
    "all": comparison.all,
    "allclose": comparison.allclose,
    "amax": extrema.amax,
    "amin": extrema.amin,
    "angle": complex_numbers.angle,
    "any": comparison.any,
    "argmax": extrema.argmax,
    "argmin": extrema.argmin,
    "bmm": linalg.bmm,
    "broadcast_to": shape.broadcast_to,
    "chunk": joining.chunk,
    "clamp": selection.clamp,
    "clamp_": inplace.clamp_,
    "clone": shape.clone,
    "conj": complex_numbers.conj,
    # What numbers and arrays have under this name too: rules need not ask which they were given.
    "conjugate": complex_numbers.conj,
    "contiguous": shape.contiguous,
    "copy_": inplace.copy_,
    "cos": pointwise.cos,
    "detach": conversion.detach,
    "div": arithmetic.div,
    "div_": inplace.div_,
    "dot": linalg.dot,
    "eq": comparison.eq,
    "equal": comparison.equal,
    "exp": pointwise.exp,
    "exp_": inplace.exp_,
    "expand": shape.expand,
    "fill_": inplace.fill_,
    "flatten": shape.flatten,
    "gather": gathering.gather,
    "ge": comparison.ge,
    "gt": comparison.gt,
    "index_select": gathering.index_select,
    "is_complex": complex_numbers.is_complex,
    "isclose": comparison.isclose,
    "isfinite": comparison.isfinite,
    "isinf": comparison.isinf,
    "isnan": comparison.isnan,
    "item": conversion.item,
    "le": comparison.le,
    "log": pointwise.log,
    "log_softmax": softmax.log_softmax,
    "logical_not": comparison.logical_not,
    "logsumexp": softmax.logsumexp,
    "lt": comparison.lt,
    "matmul": linalg.matmul,
    "max": extrema.max,
    "maximum": selection.maximum,
    "mean": reduction.mean,
    "min": extrema.min,
    "minimum": selection.minimum,
    "mm": linalg.mm,
    "mul": arithmetic.mul,
    "mul_": inplace.mul_,
    "ne": comparison.ne,
    "neg": pointwise.neg,
    "neg_": inplace.neg_,
    "nonzero": comparison.nonzero,
    "norm": linalg.norm,
    "numpy": conversion.numpy,
    "outer": linalg.outer,
    "permute": shape.permute,
    "pow": power.pow,
    "pow_": inplace.pow_,
    "reciprocal": pointwise.reciprocal,
    "register_hook": hooks.register_hook,
    "register_post_accumulate_grad_hook": hooks.register_post_accumulate_grad_hook,
    "relu": pointwise.relu,
    "relu_": inplace.relu_,
    "reshape": shape.reshape,
    "retain_grad": hooks.retain_grad,
    "sgn": pointwise.sgn,
    "sigmoid": pointwise.sigmoid,
    "sigmoid_": inplace.sigmoid_,
    "sign": pointwise.sign,
    "sin": pointwise.sin,
    "softmax": softmax.softmax,
    "split": joining.split,
    "sqrt": pointwise.sqrt,
    "sqrt_": inplace.sqrt_,
    "square": pointwise.square,
    "squeeze": shape.squeeze,
    "std": reduction.std,
    "sub": arithmetic.sub,
    "sub_": inplace.sub_,
    "sum": reduction.sum,
    "swapaxes": shape.transpose,
    "t": shape.t,
    "tanh": pointwise.tanh,
    "tanh_": inplace.tanh_,
    "to": conversion.to,
    "tolist": conversion.tolist,
    "transpose": shape.transpose,
    "unbind": joining.unbind,
    "unsqueeze": shape.unsqueeze,
    "var": reduction.var,
    "view": shape.view_as_shape,
    "where": selection.where_method,
    "zero_": inplace.zero_,
}


def _converter(dtype: Any) -> Any:
    def convert(self: Tensor) -> Tensor:
        return cast(self, dtype)

    convert.__doc__ = f"The tensor with elements of type {dtype}."
    return convert


for _name in ("bool", "double", "float", "half", "int", "long", "short"):
    METHODS[_name] = _converter(getattr(dtypes, _name))


def _backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of this tensor to its leaves': see `tensorplay.autograd.backward`."""
    api.backward(self, gradient, retain_graph, create_graph, inputs)


def _complex(self: Tensor) -> complex:
    return complex(conversion.item(self))


def _float(self: Tensor) -> float:
    return float(conversion.item(self))


def _int(self: Tensor) -> int:
    return int(conversion.item(self))


def _length(self: Tensor) -> int:
    if not self._array.ndim:
        raise TypeError("len() of a 0-d tensor")
    return len(self._array)


def _iterate(self: Tensor) -> Iterator[Tensor]:
    if not self._array.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(joining.unbind(self))


def _contains(self: Tensor, element: Any) -> bool:
    return bool(comparison.eq(self, element)._array.any())


def _size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or the size of one dimension."""
    return self._array.shape if dim is None else self._array.shape[dim]


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor with the element type of `other`."""
    return cast(self, other._array.dtype)


def _dim(self: Tensor) -> int:
    """The number of dimensions."""
    return self._array.ndim


def _numel(self: Tensor) -> int:
    """The number of elements."""
    return self._array.size


def _is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in row order in memory."""
    return bool(self._array.flags.c_contiguous)


def _is_floating_point(self: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return bool(self._array.dtype.kind == "f")


METHODS |= {
    "__complex__": _complex,
    "__contains__": _contains,
    "__float__": _float,
    "__index__": conversion.index,
    "__int__": _int,
    "__iter__": _iterate,
    "__len__": _length,
    "backward": _backward,
    "dim": _dim,
    "is_contiguous": _is_contiguous,
    "is_floating_point": _is_floating_point,
    "numel": _numel,
    "size": _size,
    "type_as": _type_as,
}

PROPERTIES: dict[str, Any] = {
    "T": shape.reversed_axes,
    "imag": complex_numbers.imag,
    "mT": shape.matrix_transpose,
    "real": complex_numbers.real,
    "retains_grad": hooks.retains_grad,
}


def _set_real(self: Tensor, value: Any) -> None:
    inplace.copy_(complex_numbers.real(self), value)


def _set_imag(self: Tensor, value: Any) -> None:
    inplace.copy_(complex_numbers.imag(self), value)


SETTERS: dict[str, Any] = {"imag": _set_imag, "real": _set_real}


def attach() -> None:
    """Make the operations attributes of `Tensor`."""
    for name, function in (OPERATORS | METHODS).items():
        if "<locals>" in function.__qualname__:
            # Made by a function that makes many: pickle must find it by its name.
            function.__name__ = name
            function.__qualname__ = f"Tensor.{name}"
            function.__module__ = Tensor.__module__
        setattr(Tensor, name, function)
    for name, function in PROPERTIES.items():
        setattr(Tensor, name, property(function, SETTERS.get(name)))
