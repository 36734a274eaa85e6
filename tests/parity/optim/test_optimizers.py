"""Every optimizer takes PyTorch's steps, whatever its arguments, and keeps its state alike."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest

import tensorplay as tp

torch = pytest.importorskip("torch")

STEPS = 20
SHAPES = [(3, 4), (7,), ()]

#: For each optimizer the arguments that are tried: each alone, and all combinations of some.
ARGUMENTS: dict[str, dict[str, list[Any]]] = {
    "SGD": {
        "lr": [0.05],
        "momentum": [0, 0.9],
        "dampening": [0, 0.3],
        "weight_decay": [0, 0.1],
        "maximize": [False, True],
    },
    "Adam": {
        "lr": [0.05],
        "betas": [(0.9, 0.999), (0.5, 0.7)],
        "eps": [1e-8, 1e-3],
        "weight_decay": [0, 0.1],
        "amsgrad": [False, True],
        "maximize": [False, True],
        "decoupled_weight_decay": [False, True],
    },
    "AdamW": {"lr": [0.05], "weight_decay": [0, 0.1], "amsgrad": [False, True]},
    "Adagrad": {
        "lr": [0.05],
        "lr_decay": [0, 0.2],
        "weight_decay": [0, 0.1],
        "initial_accumulator_value": [0, 0.5],
        "eps": [1e-10, 1e-2],
        "maximize": [False, True],
    },
    "Adadelta": {
        "lr": [1.0, 0.3],
        "rho": [0.9, 0.5],
        "eps": [1e-6, 1e-2],
        "weight_decay": [0, 0.1],
        "maximize": [False, True],
    },
    "RMSprop": {
        "lr": [0.05],
        "alpha": [0.99, 0.5],
        "eps": [1e-8, 1e-2],
        "weight_decay": [0, 0.1],
        "momentum": [0, 0.9],
        "centered": [False, True],
        "maximize": [False, True],
    },
    "Adamax": {
        "lr": [0.05],
        "betas": [(0.9, 0.999), (0.5, 0.7)],
        "eps": [1e-8, 1e-2],
        "weight_decay": [0, 0.1],
        "maximize": [False, True],
    },
    "Rprop": {
        "lr": [0.05],
        "etas": [(0.5, 1.2), (0.3, 3.0)],
        "step_sizes": [(1e-6, 50), (0.02, 0.2)],
        "maximize": [False, True],
    },
}
EXTRA = [
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
]
CASES = [(name, {}) for name in ARGUMENTS] + EXTRA
for _name, _choices in ARGUMENTS.items():
    CASES += [
        (_name, dict(zip(_choices, values, strict=True)))
        for values in itertools.product(*_choices.values())
    ]


def drawn(dtype: Any) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """Parameters, and gradients for each step; float32 numbers, whatever the type."""
    random = np.random.default_rng(0)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        parts = random.standard_normal((2, *shape)).astype(np.float32)
        array = parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]
        return np.asarray(array, dtype)

    return [draw(shape) for shape in SHAPES], [
        [draw(shape) for shape in SHAPES] for _ in range(STEPS)
    ]


def run(library: Any, name: str, options: dict[str, Any], dtype: Any) -> tuple[Any, Any]:
    """The parameters and the optimizer after all steps; one parameter misses some gradients."""
    start, grads = drawn(dtype)
    params = [library.tensor(array) for array in start]
    if np.dtype(dtype).kind == "f":
        params = [param.requires_grad_() for param in params]
    optimizer = getattr(library.optim, name)(params, **options)
    for step, some in enumerate(grads):
        if library is torch:
            for param, grad in zip(params, some, strict=True):
                param.grad = torch.tensor(grad)
            if step % 5 == 2:
                params[1].grad = None
            optimizer.step()
        else:
            given = dict(zip(params, map(tp.tensor, some), strict=True))
            if step % 5 == 2:
                del given[params[1]]
            optimizer.step_with(given)
    return params, optimizer


def close(ours: Any, theirs: Any, dtype: Any) -> None:
    ours, theirs = np.asarray(ours.detach().numpy()), theirs.detach().numpy()
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    rtol = 1e-12 if np.dtype(dtype).itemsize // (1 + (np.dtype(dtype).kind == "c")) == 8 else 2e-5
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_steps_and_states(name: str, dtype: str) -> None:
    for kind, options in CASES:
        if kind != name:
            continue
        ours, our_optimizer = run(tp, name, options, dtype)
        theirs, their_optimizer = run(torch, name, options, dtype)
        for one, other in zip(ours, theirs, strict=True):
            close(one, other, dtype)
        mine, other_state = our_optimizer.state_dict(), their_optimizer.state_dict()
        assert mine["param_groups"] == other_state["param_groups"], options
        assert mine["state"].keys() == other_state["state"].keys()
        for number, values in other_state["state"].items():
            assert mine["state"][number].keys() == values.keys()
            for key, value in values.items():
                close(mine["state"][number][key], value, dtype)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_complex_parameters(name: str) -> None:
    for options in [{}, next(options for kind, options in reversed(CASES) if kind == name)]:
        ours, _ = run(tp, name, options, np.complex128)
        theirs, _ = run(torch, name, options, np.complex128)
        for one, other in zip(ours, theirs, strict=True):
            close(one, other, np.complex128)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_and_defaults(name: str) -> None:
    """All that PyTorch's constructor takes by name is taken, and the defaults are the same."""
    param = tp.ones(1, requires_grad=True)
    theirs = getattr(torch.optim, name)([torch.ones(1, requires_grad=True)])
    assert getattr(tp.optim, name)([param]).defaults == theirs.defaults
    parameters = inspect.signature(getattr(torch.optim, name).__init__).parameters
    known = {key: one.default for key, one in parameters.items() if key not in ("self", "params")}
    assert getattr(tp.optim, name)([param], **known).defaults == theirs.defaults
    with pytest.raises(TypeError, match="no_such_option"):
        getattr(tp.optim, name)([param], no_such_option=1)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_goes_on_from_a_state_of_torch(name: str) -> None:
    """What torch's `state_dict` returns can be loaded; then both take the same steps."""
    _, grads = drawn("float64")
    theirs, their_optimizer = run(torch, name, {}, "float64")
    ours = [tp.tensor(one.detach().numpy().copy(), requires_grad=True) for one in theirs]
    optimizer = getattr(tp.optim, name)(ours, lr=0.5)
    optimizer.load_state_dict(their_optimizer.state_dict())
    assert optimizer.param_groups[0]["lr"] == their_optimizer.param_groups[0]["lr"]
    for one, grad in zip(theirs, grads[0], strict=True):
        one.grad = torch.tensor(grad)
    their_optimizer.step()
    optimizer.step_with(dict(zip(ours, map(tp.tensor, grads[0]), strict=True)))
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, "float64")
