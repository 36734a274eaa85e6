"""Losses as modules."""

from __future__ import annotations

from tensorplay.nn import functional
from tensorplay.nn.module import Module
from tensorplay.tensor import Tensor


class _Loss(Module):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class MSELoss(_Loss):
    """The squared differences: their mean, their sum (``reduction="sum"``) or ``"none"``.

    >>> import tensorplay as tp
    >>> tp.nn.MSELoss()(tp.tensor([3.0]), tp.tensor([1.0]))
    tensor(4.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of `input` against `target`."""
        return functional.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """The absolute differences: their mean, their sum (``reduction="sum"``) or ``"none"``."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of `input` against `target`."""
        return functional.l1_loss(input, target, self.reduction)


class NLLLoss(_Loss):
    """Minus the log-probability of the right class: see `functional.nll_loss`."""

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of the log-probabilities `input` against the classes `target`."""
        return functional.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(_Loss):
    """`NLLLoss` of the logarithmic softmax of the scores: see `functional.cross_entropy`."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of the scores `input` against the classes or probabilities `target`."""
        return functional.cross_entropy(
            input,
            target,
            self.weight,
            self.ignore_index,
            self.reduction,
            self.label_smoothing,
        )
