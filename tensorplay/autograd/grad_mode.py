"""Whether operations are recorded, thread by thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _GradMode(threading.local):
    """Each thread starts with recording switched on."""

    enabled = True


#: Read on every operation; written only by `_switch`.
grad_mode = _GradMode()

#: The threads in which recording is off.  Empty nearly always, so an operation first looks here:
#: that costs a fifth of reading a thread-local.  A thread that ended while its recording was off
#: stays listed, to no other effect than that `grad_mode` is read after all.
switched_off: set[int] = set()


def _switch(enabled: bool) -> None:
    if enabled:
        grad_mode.enabled = True
        switched_off.discard(threading.get_ident())
    else:
        switched_off.add(threading.get_ident())
        grad_mode.enabled = False


def is_grad_enabled() -> bool:
    """Whether this thread records operations for differentiation."""
    return grad_mode.enabled


class set_grad_enabled:
    """Switch recording on or off for this thread, at once; as a context manager, for its block.

    >>> import tensorplay as tp
    >>> x = tp.ones(2, requires_grad=True)
    >>> with tp.set_grad_enabled(False):
    ...     (x * 2).requires_grad
    False
    """

    def __init__(self, mode: bool) -> None:
        self._before = grad_mode.enabled
        _switch(bool(mode))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        _switch(self._before)


class _Switch:
    """A block, or a decorated function, within which recording is on or off."""

    mode: bool

    def __init__(self) -> None:
        # A stack, since one object may be entered again within its own block.
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(grad_mode.enabled)
        _switch(self.mode)

    def __exit__(self, *exc_info: object) -> None:
        _switch(self._before.pop())

    def __call__(self, function: _Function) -> _Function:
        switch = type(self)

        @functools.wraps(function)
        def switched(*args: Any, **kwargs: Any) -> Any:
            with switch():
                return function(*args, **kwargs)

        return switched  # type: ignore[return-value]  # wraps() keeps the signature


class no_grad(_Switch):
    """Nothing is recorded in the block; usable as a decorator (``@no_grad()``) too.

    >>> import tensorplay as tp
    >>> x = tp.ones(2, requires_grad=True)
    >>> with tp.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    mode = False


class enable_grad(_Switch):
    """Operations are recorded in the block, also within `no_grad`."""

    mode = True
