"""Programs whose tensors are of several types, complex ones among them, in a world of any size.

Each is run by worker 0, and compares with the same computation in one process.  The numbers are
such that no rounding happens, whatever the precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.remote import add, identity, mul, twice, via
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc

#: Types of the two operands of an operation on another worker.
PAIRS = [
    (tp.float16, tp.float32),
    (tp.float32, tp.float64),
    (tp.float64, tp.float16),
    (tp.float32, tp.complex64),
    (tp.float16, tp.complex64),
    (tp.float64, tp.complex64),
    (tp.float32, tp.complex128),
    (tp.complex128, tp.float32),
    (tp.complex64, tp.complex128),
    (tp.complex64, tp.complex64),
]


def leaf(*numbers: Any, dtype: Any) -> tp.Tensor:
    return tp.tensor(numbers, dtype=dtype, requires_grad=True)


def operands(first: Any, second: Any) -> list[tp.Tensor]:
    leaves = []
    for dtype, shift in ((first, 1), (second, 2)):
        factor = (1 - 2j) if dtype.kind == "c" else 1
        leaves.append(leaf(*[factor * (number + shift) for number in (0, -4, 1)], dtype=dtype))
    return leaves


def real_loss(out: Any) -> Any:
    """A real number that depends on both parts of each element."""
    return (out.real * 2 - out.imag).sum() if out.is_complex() else (out * 2).sum()


def mixed(a: Any, b: Any) -> Any:
    return a * b + a - b


def same(got: dict[tp.Tensor, tp.Tensor], leaves: list[tp.Tensor], expected: Any) -> None:
    """The gradients are the expected ones exactly, and of their leaves' types."""
    assert set(got) == set(leaves)
    for one, gradient in zip(leaves, expected, strict=True):
        assert got[one].dtype == one.dtype == gradient.dtype
        np.testing.assert_array_equal(got[one].detach().numpy(), gradient.detach().numpy())


def operands_of_two_types(size: int, first: Any, second: Any) -> None:
    """Both travel to the last worker by all others."""
    route = list(range(1, size)) or [0]
    leaves = operands(first, second)
    expected = tp.autograd.grad(real_loss(mixed(*leaves)), leaves)
    with dist_autograd.context() as context_id:
        out = rpc.rpc_sync(route[0], via, args=(route[1:], mixed, *leaves))
        assert out.dtype == tp.promote_types(first, second)
        dist_autograd.backward(context_id, [real_loss(out)])
        same(dist_autograd.get_gradients(context_id), leaves, expected)


def types_that_change_at_every_worker(size: int) -> None:
    """From float16 to complex128 and back to real numbers, a worker for each step."""
    steps = [(tp.float16, tp.float32), (tp.float32, tp.complex64), (tp.complex64, tp.complex128)]
    x = leaf(1, -2, 3, dtype=tp.float16)
    factors = [leaf(1, 2, -1, dtype=to) for _, to in steps]
    with dist_autograd.context() as context_id:
        y: Any = x
        for number, ((before, after), factor) in enumerate(zip(steps, factors, strict=True)):
            assert y.dtype == before
            y = rpc.rpc_sync(number % size, mul, args=(y, factor))
            assert y.dtype == after
        y = rpc.rpc_sync(size - 1, identity, args=(y * (1 - 1j),))
        dist_autograd.backward(context_id, [real_loss(y)])
        got = dist_autograd.get_gradients(context_id)
    local: Any = x
    for factor in factors:
        local = local * factor
    leaves = [x, *factors]
    same(got, leaves, tp.autograd.grad(real_loss(local * (1 - 1j)), leaves))


class Turn:
    """Multiplies by a complex parameter of its worker."""

    def __init__(self, number: int) -> None:
        self.factor = leaf(complex(1, number), complex(number, -1), dtype=tp.complex64)

    def __call__(self, z: Any) -> Any:
        return z * self.factor

    def gradient(self, context_id: int) -> Any:
        return dist_autograd.get_gradients(context_id)[self.factor].detach()

    def value(self) -> Any:
        return self.factor.detach()


def complex_parameters_on_all_workers(size: int) -> None:
    z = leaf(1 + 1j, 2 - 1j, dtype=tp.complex64)
    turns = [rpc.remote(worker, Turn, args=(worker,)) for worker in range(size)]
    with dist_autograd.context() as context_id:
        out: Any = z
        for turn in turns:
            out = turn.rpc_sync()(out)
        dist_autograd.backward(context_id, [real_loss(out)])
        got = dist_autograd.get_gradients(context_id)
        there = [turn.rpc_sync().gradient(context_id) for turn in turns]
    factors = [turn.rpc_sync().value().requires_grad_() for turn in turns]
    local: Any = z
    for factor in factors:
        local = local * factor
    for_z, *expected = tp.autograd.grad(real_loss(local), [z, *factors])
    same({z: got[z]}, [z], [for_z])
    for gradient, right in zip(there, expected, strict=True):
        assert gradient.dtype == tp.complex64
        assert gradient.tolist() == right.tolist()


def parts(z: Any) -> dict[str, Any]:
    return {
        "real": z.real,
        "imag": z.imag,
        "size": (z * z.conj()).real,
        "pairs": tp.view_as_real(z),
    }


def parts_and_what_is_made_of_them(size: int) -> None:
    """Gradients that are views of parts travel; so do several results of different types."""
    last = size - 1
    z = leaf(3 + 4j, -1j, dtype=tp.complex128)
    x = leaf(2.0, -3.0, dtype=tp.float64)

    def loss(made: Any, doubled: Any) -> Any:
        both = tp.complex(made["real"] * doubled, made["imag"])
        return real_loss(both * both) + made["size"].sum() + (made["pairs"] * made["pairs"]).sum()

    expected = tp.autograd.grad(loss(parts(z), twice(x)), [z, x])
    with dist_autograd.context() as context_id:
        made = rpc.rpc_sync(last, parts, args=(z,))
        doubled = rpc.rpc_sync(last, twice, args=(x,))
        dist_autograd.backward(context_id, [loss(made, doubled)])
        same(dist_autograd.get_gradients(context_id), [z, x], expected)


def second_derivatives(size: int) -> None:
    last = size - 1
    z = leaf(1 + 2j, -3j, dtype=tp.complex128)
    x = leaf(2.0, -1.0, dtype=tp.float64)

    def cubes(call: Any) -> Any:
        return real_loss(call(mul, call(mul, z, x), call(mul, z, call(add, z, x))))

    def along(gradients: Any) -> Any:
        return real_loss(gradients[0] * gradients[0]) + (gradients[1] * 3).sum()

    def here(function: Any, *args: Any) -> Any:
        return function(*args)

    def there(function: Any, *args: Any) -> Any:
        return rpc.rpc_sync(last, function, args=args)

    leaves = [z, x]
    first = tp.autograd.grad(cubes(here), leaves, create_graph=True)
    expected = tp.autograd.grad(along(first), leaves)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [cubes(there)], create_graph=True)
        gradients = dist_autograd.get_gradients(context_id)
        same(gradients, leaves, first)
        dist_autograd.backward(context_id, [along([gradients[one] for one in leaves])])
        both = dist_autograd.get_gradients(context_id)
    # Passes add up in the context.
    same(both, leaves, [a.detach() + b for a, b in zip(first, expected, strict=True)])


def a_complex_array_of_a_mebibyte(size: int) -> None:
    count = 1 << 17
    z = tp.polar(tp.ones(count), tp.zeros(count)).requires_grad_()
    x = tp.full((count,), 2.0, requires_grad=True)
    with dist_autograd.context() as context_id:
        out = rpc.rpc_sync(size - 1, mul, args=(z, x))
        dist_autograd.backward(context_id, [real_loss(out)])
        gradients = dist_autograd.get_gradients(context_id)
    assert (gradients[z].dtype, gradients[x].dtype) == (tp.complex64, tp.float32)
    assert (gradients[z] == 4 - 2j).all()
    assert (gradients[x] == 2.0).all()


def roots_must_be_real(size: int) -> None:
    z = leaf(1 + 1j, dtype=tp.complex64)
    with dist_autograd.context() as context_id:
        out = rpc.rpc_sync(size - 1, twice, args=(z,))
        with pytest.raises(RuntimeError, match=r"root is complex \(complex64\), all roots need"):
            dist_autograd.backward(context_id, [out.sum()])
        dist_autograd.backward(context_id, [out.real.sum()])
        assert dist_autograd.get_gradients(context_id)[z].tolist() == [2 + 0j]


PROGRAMS = [
    types_that_change_at_every_worker,
    complex_parameters_on_all_workers,
    parts_and_what_is_made_of_them,
    second_derivatives,
    a_complex_array_of_a_mebibyte,
    roots_must_be_real,
]
