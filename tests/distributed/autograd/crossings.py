"""Which messages between workers a program would send, found in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorplay as tp


class Crossing(tp.autograd.Function):
    """The tensors of one message, on their way: counts if a gradient comes back for any of them."""

    @staticmethod
    def forward(ctx: Any, crossed: list[Any], *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.crossed = crossed
        return tuple([tensor * 1.0 for tensor in tensors])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.crossed.append(len(grads))
        return (None, *grads)


@dataclass
class Crossings:
    """The messages between workers that a program would send, as one process sees them.

    Attributes:
        used: An element for each message that a gradient came back for, once a pass.
        pairs: How many messages carry tensors that require grad.
    """

    used: list[int] = field(default_factory=list)
    pairs: int = 0

    def cross(self, source: int, to: int, values: Sequence[Any]) -> list[Any]:
        """What arrives at `to` of values that `source` sends."""
        crossing = [i for i, value in enumerate(values) if value.requires_grad]
        if source == to or not crossing or not tp.is_grad_enabled():
            return list(values)
        self.pairs += 1
        # A tensor that is sent twice in one message arrives as one.
        once = list({id(values[i]): values[i] for i in crossing}.values())
        arrived = dict(zip(map(id, once), Crossing.apply(self.used, *once), strict=True))
        return [arrived.get(id(value), value) for value in values]
