"""What random programs compute with: operations on tensors of any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tensorplay as tp

Operation = Callable[..., Any]


class Cube(tp.autograd.Function):
    """A function of the test's own, with NumPy inside."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x * x * 3.0


class HalfAndDouble(tp.autograd.Function):
    """Two results of one node, of which a program may use one."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 0.5, x * 2.0

    @staticmethod
    def backward(ctx: Any, half: Any, double: Any) -> Any:
        return half * 0.5 + double * 2.0


def bend(grad: Any) -> Any:
    """What hooks do: not linear, so that parts of a gradient would not add up to it."""
    return tp.tanh(grad) * 0.5 + grad


def _hooked(x: Any) -> Any:
    y = x * 1.0
    if y.requires_grad:
        y.register_hook(bend)
    return y


def _scaled_in_place(x: Any) -> Any:
    y = x * 1.0
    y.mul_(0.7)
    return y


def _row_in_place(x: Any) -> Any:
    y = x * 1.0
    y[0:1].mul_(0.7)
    return y


def _in_place(x: Any) -> Any:
    return x.mul_(0.7)


SMOOTH: dict[str, Operation] = {
    "tanh": tp.tanh,
    "sigmoid": tp.sigmoid,
    "halve": lambda x: x * 0.5,
    "negate": lambda x: -x,
    "shift": lambda x: x + 0.3,
    "square": lambda x: x * x,
    "scale a copy in place": _scaled_in_place,
    "scale a row in place": _row_in_place,
    "transpose": lambda x: x.transpose(0, -1),
    "first row": lambda x: x[0:1],
    "last": lambda x: x[-1],
    "every other": lambda x: x[::2],
    "first column": lambda x: x[..., 0:1],
    "nothing of it": lambda x: x[0:0],
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "sum rows": lambda x: x.sum(0, keepdim=True),
    "flatten": lambda x: x.reshape(-1),
    "one more dimension": lambda x: x.unsqueeze(0),
    "stack": lambda x: tp.stack([x, x * 0.5]),
    "cube by a Function": Cube.apply,
    "one result of a Function": lambda x: HalfAndDouble.apply(x)[0],
    "both results of a Function": lambda x: sum(HalfAndDouble.apply(x)) * 0.3,
}
#: Gradients through these are not those of the values.
ROUGH: dict[str, Operation] = {"detach": lambda x: x.detach(), "hook": _hooked}
CASTS: dict[str, Operation] = {
    "to float32": lambda x: x.to(tp.float32),
    "to float64": lambda x: x.to(tp.float64),
}
BINARY: dict[str, Operation] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "concatenate": lambda x, y: tp.cat([x, y]),
}
#: Only for tensors that have just arrived, and that nothing else is made of.
IN_PLACE = "in place"
#: Ends a program: one number, whatever the shape.
SHRINK = "average"
OTHERS: dict[str, Operation] = {
    IN_PLACE: _in_place,
    SHRINK: lambda x: x.sum() * (1.0 / max(1, int(np.prod(x.shape)))),
}
FUNCTIONS: dict[str, Operation] = {**SMOOTH, **ROUGH, **CASTS, **BINARY, **OTHERS}
