"""The plain recurrent net (Elman's): one direction of one layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tensorplay.autograd.graph import MultiOutputNode
from tensorplay.ops.affine import linear
from tensorplay.ops.pointwise import relu, tanh
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.recurrent import (
    Steps,
    check_operands,
    for_bias,
    for_input,
    for_weight,
    in_order,
    is_recorded,
    projected,
    recorded_gradients,
    start_of,
    transposed,
    with_tail,
)
from tensorplay.tensor import Tensor, wrap


class RnnBackward0(MultiOutputNode):
    """Outputs: all states, the last state.

    Saved besides the inputs, in packed order: the states, and those before each step.
    """

    __slots__ = ()
    lift = (0, 1, 2, 3, 4, 5, *(None,) * 4)

    def rule(self, grads: Any, *saved: Any) -> tuple[Any, ...]:
        inputs, steps, nonlinearity = saved[:6], saved[6], saved[7]
        if is_recorded(grads):
            return recorded_gradients(
                partial(_composite, steps=steps, nonlinearity=nonlinearity), inputs, grads
            )
        return self._through_time(grads, *saved)

    def _through_time(
        self, grads: Any, x: Any, h0: Any, w_ih: Any, w_hh: Any, *rest: Any
    ) -> tuple[Any, ...]:
        b_ih, _, steps, nonlinearity, states, before = rest
        grad_out, grad_h = grads
        # What the gradient of a state is multiplied by; in the loop it becomes the gradient.
        if nonlinearity == "tanh":
            slopes = states * states
            np.subtract(1, slopes, out=slopes)
        else:
            slopes = np.sign(states)
        dh = start_of(grad_h, h0)
        for a, b in reversed(steps):
            h = dh[: b - a]
            if grad_out is not None:
                h += grad_out[a:b]
            slopes[a:b] *= h
            np.matmul(slopes[a:b], w_hh, out=h)
        x_edge, _, ih_edge, hh_edge = self.edges[:4]
        slopes = slopes[None]
        bias = None if b_ih is None else for_bias(slopes)
        return (
            None if x_edge is None else for_input(slopes, w_ih),
            dh,
            None if ih_edge is None else for_weight(slopes, x),
            None if hh_edge is None else for_weight(slopes, before),
            bias,
            bias,
        )


def _composite(
    x: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    steps: Steps,
    nonlinearity: str,
) -> tuple[Tensor, ...]:
    """The same from simpler operations, for the second derivative."""
    function = tanh if nonlinearity == "tanh" else relu
    inputs = linear(x, w_ih, b_ih)
    pieces = []
    for a, b in steps:
        state = function(inputs[a:b] + linear(h[: b - a], w_hh, b_hh))
        pieces.append(state)
        h = with_tail(state, h)
    return in_order(pieces, steps), h


def rnn_layer(
    x: Tensor,
    h0: Tensor,
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    steps: Steps,
    nonlinearity: str,
) -> tuple[Tensor, Tensor]:
    """One direction of one plain recurrent layer.

    Args:
        x: ``(rows, input_size)``, in packed order.
        h0: ``(sequences, hidden_size)``: the states before the first step.
        weights: Those of the input ``(hidden_size, input_size)`` and of the state
            ``(hidden_size, hidden_size)``, and their biases or None.
        steps: As `steps_of` gives them.
        nonlinearity: ``"tanh"`` or ``"relu"``.

    Returns:
        The states ``(rows, hidden_size)`` in packed order; the last states.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    check_operands(x._array, h0, weights)
    operands = (x, h0, w_ih, w_hh, b_ih, b_hh)
    present = [one for one in operands if one is not None]
    keep = wanted(*present)
    states = projected(x._array, w_ih._array, 1)[0]
    if b_ih is not None and b_hh is not None:
        states += b_ih._array + b_hh._array
    h = h0._array.copy()
    before = np.empty_like(states) if keep else None
    weight = transposed(w_hh._array, 1)[0]
    products = np.empty_like(h)
    for a, b in steps:
        n = b - a
        state, product, here = h[:n], products[:n], states[a:b]
        if before is not None:
            before[a:b] = state
        np.matmul(state, weight, out=product)
        here += product
        if nonlinearity == "tanh":
            np.tanh(here, out=here)
        else:
            np.maximum(here, 0, out=here)
        state[...] = here
    if not keep:
        return wrap(states), wrap(h)
    node = RnnBackward0(
        tuple([None if one is None else edge_of(one) for one in operands]),
        (
            *[None if one is None else one._array for one in operands],
            steps,
            nonlinearity,
            states,
            before,
        ),
        tuple([one._version for one in present]),
    )
    node.outputs = 2
    # A copy: what the rule needs must not be written to.
    return wrap(states.copy(), node.output(0)), wrap(h, node.output(1))
