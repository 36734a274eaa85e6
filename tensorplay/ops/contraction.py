"""Sums of products over named dimensions: einsum and its kin.

Everything comes down to one operation on two tensors, `_contract`, whose gradients are that same
operation again, and which is a product of matrices wherever it can be one.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tensorplay.autograd.graph import Node
from tensorplay.ops import dual
from tensorplay.ops.diagonals import diagonal
from tensorplay.ops.recording import as_operand, edge_of, wanted
from tensorplay.ops.reduction import axis_of
from tensorplay.ops.reduction import sum as sum_of
from tensorplay.ops.shape import permute, reshape
from tensorplay.tensor import Tensor, wrap

#: The dimensions of a tensor by name.  Letters are the user's; `_ELLIPSIS` stands for more.
Labels = tuple[Any, ...]
_ELLIPSIS = "..."
_LETTERS = frozenset(string.ascii_letters)


class EinsumBackward0(Node):
    """Two tensors multiplied and summed over what the result does not name."""

    __slots__ = ()
    lift = (0, 1, None, None, None)

    def rule(
        self, grad: Any, a: Any, b: Any, left: Labels, right: Labels, out: Labels
    ) -> tuple[Any, ...]:
        return (
            None if b is None else _dual_contract(grad, b.conj(), out, right, left),
            None if a is None else _dual_contract(a.conj(), grad, left, out, right),
        )


def _dual_contract(a: Any, b: Any, left: Labels, right: Labels, out: Labels) -> Any:
    return dual.on_tensors(lambda x, y: _contract(x, y, left, right, out), a, b)


def _contract(a: Tensor, b: Tensor, left: Labels, right: Labels, out: Labels) -> Tensor:
    """The product of two tensors.

    Args:
        left: The names of the dimensions of `a`, all different.
        right: Those of `b`.  Equal names have equal sizes.
        out: Those of the result.  Every name in `left` is in `right` or here, and so on.
    """
    if a._array.dtype != b._array.dtype:
        raise RuntimeError(
            f"expected both operands to have the same dtype, but got: {a._array.dtype} != "
            f"{b._array.dtype}"
        )
    result = _contracted(a._array, b._array, left, right, out)
    if not wanted(a, b):
        return wrap(result)
    first, second = edge_of(a), edge_of(b)
    keep_a, keep_b = second is not None, first is not None
    versions = ((a._version,) if keep_a else ()) + ((b._version,) if keep_b else ())
    saved = (a._array if keep_a else None, b._array if keep_b else None, left, right, out)
    return wrap(result, EinsumBackward0((first, second), saved, versions))


class _Plan(NamedTuple):
    """How a product of tensors is made one of matrices; depends on their dimensions' names only.

    The axes of the left operand come in the order batch, rows, summed; those of the right one in
    the order batch, summed, columns; and the product has them in the order batch, rows, columns.
    """

    left: list[int]
    right: list[int]
    out: list[int]
    batch: int
    rows: int
    summed: int


@lru_cache(maxsize=1024)
def _plan(left: Labels, right: Labels, out: Labels) -> _Plan:
    summed = [name for name in left if name in right and name not in out]
    batch = [name for name in out if name in left and name in right]
    rows = [name for name in out if name in left and name not in right]
    columns = [name for name in out if name in right and name not in left]
    product = [*batch, *rows, *columns]
    return _Plan(
        [left.index(name) for name in [*batch, *rows, *summed]],
        [right.index(name) for name in [*batch, *summed, *columns]],
        [product.index(name) for name in out],
        len(batch),
        len(rows),
        len(summed),
    )


def _contracted(x: Any, y: Any, left: Labels, right: Labels, out: Labels) -> Any:
    plan = _plan(left, right, out)
    if not plan.summed:
        # One by one, each operand stretched along what it does not have.
        return np.multiply(_aligned(x, left, out), _aligned(y, right, out))
    x, y = x.transpose(plan.left), y.transpose(plan.right)
    split = plan.batch + plan.rows
    batch, rows, summed = x.shape[: plan.batch], x.shape[plan.batch : split], x.shape[split:]
    columns = y.shape[plan.batch + plan.summed :]
    inner = math.prod(summed)
    product = np.matmul(
        x.reshape(*batch, math.prod(rows), inner), y.reshape(*batch, inner, math.prod(columns))
    )
    return product.reshape(batch + rows + columns).transpose(plan.out)


def _aligned(x: Any, names: Labels, out: Labels) -> Any:
    own = [name for name in out if name in names]
    x = x.transpose([names.index(name) for name in own])
    shape = iter(x.shape)
    return x.reshape([next(shape) if name in names else 1 for name in out])


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products over named dimensions, by Einstein's convention.

    Args:
        equation: The names of each operand's dimensions, one letter each, separated by commas; and
            after ``->`` those of the result.  Without ``->`` these are the letters that appear
            once, in alphabetical order.  ``...`` stands for further dimensions, which broadcast.
            A letter that stands twice for one operand takes its diagonal.
        operands: The tensors, one by one or as a list.  Instead of an equation, each may be
            followed by a list of whole numbers that name its dimensions; one more list may follow
            for the result.

    Raises:
        RuntimeError: The equation makes no sense, or does not fit the operands.

    >>> import tensorplay as tp
    >>> tp.einsum("ij,j->i", tp.ones(2, 3), tp.ones(3))
    tensor([3., 3.])
    """
    if isinstance(equation, Tensor):
        tensors, names, result = _from_lists((equation, *operands))
    else:
        if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
            operands = tuple(operands[0])
        tensors = [as_operand(one, "each operand of einsum()") for one in operands]
        names, result = _parsed(equation)
    if len(names) != len(tensors):
        raise RuntimeError(
            f"einsum(): the equation names {len(names)} operands, but {len(tensors)} were given"
        )
    if not tensors:
        raise RuntimeError("einsum(): must provide at least one operand")
    extra = _ellipsis_sizes(tensors, names)
    if result is None:
        seen = [name for one in names for name in one if name is not _ELLIPSIS]
        result = (_ELLIPSIS, *sorted({name for name in seen if seen.count(name) == 1}))
    widest = max(extra)
    named = [_spelled(one, count, widest) for one, count in zip(names, extra, strict=True)]
    return _einsum(tensors, named, _result_names(result, named, widest))


@lru_cache(maxsize=1024)
def _parsed(equation: str) -> tuple[list[Labels], Labels | None]:
    """The names that an equation gives to the dimensions of the operands and of the result."""
    sides = equation.replace(" ", "").split("->")
    if len(sides) > 2:
        raise RuntimeError(f"einsum(): '->' stands more than once in {equation!r}")
    names = [_labels(term, equation) for term in sides[0].split(",")]
    return names, (_labels(sides[1], equation) if len(sides) == 2 else None)


def _labels(term: str, equation: str) -> Labels:
    before, dots, after = term.partition("...")
    for name in before + after:
        if name not in _LETTERS:
            raise RuntimeError(
                f"einsum(): invalid subscript given in {equation!r}: {name!r}; subscripts must be "
                "letters, and '...' may stand once for each operand"
            )
    return (*before, *((_ELLIPSIS,) if dots else ()), *after)


def _from_lists(given: tuple[Any, ...]) -> tuple[list[Tensor], list[Labels], Labels | None]:
    count = len(given) // 2
    tensors = [as_operand(one, "each operand of einsum()") for one in given[: 2 * count : 2]]
    lists = [_numbers(one) for one in given[1 : 2 * count : 2]]
    return tensors, lists, (_numbers(given[-1]) if len(given) % 2 else None)


def _numbers(given: Sequence[Any]) -> Labels:
    return tuple([_ELLIPSIS if one is Ellipsis else int(one) for one in given])


def _ellipsis_sizes(tensors: list[Tensor], names: list[Labels]) -> list[int]:
    """How many dimensions ``...`` stands for in each operand."""
    sizes = []
    for tensor, own in zip(tensors, names, strict=True):
        extra = tensor._array.ndim - len([name for name in own if name is not _ELLIPSIS])
        if extra < 0 or (extra and _ELLIPSIS not in own):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(own)}) does not match "
                f"the number of dimensions ({tensor._array.ndim}) for an operand"
            )
        sizes.append(extra)
    return sizes


def _spelled(names: Labels, count: int, widest: int) -> Labels:
    """The names with ``...`` written out; what broadcasts has the same name in all operands."""
    spelled: list[Any] = []
    for name in names:
        if name is _ELLIPSIS:
            spelled += [("...", i) for i in range(widest - count, widest)]
        else:
            spelled.append(name)
    return tuple(spelled)


def _result_names(result: Labels, named: list[Labels], widest: int) -> Labels:
    spelled = _spelled(result, widest, widest)
    known = {name for one in named for name in one}
    for name in spelled:
        if name not in known:
            raise RuntimeError(
                f"einsum(): output subscript {name!r} does not appear in the equation for any "
                "input operand"
            )
        if spelled.count(name) > 1:
            raise RuntimeError(f"einsum(): output subscript {name!r} appears more than once")
    return spelled


def _einsum(tensors: list[Tensor], named: list[Labels], result: Labels) -> Tensor:
    parts = [_without_repeats(*one) for one in zip(tensors, named, strict=True)]
    sizes: dict[Any, int] = {}
    for tensor, names in parts:
        for name, size in zip(names, tensor._array.shape, strict=True):
            known = sizes.setdefault(name, size)
            if known == 1:
                sizes[name] = size
            elif size not in (1, known):
                raise RuntimeError(
                    f"einsum(): subscript {name!r} has size {size} for an operand which does not "
                    f"broadcast with previously seen size {known}"
                )
    parts = [_without_stretched(*one, sizes) for one in parts]
    while len(parts) > 1:
        i, j = _next_pair(parts, result, sizes)
        (b, right), (a, left) = parts.pop(j), parts.pop(i)
        needed = set(result).union(*[names for _, names in parts])
        a, left = _summed(a, left, needed.union(right))
        b, right = _summed(b, right, needed.union(left))
        every = dict.fromkeys([*left, *right])
        # In the order of the result, when it is the last.
        out = tuple([n for n in result if n in every]) + tuple(
            [n for n in every if n in needed and n not in result]
        )
        parts.append((_contract(a, b, left, right, out), out))
    tensor, names = _summed(*parts[0], set(result))
    order = [names.index(name) for name in result]
    return tensor if order == sorted(order) else permute(tensor, order)


def _next_pair(
    parts: list[tuple[Tensor, Labels]], result: Labels, sizes: dict[Any, int]
) -> tuple[int, int]:
    """Which two operands to multiply next: those whose product is the least work."""
    if len(parts) == 2:
        return 0, 1
    best, work = (0, 1), float("inf")
    for j in range(1, len(parts)):
        for i in range(j):
            cost = 1.0
            for name in {*parts[i][1], *parts[j][1]}:
                cost *= sizes[name]
            if cost < work:
                best, work = (i, j), cost
    return best


def _without_repeats(tensor: Tensor, names: Labels) -> tuple[Tensor, Labels]:
    """The diagonals where a name stands twice."""
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            if tensor._array.shape[first] != tensor._array.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {name!r} is repeated for an operand but the sizes don't "
                    f"match, {tensor._array.shape[second]} != {tensor._array.shape[first]}"
                )
            tensor = diagonal(tensor, 0, first, second)
            names = (*[n for i, n in enumerate(names) if i not in (first, second)], name)
    return tensor, names


def _without_stretched(
    tensor: Tensor, names: Labels, sizes: dict[Any, int]
) -> tuple[Tensor, Labels]:
    """Without the dimensions of size 1 that other operands stretch."""
    shape = tensor._array.shape
    kept = [i for i, name in enumerate(names) if shape[i] == sizes[name]]
    if len(kept) == len(names):
        return tensor, names
    return reshape(tensor, [shape[i] for i in kept]), tuple([names[i] for i in kept])


def _summed(tensor: Tensor, names: Labels, needed: set[Any]) -> tuple[Tensor, Labels]:
    """The sum over the dimensions that nothing else names."""
    axes = tuple([i for i, name in enumerate(names) if name not in needed])
    if not axes:
        return tensor, names
    return sum_of(tensor, axes), tuple([name for name in names if name in needed])


def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """The sum of products over some dimensions of two tensors.

    Args:
        dims: How many dimensions, the last of `a` with the first of `b`; or two lists: the
            dimensions of `a` and those of `b` that belong to them.

    >>> import tensorplay as tp
    >>> tp.tensordot(tp.ones(2, 3), tp.ones(3, 4), dims=1).shape
    (2, 4)
    """
    m, n = a._array.ndim, as_operand(b, "b")._array.ndim
    if isinstance(dims, Tensor):
        dims = dims._array.tolist()
    if isinstance(dims, int):
        if dims < 0 or dims > min(m, n):
            raise RuntimeError(
                f"tensordot expects 0 <= dims <= the number of dimensions of both, but got {dims}"
            )
        first, second = list(range(m - dims, m)), list(range(dims))
    else:
        first, second = (
            [axis_of(one, ndim) for one in (side if isinstance(side, (tuple, list)) else [side])]
            for side, ndim in zip(dims, (m, n), strict=True)
        )
    if len(first) != len(second):
        raise RuntimeError("tensordot: both dimension lists should have same length")
    left: list[Any] = list(range(m))
    right: list[Any] = list(range(m, m + n))
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    out = [name for name in [*left, *right] if (name in left) != (name in right)]
    return _einsum([a, b], [tuple(left), tuple(right)], tuple(out))


def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sums of products over the last dimensions of two tensors."""
    if not input._array.ndim or not as_operand(other, "other")._array.ndim:
        product: Tensor = input * other
        return product
    if input._array.shape[-1] != other._array.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input._array.shape)} and {list(other._array.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))
