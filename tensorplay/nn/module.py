"""`Module`: what has parameters, may contain other modules, and can be called."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from tensorplay import dtypes
from tensorplay.autograd.hooks import RemovableHandle, add_hook
from tensorplay.nn import elsewhere, state
from tensorplay.nn.backward_hooks import HookedCall
from tensorplay.nn.parameter import Parameter
from tensorplay.ops.creation import zeros
from tensorplay.tensor import Tensor

#: Converted in a module's place, to see what the arguments of `Module.to` ask for: both come out
#: with the same type if they ask for one.
_PROBES = zeros(0, dtype=dtypes.float32), zeros(0, dtype=dtypes.float64)

_Self = TypeVar("_Self", bound="Module")


class Module:
    """The base of all layers and models.

    A subclass calls ``super().__init__()``, sets parameters, buffers and other modules as
    attributes, and defines `forward`.  Calling the module calls `forward`.

    Attributes:
        training: Whether the module is in training mode (`train`, `eval`).

    >>> import tensorplay as tp
    >>> class Scale(tp.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = tp.nn.Parameter(tp.ones(1))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> [name for name, _ in Scale().named_parameters()]
    ['factor']
    """

    #: Whether it stands for a module on another worker.
    _lives_elsewhere: ClassVar[bool] = False

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _not_saved: set[str]
    _forward_hooks: dict[int, Callable[..., Any]]
    _forward_pre_hooks: dict[int, Callable[..., Any]]
    _backward_hooks: dict[int, Callable[..., Any]]
    _backward_pre_hooks: dict[int, Callable[..., Any]]
    #: Keys of the hooks around `forward` that see the keyword arguments too.
    _hooks_with_kwargs: set[int]

    def __init__(self) -> None:
        # Past `__setattr__`, which needs these to be there.
        set_plain = super().__setattr__
        set_plain("training", True)
        set_plain("_parameters", {})
        set_plain("_buffers", {})
        set_plain("_modules", {})
        set_plain("_not_saved", set())
        set_plain("_forward_hooks", {})
        set_plain("_forward_pre_hooks", {})
        set_plain("_backward_hooks", {})
        set_plain("_backward_pre_hooks", {})
        set_plain("_hooks_with_kwargs", set())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; to be defined by each subclass."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (
            self._forward_pre_hooks
            or self._forward_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
        ):
            try:
                return self.forward(*args, **kwargs)
            except AttributeError as error:
                if error.name != "_array":
                    raise
                raise TypeError(
                    f"{type(self).__name__}(): expected a Tensor, not {type(error.obj).__name__}; "
                    "make it one with tensorplay.tensor()"
                ) from error
        return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for key, hook in tuple(self._forward_pre_hooks.items()):
            if key in self._hooks_with_kwargs:
                both = hook(self, args, kwargs)
                if both is not None:
                    if not isinstance(both, tuple) or len(both) != 2:
                        raise RuntimeError(
                            "forward pre-hook must return None or a tuple of (new_args, "
                            f"new_kwargs), but got {both}."
                        )
                    args, kwargs = both
                continue
            replaced = hook(self, args)
            if replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        call = None
        if self._backward_hooks or self._backward_pre_hooks:
            call = HookedCall(
                self,
                tuple(self._backward_pre_hooks.values()),
                tuple(self._backward_hooks.values()),
            )
            args = call.arguments(args)
        result = self.forward(*args, **kwargs)
        for key, hook in tuple(self._forward_hooks.items()):
            if key in self._hooks_with_kwargs:
                replaced = hook(self, args, kwargs, result)
            else:
                replaced = hook(self, args, result)
            if replaced is not None:
                result = replaced
        return result if call is None else call.results(result)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before `forward`; what it returns replaces the arguments.

        Args:
            prepend: Call it before the hooks that are there, not after them.
            with_kwargs: Call ``hook(module, args, kwargs)``; it may return both anew, as a pair.
        """
        return self._add_hook(self._forward_pre_hooks, hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, result)`` after `forward`; it may return another result.

        Args:
            prepend: Call it before the hooks that are there, not after them.
            with_kwargs: Call ``hook(module, args, kwargs, result)``.
        """
        return self._add_hook(self._forward_hooks, hook, prepend, with_kwargs)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` in each backward pass through a call.

        Both are tuples: the gradients of the positional arguments (None for what is no tensor or
        needs none) and of the results.  The hook may return others for the arguments.
        """
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the backward pass goes through a call.

        It may return other gradients for the results.
        """
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def _add_hook(
        self,
        place: dict[int, Callable[..., Any]],
        hook: Callable[..., Any],
        prepend: bool,
        with_kwargs: bool = False,
    ) -> RemovableHandle:
        before = dict(place) if prepend else {}
        for key in before:
            del place[key]
        handle = add_hook(place, hook)
        if with_kwargs:
            self._hooks_with_kwargs.add(next(iter(place)) if prepend else list(place)[-1])
        place.update(before)
        return handle

    def __setattr__(self, name: str, value: Any) -> None:
        registered = self.__dict__.get("_parameters")
        if registered is None:
            if isinstance(value, (Tensor, Module)):
                raise AttributeError("cannot assign before Module.__init__() call")
            super().__setattr__(name, value)
        elif isinstance(value, Parameter):
            self._put(registered, name, value)
        elif name in registered:
            if value is not None:
                raise _cannot_assign(value, "parameter", name, "tensorplay.nn.Parameter")
            registered[name] = None
        elif isinstance(value, Module):
            self._put(self._modules, name, value)
        elif name in self._modules:
            if value is not None:
                raise _cannot_assign(value, "child module", name, "tensorplay.nn.Module")
            self._modules[name] = None
        elif name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise _cannot_assign(value, "buffer", name, "tensorplay.Tensor")
            self._buffers[name] = value
        else:
            super().__setattr__(name, value)

    def _put(self, place: dict[str, Any], name: str, value: Any) -> None:
        """Set a member, where it was if there was one; nothing else keeps its name."""
        for other in (self.__dict__, self._parameters, self._buffers, self._modules):
            if other is not place:
                other.pop(name, None)
        self._not_saved.discard(name)
        place[name] = value

    def __getattr__(self, name: str) -> Any:
        # Called only for what is no ordinary attribute.
        own = self.__dict__
        for place in ("_parameters", "_modules", "_buffers"):
            if place in own and name in own[place]:
                return own[place][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for place in (self._parameters, self._buffers, self._modules):
            if name in place:
                del place[name]
                self._not_saved.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None reserves the name."""
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}'")
        state.check_name(self, name, self._parameters)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state but is not trained.

        Args:
            persistent: Whether `state_dict` contains it.
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}'")
        state.check_name(self, name, self._buffers)
        self._buffers[name] = tensor
        if persistent:
            self._not_saved.discard(name)
        else:
            self._not_saved.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a child module; None reserves the name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        state.check_name(self, name, self._modules)
        self._modules[name] = module

    add_module = register_module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all within it, with their dotted names.

        Args:
            memo: Modules that are to be passed over; those that are met are added.
            prefix: What the names begin with.
            remove_duplicate: Each module once, under the first of its names.
        """
        seen = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if remove_duplicate:
                if module in seen:
                    continue
                seen.add(module)
            yield name, module
            children = [
                (f"{name}.{child_name}" if name else child_name, child)
                for child_name, child in module._modules.items()
                if child is not None
            ]
            stack.extend(reversed(children))

    def modules(self) -> Iterator[Module]:
        """This module and all within it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly in this one, each once, with their names."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly in this one, each once."""
        return (module for _, module in self.named_children())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters, each once unless told otherwise, with their dotted names."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and, unless told otherwise, of all within it."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers, each once unless told otherwise, with their dotted names."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and, unless told otherwise, of all within it."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _named(
        self, place: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for module_name, module in modules if recurse else [(prefix, self)]:
            for name, tensor in getattr(module, place).items():
                if tensor is None or tensor in seen:
                    continue
                if remove_duplicate:
                    seen.add(tensor)
                yield (f"{module_name}.{name}" if module_name else name), tensor

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name; this one for ``""``.

        Raises:
            AttributeError: There is none.
        """
        module: Module = self
        for name in target.split(".") if target else ():
            child = module._modules.get(name)
            if child is None:
                raise AttributeError(f"{type(module).__name__} has no module `{name}`")
            module = child
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with a dotted name.

        Raises:
            AttributeError: There is none.
        """
        found: Parameter = self._member("_parameters", target, "parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name.

        Raises:
            AttributeError: There is none.
        """
        found: Tensor = self._member("_buffers", target, "buffer")
        return found

    def _member(self, place: str, target: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = getattr(module, place).get(name)
        if found is None:
            raise AttributeError(f"{type(module).__name__} has no {what} `{name}`")
        return found

    def set_submodule(self, target: str, module: Module) -> None:
        """Put a module in the place that a dotted name leads to.

        Raises:
            ValueError: The name is empty.
            AttributeError: A module on the way to the place is not there.
        """
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        setattr(self.get_submodule(path), name, module)

    def get_extra_state(self) -> Any:
        """More to be kept in `state_dict`: for subclasses, together with `set_extra_state`."""
        raise RuntimeError("there is no extra state: the subclass must define get_extra_state")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave: for subclasses."""
        raise RuntimeError("there is no extra state: the subclass must define set_extra_state")

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Names and values of all parameters and saved buffers.

        Args:
            destination: A dictionary to write to; by default a new one.
            prefix: What the names begin with.
            keep_vars: The parameters and buffers themselves; by default tensors on the same memory
                that need no gradient.
        """
        found = state.collect(self, prefix, keep_vars) | elsewhere.collect(self, prefix)
        if destination is None:
            return found
        destination.update(found)
        return destination

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy values into the parameters and buffers.

        Args:
            state_dict: As `state_dict` returns it; arrays will do as well.
            strict: Raise if names are missing or unknown.
            assign: Take the given tensors' memory and element types rather than copy the values.

        Returns:
            ``(missing_keys, unexpected_keys)``.

        Raises:
            RuntimeError: A shape differs, or, if `strict`, the names do: all that is wrong in one
                error, and nothing has been loaded.
        """
        misfits = self._misfits(state.shapes_of(state_dict))
        misfits.refuse(self, strict)
        state.load(self, state_dict, assign)
        return state.IncompatibleKeys(misfits.missing, misfits.unexpected)

    def _misfits(self, shapes: Mapping[str, state.Shape]) -> state.Misfits:
        return state.misfits(self, shapes)

    def train(self: _Self, mode: bool = True) -> _Self:
        """Set training mode here and in all modules within; returns the module."""
        self.training = mode
        for child in self.children():
            # By its own method: a child may live elsewhere.
            child.train(mode)
        return self

    def eval(self: _Self) -> _Self:
        """Leave training mode; returns the module."""
        return self.train(False)

    def requires_grad_(self: _Self, requires_grad: bool = True) -> _Self:
        """Say whether the parameters require grad; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        for other in elsewhere.children(self):
            other.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or set them to zero."""
        for parameter in self.parameters():
            state.reset_grad(parameter, set_to_none)
        for other in elsewhere.children(self):
            other.zero_grad(set_to_none)

    def apply(self: _Self, fn: Callable[[Module], None]) -> _Self:
        """Call `fn` on every module within and, last, on this one; returns the module."""
        for module in reversed(list(self.modules())):
            if module._lives_elsewhere and module is not self:
                module.apply(fn)
            else:
                fn(module)
        return self

    def to(self: _Self, *args: Any, dtype: Any = None, **others: Any) -> _Self:
        """Convert floating-point parameters and buffers; arguments as for `Tensor.to`."""
        target, other = (probe.to(*args, dtype=dtype, **others)._array.dtype for probe in _PROBES)
        if target == other:
            if target.kind not in "fc":
                raise TypeError(f"nn.Module.to only accepts floating point dtypes, got {target}")
            state.convert(self, target)
        return self

    def type(self: _Self, dst_type: Any) -> _Self:
        """Convert all parameters and buffers to an element type; returns the module."""
        state.convert(self, dtypes.as_dtype(dst_type), "biufc")
        return self

    def cpu(self: _Self) -> _Self:
        """The module: its tensors are in main memory as it is."""
        return self

    def float(self: _Self) -> _Self:
        """Convert to float32; returns the module."""
        state.convert(self, dtypes.float32)
        return self

    def double(self: _Self) -> _Self:
        """Convert to float64; returns the module."""
        state.convert(self, dtypes.float64)
        return self

    def half(self: _Self) -> _Self:
        """Convert to float16; returns the module."""
        state.convert(self, dtypes.float16)
        return self

    def extra_repr(self) -> str:
        """What ``repr`` shows between the parentheses; for subclasses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [
            f"({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self._modules.items()
        ]
        if not children and len(lines) <= 1:
            return f"{type(self).__name__}({extra})"
        body = "\n  ".join(itertools.chain(lines, children))
        return f"{type(self).__name__}(\n  {body}\n)"


def _cannot_assign(value: Any, what: str, name: str, expected: str) -> TypeError:
    return TypeError(
        f"cannot assign '{type(value).__name__}' as {what} '{name}' ({expected} or None expected)"
    )
