"""What all optimizers have in common.

An optimizer never writes into an array that anybody else may hold: a graph that was recorded
earlier, a message on its way, a view of the user's, another thread in the middle of its forward
pass.  So a step computes the new values in a spare array and then puts that array in the parameter,
which is one assignment: whoever looks at the parameter sees the old values or the new, and whoever
holds the old array keeps it as it was.  The old array is the next step's spare if nobody else holds
it by then (`sys.getrefcount`), so that in the ordinary case nothing is allocated.
"""

from __future__ import annotations

import copy
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.elsewhere import where_gradients_went
from tensorplay.autograd.grad_mode import set_grad_enabled
from tensorplay.optim.options import plain
from tensorplay.tensor import Tensor, wrap

#: One step at a time in the whole process, so that two optimizers with a parameter in common (one
#: for each of several trainers, say) do not lose one another's updates.
_stepping = threading.RLock()

Group = dict[str, Any]
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Group]
Array = np.ndarray[Any, Any]

#: Large parameters are updated in pieces of so many elements, which stay in the processor's cache
#: through all the passes over them.
PIECE = 32_768


class Optimizer:
    """The base of all optimizers.

    A subclass defines `_advance` and `_update`, which together compute one parameter's new values;
    or, as in PyTorch, `step`, which works on `param_groups` and each parameter's `.grad`.

    Args:
        params: The tensors to optimize, each alone or with its name (``(name, tensor)``); or
            dictionaries (groups) with these under ``"params"`` and options of their own.
        defaults: The options of groups that do not set them.

    Attributes:
        param_groups: The groups; options may be changed between steps.
        defaults: The options of groups that do not set them.
        state: For each parameter what the optimizer remembers of it.

    Options may be Python's numbers, NumPy's, or tensors of one element.
    """

    def __init__(self, params: Params, defaults: Mapping[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                "but got a Tensor"
            )
        self.defaults = dict(defaults)
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._spares: dict[Tensor, Array] = {}
        self._buffers: dict[tuple[np.dtype[Any], int], Array] = {}
        # Whether it has stepped, as far as this class can tell: for schedulers.
        self._stepped = self._steps_by_itself
        self._warned = False
        given: list[Any] = list(params)
        if not given:
            raise ValueError("optimizer got an empty parameter list")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own.

        Raises:
            TypeError: A parameter is not a tensor.
            ValueError: A parameter is not a leaf, or is in another group already.

        Warns if a parameter is in the group twice: it then moves twice in each step.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group).__name__}")
        group = {**self.defaults, **param_group}
        params = group["params"]
        if isinstance(params, set):
            raise TypeError("parameters need an order, and a set has none: give a list")
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
        _take_names_out(group)
        known = {param for other in self.param_groups for param in other["params"]}
        for param in group["params"]:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, not {type(param).__name__}")
            if param._node is not None:
                raise ValueError("can't optimize a non-leaf Tensor")
            if param in known:
                raise ValueError("some parameters appear in more than one parameter group")
        if len(set(group["params"])) != len(group["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters, which move once "
                "for each time that they are in it; in future, this will cause an error",
                stacklevel=3,
            )
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or set them to zero."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none or param._grad is None:
                    param._grad = None
                else:
                    param._grad = wrap(np.zeros_like(param._grad._array))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the parameters that have a `.grad`.

        Args:
            closure: Computes the loss and its gradients anew; its result is returned.

        Warns, once, if no parameter has one though a distributed pass has run in this process: its
        gradients are in its context.

        Thread-safe: steps of all optimizers in the process run one after another.
        """
        loss = None
        if closure is not None:
            with set_grad_enabled(True):
                loss = closure()
        grads = {
            param: param._grad
            for group in self.param_groups
            for param in group["params"]
            if param._grad is not None
        }
        if not grads and not self._warned:
            self._warn_of_gradients_elsewhere()
        self.step_with(grads)
        return loss

    @property
    def _steps_by_itself(self) -> bool:
        """Whether the class defines `step` rather than the two that this one calls."""
        kind = type(self)
        return kind._advance is Optimizer._advance and kind.step is not Optimizer.step

    def _warn_of_gradients_elsewhere(self) -> None:
        advice = where_gradients_went()
        if advice is not None:
            self._warned = True
            text = f"step() moves nothing, since no parameter has a .grad: {advice}"
            warnings.warn(text, stacklevel=3)

    def step_with(self, grads: Mapping[Tensor, Tensor]) -> None:
        """Move the parameters that have a gradient in `grads`, wherever it came from.

        Args:
            grads: For each parameter that is to move its gradient, of its shape.  Tensors that are
                not in any group are passed over.

        Raises:
            RuntimeError: A gradient's shape is not its parameter's.

        Thread-safe, as `step`.

        >>> import tensorplay as tp
        >>> w = tp.ones(2, requires_grad=True)
        >>> tp.optim.SGD([w], lr=0.5).step_with({w: tp.tensor([1.0, 2.0])})
        >>> w
        tensor([0.5000, 0.0000], requires_grad=True)
        """
        self._stepped = True
        with _stepping:
            if self._steps_by_itself:
                self._step_on_grad(grads)
                return
            for group in self.param_groups:
                options = plain(group)
                for param in group["params"]:
                    grad = grads.get(param)
                    if grad is not None:
                        self._step_one(param, grad._array, options)

    def _step_on_grad(self, grads: Mapping[Tensor, Tensor]) -> None:
        """Have a `step` of the subclass's own find the gradients in `.grad`, and only there."""
        params = [param for group in self.param_groups for param in group["params"]]
        before = [param._grad for param in params]
        try:
            for param in params:
                param._grad = grads.get(param)
            self.step()
        finally:
            for param, grad in zip(params, before, strict=True):
                param._grad = grad

    def _step_one(self, param: Tensor, grad: Array, group: Mapping[str, Any]) -> None:
        old = param._array
        if grad.shape != old.shape:
            raise RuntimeError(
                f"the gradient's shape {grad.shape} is not that of its parameter, {old.shape}"
            )
        if grad.dtype != old.dtype:
            grad = grad.astype(old.dtype)
        if group.get("maximize"):
            grad = -grad
        new = _reusable(self._spares, param)
        if new is None or new.shape != old.shape or new.dtype != old.dtype:
            new = np.empty_like(old)
        state = self.state.get(param, {})
        buffers, constants = self._advance(old, state, group)
        if state:
            self.state[param] = state
        arrays = [old, grad, new, *buffers]
        if old.dtype.kind == "c":
            # Real and imaginary parts are parameters of their own.
            arrays = [dtypes.parts(array) for array in arrays]
        size = arrays[0].size
        if size <= PIECE or not all(array.flags.c_contiguous for array in arrays):
            self._update(*arrays, constants)
        else:
            flat = [array.reshape(-1) for array in arrays]
            for start in range(0, size, PIECE):
                self._update(*[array[start : start + PIECE] for array in flat], constants)
        param._version = [0]
        param._array = new
        self._spares[param] = old

    def _advance(
        self, old: Array, state: dict[str, Any], group: Mapping[str, Any]
    ) -> tuple[list[Array], Any]:
        """Begin a parameter's step.

        Args:
            old: The parameter's values.
            state: What is remembered of the parameter, empty at first; to be brought up to date.
            group: The options.

        Returns:
            The arrays in `state` that the step works on, and constants; both are for `_update`.
        """
        raise NotImplementedError

    def _update(self, old: Array, grad: Array, new: Array, *rest: Any) -> None:
        """Compute new values for a parameter or a piece of one.

        Args:
            old: The values as they are; not to be written to.
            grad: The gradient; not to be written to.
            new: Where the new values go; until then it may serve for anything.
            rest: The arrays that `_advance` gave, which may be written to, and its constants.
        """
        raise NotImplementedError

    def _scratch(self, like: Array, number: int = 0) -> Array:
        """A work array of the same shape and type, good until the next parameter's turn."""
        key = (like.dtype, number)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < like.size:
            buffer = self._buffers[key] = np.empty(like.size, like.dtype)
        return buffer[: like.size].reshape(like.shape)

    def _decayed(self, old: Array, grad: Array, decay: float) -> Array:
        """The gradient and `decay` times the values, in a work array unless `decay` is zero."""
        if not decay:
            return grad
        scratch = np.multiply(old, decay, out=self._scratch(old))
        return np.add(scratch, grad, out=scratch)

    def state_dict(self) -> dict[str, Any]:
        """The options and a copy of what is remembered; parameters appear as numbers."""
        numbers = {
            param: i
            for i, param in enumerate(
                [param for group in self.param_groups for param in group["params"]]
            )
        }
        with _stepping:
            state = {numbers[param]: copy.deepcopy(own) for param, own in self.state.items()}
        for own in () if self._steps_by_itself else state.values():
            if "step" in own:
                # A tensor, as in PyTorch, so that states can be exchanged.
                own["step"] = wrap(np.array(float(own["step"]), np.float32))
        groups = [
            {**group, "params": [numbers[param] for param in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            ValueError: The groups are not of the same sizes.
        """
        saved = copy.deepcopy(dict(state_dict))
        groups = saved["param_groups"]
        sizes = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != sizes:
            raise ValueError(
                "loaded state dict contains parameter groups that don't match the optimizer's: "
                f"it has groups of {[len(group['params']) for group in groups]} parameters, the "
                f"optimizer has {sizes}"
            )
        by_number: dict[int, Tensor] = {}
        for own, group in zip(self.param_groups, groups, strict=True):
            by_number |= dict(zip(group["params"], own["params"], strict=True))
            own |= {**group, "params": own["params"]}
        with _stepping:
            self.state.clear()
            for number, values in saved["state"].items():
                param = by_number[number]
                self.state[param] = {
                    name: _as_remembered(name, value, param) for name, value in values.items()
                }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_spares": {}, "_buffers": {}}

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            options = sorted(name for name in group if name != "params")
            lines += [f"    {name}: {group[name]}" for name in options]
        return "\n".join([*lines, ")"])


def remembered(state: dict[str, Any], name: str, like: Array, value: float = 0.0) -> Array:
    """An array that a state keeps under a name; of `like`'s shape and filled at first."""
    kept = state.get(name)
    if kept is None:
        # The parts of complex numbers are numbers of their own.
        fill = complex(value, value) if like.dtype.kind == "c" else value
        kept = state[name] = wrap(np.full_like(like, fill))
    array: Array = kept._array
    return array


def count_step(state: dict[str, Any]) -> int:
    """Count one more step in a state; which one it is, from 1."""
    step = state.get("step", 0)
    # What has been loaded is a tensor.
    number: int = (int(step.item()) if isinstance(step, Tensor) else step) + 1
    state["step"] = number
    return number


def _as_remembered(name: str, value: Any, param: Tensor) -> Any:
    """A value of a saved state as the optimizer keeps it: a tensor of the parameter's type."""
    if not (isinstance(value, (Tensor, np.ndarray)) or hasattr(value, "__array__")):
        return value
    array = value._array if isinstance(value, Tensor) else np.asarray(value)
    converts = name != "step" and array.dtype.kind in "fc" and param._array.dtype.kind in "fc"
    return wrap(np.array(array, param._array.dtype if converts else None, order="C"))


def _take_names_out(group: Group) -> None:
    """Turn pairs of names and parameters into two lists."""
    given = group["params"]
    named = [one for one in given if isinstance(one, tuple)]
    if not named:
        return
    if len(named) != len(given) or not all(len(pair) == 2 for pair in named):
        raise ValueError("all optimizer params should be with/without names. Some are and some not")
    group["params"] = [param for _, param in named]
    group["param_names"] = [name for name, _ in named]


def _reusable(spares: dict[Tensor, Array], param: Tensor) -> Array | None:
    """The spare array of a parameter, taken out, if nobody else holds it."""
    spare = spares.pop(param, None)
    if spare is None or sys.getrefcount(spare) > _SOLE:
        return None
    # Memory of somebody else's, or somebody's view of it, is left alone.
    return spare if spare.base is None and spare.flags.writeable else None


def _references_to_a_spare() -> int:
    """What `sys.getrefcount` says, where `_reusable` asks, of an array that nobody else holds."""
    spares = {0: np.empty(1)}
    spare = spares.pop(0, None)
    return sys.getrefcount(spare)


_SOLE = _references_to_a_spare()
