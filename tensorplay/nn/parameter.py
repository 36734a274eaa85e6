"""Parameters: tensors that a module registers as its own."""

from __future__ import annotations

from typing import Any, ClassVar

from tensorplay.tensor import Tensor, rebuild


class Parameter(Tensor):
    """A leaf that a `Module` finds among its attributes; it requires grad unless told otherwise.

    Args:
        data: The values; the parameter shares their memory.
        requires_grad: Whether gradients are wanted.

    A copy (`copy.deepcopy`, of the modules that it is in as well) has no ``.grad``.

    >>> import tensorplay as tp
    >>> tp.nn.Parameter(tp.zeros(2)).requires_grad
    True
    """

    _copies_grad: ClassVar[bool] = False

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            from tensorplay.ops.creation import zeros

            data = zeros(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"a Parameter is made from a Tensor, not {type(data).__name__}")
        parameter = rebuild(cls, data._array, False)
        parameter._version = data._version
        parameter.requires_grad = requires_grad
        assert isinstance(parameter, Parameter)
        return parameter
