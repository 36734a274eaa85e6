"""Single steps of recurrent nets, for loops of one's own."""

from __future__ import annotations

import math
from typing import Any

from tensorplay.nn import init
from tensorplay.nn.arguments import check_integers
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.nn.recurrent import Weights
from tensorplay.ops.creation import empty, zeros
from tensorplay.ops.recurrent_gru import gru_layer
from tensorplay.ops.recurrent_lstm import lstm_layer
from tensorplay.ops.recurrent_plain import rnn_layer
from tensorplay.tensor import Tensor


class RNNCellBase(Module):
    """What single recurrent steps have in common.

    Args:
        input_size: How many features the input has.
        hidden_size: How many features the state has.
        bias: Whether biases are added.
        num_chunks: How many gates there are.
        dtype: Element type of the parameters.
    """

    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_integers(input_size=input_size, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, dtype=dtype, device=device))
        self.weight_hh = Parameter(empty(rows, hidden_size, dtype=dtype, device=device))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(empty(rows, dtype=dtype, device=device)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _own_weights(self) -> Weights:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _as_batch(self, input: Tensor, *states: Tensor | None) -> tuple[Tensor, ...]:
        """The input and the states (zeros for None), each with a dimension of the batch.

        Raises:
            ValueError: The input has neither one dimension nor two.
            RuntimeError: A state's shape does not fit the input's.
        """
        ndim = input._array.ndim
        if ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected input to be 1D or 2D, got {ndim}D")
        x = input if ndim == 2 else input.unsqueeze(0)
        shape = (*input._array.shape[:-1], self.hidden_size)
        full = (x._array.shape[0], self.hidden_size)
        whole = [x]
        for state in states:
            if state is None:
                state = zeros(full, dtype=x._array.dtype)
            elif state._array.shape != shape:
                raise RuntimeError(f"Expected hidden size {shape}, got {list(state._array.shape)}")
            whole.append(state.reshape(full))
        return tuple(whole)

    @staticmethod
    def _like(input: Tensor, state: Tensor) -> Tensor:
        return state if input._array.ndim == 2 else state.squeeze(0)

    def extra_repr(self) -> str:
        bias = "" if self.bias else f", bias={self.bias}"
        return f"{self.input_size}, {self.hidden_size}{bias}"


class RNNCell(RNNCellBase):
    """One step of a plain recurrent net."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after the input, ``(batch, input_size)`` or ``(input_size,)``."""
        x, h = self._as_batch(input, hx)
        steps = ((0, x._array.shape[0]),)
        return self._like(input, rnn_layer(x, h, self._own_weights(), steps, self.nonlinearity)[1])

    def extra_repr(self) -> str:
        shown = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}"
        return super().extra_repr() + shown


class LSTMCell(RNNCellBase):
    """One step of an LSTM."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Hidden and cell state after the input, ``(batch, input_size)`` or ``(input_size,)``."""
        x, h, c = self._as_batch(input, *(hx or (None, None)))
        steps = ((0, x._array.shape[0]),)
        _, h, c = lstm_layer(x, h, c, self._own_weights(), steps)
        return self._like(input, h), self._like(input, c)


class GRUCell(RNNCellBase):
    """One step of a GRU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after the input, ``(batch, input_size)`` or ``(input_size,)``."""
        x, h = self._as_batch(input, hx)
        steps = ((0, x._array.shape[0]),)
        return self._like(input, gru_layer(x, h, self._own_weights(), steps)[1])
