"""The GRU: one direction of one layer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tensorplay.autograd.graph import MultiOutputNode
from tensorplay.ops import dual
from tensorplay.ops.affine import linear
from tensorplay.ops.joining import chunk
from tensorplay.ops.pointwise import sigmoid, tanh
from tensorplay.ops.recording import edge_of, wanted
from tensorplay.ops.recurrent import (
    Steps,
    by_gate,
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


class GruBackward0(MultiOutputNode):
    """Outputs: all hidden states, the last hidden state.

    Saved besides the inputs, all in packed order: the gates (reset, update, new; each by itself)
    after their nonlinearities, what the reset gate was multiplied by, and the states before each
    step.
    """

    __slots__ = ()
    lift = (0, 1, 2, 3, 4, 5, *(None,) * 4)

    def rule(self, grads: Any, *saved: Any) -> tuple[Any, ...]:
        inputs, steps = saved[:6], saved[6]
        if is_recorded(grads):
            return recorded_gradients(partial(_composite, steps=steps), inputs, grads)
        return self._through_time(grads, *saved)

    def _through_time(
        self, grads: Any, x: Any, h0: Any, w_ih: Any, w_hh: Any, *rest: Any
    ) -> tuple[Any, ...]:
        b_ih, _, steps, gates, from_state, before = rest
        grad_out, grad_h = grads
        # The gradients of the gates before their nonlinearities, as the state's weights see them;
        # the input's weights see another one for the new gate.
        slopes = np.empty_like(gates)
        for_new = np.empty_like(before)
        dh = start_of(grad_h, h0)
        lent = np.empty_like(dh)
        shares = np.empty((3, *dh.shape), dh.dtype)
        state_weights = by_gate(w_hh, 3)
        for a, b in reversed(steps):
            n = b - a
            h, rest_of, share = dh[:n], lent[:n], shares[:, :n]
            slope, new_slope = slopes[:, a:b], for_new[a:b]
            reset, update, new = gates[:, a:b]
            if grad_out is not None:
                h += grad_out[a:b]
            np.multiply(new, new, out=new_slope)
            np.subtract(1, new_slope, out=new_slope)
            np.subtract(1, update, out=rest_of)
            rest_of *= h
            new_slope *= rest_of
            np.subtract(before[a:b], new, out=slope[1])
            slope[1] *= update
            slope[1] *= rest_of
            np.multiply(new_slope, reset, out=slope[2])
            np.subtract(1, reset, out=slope[0])
            slope[0] *= slope[2]
            slope[0] *= from_state[a:b]
            h *= update
            np.matmul(slope, state_weights, out=share)
            h += dual.add_up(share, axis=0)
        x_edge, _, ih_edge, hh_edge = self.edges[:4]
        for_w_hh = None if hh_edge is None else for_weight(slopes, before)
        for_b_hh = None if b_ih is None else for_bias(slopes)
        slopes[2] = for_new
        return (
            None if x_edge is None else for_input(slopes, w_ih),
            dh,
            None if ih_edge is None else for_weight(slopes, x),
            for_w_hh,
            None if b_ih is None else for_bias(slopes),
            for_b_hh,
        )


def _composite(
    x: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    steps: Steps,
) -> tuple[Tensor, ...]:
    """The same from simpler operations, for the second derivative."""
    all_gates = linear(x, w_ih, b_ih)
    pieces = []
    for a, b in steps:
        old = h[: b - a]
        r, z, n = chunk(all_gates[a:b], 3, 1)
        from_r, from_z, from_n = chunk(linear(old, w_hh, b_hh), 3, 1)
        update = sigmoid(z + from_z)
        new = tanh(n + sigmoid(r + from_r) * from_n)
        state = new + update * (old - new)
        pieces.append(state)
        h = with_tail(state, h)
    return in_order(pieces, steps), h


def gru_layer(
    x: Tensor,
    h0: Tensor,
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    steps: Steps,
) -> tuple[Tensor, Tensor]:
    """One direction of one GRU layer.

    Args:
        x: ``(rows, input_size)``, in packed order.
        h0: ``(sequences, hidden_size)``: the states before the first step.
        weights: Those of the input ``(3 * hidden_size, input_size)`` and of the state
            ``(3 * hidden_size, hidden_size)``, and their biases or None; the gates in the order
            reset, update, new.
        steps: As `steps_of` gives them.

    Returns:
        The states ``(rows, hidden_size)`` in packed order; the last states.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    check_operands(x._array, h0, weights)
    operands = (x, h0, w_ih, w_hh, b_ih, b_hh)
    present = [one for one in operands if one is not None]
    keep = wanted(*present)
    gates = projected(x._array, w_ih._array, 3)
    rows, size = gates.shape[1:]
    dtype = gates.dtype
    new_bias: Any = None
    if b_ih is not None and b_hh is not None:
        gates += b_ih._array.reshape(3, 1, size)
        by_gate_bias = b_hh._array.reshape(3, 1, size)
        gates[:2] += by_gate_bias[:2]
        new_bias = by_gate_bias[2]
    h = h0._array.copy()
    out = np.empty((rows, size), dtype)
    from_state = np.empty((rows, size), dtype)
    before = np.empty((rows, size), dtype) if keep else None
    weight = transposed(w_hh._array, 3)
    products = np.empty((3, *h.shape), dtype)
    lent = np.empty_like(h)
    half = np.array(0.5, dtype)
    for a, b in steps:
        n = b - a
        state, product, share, from_here = h[:n], products[:, :n], lent[:n], from_state[a:b]
        both, new = gates[:2, a:b], gates[2, a:b]
        if before is not None:
            before[a:b] = state
        np.matmul(state, weight, out=product)
        both += product[:2]
        # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2.
        both *= half
        np.tanh(both, out=both)
        both *= half
        both += half
        from_here[...] = product[2]
        if new_bias is not None:
            from_here += new_bias
        np.multiply(both[0], from_here, out=share)
        new += share
        np.tanh(new, out=new)
        state -= new
        state *= both[1]
        state += new
        out[a:b] = state
    if not keep:
        return wrap(out), wrap(h)
    node = GruBackward0(
        tuple([None if one is None else edge_of(one) for one in operands]),
        (
            *[None if one is None else one._array for one in operands],
            steps,
            gates,
            from_state,
            before,
        ),
        tuple([one._version for one in present]),
    )
    node.outputs = 2
    return wrap(out, node.output(0)), wrap(h, node.output(1))
