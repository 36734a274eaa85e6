"""Recurrent layers: over sequences, in several layers, in one direction or both."""

from __future__ import annotations

import math
from typing import Any

from tensorplay.nn import functional, init
from tensorplay.nn.arguments import check_integers, check_numbers
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.nn.utils.rnn import PackedSequence
from tensorplay.ops.creation import empty, zeros
from tensorplay.ops.gathering import index_select
from tensorplay.ops.joining import cat, stack
from tensorplay.ops.recurrent import Steps, steps_of
from tensorplay.ops.recurrent_gru import gru_layer
from tensorplay.ops.recurrent_lstm import lstm_layer
from tensorplay.ops.recurrent_plain import rnn_layer
from tensorplay.tensor import Tensor

#: Of one direction of one layer: the weights of the input and of the state, and their biases.
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


class RNNBase(Module):
    """What the recurrent layers have in common.

    Args:
        mode: ``"LSTM"``, ``"GRU"``, ``"RNN_TANH"`` or ``"RNN_RELU"``.
        input_size: How many features each element of a sequence has.
        hidden_size: How many features the state has.
        num_layers: Each further layer takes the states of the one before as its input.
        bias: Whether biases are added.
        batch_first: Input and output are ``(batch, length, features)`` rather than
            ``(length, batch, features)``.
        dropout: In training, the share of features dropped between layers.
        bidirectional: Go through the sequences backwards as well; the states of both directions
            stand side by side.
        dtype: Element type of the parameters.

    The parameters are called as in PyTorch (``weight_ih_l0``, ``weight_hh_l0``, ``bias_ih_l0``,
    ``bias_hh_l0``, with ``_reverse`` behind for the other direction), and drawn evenly from
    ``[-k, k)``, where ``k = 1 / sqrt(hidden_size)``.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        check_integers(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        check_numbers(dropout=dropout)
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                f"element being zeroed, not {dropout}"
            )
        if proj_size:
            raise ValueError("projections of the hidden state (proj_size) are not supported")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        rows = _GATES[mode] * hidden_size
        directions = len(self._suffixes())
        for layer in range(num_layers):
            width = hidden_size * directions if layer else input_size
            for suffix in self._suffixes():
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, width),
                    "weight_hh": (rows, hidden_size),
                }
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                for name, shape in shapes.items():
                    made = Parameter(empty(shape, dtype=dtype, device=device))
                    setattr(self, f"{name}_l{layer}{suffix}", made)
        self.reset_parameters()

    def _suffixes(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: parameters need not lie side by side here."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction."""
        return [
            [one for one in self._weights(layer, suffix) if one is not None]
            for layer in range(self.num_layers)
            for suffix in self._suffixes()
        ]

    def _weights(self, layer: int, suffix: str) -> Weights:
        own = self._parameters
        end = f"_l{layer}{suffix}"
        w_ih, w_hh = own["weight_ih" + end], own["weight_hh" + end]
        assert w_ih is not None
        assert w_hh is not None
        return w_ih, w_hh, own.get("bias_ih" + end), own.get("bias_hh" + end)

    def _layer(
        self, x: Tensor, state: tuple[Tensor, ...], weights: Weights, steps: Steps
    ) -> tuple[Tensor, ...]:
        """All hidden states of one direction of one layer, and its final states."""
        if self.mode == "LSTM":
            return lstm_layer(x, state[0], state[1], weights, steps)
        if self.mode == "GRU":
            return gru_layer(x, state[0], weights, steps)
        return rnn_layer(x, state[0], weights, steps, self.mode.removeprefix("RNN_").lower())

    def _run(
        self, x: Tensor, sizes: list[int], states: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """All layers over packed rows.

        Args:
            x: ``(rows, input_size)``.
            sizes: How many sequences have a row at each time.
            states: Each ``(layers * directions, sequences, hidden_size)``: one (two for an LSTM)
                to start with.
        """
        directions = [(suffix, steps_of(sizes, bool(suffix))) for suffix in self._suffixes()]
        ends: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = functional.dropout(x, self.dropout, True)
            outputs = []
            for suffix, steps in directions:
                start = tuple([state[len(ends)] for state in states])
                out, *end = self._layer(x, start, self._weights(layer, suffix), steps)
                outputs.append(out)
                ends.append(tuple(end))
            x = outputs[0] if len(outputs) == 1 else cat(outputs, 1)
        return x, [stack(list(one)) for one in zip(*ends, strict=True)]

    def _start(self, hx: Any, batch: int, like: Tensor, batched: bool) -> list[Tensor]:
        """The states to start with; zeros if none are given.

        Raises:
            RuntimeError: A state has another shape than it must have.
        """
        count = self.num_layers * len(self._suffixes())
        shape = (count, batch, self.hidden_size)
        number = 2 if self.mode == "LSTM" else 1
        if hx is None:
            return [zeros(shape, dtype=like._array.dtype)] * number
        given = list(hx) if number == 2 else [hx]
        if len(given) != number:
            raise RuntimeError("an LSTM's state is a pair: hidden state and cell state")
        states = []
        for state, what in zip(given, ("hidden", "cell"), strict=False):
            if not isinstance(state, Tensor):
                raise TypeError(f"the {what} state must be a Tensor, not {type(state).__name__}")
            if not batched:
                if state._array.ndim != 2:
                    raise RuntimeError(
                        f"For unbatched 2-D input, the {what} state should also be 2-D but got "
                        f"{state._array.ndim}-D tensor"
                    )
                state = state.unsqueeze(1)
            if state._array.shape != shape:
                raise RuntimeError(f"Expected {what} size {shape}, got {list(state._array.shape)}")
            states.append(state)
        return states

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Go through sequences.

        Args:
            input: ``(length, batch, input_size)`` (see `batch_first`); ``(length, input_size)``
                for one sequence; or a `PackedSequence`.
            hx: The state to start with, ``(num_layers * directions, batch, hidden_size)``, without
                the batch for one sequence; for an LSTM a pair of hidden and cell state.  Zeros by
                default.

        Returns:
            The last layer's hidden states, laid out as the input is, with
            ``hidden_size * directions`` features; and the final state, as `hx`.

        Raises:
            RuntimeError: The shapes or types do not fit.
        """
        if isinstance(input, PackedSequence):
            return self._over_packed(input, hx)
        ndim = input._array.ndim
        if ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {ndim}D")
        batched = ndim == 3
        if not batched:
            x = input.unsqueeze(1)
        elif self.batch_first:
            x = input.transpose(0, 1)
        else:
            x = input
        length, batch, width = x._array.shape
        if not length:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        states = self._start(hx, batch, input, batched)
        out, ends = self._run(x.reshape(length * batch, width), [batch] * length, states)
        out = out.reshape(length, batch, out._array.shape[1])
        if not batched:
            out = out.squeeze(1)
            ends = [end.squeeze(1) for end in ends]
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, tuple(ends) if self.mode == "LSTM" else ends[0]

    def _over_packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        sizes = input.batch_sizes._array.tolist()
        states = self._start(hx, sizes[0], input.data, True)
        if input.sorted_indices is not None:
            order = input.sorted_indices
            states = [index_select(state, 1, order) for state in states]
        out, ends = self._run(input.data, sizes, states)
        if input.unsorted_indices is not None:
            back = input.unsorted_indices
            ends = [index_select(end, 1, back) for end in ends]
        return input._replace(data=out), tuple(ends) if self.mode == "LSTM" else ends[0]

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        for name, default in defaults.items():
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


#: How many gates each kind has.
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNN(RNNBase):
    """The plain recurrent net: ``state = tanh(W_ih @ x + b_ih + W_hh @ state + b_hh)``.

    Args:
        input_size: As all others: see `RNNBase`.
        nonlinearity: ``"tanh"`` or ``"relu"``.

    >>> import tensorplay as tp
    >>> out, last = tp.nn.RNN(3, 4)(tp.ones(5, 2, 3))
    >>> out.shape, last.shape
    ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997).

    Arguments as for `RNNBase`, without the mode.

    >>> import tensorplay as tp
    >>> out, (h, c) = tp.nn.LSTM(3, 4, num_layers=2)(tp.ones(5, 2, 3))
    >>> out.shape, h.shape, c.shape
    ((5, 2, 4), (2, 2, 4), (2, 2, 4))
    """

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", input_size, hidden_size, *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., 2014).

    Arguments as for `RNNBase`, without the mode.

    >>> import tensorplay as tp
    >>> out, last = tp.nn.GRU(3, 4, bidirectional=True)(tp.ones(5, 2, 3))
    >>> out.shape, last.shape
    ((5, 2, 8), (2, 2, 4))
    """

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", input_size, hidden_size, *args, **kwargs)
