"""Random zeros in training, as modules."""

from __future__ import annotations

from tensorplay.nn import functional
from tensorplay.nn.arguments import check_numbers
from tensorplay.nn.module import Module
from tensorplay.tensor import Tensor


class Dropout(Module):
    """In training, zero each element with probability `p` and scale the others by ``1/(1 - p)``."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_numbers(p=p)
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The input, some of it dropped."""
        return functional.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """As `Dropout`, but whole channels of ``(N, C, L)`` or ``(C, L)``."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, some channels dropped."""
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """As `Dropout`, but whole channels of ``(N, C, H, W)`` or ``(C, H, W)``."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, some channels dropped."""
        return functional.dropout2d(input, self.p, self.training, self.inplace)


class AlphaDropout(Dropout):
    """Dropout that keeps mean 0 and variance 1, for use with SELU."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, some of it dropped."""
        return functional.alpha_dropout(input, self.p, self.training, self.inplace)
