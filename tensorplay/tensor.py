"""The `Tensor`: a NumPy array, whether it needs a gradient, and its place in the graph.

The class here holds what every tensor has.  Operations are functions in `tensorplay.ops`, which
attaches them as methods and operators; attaching, rather than forwarding from here, is what keeps a
small operation as cheap as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tensorplay import dtypes
from tensorplay.devices import MAIN_MEMORY, device

if TYPE_CHECKING:
    from tensorplay.autograd.graph import Node
    from tensorplay.ops.surface import Surface
else:
    Surface = object


class Tensor(Surface):
    """A multi-dimensional array that can be differentiated.

    Attributes (internal):
        _array: The values.  Always an `numpy.ndarray`, also for a single number.
        _node: The node that produced it; ``None`` for a leaf.
        _version: One-element list, shared by all tensors on the same memory; counts the writes.
        _hooks: Functions that see the gradient of a leaf (those of other tensors are the node's).
        _alias: How it shares memory with other tensors: see `tensorplay.ops.aliasing`.
    """

    __slots__ = (
        "__weakref__",
        "_alias",
        "_array",
        "_grad",
        "_hooks",
        "_node",
        "_requires_grad",
        "_version",
    )

    # A leaf stands in the graph itself; see `tensorplay.autograd.graph`.
    special: ClassVar[bool] = True
    stretched: ClassVar[bool] = False
    edges: ClassVar[tuple[()]] = ()

    _array: np.ndarray[Any, Any]
    _node: Node | None
    _requires_grad: bool
    _grad: Tensor | None
    _version: list[int]
    _hooks: dict[int, Callable[[Any], Any]] | None
    _alias: Any

    __hash__ = object.__hash__

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        dtype: np.dtype[Any] = self._array.dtype
        return dtype

    @property
    def device(self) -> device:
        """Always ``device("cpu")``: tensors live in main memory."""
        return MAIN_MEMORY

    @property
    def is_leaf(self) -> bool:
        """Whether it is no result of a recorded operation."""
        return self._node is None

    @property
    def grad_fn(self) -> Node | None:
        """The operation that made it, if that was recorded."""
        return None if self._node is None else self._node.function

    @property
    def requires_grad(self) -> bool:
        """Whether operations on it are recorded, and backward passes give it a gradient."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._node is not None:
            if not value:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use "
                    "a computed variable in a subgraph that doesn't require differentiation use "
                    "var_no_grad = var.detach()."
                )
            return
        if value and self._array.dtype.kind not in "fc":
            raise RuntimeError(
                "only Tensors of floating point and complex dtype can require gradients, not "
                f"{self._array.dtype}"
            )
        self._requires_grad = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad`; returns the tensor itself.

        Raises:
            RuntimeError: The elements are neither floating-point nor complex numbers, or the
                tensor is the result of a recorded operation and `requires_grad` is False.
        """
        self.requires_grad = requires_grad
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward passes have gathered in it; assignable."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"assigned grad expected to be a Tensor or None but got {type(value).__name__}"
                )
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if value._array.shape != self._array.shape:
                raise RuntimeError(
                    f"assigned grad has data of a different size: {value._array.shape}, not "
                    f"{self._array.shape}"
                )
            if value._array.dtype != self._array.dtype:
                raise RuntimeError(
                    f"assigned grad has data of a different type: {value._array.dtype}, not "
                    f"{self._array.dtype}"
                )
        self._grad = value

    @property
    def data(self) -> Tensor:
        """The values outside the graph: writes through it are not noticed.  Assignable."""
        return wrap(self._array)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data must be a Tensor, not {type(value).__name__}")
        self._array = value._array
        # The old array may live on in a graph: its versions are counted apart.
        self._version = [0]
        self._alias = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) in memo:
            known: Tensor = memo[id(self)]
            return known
        if self._node is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        copied = rebuild(type(self), self._array.copy(order="K"), self._requires_grad)
        memo[id(self)] = copied
        copied._grad = copy.deepcopy(self._grad, memo)
        if hasattr(self, "__dict__"):
            copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # What arrives is a leaf: the graph stays behind, and with it hooks and gradients.
        state = getattr(self, "__dict__", None) or None
        return (rebuild, (type(self), self._array, self._requires_grad), state)


def rebuild(kind: type[Tensor], array: np.ndarray[Any, Any], requires_grad: bool) -> Tensor:
    """A leaf of the given class on `array`, as unpickling and copying need it."""
    tensor: Tensor = _new(kind)
    tensor._array = dtypes.normalised(array)
    tensor._node = None
    tensor._requires_grad = requires_grad
    tensor._grad = None
    tensor._hooks = None
    tensor._alias = None
    tensor._version = [0]
    return tensor


def wrap(array: Any, node: Node | None = None) -> Tensor:
    """A tensor on `array` (taken as it is, not copied), produced by `node`."""
    tensor = Tensor()
    tensor._array = array if array.__class__ is _ndarray else np.asarray(array)
    tensor._node = node
    tensor._requires_grad = node is not None
    tensor._grad = None
    tensor._hooks = None
    tensor._alias = None
    tensor._version = [0]
    return tensor


_new: Any = object.__new__
_ndarray = np.ndarray
