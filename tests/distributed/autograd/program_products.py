"""Hessian-vector products of random programs: their gradients, differentiated again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorplay as tp
from distributed.autograd.program_failures import shown
from distributed.autograd.program_maker import program_of
from distributed.autograd.program_plain import Gradients, interpret, leaves
from distributed.autograd.program_runs import (
    PASS_SECONDS,
    Source,
    compare,
    forget_parameters,
    from_source,
    gradients_here,
    parameters_here,
    run_block,
    source_for,
    tolerance_for,
    unpack,
)
from distributed.autograd.programs import Program
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc


def direction(program: Program, name: str) -> np.ndarray[Any, Any]:
    """The part of the vector that belongs to a parameter; the same on all workers."""
    (parameter,) = [one for one in program.parameters if one.name == name]
    return np.random.default_rng(parameter.seed + 1).uniform(-1.0, 1.0, parameter.shape)


def along(program: Program, gradients: dict[str, Any]) -> Any:
    """The inner product of gradients and the vector; of those that there are."""
    total: Any = tp.zeros((), dtype=tp.float64)
    for name, grad in gradients.items():
        if grad is not None:
            total = total + (grad * tp.tensor(direction(program, name))).sum()
    return total


# -- in one process --------------------------------------------------------------------------------


def roots_of(program: Program, losses: Sequence[Any]) -> list[Any]:
    """Those of the program's first pass."""
    return [losses[i] for i in program.passes[0]]


def plain_products(program: Program) -> tuple[Gradients, Gradients]:
    """Each parameter's gradient and product in one process, None where there is none."""
    parameters = leaves(program)
    names, tensors = list(parameters), list(parameters.values())
    total = sum(roots_of(program, interpret(program, parameters)), tp.zeros((), dtype=tp.float64))
    first = tp.autograd.grad(total.sum(), tensors, create_graph=True, allow_unused=True)
    product = along(program, dict(zip(names, first, strict=True)))
    second: Sequence[Any] = [None] * len(names)
    if product.requires_grad:
        second = tp.autograd.grad(product, tensors, allow_unused=True)
    return _arrays(names, first), _arrays(names, second)


def _arrays(names: Sequence[str], tensors: Sequence[Any]) -> Gradients:
    return {
        name: None if tensor is None else tensor.detach().numpy()
        for name, tensor in zip(names, tensors, strict=True)
    }


def difference_products(program: Program, step: float = 1e-5) -> Gradients:
    """Each product by a central difference of gradients; zeros where there are none."""

    def gradients(shift: float) -> dict[str, np.ndarray[Any, Any]]:
        parameters = leaves(program)
        for name, tensor in parameters.items():
            tensor._array += shift * direction(program, name)
        tp.autograd.backward(roots_of(program, interpret(program, parameters)))
        return {
            name: np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
            for name, tensor in parameters.items()
        }

    above, below = gradients(step), gradients(-step)
    return {name: (above[name] - below[name]) / (2 * step) for name in above}


# -- over workers ----------------------------------------------------------------------------------


def differentiate_recorded(
    source: Source, context_id: int, losses: rpc.RRef[Any], timeout: float
) -> None:
    """The first pass of a program, recorded, on the worker that has its losses."""
    roots = roots_of(from_source(source), unpack(losses.local_value()))
    dist_autograd.backward(context_id, roots, create_graph=True, timeout=timeout)


def along_here(source: Source, context_id: int) -> Any:
    """This worker's part of the inner product."""
    program = from_source(source)
    grads = dist_autograd.get_gradients(context_id)
    return along(program, {name: grads.get(one) for name, one in parameters_here(source).items()})


def distributed_products(program: Program, timeout: float) -> tuple[Gradients, Gradients]:
    """Each parameter's gradient, and what the second pass adds to it; this worker drives."""
    source = source_for(program)
    first: Gradients = {}
    both: Gradients = {}
    everybody = range(program.size)
    with dist_autograd.context() as context_id:
        losses = rpc.remote(program.start, run_block, args=(source, 0, None))
        rpc.rpc_sync(
            program.start, differentiate_recorded, args=(source, context_id, losses, timeout)
        )
        for worker in everybody:
            first |= rpc.rpc_sync(worker, gradients_here, args=(source, context_id))
        parts = [rpc.rpc_async(one, along_here, args=(source, context_id)) for one in everybody]
        product = sum([part.wait() for part in parts], tp.zeros((), dtype=tp.float64))
        if product.requires_grad:
            dist_autograd.backward(context_id, product, timeout=timeout)
        for worker in everybody:
            both |= rpc.rpc_sync(worker, gradients_here, args=(source, context_id))
    for worker in everybody:
        rpc.rpc_sync(worker, forget_parameters, args=(source,))
    added = {
        name: both[name] if grad is None else both[name] - grad for name, grad in first.items()
    }
    return first, added


# -- comparing -------------------------------------------------------------------------------------


def check_products(seed: int, size: int) -> bool:
    """Compare with one process, and with differences of the gradient; this worker drives.

    Returns whether there was a product other than zero.
    """
    program = program_of(seed, size)
    with shown(program, check_products_of):
        return check_products_of(program)


def check_products_of(program: Program, timeout: float = PASS_SECONDS) -> bool:
    """The same for a program of whatever origin."""
    gradients, products = distributed_products(program, timeout)
    expected_gradients, expected = plain_products(program)
    compare(gradients, expected_gradients, tolerance_for(program, 1e-12))
    compare(
        _zeros_for_none(gradients, products),
        _zeros_for_none(gradients, expected),
        tolerance_for(program, 1e-9),
    )
    if program.differentiable:
        by_difference = difference_products(program)
        compare(
            {name: by_difference[name] if g is None else g for name, g in products.items()},
            by_difference,
            1e-6,
        )
    return any(array is not None and array.any() for array in expected.values())


def _zeros_for_none(gradients: Gradients, products: Gradients) -> Gradients:
    """A sum does not tell adding nothing from adding zero."""
    return {
        name: np.zeros_like(gradients[name])
        if array is None and gradients[name] is not None
        else array
        for name, array in products.items()
    }
