"""One direction of one recurrent layer over whole sequences, as one operation.

What all layers have in common is here; the layers themselves are in `recurrent_lstm`,
`recurrent_gru` and `recurrent_plain`.

The input is in *packed* order: the rows of the first time step, then those of the second, and so
on.  So the product with the input's weights is one matrix product for the whole sequence, and what
remains for each step is one small product and a few operations on its rows.  Where sequences differ
in length, the longest come first, so that a step's rows always belong to the first sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorplay.autograd import api
from tensorplay.autograd.engine import AliasBackward0
from tensorplay.ops import dual
from tensorplay.ops.joining import cat
from tensorplay.ops.recording import edge_of
from tensorplay.tensor import Tensor, wrap

#: For each step, in the order in which they are taken: its first row, and that after its last.
Steps = tuple[tuple[int, int], ...]


def steps_of(batch_sizes: Sequence[int], reverse: bool) -> Steps:
    """The steps through packed rows.

    Args:
        batch_sizes: How many sequences have a row at each time; never growing.
        reverse: Go from the last time to the first.
    """
    bounds = itertools.accumulate(batch_sizes, initial=0)
    steps = tuple(itertools.pairwise(bounds))
    return steps[::-1] if reverse else steps


def check_operands(x: Any, state: Any, weights: Sequence[Any]) -> None:
    """Raise unless a layer's operands are of one floating-point type and fit together.

    Raises:
        RuntimeError: The types differ, are not floating-point, or the sizes do not fit.
    """
    if x.dtype.kind != "f":
        raise RuntimeError(f"a recurrent layer needs floating-point numbers, not {x.dtype}")
    for one in (state, *weights):
        if one is not None and one._array.dtype != x.dtype:
            raise RuntimeError(
                f"a recurrent layer's input, state and weights must have one type, but got "
                f"{x.dtype} and {one._array.dtype}"
            )
    if x.shape[-1] != weights[0]._array.shape[1]:
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size. Expected {weights[0]._array.shape[1]}, "
            f"got {x.shape[-1]}"
        )


def projected(x: Any, weight: Any, gates: int) -> Any:
    """All rows times the input's weights, gate by gate: ``(gates, rows, hidden_size)``.

    With a gate's numbers side by side the steps work on contiguous memory, and BLAS multiplies
    several small matrices faster than one that is as large as they are together.
    """
    return np.matmul(x, by_gate(weight, gates).swapaxes(1, 2))


def by_gate(weight: Any, gates: int) -> Any:
    """The weights of each gate: ``(gates, hidden_size, features)``."""
    return weight.reshape(gates, -1, weight.shape[1])


def transposed(weight: Any, gates: int) -> Any:
    """The state's weights as the steps multiply by them: quickest if contiguous."""
    return np.ascontiguousarray(by_gate(weight, gates).swapaxes(1, 2))


def for_input(slopes: Any, weight: Any) -> Any:
    """The gradient of the input, from that of the gates ``(gates, rows, hidden_size)``."""
    weights = by_gate(weight, len(slopes))
    out = np.matmul(slopes[0], weights[0])
    for slope, one in zip(slopes[1:], weights[1:], strict=True):
        out += np.matmul(slope, one)
    return out


def for_weight(slopes: Any, rows: Any) -> Any:
    """The gradient of weights that `rows` were multiplied by."""
    out = np.matmul(slopes.swapaxes(1, 2), rows)
    return out.reshape(-1, rows.shape[1])


def for_bias(slopes: Any) -> Any:
    """The gradient of a bias."""
    return dual.add_up(slopes, axis=1).reshape(-1)


def start_of(grad: Any, like: Any) -> Any:
    """The gradient of a final state, to be added to; zeros if there is none."""
    return np.zeros_like(like) if grad is None else np.array(grad)


def recorded_gradients(
    function: Callable[..., tuple[Tensor, ...]],
    inputs: Sequence[Tensor | None],
    grads: Sequence[Any],
) -> tuple[Any, ...]:
    """The gradients of `inputs`, recorded, from those of what `function` makes of them.

    So an operation whose own rule works on arrays is differentiated a second time: through
    simpler operations that compute the same.

    Args:
        function: From the inputs to the outputs.
        inputs: As the rule gets them: tensors in the graph, or None.
        grads: For each output its gradient, or None.
    """
    # Apart from one another, since one tensor may stand in several places.
    own: list[Tensor | None] = []
    for one in inputs:
        apart = one
        if one is not None and one._requires_grad:
            apart = wrap(one._array, AliasBackward0((edge_of(one),)))
            apart._version = one._version
        own.append(apart)
    outputs = function(*own)
    ends = [
        (output, grad)
        for output, grad in zip(outputs, grads, strict=True)
        if grad is not None and output._requires_grad
    ]
    wanted = [one for one in own if one is not None and one._requires_grad]
    found = iter(
        api.grad(
            [output for output, _ in ends],
            wanted,
            [grad for _, grad in ends],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple([next(found) if one is not None and one._requires_grad else None for one in own])


def is_recorded(grads: Sequence[Any]) -> bool:
    """Whether a rule is called with tensors."""
    return any(isinstance(grad, Tensor) for grad in grads)


def with_tail(state: Tensor, old: Tensor) -> Tensor:
    """The new state of the first sequences, with the old state of those that have ended."""
    count = state._array.shape[0]
    return state if count == old._array.shape[0] else cat([state, old[count:]])


def in_order(pieces: list[Tensor], steps: Steps) -> Tensor:
    """The results of all steps, in packed order."""
    order = sorted(range(len(steps)), key=lambda i: steps[i])
    return cat([pieces[i] for i in order])
