"""Hessian-vector products of a model whose layers live on different ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from mpi.conftest import RpcWorld
from tensorplay.distributed import autograd, rpc

pytestmark = pytest.mark.mpi

WIDTH = 5


class Layer:
    """The same on every rank that makes it."""

    def __init__(self, number: int) -> None:
        random = np.random.default_rng(number)
        self.parameters = [
            tp.from_numpy(random.normal(size=shape)).requires_grad_()
            for shape in ((WIDTH, WIDTH), (WIDTH,))
        ]
        self.direction = [tp.from_numpy(random.normal(size=p.shape)) for p in self.parameters]

    def __call__(self, x: Any) -> Any:
        weight, bias = self.parameters
        return tp.tanh(x @ weight + bias)

    def along(self, gradients: Any) -> Any:
        pairs = zip(self.parameters, self.direction, strict=True)
        return sum((gradients[parameter] * direction).sum() for parameter, direction in pairs)

    def along_own(self, context_id: int) -> Any:
        return self.along(autograd.get_gradients(context_id))

    def gradients(self, context_id: int) -> list[Any]:
        gradients = autograd.get_gradients(context_id)
        return [gradients[parameter].detach().numpy() for parameter in self.parameters]


def loss(layers: list[Callable[[Any], Any]]) -> Any:
    x: Any = tp.from_numpy(np.random.default_rng(99).normal(size=(3, WIDTH)))
    for layer in layers:
        x = layer(x)
    return (x * x).sum()


def test_hessian_vector_product_of_a_model_over_ranks(rpc_world: RpcWorld) -> None:
    if rpc_world.rank:
        return
    here = [Layer(rank) for rank in rpc_world.everybody]
    parameters = [parameter for layer in here for parameter in layer.parameters]
    first = tp.autograd.grad(loss(list(here)), parameters, create_graph=True)
    by_parameter = dict(zip(parameters, first, strict=True))
    expected = tp.autograd.grad(sum(layer.along(by_parameter) for layer in here), parameters)

    there = [rpc.remote(rank, Layer, args=(rank,)) for rank in rpc_world.everybody]
    with autograd.context() as context_id:
        total = loss([layer.rpc_sync() for layer in there])
        autograd.backward(context_id, [total], create_graph=True)
        before = [array for layer in there for array in layer.rpc_sync().gradients(context_id)]
        along = sum(layer.rpc_sync().along_own(context_id) for layer in there)
        autograd.backward(context_id, [along])
        after = [array for layer in there for array in layer.rpc_sync().gradients(context_id)]
    for new, old, gradient, product in zip(after, before, first, expected, strict=True):
        np.testing.assert_allclose(old, gradient.detach().numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(new - old, product.numpy(), rtol=1e-10, atol=1e-12)
