"""Reverse-mode automatic differentiation for MPI clusters, on NumPy.

The names are PyTorch's.  `tensorplay.distributed` is imported when first used, and MPI not before
RPC is initialised, so that programs which need neither pay for neither.

>>> import tensorplay as tp
>>> x = tp.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])
"""

import builtins
import importlib
from math import inf, nan, pi
from typing import TYPE_CHECKING, Any

from numpy import finfo, iinfo

# Importing the operations makes them methods of `Tensor`.
from tensorplay import autograd, cuda
from tensorplay import ops as ops
from tensorplay.autograd.grad_mode import (
    enable_grad,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from tensorplay.devices import device
from tensorplay.dtypes import (
    bool as bool,
)
from tensorplay.dtypes import (
    can_cast,
    complex64,
    complex128,
    double,
    dtype,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    set_default_dtype,
    short,
    uint8,
)
from tensorplay.dtypes import (
    float as float,
)
from tensorplay.dtypes import (
    int as int,
)
from tensorplay.ops.arithmetic import add, div, mul, sub
from tensorplay.ops.arithmetic import (
    div as divide,
)
from tensorplay.ops.arithmetic import (
    div as true_divide,
)
from tensorplay.ops.arithmetic import (
    mul as multiply,
)
from tensorplay.ops.arithmetic import (
    sub as subtract,
)
from tensorplay.ops.attaching import loaded as _loaded
from tensorplay.ops.bits import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
)
from tensorplay.ops.comparison import (
    all as all,
)
from tensorplay.ops.comparison import (
    allclose,
    eq,
    equal,
    ge,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    isreal,
    le,
    lt,
    ne,
    nonzero,
    signbit,
)
from tensorplay.ops.comparison import (
    any as any,
)
from tensorplay.ops.comparison import (
    ge as greater_equal,
)
from tensorplay.ops.comparison import (
    gt as greater,
)
from tensorplay.ops.comparison import (
    le as less_equal,
)
from tensorplay.ops.comparison import (
    lt as less,
)
from tensorplay.ops.comparison import (
    ne as not_equal,
)
from tensorplay.ops.complex_numbers import (
    angle,
    conj,
    imag,
    is_complex,
    polar,
    real,
    view_as_complex,
    view_as_real,
)
from tensorplay.ops.complex_numbers import (
    complex as complex,
)
from tensorplay.ops.conversion import detach, result_type
from tensorplay.ops.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from tensorplay.ops.extrema import amax, amin, argmax, argmin
from tensorplay.ops.extrema import max as max
from tensorplay.ops.extrema import min as min
from tensorplay.ops.gathering import gather, index_select
from tensorplay.ops.joining import cat, chunk, split, stack, unbind
from tensorplay.ops.joining import cat as concat
from tensorplay.ops.joining import cat as concatenate
from tensorplay.ops.linalg import bmm, dot, matmul, mm, norm, outer
from tensorplay.ops.pointwise import (
    abs as abs,
)
from tensorplay.ops.pointwise import (
    abs as absolute,
)
from tensorplay.ops.pointwise import (
    cos,
    exp,
    log,
    neg,
    positive,
    reciprocal,
    relu,
    sgn,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    tanh,
)
from tensorplay.ops.pointwise import (
    neg as negative,
)
from tensorplay.ops.power import pow as pow
from tensorplay.ops.reduction import mean, std, var
from tensorplay.ops.reduction import sum as sum
from tensorplay.ops.rounding import ceil, floor, floor_divide, fmod, frac, remainder, trunc
from tensorplay.ops.rounding import (
    round as round,
)
from tensorplay.ops.rounding import (
    trunc as fix,
)
from tensorplay.ops.selection import clamp, clamp_max, clamp_min, maximum, minimum, where
from tensorplay.ops.selection import (
    clamp as clip,
)
from tensorplay.ops.shape import (
    broadcast_to,
    clone,
    flatten,
    permute,
    reshape,
    squeeze,
    swapaxes,
    t,
    transpose,
    unsqueeze,
)
from tensorplay.ops.shape import transpose as swapdims
from tensorplay.ops.softmax import log_softmax, logsumexp, softmax
from tensorplay.random import (
    Generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
)
from tensorplay.tensor import Tensor

if TYPE_CHECKING:
    from tensorplay import distributed, distributions, futures, linalg, nn, optim, utils
    from tensorplay.io import load, save
    from tensorplay.ops.arranging import (
        atleast_1d,
        atleast_2d,
        atleast_3d,
        broadcast_shapes,
        broadcast_tensors,
        cartesian_prod,
        column_stack,
        dstack,
        hsplit,
        hstack,
        meshgrid,
        tensor_split,
        vsplit,
        vstack,
    )
    from tensorplay.ops.array_protocol import from_dlpack
    from tensorplay.ops.combining import (
        addcdiv,
        addcmul,
        atan2,
        fmax,
        fmin,
        hypot,
        lerp,
        logaddexp,
        nan_to_num,
    )
    from tensorplay.ops.combining import (
        atan2 as arctan2,
    )
    from tensorplay.ops.contraction import einsum, inner, tensordot
    from tensorplay.ops.counting import (
        bincount,
        bucketize,
        histc,
        searchsorted,
        unique,
        unique_consecutive,
    )
    from tensorplay.ops.decompositions import cholesky_of_input as cholesky
    from tensorplay.ops.decompositions import svd_with_v as svd
    from tensorplay.ops.determinants import det_of_input as det
    from tensorplay.ops.determinants import logdet, pinverse
    from tensorplay.ops.determinants import slogdet_of_input as slogdet
    from tensorplay.ops.diagonals import (
        diag,
        diag_embed,
        diagflat,
        diagonal,
        trace,
        tril,
        tril_indices,
        triu,
        triu_indices,
    )
    from tensorplay.ops.elementary import (
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atanh,
        cosh,
        exp2,
        expm1,
        log1p,
        log2,
        log10,
        logit,
        rsqrt,
        sinc,
        sinh,
        tan,
    )
    from tensorplay.ops.elementary import (
        acos as arccos,
    )
    from tensorplay.ops.elementary import (
        acosh as arccosh,
    )
    from tensorplay.ops.elementary import (
        asin as arcsin,
    )
    from tensorplay.ops.elementary import (
        asinh as arcsinh,
    )
    from tensorplay.ops.elementary import (
        atan as arctan,
    )
    from tensorplay.ops.elementary import (
        atanh as arctanh,
    )
    from tensorplay.ops.error_function import erf, erfc
    from tensorplay.ops.index_writing import index_add, index_copy, index_fill, index_put
    from tensorplay.ops.masking import (
        masked_fill,
        masked_scatter,
        masked_select,
        take,
        take_along_dim,
    )
    from tensorplay.ops.matrix_products import (
        addbmm,
        addmm,
        addmv,
        addr,
        baddbmm,
        cross,
        kron,
        mv,
        vdot,
    )
    from tensorplay.ops.movement import (
        adjoint,
        flip,
        fliplr,
        flipud,
        movedim,
        narrow,
        ravel,
        repeat_interleave,
        roll,
        rot90,
        select,
        tile,
        unflatten,
    )
    from tensorplay.ops.movement import movedim as moveaxis
    from tensorplay.ops.products import cumprod, cumsum, prod
    from tensorplay.ops.sampling import bernoulli, multinomial, normal
    from tensorplay.ops.scattering import scatter, scatter_add, scatter_reduce
    from tensorplay.ops.solving import inverse, matrix_power
    from tensorplay.ops.sorting import argsort, cummax, cummin, kthvalue, msort, sort, topk
    from tensorplay.ops.statistics import (
        count_nonzero,
        median,
        nanmean,
        nanmedian,
        nansum,
        std_mean,
        var_mean,
    )

__version__ = "0.1.0"

#: The class of shapes: here Python's own.
Size = tuple  # type: ignore[type-arg]  # a class, not an annotation

#: Imported when first used: not every program needs them.
_LAZY = frozenset({"distributed", "distributions", "futures", "linalg", "nn", "optim", "utils"})
#: Functions of such modules.
_LAZY_FUNCTIONS = {"load": "io", "save": "io"}

#: Operations that are imported when first used, and their modules (and names there).
_LATER = {
    "acos": "elementary",
    "acosh": "elementary",
    "addbmm": "matrix_products",
    "addcdiv": "combining",
    "addcmul": "combining",
    "addmm": "matrix_products",
    "addmv": "matrix_products",
    "addr": "matrix_products",
    "adjoint": "movement",
    "arccos": "elementary.acos",
    "arccosh": "elementary.acosh",
    "arcsin": "elementary.asin",
    "arcsinh": "elementary.asinh",
    "arctan": "elementary.atan",
    "arctan2": "combining.atan2",
    "arctanh": "elementary.atanh",
    "argsort": "sorting",
    "asin": "elementary",
    "asinh": "elementary",
    "atan": "elementary",
    "atan2": "combining",
    "atanh": "elementary",
    "atleast_1d": "arranging",
    "atleast_2d": "arranging",
    "atleast_3d": "arranging",
    "baddbmm": "matrix_products",
    "bernoulli": "sampling",
    "bincount": "counting",
    "broadcast_shapes": "arranging",
    "broadcast_tensors": "arranging",
    "bucketize": "counting",
    "cartesian_prod": "arranging",
    "cholesky": "decompositions.cholesky_of_input",
    "column_stack": "arranging",
    "cosh": "elementary",
    "count_nonzero": "statistics",
    "cross": "matrix_products",
    "cummax": "sorting",
    "cummin": "sorting",
    "cumprod": "products",
    "cumsum": "products",
    "det": "determinants.det_of_input",
    "diag": "diagonals",
    "diag_embed": "diagonals",
    "diagflat": "diagonals",
    "diagonal": "diagonals",
    "dstack": "arranging",
    "einsum": "contraction",
    "erf": "error_function",
    "erfc": "error_function",
    "exp2": "elementary",
    "expm1": "elementary",
    "flip": "movement",
    "fliplr": "movement",
    "flipud": "movement",
    "fmax": "combining",
    "fmin": "combining",
    "from_dlpack": "array_protocol",
    "histc": "counting",
    "hsplit": "arranging",
    "hstack": "arranging",
    "hypot": "combining",
    "index_add": "index_writing",
    "index_copy": "index_writing",
    "index_fill": "index_writing",
    "index_put": "index_writing",
    "inner": "contraction",
    "inverse": "solving",
    "kron": "matrix_products",
    "kthvalue": "sorting",
    "lerp": "combining",
    "log10": "elementary",
    "log1p": "elementary",
    "log2": "elementary",
    "logaddexp": "combining",
    "logdet": "determinants",
    "logit": "elementary",
    "masked_fill": "masking",
    "masked_scatter": "masking",
    "masked_select": "masking",
    "matrix_power": "solving",
    "median": "statistics",
    "meshgrid": "arranging",
    "moveaxis": "movement.movedim",
    "movedim": "movement",
    "msort": "sorting",
    "multinomial": "sampling",
    "mv": "matrix_products",
    "nan_to_num": "combining",
    "nanmean": "statistics",
    "nanmedian": "statistics",
    "nansum": "statistics",
    "narrow": "movement",
    "normal": "sampling",
    "pinverse": "determinants",
    "prod": "products",
    "ravel": "movement",
    "repeat_interleave": "movement",
    "roll": "movement",
    "rot90": "movement",
    "rsqrt": "elementary",
    "scatter": "scattering",
    "scatter_add": "scattering",
    "scatter_reduce": "scattering",
    "searchsorted": "counting",
    "select": "movement",
    "sinc": "elementary",
    "sinh": "elementary",
    "slogdet": "determinants.slogdet_of_input",
    "sort": "sorting",
    "std_mean": "statistics",
    "svd": "decompositions.svd_with_v",
    "take": "masking",
    "take_along_dim": "masking",
    "tan": "elementary",
    "tensor_split": "arranging",
    "tensordot": "contraction",
    "tile": "movement",
    "topk": "sorting",
    "trace": "diagonals",
    "tril": "diagonals",
    "tril_indices": "diagonals",
    "triu": "diagonals",
    "triu_indices": "diagonals",
    "unflatten": "movement",
    "unique": "counting",
    "unique_consecutive": "counting",
    "var_mean": "statistics",
    "vdot": "matrix_products",
    "vsplit": "arranging",
    "vstack": "arranging",
}

# Without the names that are builtins too, so that `import *` hides none.
__all__ = [
    "Generator",
    "Size",
    "Tensor",
    "absolute",
    "acos",
    "acosh",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "adjoint",
    "allclose",
    "amax",
    "amin",
    "angle",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "as_tensor",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "autograd",
    "baddbmm",
    "bernoulli",
    "bincount",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bmm",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "can_cast",
    "cartesian_prod",
    "cat",
    "ceil",
    "cholesky",
    "chunk",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "clone",
    "column_stack",
    "complex128",
    "complex64",
    "concat",
    "concatenate",
    "conj",
    "cos",
    "cosh",
    "count_nonzero",
    "cross",
    "cuda",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "det",
    "detach",
    "device",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "distributed",
    "distributions",
    "div",
    "divide",
    "dot",
    "double",
    "dstack",
    "dtype",
    "einsum",
    "empty",
    "empty_like",
    "enable_grad",
    "eq",
    "equal",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "eye",
    "finfo",
    "fix",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "futures",
    "gather",
    "ge",
    "get_default_dtype",
    "get_rng_state",
    "greater",
    "greater_equal",
    "gt",
    "half",
    "histc",
    "hsplit",
    "hstack",
    "hypot",
    "iinfo",
    "imag",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "inf",
    "initial_seed",
    "inner",
    "int16",
    "int32",
    "int64",
    "int8",
    "inverse",
    "is_complex",
    "is_floating_point",
    "is_grad_enabled",
    "is_tensor",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "kron",
    "kthvalue",
    "le",
    "lerp",
    "less",
    "less_equal",
    "linalg",
    "linspace",
    "load",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logspace",
    "logsumexp",
    "long",
    "lt",
    "manual_seed",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_power",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "minimum",
    "mm",
    "moveaxis",
    "movedim",
    "msort",
    "mul",
    "multinomial",
    "multiply",
    "mv",
    "nan",
    "nan_to_num",
    "nanmean",
    "nanmedian",
    "nansum",
    "narrow",
    "ne",
    "neg",
    "negative",
    "nn",
    "no_grad",
    "nonzero",
    "norm",
    "normal",
    "not_equal",
    "numel",
    "ones",
    "ones_like",
    "optim",
    "outer",
    "permute",
    "pi",
    "pinverse",
    "polar",
    "positive",
    "prod",
    "promote_types",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "ravel",
    "real",
    "reciprocal",
    "relu",
    "remainder",
    "repeat_interleave",
    "reshape",
    "result_type",
    "roll",
    "rot90",
    "rsqrt",
    "save",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "seed",
    "select",
    "set_default_dtype",
    "set_grad_enabled",
    "set_rng_state",
    "sgn",
    "short",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "slogdet",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "std_mean",
    "sub",
    "subtract",
    "svd",
    "swapaxes",
    "swapdims",
    "t",
    "take",
    "take_along_dim",
    "tan",
    "tanh",
    "tensor",
    "tensor_split",
    "tensordot",
    "tile",
    "topk",
    "trace",
    "transpose",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "true_divide",
    "trunc",
    "uint8",
    "unbind",
    "unflatten",
    "unique",
    "unique_consecutive",
    "unsqueeze",
    "utils",
    "var",
    "var_mean",
    "vdot",
    "view_as_complex",
    "view_as_real",
    "vsplit",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]


def is_tensor(obj: object) -> "builtins.bool":
    """Whether `obj` is a `Tensor`."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> "builtins.bool":
    """Whether the elements are floating-point numbers."""
    return input.is_floating_point()


def numel(input: Tensor) -> "builtins.int":
    """The number of elements."""
    return input.numel()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"tensorplay.{name}")
    if name in _LAZY_FUNCTIONS:
        return getattr(importlib.import_module(f"tensorplay.{_LAZY_FUNCTIONS[name]}"), name)
    if name in _LATER:
        module, _, attribute = _LATER[name].partition(".")
        value = getattr(_loaded(module), attribute or name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted({*globals(), *_LAZY, *_LAZY_FUNCTIONS, *_LATER})
