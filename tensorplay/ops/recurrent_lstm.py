"""The LSTM: one direction of one layer."""

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


class LstmBackward0(MultiOutputNode):
    """Outputs: all hidden states, the last hidden state, the last cell state.

    Saved besides the inputs, all in packed order: the gates (input, forget, cell, output; each by
    itself) after their nonlinearities, the tanh of the cell states, and the states before each
    step.
    """

    __slots__ = ()
    lift = (0, 1, 2, 3, 4, 5, 6, *(None,) * 5)

    def rule(self, grads: Any, *saved: Any) -> tuple[Any, ...]:
        inputs, steps = saved[:7], saved[7]
        if is_recorded(grads):
            return recorded_gradients(partial(_composite, steps=steps), inputs, grads)
        return self._through_time(grads, *saved)

    def _through_time(
        self, grads: Any, x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, *rest: Any
    ) -> tuple[Any, ...]:
        b_ih, _, steps, gates, tanh_cells, hidden_before, cells_before = rest
        grad_out, grad_h, grad_c = grads
        # The gradients of the gates before their nonlinearities.  All that a step needs is computed
        # in its turn, while it is in the processor's cache.
        slopes = np.empty_like(gates)
        dh, dc = start_of(grad_h, h0), start_of(grad_c, c0)
        lent = np.empty_like(dh)
        shares = np.empty((4, *dh.shape), dh.dtype)
        state_weights = by_gate(w_hh, 4)
        for a, b in reversed(steps):
            n = b - a
            h, c, from_hidden, share = dh[:n], dc[:n], lent[:n], shares[:, :n]
            slope, gate, tanh_cell = slopes[:, a:b], gates[:, a:b], tanh_cells[a:b]
            if grad_out is not None:
                h += grad_out[a:b]
            np.multiply(tanh_cell, tanh_cell, out=from_hidden)
            np.subtract(1, from_hidden, out=from_hidden)
            from_hidden *= gate[3]
            from_hidden *= h
            c += from_hidden
            np.multiply(gate, gate, out=slope)
            np.subtract(gate[:2], slope[:2], out=slope[:2])
            np.subtract(1, slope[2], out=slope[2])
            np.subtract(gate[3], slope[3], out=slope[3])
            # The input gate times the cell gate is what the cell state gets.
            slope[:3:2] *= gate[2::-2]
            slope[1] *= cells_before[a:b]
            slope[:3] *= c
            slope[3] *= tanh_cell
            slope[3] *= h
            c *= gate[1]
            np.matmul(slope, state_weights, out=share)
            dual.add_up(share, axis=0, out=h)
        x_edge, _, _, ih_edge, hh_edge = self.edges[:5]
        bias = None if b_ih is None else for_bias(slopes)
        return (
            None if x_edge is None else for_input(slopes, w_ih),
            dh,
            dc,
            None if ih_edge is None else for_weight(slopes, x),
            None if hh_edge is None else for_weight(slopes, hidden_before),
            bias,
            bias,
        )


def _composite(
    x: Tensor,
    h: Tensor,
    c: Tensor,
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
        n = b - a
        i, f, g, o = chunk(all_gates[a:b] + linear(h[:n], w_hh, b_hh), 4, 1)
        new_c = sigmoid(f) * c[:n] + sigmoid(i) * tanh(g)
        new_h = sigmoid(o) * tanh(new_c)
        pieces.append(new_h)
        h, c = with_tail(new_h, h), with_tail(new_c, c)
    return in_order(pieces, steps), h, c


def lstm_layer(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    steps: Steps,
) -> tuple[Tensor, Tensor, Tensor]:
    """One direction of one LSTM layer.

    Args:
        x: ``(rows, input_size)``, in packed order.
        h0: ``(sequences, hidden_size)``: the hidden states before the first step; so `c0`.
        weights: Those of the input ``(4 * hidden_size, input_size)`` and of the state
            ``(4 * hidden_size, hidden_size)``, and their biases or None; the gates in the order
            input, forget, cell, output.
        steps: As `steps_of` gives them.

    Returns:
        The hidden states ``(rows, hidden_size)`` in packed order; the last hidden states; the last
        cell states.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    check_operands(x._array, h0, weights)
    check_operands(x._array, c0, weights)
    operands = (x, h0, c0, w_ih, w_hh, b_ih, b_hh)
    present = [one for one in operands if one is not None]
    keep = wanted(*present)
    gates = projected(x._array, w_ih._array, 4)
    rows, size = gates.shape[1:]
    if b_ih is not None and b_hh is not None:
        gates += (b_ih._array + b_hh._array).reshape(4, 1, size)
    dtype = gates.dtype
    h, c = h0._array.copy(), c0._array.copy()
    out = np.empty((rows, size), dtype)
    tanh_cells = np.empty((rows, size), dtype)
    hidden_before = np.empty((rows, size), dtype) if keep else None
    cells_before = np.empty((rows, size), dtype) if keep else None
    weight = transposed(w_hh._array, 4)
    # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: so one tanh serves all four gates.
    half = np.array([0.5, 0.5, 1, 0.5], dtype).reshape(4, 1, 1)
    shift = np.array([0.5, 0.5, 0, 0.5], dtype).reshape(4, 1, 1)
    products = np.empty((4, *h.shape), dtype)
    lent = np.empty_like(c)
    for a, b in steps:
        n = b - a
        hidden, cell, gate, product, new = h[:n], c[:n], gates[:, a:b], products[:, :n], lent[:n]
        if hidden_before is not None and cells_before is not None:
            hidden_before[a:b] = hidden
            cells_before[a:b] = cell
        np.matmul(hidden, weight, out=product)
        gate += product
        gate *= half
        np.tanh(gate, out=gate)
        gate *= half
        gate += shift
        np.multiply(gate[0], gate[2], out=new)
        cell *= gate[1]
        cell += new
        after = tanh_cells[a:b]
        np.tanh(cell, out=after)
        np.multiply(gate[3], after, out=hidden)
        out[a:b] = hidden
    if not keep:
        return wrap(out), wrap(h), wrap(c)
    node = LstmBackward0(
        tuple([None if one is None else edge_of(one) for one in operands]),
        (
            *[None if one is None else one._array for one in operands],
            steps,
            gates,
            tanh_cells,
            hidden_before,
            cells_before,
        ),
        tuple([one._version for one in present]),
    )
    node.outputs = 3
    return wrap(out, node.output(0)), wrap(h, node.output(1)), wrap(c, node.output(2))
