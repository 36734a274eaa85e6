"""Activation functions as modules."""

from __future__ import annotations

from tensorplay.nn import functional
from tensorplay.nn.module import Module
from tensorplay.tensor import Tensor


class ReLU(Module):
    """Each element, or zero where it is negative."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return input.relu_() if self.inplace else functional.relu(input)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Tanh(Module):
    """The hyperbolic tangent of each element."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.tanh(input)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))`` of each element."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.sigmoid(input)


class Softmax(Module):
    """Exponentials divided by their sum along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The normalised exponentials."""
        return functional.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of `Softmax`, without loss of precision."""

    def forward(self, input: Tensor) -> Tensor:
        """The logarithms of the normalised exponentials."""
        return functional.log_softmax(input, self.dim)
