"""Activation functions as modules."""

from __future__ import annotations

from typing import Any

from tensorplay.nn import functional
from tensorplay.nn.arguments import check_integers, check_numbers
from tensorplay.nn.module import Module
from tensorplay.nn.parameter import Parameter
from tensorplay.ops.creation import full
from tensorplay.ops.inplace import written_into
from tensorplay.tensor import Tensor


class _InPlace(Module):
    """A function with an `inplace` argument: whether the result is written into the input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def _apply(self, input: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return written_into(input, self._apply) if self.inplace else self._apply(input)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """Each element, or zero where it is negative."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return input.relu_() if self.inplace else functional.relu(input)


class ReLU6(_InPlace):
    """Each element, moved into the range from 0 to 6."""

    def _apply(self, input: Tensor) -> Tensor:
        return functional.relu6(input)


class LeakyReLU(_InPlace):
    """Each element, times `negative_slope` where it is negative."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        check_numbers(negative_slope=negative_slope)
        self.negative_slope = negative_slope

    def _apply(self, input: Tensor) -> Tensor:
        return functional.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return _joined(f"negative_slope={self.negative_slope}", super().extra_repr())


class ELU(_InPlace):
    """Each element above zero; ``alpha * (exp(x) - 1)`` below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        check_numbers(alpha=alpha)
        self.alpha = alpha

    def _apply(self, input: Tensor) -> Tensor:
        return functional.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return _joined(f"alpha={self.alpha}", super().extra_repr())


class CELU(ELU):
    """Each element above zero; ``alpha * (exp(x / alpha) - 1)`` below."""

    def _apply(self, input: Tensor) -> Tensor:
        return functional.celu(input, self.alpha)


class SELU(_InPlace):
    """`ELU`, scaled so that deep networks keep mean and variance."""

    def _apply(self, input: Tensor) -> Tensor:
        return functional.selu(input)


class SiLU(_InPlace):
    """Each element times its sigmoid."""

    def _apply(self, input: Tensor) -> Tensor:
        return functional.silu(input)


class Mish(_InPlace):
    """Each element times the hyperbolic tangent of its softplus."""

    def _apply(self, input: Tensor) -> Tensor:
        return functional.mish(input)


class Hardsigmoid(_InPlace):
    """``x / 6 + 1 / 2``, moved into the range from 0 to 1."""

    def _apply(self, input: Tensor) -> Tensor:
        return functional.hardsigmoid(input)


class Hardswish(_InPlace):
    """Each element times its `Hardsigmoid`."""

    def _apply(self, input: Tensor) -> Tensor:
        return functional.hardswish(input)


class Hardtanh(_InPlace):
    """Each element, moved into the range from `min_val` to `max_val`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        check_numbers(min_val=min_val, max_val=max_val)
        if min_val > max_val:
            raise ValueError("min_val cannot be greater than max_val")
        self.min_val = min_val
        self.max_val = max_val

    def _apply(self, input: Tensor) -> Tensor:
        return functional.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return _joined(f"min_val={self.min_val}, max_val={self.max_val}", super().extra_repr())


class Tanh(Module):
    """The hyperbolic tangent of each element."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.tanh(input)


class Tanhshrink(Module):
    """``x - tanh(x)``."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.tanhshrink(input)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))`` of each element."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.sigmoid(input)


class LogSigmoid(Module):
    """The logarithm of `Sigmoid`, computed without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.logsigmoid(input)


class Softsign(Module):
    """``x / (1 + |x|)``."""

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.softsign(input)


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``: see `functional.softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        check_numbers(beta=beta, threshold=threshold)
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GELU(Module):
    """Each element times the probability that a normal variable is below it.

    Args:
        approximate: ``"none"``, or ``"tanh"`` for an approximation by the hyperbolic tangent.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class PReLU(Module):
    """Each element, times a weight that is learnt where it is negative.

    Args:
        num_parameters: 1, or the number of the input's channels, in dimension 1.
        init: What the weights begin with.
        dtype: Element type of the weights.
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        check_integers(num_parameters=num_parameters)
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        """The function, element by element."""
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """The first half along `dim`, times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The gated half."""
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


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


class Softmin(Softmax):
    """`Softmax` of the negative elements."""

    def forward(self, input: Tensor) -> Tensor:
        """The normalised exponentials of the negative elements."""
        return functional.softmin(input, self.dim)


class LogSoftmax(Softmax):
    """The logarithm of `Softmax`, without loss of precision."""

    def forward(self, input: Tensor) -> Tensor:
        """The logarithms of the normalised exponentials."""
        return functional.log_softmax(input, self.dim)


def _joined(*parts: str) -> str:
    return ", ".join([part for part in parts if part])
