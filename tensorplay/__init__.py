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
from typing import TYPE_CHECKING, Any

# Importing the operations makes them methods of `Tensor`.
from tensorplay import autograd
from tensorplay import ops as ops
from tensorplay.autograd.grad_mode import (
    enable_grad,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from tensorplay.dtypes import (
    bool as bool,
)
from tensorplay.dtypes import (
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
    le,
    logical_not,
    lt,
    ne,
    nonzero,
)
from tensorplay.ops.comparison import (
    any as any,
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
from tensorplay.ops.linalg import bmm, dot, matmul, mm, norm, outer
from tensorplay.ops.pointwise import (
    abs as abs,
)
from tensorplay.ops.pointwise import (
    cos,
    exp,
    log,
    neg,
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
from tensorplay.ops.power import pow as pow
from tensorplay.ops.reduction import mean, std, var
from tensorplay.ops.reduction import sum as sum
from tensorplay.ops.selection import clamp, maximum, minimum, where
from tensorplay.ops.shape import (
    broadcast_to,
    clone,
    flatten,
    permute,
    reshape,
    squeeze,
    t,
    transpose,
    unsqueeze,
)
from tensorplay.ops.softmax import log_softmax, logsumexp, softmax
from tensorplay.random import (
    Generator,
    initial_seed,
    manual_seed,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
)
from tensorplay.tensor import Tensor

if TYPE_CHECKING:
    from tensorplay import distributed, futures, nn, optim

__version__ = "0.1.0"

#: Imported when first used: not every program needs them.
_LAZY = frozenset({"distributed", "futures", "nn", "optim"})

# Without the names that are builtins too, so that `import *` hides none.
__all__ = [
    "Generator",
    "Tensor",
    "add",
    "allclose",
    "amax",
    "amin",
    "angle",
    "arange",
    "argmax",
    "argmin",
    "as_tensor",
    "autograd",
    "bmm",
    "broadcast_to",
    "cat",
    "chunk",
    "clamp",
    "clone",
    "complex128",
    "complex64",
    "conj",
    "cos",
    "distributed",
    "div",
    "dot",
    "double",
    "dtype",
    "empty",
    "empty_like",
    "enable_grad",
    "eq",
    "equal",
    "exp",
    "eye",
    "flatten",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "full",
    "full_like",
    "futures",
    "gather",
    "ge",
    "get_default_dtype",
    "gt",
    "half",
    "imag",
    "index_select",
    "initial_seed",
    "int16",
    "int32",
    "int64",
    "int8",
    "is_complex",
    "is_grad_enabled",
    "is_tensor",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "le",
    "linspace",
    "log",
    "log_softmax",
    "logical_not",
    "logsumexp",
    "long",
    "lt",
    "manual_seed",
    "matmul",
    "maximum",
    "mean",
    "minimum",
    "mm",
    "mul",
    "ne",
    "neg",
    "nn",
    "no_grad",
    "nonzero",
    "norm",
    "ones",
    "ones_like",
    "optim",
    "outer",
    "permute",
    "polar",
    "promote_types",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "real",
    "reciprocal",
    "relu",
    "reshape",
    "set_default_dtype",
    "set_grad_enabled",
    "sgn",
    "short",
    "sigmoid",
    "sign",
    "sin",
    "softmax",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "sub",
    "t",
    "tanh",
    "tensor",
    "transpose",
    "uint8",
    "unbind",
    "unsqueeze",
    "var",
    "view_as_complex",
    "view_as_real",
    "where",
    "zeros",
    "zeros_like",
]


def is_tensor(obj: object) -> "builtins.bool":
    """Whether `obj` is a `Tensor`."""
    return isinstance(obj, Tensor)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"tensorplay.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted({*globals(), *_LAZY})
