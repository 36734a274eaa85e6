"""The same function of tensorplay and of torch: same values, types, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tensorplay as tp

#: Relative to the greatest magnitude of what is compared.
TOLERANCES = {"float32": 2e-5, "float64": 1e-11}


def compare(function: Callable[..., Any], *inputs: Any, tolerance: float | None = None) -> None:
    """Call ``function(library, *inputs)`` with both libraries and compare everything.

    Arrays become tensors; those of floating-point or complex numbers require grad.  The results are
    tensors, numbers or (nested) sequences of them.  Gradients are those of a random weighted sum.
    """
    own = [_tensor(one, _ours) for one in inputs]
    others = [_tensor(one, _theirs) for one in inputs]
    results = _flat(function(tp, *own))
    expected = _flat(function(torch, *others))
    assert len(results) == len(expected)
    random = np.random.default_rng(0)
    total: Any = 0
    goal: Any = 0
    for mine, theirs in zip(results, expected, strict=True):
        if not isinstance(mine, tp.Tensor):
            assert mine == theirs
            continue
        _close(mine, theirs, tolerance, "value")
        assert mine.requires_grad == theirs.requires_grad
        if theirs.requires_grad:
            weights = random.uniform(-1, 1, tuple(theirs.shape))
            if theirs.is_complex():
                weights = weights + 1j * random.uniform(-1, 1, tuple(theirs.shape))
            weights = np.asarray(weights, mine.dtype)
            total = total + (tp.from_numpy(weights) * mine).sum().real
            goal = goal + (torch.from_numpy(weights) * theirs).sum().real
    if isinstance(goal, int):
        return
    total.backward()
    goal.backward()
    for i, (mine, theirs) in enumerate(zip(own, others, strict=True)):
        if isinstance(mine, tp.Tensor) and mine.requires_grad:
            assert (mine.grad is None) == (theirs.grad is None), f"gradient of input {i}"
            if mine.grad is not None:
                _close(mine.grad, theirs.grad, tolerance, f"gradient of input {i}")


def _ours(array: Any, grad: bool) -> Any:
    return tp.tensor(array, requires_grad=grad)


def _theirs(array: Any, grad: bool) -> Any:
    return torch.tensor(array, requires_grad=grad)


def _tensor(one: Any, make: Callable[[Any, bool], Any]) -> Any:
    if isinstance(one, np.ndarray):
        return make(one, one.dtype.kind in "fc")
    if isinstance(one, list) and one and isinstance(one[0], np.ndarray):
        return [_tensor(part, make) for part in one]
    return one


def _flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [one for part in result for one in _flat(part)]
    return [result]


def _close(mine: Any, theirs: Any, tolerance: float | None, what: str) -> None:
    a, b = mine.detach().numpy(), theirs.numpy(force=True)
    assert a.shape == b.shape, what
    assert a.dtype == b.dtype, what
    if a.dtype.kind not in "fc":
        assert np.array_equal(a, b), what
        return
    limit = tolerance or TOLERANCES[a.real.dtype.name]
    finite = np.isfinite(b)
    scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
    np.testing.assert_allclose(a, b, rtol=limit, atol=limit * scale, err_msg=what)
