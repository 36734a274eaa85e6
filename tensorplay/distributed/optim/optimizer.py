"""One optimizer over parameters that live on many workers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from tensorplay.distributed.autograd.session import current_session
from tensorplay.distributed.optim.clipping import clip
from tensorplay.distributed.optim.owner import Made, Options, OwnerOptimizer, Share, make
from tensorplay.distributed.optim.references import by_owner, check_references, wait_for_all
from tensorplay.distributed.rpc import RRef, rpc_async
from tensorplay.distributed.rpc.current import current_agent
from tensorplay.distributed.rpc.futures import Future
from tensorplay.distributed.rpc.options import UNSET_RPC_TIMEOUT
from tensorplay.optim import Optimizer
from tensorplay.tensor import Tensor

Group = dict[str, Any]


class DistributedOptimizer:
    """Takes the gradients of an autograd context and applies them, on each parameter's owner.

    Each owner has a local optimizer for its parameters.  It moves only those that have a gradient
    in the context.  Steps of several trainers on one owner follow one another; the values that a
    trainer's forward pass has used stay as they were for its backward pass.

    What the local optimizers remember (momentum, say) belongs to this object: trainers that each
    make one remember apart, though they share the parameters.  It can be sent in calls; what
    arrives is the same optimizer, with a copy of `param_groups`.

    Args:
        optimizer_class: A local optimizer, as in `tensorplay.optim.SGD`; or a class of your own
            that defines `step`, as in PyTorch.
        params_rref: References to the parameters; or groups, dictionaries with these under
            ``"params"`` and options of their own.  What is referred to twice in a group counts
            once.
        args, kwargs: Further arguments of `optimizer_class`.

    Attributes:
        param_groups: The groups, with references under ``"params"``.  Options may be changed here
            at any time, by schedules of `tensorplay.optim.lr_scheduler` too: each step uses those
            that it finds.
        defaults: The options of groups that do not set them.
        remote_optimizers: Reference to each owner's optimizer.

    Raises:
        TypeError: An element of `params_rref` is not a reference, or leads to what is no tensor.
        Exception: What making an owner's optimizer raised.

    Local: the owners serve.

    ::

        optimizer = DistributedOptimizer(tp.optim.SGD, module.remote_parameters(), lr=0.1)
        scheduler = tp.optim.lr_scheduler.StepLR(optimizer, 10)
        for x, y in batches:
            with dist_autograd.context() as context_id:
                loss = loss_of(module(x), y)
                dist_autograd.backward(context_id, [loss])
                optimizer.step(context_id)
            scheduler.step()
    """

    def __init__(
        self,
        optimizer_class: Callable[..., Optimizer],
        params_rref: Iterable[RRef[Any]] | Iterable[Group],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if not callable(optimizer_class):
            raise TypeError(
                "optimizer_class must be a class such as tensorplay.optim.SGD, got a "
                f"{type(optimizer_class).__name__}"
            )
        self._making = (optimizer_class, args, kwargs)
        self.param_groups: list[Group] = []
        self.defaults: Options = {}
        self.remote_optimizers: list[RRef[Any]] = []
        #: For each owner's optimizer the groups that it has a share of, and where the references
        #: of that share stand in the group.
        self._shares: list[dict[int, list[int]]] = []
        # Whether it has stepped: for schedules.
        self._stepped = False
        self._add(_groups_of(params_rref))

    def _add(self, groups: list[tuple[list[RRef[Any]], Options | None]]) -> None:
        """Add groups; one call to each owner, all at the same time."""
        first = len(self.param_groups)
        shares: dict[int, dict[int, list[int]]] = {}
        for number, (rrefs, _) in enumerate(groups):
            for rank, positions in by_owner(rrefs).items():
                shares.setdefault(rank, {})[number] = positions
        known = {rref.owner().id: rref for rref in self.remote_optimizers}
        calls: list[tuple[int, Future]] = []
        for rank, positions_in in shares.items():
            parts = [
                Share([groups[number][0][i] for i in positions], groups[number][1])
                for number, positions in positions_in.items()
            ]
            if rank in known:
                calls.append((rank, self._call(known[rank], OwnerOptimizer.add, parts[0])))
            else:
                kind, args, kwargs = self._making
                calls.append((rank, rpc_async(rank, make, (kind, parts, args, kwargs))))
        try:
            replies = wait_for_all(calls, "making the optimizer")
        except BaseException:
            # Owners that have added theirs must forget it.
            for rref, share in zip(self.remote_optimizers, self._shares, strict=True):
                self._call(rref, OwnerOptimizer.keep_first, len(share)).wait()
            raise

        options: list[Options | None] = [None] * len(groups)
        dropped: list[set[int]] = [set() for _ in groups]
        found: list[tuple[RRef[Any], dict[int, list[int]]]] = []
        for (rank, positions_in), reply in zip(shares.items(), replies, strict=True):
            if isinstance(reply, Made):
                self.defaults = reply.defaults
                made, kept_in, their_options = reply.optimizer, reply.kept, reply.options
            else:
                made, kept_in, their_options = known[rank], [reply[1]], [reply[0]]
            for (number, positions), kept, theirs in zip(
                positions_in.items(), kept_in, their_options, strict=True
            ):
                options[number] = theirs
                dropped[number] |= {positions[i] for i in set(range(len(positions))) - set(kept)}
            found.append((made, positions_in))

        places: list[dict[int, int]] = []
        for number, (rrefs, _) in enumerate(groups):
            kept = [i for i in range(len(rrefs)) if i not in dropped[number]]
            places.append({old: new for new, old in enumerate(kept)})
            whole = options[number] or {**self.defaults, **(groups[number][1] or {})}
            self.param_groups.append({"params": [rrefs[i] for i in kept], **whole})
        for made, positions_in in found:
            share = {
                first + number: [places[number][i] for i in positions if i in places[number]]
                for number, positions in positions_in.items()
            }
            if made in self.remote_optimizers:
                self._shares[self.remote_optimizers.index(made)].update(share)
            else:
                self.remote_optimizers.append(made)
                self._shares.append(share)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own; their owners may be new here.

        Args:
            param_group: References under ``"params"``, and options.

        Raises:
            TypeError: It is no such dictionary.
            ValueError: A parameter is in a group already.
            Exception: What an owner's optimizer raised.
        """
        self._add(_groups_of([param_group]))

    def _call(self, rref: RRef[Any], function: Callable[..., Any], *args: Any) -> Future:
        """Start a call; what is wrong with it at once is in its future, like all else."""
        try:
            return current_agent().call_on_value(
                rref, function, args, None, UNSET_RPC_TIMEOUT, waits=False
            )
        except Exception as error:
            failed = Future()
            failed.set_exception(error)
            return failed

    def _call_all(
        self, function: Callable[..., Any], args: Callable[[int], tuple[Any, ...]]
    ) -> list[tuple[int, Future]]:
        """Start a call to each owner; `args` makes the arguments for one, by its number."""
        return [
            (rref.owner().id, self._call(rref, function, *args(i)))
            for i, rref in enumerate(self.remote_optimizers)
        ]

    def _options(self, owner: int) -> list[Options]:
        """The options of the groups that an owner has a share of, as they are now."""
        return [
            {name: value for name, value in self.param_groups[number].items() if name != "params"}
            for number in self._shares[owner]
        ]

    def step(self, context_id: int) -> None:
        """Apply the gradients of a context; waits until all owners have done so.

        Called again in the same context it applies the same gradients again.

        Args:
            context_id: Id of a context that is open on this worker.

        Raises:
            TypeError: `context_id` is none.
            RuntimeError: There is no such context here.
            Exception: What an owner's optimizer raised; those of other owners have stepped.
        """
        _check_context(context_id)
        self._stepped = True
        calls = self._call_all(OwnerOptimizer.step, lambda i: (context_id, self._options(i)))
        wait_for_all(calls, "the optimizer's step")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does nothing: gradients are in the context, and each context begins without any."""

    def clip_grad_norm_(
        self,
        context_id: int,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
    ) -> Tensor:
        """Scale the gradients of all its parameters in a context, as one vector, down to a norm.

        As the function `clip_grad_norm_`, which takes references; returns the norm before.
        """
        _check_context(context_id)
        return clip(
            context_id,
            lambda: self._call_all(OwnerOptimizer.norms, lambda i: (context_id, float(norm_type))),
            lambda factor: self._call_all(OwnerOptimizer.scale, lambda i: (context_id, factor)),
            max_norm,
            float(norm_type),
            error_if_nonfinite,
        )

    def _numbers(self) -> list[list[int]]:
        """For each owner the numbers of its parameters, in the order in which it has them."""
        offsets = [0]
        for group in self.param_groups:
            offsets.append(offsets[-1] + len(group["params"]))
        return [
            [offsets[number] + i for number, positions in share.items() for i in positions]
            for share in self._shares
        ]

    def state_dict(self) -> dict[str, Any]:
        """The options, and what all owners remember; gathered here.

        Parameters appear as numbers, in the order of the references.  So it is what one local
        optimizer over the same parameters would return, and can be loaded by one, or where the
        parameters live on other workers.
        """
        replies = wait_for_all(self._call_all(OwnerOptimizer.state, lambda i: ()), "state_dict")
        state: dict[int, Any] = {}
        for numbers, reply in zip(self._numbers(), replies, strict=True):
            state |= {numbers[i]: values for i, values in reply.items()}
        groups, total = [], 0
        for group in self.param_groups:
            count = len(group["params"])
            groups.append({**group, "params": list(range(total, total + count))})
            total += count
        return {"state": dict(sorted(state.items())), "param_groups": copy.deepcopy(groups)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, here or of a local optimizer.

        Raises:
            ValueError: The groups are not of the same sizes.
            Exception: What an owner's optimizer raised.
        """
        groups = copy.deepcopy(list(state_dict["param_groups"]))
        sizes = [len(group["params"]) for group in self.param_groups]
        saved_sizes = [len(group["params"]) for group in groups]
        if saved_sizes != sizes:
            raise ValueError(
                "loaded state dict contains parameter groups that don't match the optimizer's: "
                f"it has groups of {saved_sizes} parameters, the optimizer has {sizes}"
            )
        # In the order of the parameters, whatever numbers they were saved under.
        saved = [number for group in groups for number in group["params"]]
        for own, group in zip(self.param_groups, groups, strict=True):
            own.update({**group, "params": own["params"]})
        state = state_dict["state"]
        numbers = self._numbers()
        states = [
            {i: state[saved[n]] for i, n in enumerate(own) if saved[n] in state} for own in numbers
        ]
        calls = self._call_all(OwnerOptimizer.load, lambda i: (states[i], self._options(i)))
        wait_for_all(calls, "load_state_dict")

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} over {len(self.remote_optimizers)} workers ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            options = sorted(name for name in group if name != "params")
            lines += [f"    {name}: {group[name]}" for name in options]
        return "\n".join([*lines, ")"])


def _check_context(context_id: int) -> None:
    if isinstance(context_id, bool) or not isinstance(context_id, int):
        raise TypeError(f"context_id must be an int, got {type(context_id).__name__}")
    current_session().container.retrieve(context_id)


def _groups_of(
    params: Iterable[RRef[Any]] | Iterable[Group],
) -> list[tuple[list[RRef[Any]], Options | None]]:
    """Each group's references, and its options; None for a plain list of references."""
    check = partial(check_references, user="DistributedOptimizer")
    if not isinstance(params, (list, tuple)):
        return [(check(params), None)]
    if not any(isinstance(one, dict) for one in params):
        return [(check(params), None)] if params else []
    groups: list[tuple[list[RRef[Any]], Options | None]] = []
    for group in params:
        if not isinstance(group, dict) or "params" not in group:
            raise TypeError(
                "DistributedOptimizer needs RRefs to parameters, or else dictionaries with such "
                f"under 'params' throughout; got a {type(group).__name__} among dictionaries"
                if not isinstance(group, dict)
                else "DistributedOptimizer: a group has no 'params'"
            )
        given = group["params"]
        rrefs = check([given] if isinstance(given, RRef) else given)
        options = {name: value for name, value in group.items() if name != "params"}
        groups.append((rrefs, options))
    return groups
