"""What one owner does for a distributed optimizer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.optim.clipping import Norms, norms_here, scale_here
from tensorplay.distributed.optim.references import parameter_of
from tensorplay.distributed.rpc import RRef
from tensorplay.optim import Optimizer
from tensorplay.tensor import Tensor

#: The options of a group, without its parameters.
Options = dict[str, Any]


class Share(NamedTuple):
    """The part of a group that one owner has: references, and options unless they are default."""

    rrefs: Sequence[RRef[Any]]
    options: Options | None


class Made(NamedTuple):
    """What an owner has made of shares of groups.

    Attributes:
        optimizer: Reference to the `OwnerOptimizer`.
        defaults: The options of groups that do not set them.
        options: Those of each share.
        kept: For each share, which of its references do not repeat an earlier one.
    """

    optimizer: RRef[Any]
    defaults: Options
    options: list[Options]
    kept: list[list[int]]


class OwnerOptimizer:
    """The local optimizer of one owner's parameters."""

    def __init__(
        self,
        optimizer_class: Callable[..., Optimizer],
        groups: Sequence[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._optimizer = optimizer_class(groups, *args, **kwargs)
        if not isinstance(self._optimizer, Optimizer):
            raise TypeError(
                "optimizer_class must make a tensorplay.optim.Optimizer, it made a "
                f"{type(self._optimizer).__name__}"
            )
        # Trainers step at the same time; one optimizer's state takes one step at a time.
        self._lock = threading.Lock()

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The local optimizer's groups."""
        return self._optimizer.param_groups

    @property
    def defaults(self) -> Options:
        """The options of groups that do not set them."""
        return dict(self._optimizer.defaults)

    def _params(self) -> list[Tensor]:
        return [param for group in self.groups for param in group["params"]]

    def add(self, share: Share) -> tuple[Options, list[int]]:
        """Add a group; returns its options, and which references do not repeat an earlier one."""
        params, kept = _distinct(share.rrefs)
        with self._lock:
            self._optimizer.add_param_group({**(share.options or {}), "params": params})
        return _options_of(self.groups[-1]), kept

    def keep_first(self, count: int) -> None:
        """Forget all groups but the first `count`: another owner could not add its part."""
        with self._lock:
            del self.groups[count:]

    def step(self, context_id: int, options: Sequence[Options]) -> None:
        """Apply the context's gradients on this worker; it may have none here.

        Args:
            context_id: The context.
            options: The options of each group for this step.
        """
        grads = current_session().container.gradients_here(context_id)
        with self._lock:
            for group, given in zip(self.groups, options, strict=True):
                group.update(given)
            self._optimizer.step_with(grads)

    def norms(self, context_id: int, norm_type: float) -> Norms:
        """The norms of its parameters' gradients in a context."""
        return norms_here(context_id, self._params(), norm_type)

    def scale(self, context_id: int, factor: float) -> None:
        """Multiply its parameters' gradients in a context."""
        scale_here(context_id, self._params(), factor)

    def state(self) -> dict[int, Any]:
        """What is remembered of each parameter, by its number among those of this owner."""
        with self._lock:
            state: dict[int, Any] = self._optimizer.state_dict()["state"]
        return state

    def load(self, state: Mapping[int, Any], options: Sequence[Options]) -> None:
        """Go on from what `state` returned, with these options."""
        with self._lock:
            for group, given in zip(self.groups, options, strict=True):
                group.update(given)
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": state, "param_groups": groups})


def make(
    optimizer_class: Callable[..., Optimizer],
    shares: Sequence[Share],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Made:
    """Make this worker's optimizer for its shares of the groups."""
    distinct = [_distinct(share.rrefs) for share in shares]
    groups: list[Any] = [
        {**(share.options or {}), "params": params}
        for share, (params, _) in zip(shares, distinct, strict=True)
    ]
    if [share.options for share in shares] == [None]:
        # As a program would that knows no groups: the class may be the user's own.
        groups = groups[0]["params"]
    optimizer = OwnerOptimizer(optimizer_class, groups, args, kwargs)
    return Made(
        RRef(optimizer),
        optimizer.defaults,
        [_options_of(group) for group in optimizer.groups],
        [kept for _, kept in distinct],
    )


def _options_of(group: Mapping[str, Any]) -> Options:
    return {name: value for name, value in group.items() if name != "params"}


def _distinct(rrefs: Sequence[RRef[Any]]) -> tuple[list[Tensor], list[int]]:
    """The parameters that references lead to, each once, and which of the references these are."""
    found: dict[Tensor, int] = {}
    for i, rref in enumerate(rrefs):
        found.setdefault(parameter_of(rref), i)
    return list(found), list(found.values())
