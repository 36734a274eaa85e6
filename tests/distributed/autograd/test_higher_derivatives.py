"""Gradients across workers that are differentiated again, against one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.driving import HARSH, on_first
from tensorplay.distributed import autograd, rpc
from tensorplay.nn import Linear

WEATHERS = pytest.mark.parametrize("options", [{}, {"weather": HARSH}], ids=["fair", "harsh"])


def leaf(*values: float) -> tp.Tensor:
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


def cube(x: Any) -> Any:
    return x * x * x


def fourth_power(x: Any, to: int) -> Any:
    return rpc.rpc_sync(to, cube, args=(x,)) * x


def mix(x: Any, y: Any) -> Any:
    return tp.sin(x) * y + y * y


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-10, atol=1e-12)


@WEATHERS
def test_first_to_third_derivative(options: dict[str, Any]) -> None:
    def program() -> None:
        x = leaf(1.0, 2.0, 3.0)
        values = x.detach().numpy()
        with autograd.context() as context_id:
            loss = rpc.rpc_sync(1, fourth_power, args=(x, 2)).sum()
            so_far: Any = 0.0
            for expected in (4 * values**3, 12 * values**2, 24 * values):
                autograd.backward(context_id, [loss], create_graph=True)
                # Passes add up in the context: what this one has added is the derivative.
                total = autograd.get_gradients(context_id)[x]
                derivative = total - so_far
                so_far = total
                close(derivative, expected)
                loss = derivative.sum()

    on_first(program, size=3, **options)


@WEATHERS
def test_mixed_derivatives_through_calls_and_references(options: dict[str, Any]) -> None:
    def program() -> None:
        def through_calls(x: Any, y: Any) -> Any:
            there = rpc.remote(1, mix, args=(x, y))
            return rpc.rpc_sync(2, mix, args=(there.to_here(), x)).sum()

        def here(x: Any, y: Any) -> Any:
            return mix(mix(x, y), x).sum()

        x, y = leaf(0.3, -1.2), leaf(0.7, 0.1)
        (gx, gy) = tp.autograd.grad(here(x, y), [x, y], create_graph=True)
        expected = tp.autograd.grad((gx * gy).sum(), [x, y])
        with autograd.context() as context_id:
            autograd.backward(context_id, [through_calls(x, y)], create_graph=True)
            first = autograd.get_gradients(context_id)
            close(first[x], gx.detach().numpy())
            close(first[y], gy.detach().numpy())
            autograd.backward(context_id, [(first[x] * first[y]).sum()])
            second = autograd.get_gradients(context_id)
            for leaf_, gradient in zip((x, y), expected, strict=True):
                close(second[leaf_] - first[leaf_], gradient.numpy())

    on_first(program, size=3, **options)


def transposed_sum(x: Any, y: Any) -> Any:
    return (x + y).transpose(0, 1)


def test_one_gradient_for_several_tensors_of_a_message() -> None:
    """A sum gives both its terms the same tensor, here a view."""

    def program() -> None:
        x, y = leaf(1.0, 2.0).reshape(1, 2).detach().requires_grad_(), leaf(3.0)
        with autograd.context() as context_id:
            there = rpc.rpc_sync(1, transposed_sum, args=(x * x, x * y))
            autograd.backward(context_id, [(there * there).sum()], create_graph=True)
            # (x^2 + x y)^2
            first = autograd.get_gradients(context_id)
            a, b = x.detach().numpy(), 3.0
            close(first[x], 2 * (a * a + a * b) * (2 * a + b))
            close(first[y], [(2 * (a * a + a * b) * a).sum()])
            autograd.backward(context_id, [first[x].sum()])
            second = autograd.get_gradients(context_id)
            close(second[x] - first[x], 12 * a * a + 12 * a * b + 2 * b * b)
            close(second[y] - first[y], [(6 * a * a + 4 * a * b).sum()])

    on_first(program)


_layers: dict[int, Linear] = {}


def make_layer(rank: int) -> None:
    tp.manual_seed(rank)
    layer = _layers[rank] = Linear(4, 4)
    for parameter in layer.parameters():
        parameter._array = parameter._array.astype(np.float64)


def run_layer(rank: int, x: Any) -> Any:
    return tp.tanh(_layers[rank](x))


def own_part(rank: int, context_id: int, seed: int) -> Any:
    """This worker's part of the inner product of the gradient and a direction."""
    gradients = autograd.get_gradients(context_id)
    return sum(
        (gradients[parameter] * direction).sum()
        for parameter, direction in zip(_layers[rank].parameters(), directions(seed), strict=True)
    )


def directions(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [tp.from_numpy(random.normal(size=shape)) for shape in ((4, 4), (4,))]


def own_product(rank: int, context_id: int, before: list[Any]) -> list[Any]:
    gradients = autograd.get_gradients(context_id)
    return [
        gradients[parameter].detach().numpy() - old
        for parameter, old in zip(_layers[rank].parameters(), before, strict=True)
    ]


def own_gradients(rank: int, context_id: int) -> list[Any]:
    gradients = autograd.get_gradients(context_id)
    return [gradients[parameter].detach().numpy() for parameter in _layers[rank].parameters()]


@pytest.mark.parametrize("size", [2, 4])
def test_hessian_vector_product_of_a_model_over_workers(size: int) -> None:
    def program() -> None:
        x = tp.from_numpy(np.random.default_rng(0).normal(size=(3, 4)))
        for rank in range(size):
            rpc.rpc_sync(rank, make_layer, args=(rank,))

        def loss(run: Callable[[int, Any], Any]) -> Any:
            y = x
            for rank in range(size):
                y = run(rank, y)
            return (y * y).sum()

        # In one process: the workers share it, and the layers.
        parameters = [p for rank in range(size) for p in _layers[rank].parameters()]
        along = [direction for rank in range(size) for direction in directions(rank)]
        gradients = tp.autograd.grad(loss(run_layer), parameters, create_graph=True)
        product = sum((g * v).sum() for g, v in zip(gradients, along, strict=True))
        expected = tp.autograd.grad(product, parameters)

        with autograd.context() as context_id:
            total = loss(lambda rank, y: rpc.rpc_sync(rank, run_layer, args=(rank, y)))
            autograd.backward(context_id, [total], create_graph=True)
            before = [
                rpc.rpc_sync(rank, own_gradients, args=(rank, context_id)) for rank in range(size)
            ]
            parts = [
                rpc.rpc_sync(rank, own_part, args=(rank, context_id, rank)) for rank in range(size)
            ]
            autograd.backward(context_id, [sum(parts)])
            got = [
                array
                for rank in range(size)
                for array in rpc.rpc_sync(rank, own_product, args=(rank, context_id, before[rank]))
            ]
        for array, exact in zip(got, expected, strict=True):
            np.testing.assert_allclose(array, exact.numpy(), rtol=1e-10, atol=1e-12)

    on_first(program, size=size)


def test_a_recorded_pass_retains_the_graph() -> None:
    def program() -> None:
        x = leaf(2.0)
        with autograd.context() as context_id:
            loss = rpc.rpc_sync(1, cube, args=(x,)).sum()
            autograd.backward(context_id, [loss], create_graph=True)
            autograd.backward(context_id, [loss])
            gradient = autograd.get_gradients(context_id)[x]
            close(gradient, [24.0])
            assert not gradient.requires_grad

    on_first(program)
