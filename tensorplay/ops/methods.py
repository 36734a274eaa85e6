"""Which operations are methods and operators of `Tensor`, and under which names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorplay import dtypes
from tensorplay.autograd import api, hooks
from tensorplay.ops import (
    arithmetic,
    arranging,
    comparison,
    complex_numbers,
    contraction,
    conversion,
    counting,
    decompositions,
    determinants,
    diagonals,
    extrema,
    gathering,
    index_writing,
    indexing,
    inplace,
    inplace_shape,
    joining,
    linalg,
    masking,
    matrix_products,
    movement,
    pointwise,
    power,
    printing,
    reduction,
    scattering,
    selection,
    shape,
    softmax,
    solving,
    sorting,
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
    "addbmm": matrix_products.addbmm,
    "addmm": matrix_products.addmm,
    "addmm_": matrix_products.addmm_,
    "addmv": matrix_products.addmv,
    "addmv_": matrix_products.addmv_,
    "addr": matrix_products.addr,
    "addr_": matrix_products.addr_,
    "adjoint": movement.adjoint,
    "all": comparison.all,
    "allclose": comparison.allclose,
    "amax": extrema.amax,
    "amin": extrema.amin,
    "angle": complex_numbers.angle,
    "any": comparison.any,
    "argmax": extrema.argmax,
    "argmin": extrema.argmin,
    "argsort": sorting.argsort,
    "baddbmm": matrix_products.baddbmm,
    "baddbmm_": matrix_products.baddbmm_,
    "bincount": counting.bincount,
    "bmm": linalg.bmm,
    "broadcast_to": shape.broadcast_to,
    "cholesky": decompositions.cholesky,
    "chunk": joining.chunk,
    "clamp": selection.clamp,
    "clamp_": inplace.clamp_,
    "clone": shape.clone,
    "conj": complex_numbers.conj,
    "conjugate": complex_numbers.conj,
    "contiguous": shape.contiguous,
    "copy_": inplace.copy_,
    "cos": pointwise.cos,
    "cross": matrix_products.cross,
    "cummax": sorting.cummax,
    "cummin": sorting.cummin,
    "det": determinants.det,
    "detach": conversion.detach,
    "diag": diagonals.diag,
    "diag_embed": diagonals.diag_embed,
    "diagflat": diagonals.diagflat,
    "diagonal": diagonals.diagonal,
    "div": arithmetic.div,
    "div_": inplace.div_,
    "dot": linalg.dot,
    "eq": comparison.eq,
    "equal": comparison.equal,
    "exp": pointwise.exp,
    "exp_": inplace.exp_,
    "expand": shape.expand,
    "expand_as": movement.expand_as,
    "fill_": inplace.fill_,
    "fill_diagonal_": diagonals.fill_diagonal_,
    "flatten": shape.flatten,
    "flip": movement.flip,
    "fliplr": movement.fliplr,
    "flipud": movement.flipud,
    "gather": gathering.gather,
    "ge": comparison.ge,
    "gt": comparison.gt,
    "histc": counting.histc,
    "hsplit": arranging.hsplit,
    "index_add": index_writing.index_add,
    "index_add_": index_writing.index_add_,
    "index_copy": index_writing.index_copy,
    "index_copy_": index_writing.index_copy_,
    "index_fill": index_writing.index_fill,
    "index_fill_": index_writing.index_fill_,
    "index_put": index_writing.index_put,
    "index_put_": index_writing.index_put_,
    "index_select": gathering.index_select,
    "inner": contraction.inner,
    "inverse": solving.inverse,
    "is_complex": complex_numbers.is_complex,
    "isclose": comparison.isclose,
    "isfinite": comparison.isfinite,
    "isinf": comparison.isinf,
    "isnan": comparison.isnan,
    "item": conversion.item,
    "kron": matrix_products.kron,
    "kthvalue": sorting.kthvalue,
    "le": comparison.le,
    "log": pointwise.log,
    "log_softmax": softmax.log_softmax,
    "logdet": determinants.logdet,
    "logical_not": comparison.logical_not,
    "logsumexp": softmax.logsumexp,
    "lt": comparison.lt,
    "masked_fill": masking.masked_fill,
    "masked_fill_": masking.masked_fill_,
    "masked_scatter": masking.masked_scatter,
    "masked_scatter_": masking.masked_scatter_,
    "masked_select": masking.masked_select,
    "matmul": linalg.matmul,
    "matrix_power": solving.matrix_power,
    "max": extrema.max,
    "maximum": selection.maximum,
    "mean": reduction.mean,
    "min": extrema.min,
    "minimum": selection.minimum,
    "mm": linalg.mm,
    "moveaxis": movement.movedim,
    "movedim": movement.movedim,
    "msort": sorting.msort,
    "mul": arithmetic.mul,
    "mul_": inplace.mul_,
    "mv": matrix_products.mv,
    "narrow": movement.narrow,
    "ne": comparison.ne,
    "neg": pointwise.neg,
    "neg_": inplace.neg_,
    "nonzero": comparison.nonzero,
    "norm": linalg.norm,
    "numpy": conversion.numpy,
    "outer": linalg.outer,
    "permute": shape.permute,
    "pinverse": determinants.pinverse,
    "pow": power.pow,
    "pow_": inplace.pow_,
    "ravel": movement.ravel,
    "reciprocal": pointwise.reciprocal,
    "register_hook": hooks.register_hook,
    "register_post_accumulate_grad_hook": hooks.register_post_accumulate_grad_hook,
    "relu": pointwise.relu,
    "relu_": inplace.relu_,
    "repeat": movement.repeat,
    "repeat_interleave": movement.repeat_interleave,
    "reshape": shape.reshape,
    "reshape_as": movement.reshape_as,
    "retain_grad": hooks.retain_grad,
    "roll": movement.roll,
    "rot90": movement.rot90,
    "scatter": scattering.scatter,
    "scatter_": scattering.scatter_,
    "scatter_add": scattering.scatter_add,
    "scatter_add_": scattering.scatter_add_,
    "scatter_reduce": scattering.scatter_reduce,
    "scatter_reduce_": scattering.scatter_reduce_,
    "select": movement.select,
    "sgn": pointwise.sgn,
    "sigmoid": pointwise.sigmoid,
    "sigmoid_": inplace.sigmoid_,
    "sign": pointwise.sign,
    "sin": pointwise.sin,
    "slogdet": determinants.slogdet,
    "softmax": softmax.softmax,
    "sort": sorting.sort,
    "split": joining.split,
    "sqrt": pointwise.sqrt,
    "sqrt_": inplace.sqrt_,
    "square": pointwise.square,
    "squeeze": shape.squeeze,
    "squeeze_": inplace_shape.squeeze_,
    "std": reduction.std,
    "sub": arithmetic.sub,
    "sub_": inplace.sub_,
    "sum": reduction.sum,
    "svd": decompositions.svd_with_v,
    "swapaxes": shape.transpose,
    "swapaxes_": inplace_shape.transpose_,
    "swapdims": shape.transpose,
    "swapdims_": inplace_shape.transpose_,
    "t": shape.t,
    "t_": inplace_shape.t_,
    "take": masking.take,
    "take_along_dim": masking.take_along_dim,
    "tanh": pointwise.tanh,
    "tanh_": inplace.tanh_,
    "tensor_split": arranging.tensor_split,
    "tile": movement.tile,
    "to": conversion.to,
    "tolist": conversion.tolist,
    "topk": sorting.topk,
    "trace": diagonals.trace,
    "transpose": shape.transpose,
    "transpose_": inplace_shape.transpose_,
    "tril": diagonals.tril,
    "tril_": diagonals.tril_,
    "triu": diagonals.triu,
    "triu_": diagonals.triu_,
    "unbind": joining.unbind,
    "unflatten": movement.unflatten,
    "unfold": movement.unfold,
    "unique": counting.unique,
    "unique_consecutive": counting.unique_consecutive,
    "unsqueeze": shape.unsqueeze,
    "unsqueeze_": inplace_shape.unsqueeze_,
    "var": reduction.var,
    "vdot": matrix_products.vdot,
    "view": shape.view_as_shape,
    "view_as": movement.view_as,
    "vsplit": arranging.vsplit,
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


def _stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements in memory lie between neighbours along each dimension, or along one."""
    size = self._array.dtype.itemsize
    strides = tuple([step // size for step in self._array.strides])
    return strides if dim is None else strides[dim]


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
    "ndimension": _dim,
    "nelement": _numel,
    "numel": _numel,
    "size": _size,
    "stride": _stride,
    "type_as": _type_as,
}

PROPERTIES: dict[str, Any] = {
    "H": movement.conjugate_transpose,
    "T": shape.reversed_axes,
    "imag": complex_numbers.imag,
    "mH": movement.adjoint,
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
