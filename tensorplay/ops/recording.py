"""Small pieces that the operations build their results and graph nodes from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay import dtypes
from tensorplay.autograd.grad_mode import grad_mode, switched_off
from tensorplay.autograd.graph import BareNode, Node
from tensorplay.ops import dual
from tensorplay.tensor import Tensor, wrap

_new: Any = object.__new__
_ndarray = np.ndarray
_asarray = np.asarray


def edge_of(tensor: Tensor) -> Node | Tensor | None:
    """Where a gradient for `tensor` goes."""
    if not tensor._requires_grad:
        return None
    # Never with the tensor first: its truth is that of its value.
    edge: Node | Tensor = tensor._node or tensor
    return edge


def wanted(*inputs: Tensor) -> bool:
    """Whether an operation on these inputs is to be recorded."""
    for tensor in inputs:
        if tensor._requires_grad:
            return not switched_off or grad_mode.enabled
    return False


def recorded(
    array: Any,
    node_class: type[Node],
    input: Tensor,
    saved: tuple[Any, ...] = (),
    version: list[int] | None = None,
) -> Tensor:
    """The result of an operation on one tensor; with a node if the operation is to be recorded.

    The same as `wrap`, `wanted`, `edge_of` and the node class's ``__init__`` together, at half
    their cost.

    Args:
        array: The values; a number becomes an array.
        saved: What the rule needs.
        version: The version counter of the one array in `saved` that the node class's `lift` names,
            or None.
    """
    tensor = Tensor()
    tensor._array = array if array.__class__ is _ndarray else _asarray(array)
    tensor._grad = None
    tensor._hooks = None
    tensor._alias = None
    tensor._version = [0]
    if input._requires_grad and (not switched_off or grad_mode.enabled):
        node = _new(node_class)
        node.edges = (input._node or input,)
        node.saved = saved
        if version is None:
            node.versions = ()
            node.stamp = 0
        else:
            node.versions = (version,)
            node.stamp = version[0]
        node._hooks = None
        tensor._node = node
        tensor._requires_grad = True
    else:
        tensor._node = None
        tensor._requires_grad = False
    return tensor


class ToCopyBackward0(Node):
    """A change of the element type."""

    __slots__ = ()

    def rule(self, grad: Any, dtype: np.dtype[Any]) -> tuple[Any, ...]:
        return (dual.cast(grad, dtype),)


def cast(tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """The tensor with another element type; itself if it has that type already."""
    array = tensor._array
    if array.dtype is dtype:
        return tensor
    node = None
    if dtype.kind in "fc" and wanted(tensor):
        node = ToCopyBackward0((edge_of(tensor),), (array.dtype,))
    if array.dtype == dtype:
        # Another object for the same type: the result is on the same memory.
        same = wrap(array.view(dtype), node)
        same._version = tensor._version
        return same
    return wrap(array.astype(dtype), node)


def floating(tensor: Tensor) -> Tensor:
    """The tensor as floating-point numbers: integers become the default type."""
    return tensor if tensor._array.dtype.kind in "fc" else cast(tensor, dtypes.get_default_dtype())


def in_single(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation on numbers of half precision, computed in float32 and rounded once at the end.

    Half precision would overflow, or lose the small terms, in a sum of a few thousand elements.
    """
    wide = [
        cast(one, dtypes.float32)
        if isinstance(one, Tensor) and one._array.dtype is dtypes.float16
        else one
        for one in args
    ]
    return cast(operation(*wide, **kwargs), dtypes.float16)


def refuse_complex(array: Any, operation: str) -> None:
    """Raise NotImplementedError for an operation that complex numbers do not have."""
    if array.dtype.kind == "c":
        raise NotImplementedError(
            f'"{operation}" not implemented for {array.dtype}: it needs numbers that have an '
            "order. Take the abs(), the real or the imaginary parts first."
        )


def as_operand(value: Any, what: str) -> Tensor:
    """A function's argument that must be a tensor."""
    if isinstance(value, Tensor):
        return value
    raise TypeError(f"{what} must be a Tensor, not {type(value).__name__}")


_NUMBER_TYPES = {bool: dtypes.bool, int: dtypes.int64}


def common(a: Tensor, b: Any, divide: bool = False) -> tuple[Tensor, Any] | None:
    """Two operands brought to one type; a number stays one.  None if `b` is not an operand.

    With `divide` the type is a floating-point one.
    """
    x = a._array
    if isinstance(b, Tensor) and b._array.dtype is x.dtype and (x.dtype.kind in "fc" or not divide):
        return a, b
    if isinstance(b, np.ndarray):
        b = wrap(b)
    elif isinstance(b, np.generic):
        b = b.item()
    if isinstance(b, Tensor):
        y = b._array
        target = dtypes.result_type(
            [z.dtype for z in (x, y) if z.ndim], [z.dtype for z in (x, y) if not z.ndim], []
        )
    elif isinstance(b, (bool, int, float, complex)):
        number = _NUMBER_TYPES.get(type(b)) or (
            dtypes.complex_like(dtypes.get_default_dtype())
            if isinstance(b, complex)
            else dtypes.get_default_dtype()
        )
        target = dtypes.result_type([a._array.dtype], [], [number])
    else:
        return None
    if divide and target.kind not in "fc":
        target = dtypes.get_default_dtype()
    a = cast(a, target)
    if isinstance(b, Tensor):
        return a, cast(b, target)
    # As a 0-dimensional tensor: Python's own types would meet other rules in NumPy.
    return a, (b if type(b) in (int, float) else wrap(np.array(b, target)))


def common_tensors(a: Tensor, b: Any, what: str) -> tuple[Tensor, Tensor]:
    """Two operands as tensors of one type, for operations that do not need to be hot.

    Raises:
        TypeError: `b` is neither a tensor nor a number; `what` says what it is.
    """
    pair = common(a, b)
    if pair is None:
        raise TypeError(f"{what} must be a Tensor or a number, not {type(b).__name__}")
    a, b = pair
    return a, (b if isinstance(b, Tensor) else wrap(np.array(b, a._array.dtype)))


def applied(function: Any, x: Any, y: Any) -> Any:
    """``function(x, y)``, a function that broadcasts.

    Raises:
        RuntimeError: The shapes do not go together.
    """
    try:
        return function(x, y)
    except ValueError:
        raise shape_error(x, y) from None


def shape_error(x: Any, y: Any) -> Exception:
    """What to raise when NumPy could not operate on two values, most likely for their shapes."""
    shapes = np.shape(x), np.shape(y)
    ndim = max(len(shapes[0]), len(shapes[1]))
    padded = [(1,) * (ndim - len(shape)) + shape for shape in shapes]
    for axis in reversed(range(ndim)):
        a, b = padded[0][axis], padded[1][axis]
        if a != b and 1 not in (a, b):
            return RuntimeError(
                f"The size of tensor a ({a}) must match the size of tensor b ({b}) at "
                f"non-singleton dimension {axis}: the shapes are {shapes[0]} and {shapes[1]}"
            )
    return RuntimeError(f"cannot operate on shapes {list(shapes[0])} and {list(shapes[1])}")


class StretchBackward0(BareNode):
    """Stands between an operation and an operand that broadcasting stretched for it.

    So the rules of binary operations never have to think of broadcasting.  What such an operation
    saves is the operand as it was, before the stretch.
    """

    __slots__ = ()
    stretched = True

    def rule(self, grad: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (dual.sum_to(grad, shape),)


def stretch(
    edge: Node | Tensor | None, shape: tuple[int, ...], to: tuple[int, ...]
) -> Node | Tensor | None:
    """The edge for an operand of `shape` that takes part in an operation as if it had `to`."""
    if edge is None or shape == to:
        return edge
    node: Node = StretchBackward0()
    node.edges = (edge,)
    node.saved = (shape,)
    node.versions = ()
    node.stamp = 0
    node._hooks = None
    return node


def recorded_pair(
    array: Any,
    node_class: type[Node],
    a: Tensor,
    b: Tensor,
    saved: tuple[Any, ...],
    versions: tuple[list[int], ...],
) -> Tensor:
    """As `recorded`, for an operation on two tensors that broadcast."""
    left, right = a._requires_grad, b._requires_grad
    if not (left or right) or (switched_off and not grad_mode.enabled):
        return wrap(array)
    tensor = wrap(array)
    node = _new(node_class)
    to = tensor._array.shape
    node.edges = (
        stretch(a._node or a, a._array.shape, to) if left else None,
        stretch(b._node or b, b._array.shape, to) if right else None,
    )
    node.saved = saved
    node.versions = versions
    stamp = 0
    for version in versions:
        stamp += version[0]
    node.stamp = stamp
    node._hooks = None
    tensor._node = node
    tensor._requires_grad = True
    return tensor


def stretched_edges(to: tuple[int, ...], *operands: Tensor) -> tuple[Node | Tensor | None, ...]:
    """The edges for operands that broadcasting brings to the shape `to`."""
    return tuple([stretch(edge_of(one), one._array.shape, to) for one in operands])
