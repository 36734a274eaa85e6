"""Reverse-mode automatic differentiation for MPI clusters, on NumPy."""

import importlib
from typing import Any

from tensorplay import autograd
from tensorplay import ops as _ops
from tensorplay.autograd.grad_mode import (
    enable_grad,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from tensorplay.dtypes import (
    bool,
    complex64,
    complex128,
    double,
    dtype,
    float,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int,
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
from tensorplay.ops.linalg import matmul, mm
from tensorplay.ops.pointwise import abs, exp, log, relu, sigmoid, sqrt, tanh
from tensorplay.ops.reduction import mean, sum
from tensorplay.ops.shape import flatten, permute, reshape, squeeze, transpose, unsqueeze
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

__version__ = "0.1.0"

#: Imported when first used: not every program needs them.
_LAZY = frozenset({"distributed", "nn", "optim"})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"tensorplay.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
