"""Which operations are methods and operators of `Tensor`, and under which names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorplay import dtypes
from tensorplay.autograd import api, hooks
from tensorplay.ops import (
    aliasing,
    arithmetic,
    bits,
    comparison,
    complex_numbers,
    conversion,
    creation,
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
    rounding,
    selection,
    shape,
    softmax,
)
from tensorplay.ops.attaching import Later, LaterModule, as_method
from tensorplay.ops.recording import cast
from tensorplay.tensor import Tensor

# Imported when one of their operations is first used: all of them would double the time that it
# takes to import the package.
arranging = LaterModule("arranging")
array_protocol = LaterModule("array_protocol")
combining = LaterModule("combining")
contraction = LaterModule("contraction")
counting = LaterModule("counting")
decompositions = LaterModule("decompositions")
determinants = LaterModule("determinants")
diagonals = LaterModule("diagonals")
elementary = LaterModule("elementary")
error_function = LaterModule("error_function")
index_writing = LaterModule("index_writing")
inplace_forms = LaterModule("inplace_forms")
inplace_shape = LaterModule("inplace_shape")
masking = LaterModule("masking")
matrix_products = LaterModule("matrix_products")
movement = LaterModule("movement")
products = LaterModule("products")
sampling = LaterModule("sampling")
scattering = LaterModule("scattering")
solving = LaterModule("solving")
sorting = LaterModule("sorting")
statistics = LaterModule("statistics")

OPERATORS: dict[str, Any] = {
    "__abs__": pointwise.abs,
    "__add__": arithmetic.add_operator,
    "__and__": bits.bitwise_and,
    "__array__": conversion.to_array,
    "__array_function__": array_protocol.array_function,
    "__array_ufunc__": array_protocol.array_ufunc,
    "__bool__": conversion.truth,
    "__dlpack__": array_protocol.to_dlpack,
    "__dlpack_device__": array_protocol.dlpack_device,
    "__eq__": comparison.eq,
    "__floordiv__": rounding.floordiv_operator,
    "__format__": conversion.formatted_by,
    "__ge__": comparison.ge,
    "__getitem__": indexing.getitem,
    "__gt__": comparison.gt,
    "__iadd__": inplace.iadd,
    "__imul__": inplace.mul_,
    "__invert__": bits.bitwise_not,
    "__ipow__": inplace.ipow,
    "__isub__": inplace.isub,
    "__itruediv__": inplace.div_,
    "__le__": comparison.le,
    "__lshift__": bits.bitwise_left_shift,
    "__lt__": comparison.lt,
    "__matmul__": linalg.matmul,
    "__mod__": rounding.mod_operator,
    "__mul__": arithmetic.mul_operator,
    "__ne__": comparison.ne,
    "__neg__": pointwise.neg,
    "__or__": bits.bitwise_or,
    "__pos__": pointwise.positive,
    "__pow__": power.pow,
    "__radd__": arithmetic.add_operator,
    "__rand__": bits.reflected_and,
    "__repr__": printing.formatted,
    "__rfloordiv__": rounding.reflected_floordiv,
    "__rlshift__": bits.reflected_lshift,
    "__rmod__": rounding.reflected_mod,
    "__rmul__": arithmetic.mul_operator,
    "__ror__": bits.reflected_or,
    "__rpow__": power.reflected_pow,
    "__rrshift__": bits.reflected_rshift,
    "__rshift__": bits.bitwise_right_shift,
    "__rsub__": arithmetic.reflected(arithmetic.sub_operator),
    "__rtruediv__": arithmetic.reflected(arithmetic.div_operator, divide=True),
    "__rxor__": bits.reflected_xor,
    "__setitem__": inplace.setitem,
    "__sub__": arithmetic.sub_operator,
    "__truediv__": arithmetic.div_operator,
    "__xor__": bits.bitwise_xor,
}

METHODS: dict[str, Any] = {
    "abs": pointwise.abs,
    "absolute": pointwise.abs,
    "acos": elementary.acos,
    "acosh": elementary.acosh,
    "add": arithmetic.add,
    "add_": inplace.add_,
    "addbmm": matrix_products.addbmm,
    "addcdiv": combining.addcdiv,
    "addcmul": combining.addcmul,
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
    "arccos": elementary.acos,
    "arccosh": elementary.acosh,
    "arcsin": elementary.asin,
    "arcsinh": elementary.asinh,
    "arctan": elementary.atan,
    "arctan2": combining.atan2,
    "arctanh": elementary.atanh,
    "argmax": extrema.argmax,
    "argmin": extrema.argmin,
    "argsort": sorting.argsort,
    "asin": elementary.asin,
    "asinh": elementary.asinh,
    "atan": elementary.atan,
    "atan2": combining.atan2,
    "atanh": elementary.atanh,
    "baddbmm": matrix_products.baddbmm,
    "baddbmm_": matrix_products.baddbmm_,
    "bernoulli": sampling.bernoulli,
    "bernoulli_": sampling.bernoulli_,
    "bincount": counting.bincount,
    "bitwise_and": bits.bitwise_and,
    "bitwise_left_shift": bits.bitwise_left_shift,
    "bitwise_not": bits.bitwise_not,
    "bitwise_or": bits.bitwise_or,
    "bitwise_right_shift": bits.bitwise_right_shift,
    "bitwise_xor": bits.bitwise_xor,
    "bmm": linalg.bmm,
    "broadcast_to": shape.broadcast_to,
    "ceil": rounding.ceil,
    "cholesky": decompositions.cholesky,
    "chunk": joining.chunk,
    "clamp": selection.clamp,
    "clamp_": inplace.clamp_,
    "clamp_max": selection.clamp_max,
    "clamp_min": selection.clamp_min,
    "clip": selection.clamp,
    "clip_": inplace.clamp_,
    "clone": shape.clone,
    "conj": complex_numbers.conj,
    "conjugate": complex_numbers.conj,
    "contiguous": shape.contiguous,
    "copy_": inplace.copy_,
    "cos": pointwise.cos,
    "cosh": elementary.cosh,
    "count_nonzero": statistics.count_nonzero,
    "cpu": conversion.cpu,
    "cross": matrix_products.cross,
    "cummax": sorting.cummax,
    "cummin": sorting.cummin,
    "cumprod": products.cumprod,
    "cumsum": products.cumsum,
    "det": determinants.det,
    "detach": conversion.detach,
    "detach_": aliasing.detach_,
    "diag": diagonals.diag,
    "diag_embed": diagonals.diag_embed,
    "diagflat": diagonals.diagflat,
    "diagonal": diagonals.diagonal,
    "div": arithmetic.div,
    "div_": inplace_forms.div_,
    "divide": arithmetic.div,
    "dot": linalg.dot,
    "eq": comparison.eq,
    "equal": comparison.equal,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "exp": pointwise.exp,
    "exp2": elementary.exp2,
    "exp_": inplace.exp_,
    "expand": shape.expand,
    "expand_as": movement.expand_as,
    "expm1": elementary.expm1,
    "exponential_": sampling.exponential_,
    "fill_": inplace.fill_,
    "fill_diagonal_": diagonals.fill_diagonal_,
    "fix": rounding.trunc,
    "flatten": shape.flatten,
    "flip": movement.flip,
    "fliplr": movement.fliplr,
    "flipud": movement.flipud,
    "floor": rounding.floor,
    "floor_divide": rounding.floor_divide,
    "fmax": combining.fmax,
    "fmin": combining.fmin,
    "fmod": rounding.fmod,
    "frac": rounding.frac,
    "gather": gathering.gather,
    "ge": comparison.ge,
    "greater": comparison.gt,
    "greater_equal": comparison.ge,
    "gt": comparison.gt,
    "histc": counting.histc,
    "hsplit": arranging.hsplit,
    "hypot": combining.hypot,
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
    "isneginf": comparison.isneginf,
    "isposinf": comparison.isposinf,
    "isreal": comparison.isreal,
    "item": conversion.item,
    "kron": matrix_products.kron,
    "kthvalue": sorting.kthvalue,
    "le": comparison.le,
    "lerp": combining.lerp,
    "less": comparison.lt,
    "less_equal": comparison.le,
    "log": pointwise.log,
    "log10": elementary.log10,
    "log1p": elementary.log1p,
    "log2": elementary.log2,
    "log_softmax": softmax.log_softmax,
    "logaddexp": combining.logaddexp,
    "logdet": determinants.logdet,
    "logical_and": bits.logical_and,
    "logical_not": bits.logical_not,
    "logical_or": bits.logical_or,
    "logical_xor": bits.logical_xor,
    "logit": elementary.logit,
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
    "median": statistics.median,
    "min": extrema.min,
    "minimum": selection.minimum,
    "mm": linalg.mm,
    "moveaxis": movement.movedim,
    "movedim": movement.movedim,
    "msort": sorting.msort,
    "mul": arithmetic.mul,
    "mul_": inplace.mul_,
    "multinomial": sampling.multinomial,
    "multiply": arithmetic.mul,
    "mv": matrix_products.mv,
    "nan_to_num": combining.nan_to_num,
    "nanmean": statistics.nanmean,
    "nanmedian": statistics.nanmedian,
    "nansum": statistics.nansum,
    "narrow": movement.narrow,
    "ne": comparison.ne,
    "neg": pointwise.neg,
    "neg_": inplace.neg_,
    "negative": pointwise.neg,
    "new_empty": creation.new_empty,
    "new_full": creation.new_full,
    "new_ones": creation.new_ones,
    "new_tensor": creation.new_tensor,
    "new_zeros": creation.new_zeros,
    "nonzero": comparison.nonzero,
    "norm": linalg.norm,
    "normal_": sampling.normal_,
    "not_equal": comparison.ne,
    "numpy": conversion.numpy,
    "outer": linalg.outer,
    "permute": shape.permute,
    "pinverse": determinants.pinverse,
    "positive": pointwise.positive,
    "pow": power.pow,
    "pow_": inplace.pow_,
    "prod": products.prod,
    "random_": sampling.random_,
    "ravel": movement.ravel,
    "reciprocal": pointwise.reciprocal,
    "register_hook": hooks.register_hook,
    "register_post_accumulate_grad_hook": hooks.register_post_accumulate_grad_hook,
    "relu": pointwise.relu,
    "relu_": inplace.relu_,
    "remainder": rounding.remainder,
    "repeat": movement.repeat,
    "repeat_interleave": movement.repeat_interleave,
    "reshape": shape.reshape,
    "reshape_as": movement.reshape_as,
    "retain_grad": hooks.retain_grad,
    "roll": movement.roll,
    "rot90": movement.rot90,
    "round": rounding.round,
    "rsqrt": elementary.rsqrt,
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
    "signbit": comparison.signbit,
    "sin": pointwise.sin,
    "sinc": elementary.sinc,
    "sinh": elementary.sinh,
    "slogdet": determinants.slogdet,
    "softmax": softmax.softmax,
    "sort": sorting.sort,
    "split": joining.split_method,
    "sqrt": pointwise.sqrt,
    "sqrt_": inplace.sqrt_,
    "square": pointwise.square,
    "squeeze": shape.squeeze,
    "squeeze_": inplace_shape.squeeze_,
    "std": reduction.std,
    "sub": arithmetic.sub,
    "sub_": inplace.sub_,
    "subtract": arithmetic.sub,
    "sum": reduction.sum,
    "svd": decompositions.svd_with_v,
    "swapaxes": shape.swapaxes,
    "swapaxes_": inplace_shape.swapaxes_,
    "swapdims": shape.transpose,
    "swapdims_": inplace_shape.transpose_,
    "t": shape.t,
    "t_": inplace_shape.t_,
    "take": masking.take,
    "take_along_dim": masking.take_along_dim,
    "tan": elementary.tan,
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
    "true_divide": arithmetic.div,
    "trunc": rounding.trunc,
    "type": conversion.type,
    "unbind": joining.unbind,
    "unflatten": movement.unflatten,
    "unfold": movement.unfold,
    "uniform_": sampling.uniform_,
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


_TYPES = {"byte": dtypes.uint8, "char": dtypes.int8}
for _name in ("bool", "double", "float", "half", "int", "long", "short"):
    _TYPES[_name] = getattr(dtypes, _name)
for _name, _dtype in _TYPES.items():
    METHODS[_name] = _converter(_dtype)


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


def _element_size(self: Tensor) -> int:
    """The number of bytes of one element."""
    return self._array.itemsize


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
    "element_size": _element_size,
    "is_contiguous": _is_contiguous,
    "is_floating_point": _is_floating_point,
    "ndimension": _dim,
    "nelement": _numel,
    "numel": _numel,
    "size": _size,
    "stride": _stride,
    "type_as": _type_as,
}

# What `inplace_forms` makes.
_IN_PLACE = (
    "abs_",
    "acos_",
    "acosh_",
    "addcdiv_",
    "addcmul_",
    "asin_",
    "asinh_",
    "atan2_",
    "atan_",
    "atanh_",
    "bitwise_and_",
    "bitwise_left_shift_",
    "bitwise_not_",
    "bitwise_or_",
    "bitwise_right_shift_",
    "bitwise_xor_",
    "ceil_",
    "clamp_max_",
    "clamp_min_",
    "cos_",
    "cosh_",
    "cumprod_",
    "cumsum_",
    "erf_",
    "erfc_",
    "exp2_",
    "expm1_",
    "floor_",
    "floor_divide_",
    "fmod_",
    "frac_",
    "hypot_",
    "lerp_",
    "log10_",
    "log1p_",
    "log2_",
    "log_",
    "logical_and_",
    "logical_not_",
    "logical_or_",
    "logical_xor_",
    "logit_",
    "nan_to_num_",
    "reciprocal_",
    "remainder_",
    "round_",
    "rsqrt_",
    "sign_",
    "sin_",
    "sinc_",
    "sinh_",
    "square_",
    "tan_",
    "trunc_",
)
_IN_PLACE_OPERATORS = (
    "__iand__",
    "__ifloordiv__",
    "__ilshift__",
    "__imod__",
    "__ior__",
    "__irshift__",
    "__ixor__",
)
METHODS |= {name: Later("inplace_forms", name) for name in _IN_PLACE}
OPERATORS |= {name: Later("inplace_forms", name) for name in _IN_PLACE_OPERATORS}

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
        if isinstance(function, Later):
            function.attribute = name
            setattr(Tensor, name, function)
        else:
            setattr(Tensor, name, as_method(function, name))
    for name, function in PROPERTIES.items():
        setattr(Tensor, name, property(function, SETTERS.get(name)))
