"""Gradients of a context: taken over or copied, added up, and dropped with a failed pass."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.autograd.graph import Node
from tensorplay.distributed.autograd.backward_pass import BackwardPass
from tensorplay.distributed.autograd.context import RANK_SHIFT, DistAutogradContext
from tensorplay.distributed.autograd.gradients import Gradients


class Into(Node):
    """Gives its input a gradient that it has just made, and notes where that lies."""

    def __init__(self, *targets: Any) -> None:
        super().__init__(targets)
        self.addresses: list[int] = []

    def rule(self, grad: Any) -> Any:
        fresh = np.full(1000, 2.0)
        self.addresses.append(fresh.ctypes.data)
        return self.share(fresh)

    def share(self, fresh: Any) -> Any:
        return (fresh,)


class IntoBoth(Into):
    def share(self, fresh: Any) -> Any:
        return (fresh, fresh)


class IntoView(Into):
    """Its gradient lies in memory that only the gradient refers to."""

    def share(self, fresh: Any) -> Any:
        return (fresh[::-1],)


class IntoHeld(Into):
    """Its gradient lies in memory that somebody else refers to."""

    def share(self, fresh: Any) -> Any:
        self.held = fresh
        return (fresh[:],)


class IntoReadOnly(Into):
    def share(self, fresh: Any) -> Any:
        fresh.flags.writeable = False
        return (fresh,)


def leaf() -> tp.Tensor:
    return tp.ones(1000, dtype=tp.float64, requires_grad=True)


def run(context: DistAutogradContext, node: Node) -> None:
    stage = partial(context.stage, 1)
    running = BackwardPass(0, {}, {}, (), stage, lambda instruction: None)
    running.join([(node, np.array(1.0))])
    running.advance()
    assert running.done
    context.gradients.settle(1, True)


def address(context: DistAutogradContext, one: tp.Tensor) -> int:
    return int(context.gradients.settled[one]._array.ctypes.data)


@pytest.mark.parametrize("kind", [Into, IntoView])
def test_a_gradient_that_nobody_else_holds_is_taken_over(kind: type[Into]) -> None:
    context, x = DistAutogradContext(1), leaf()
    node = kind(x)
    run(context, node)
    (start,) = node.addresses
    assert address(context, x) == start + (kind is IntoView) * 999 * 8
    assert context.gradients.settled[x].tolist() == [2.0] * 1000


@pytest.mark.parametrize("kind", [IntoBoth, IntoHeld, IntoReadOnly])
def test_one_that_others_hold_is_copied(kind: type[Into]) -> None:
    context, x, y = DistAutogradContext(1), leaf(), leaf()
    node = kind(x, y) if kind is IntoBoth else kind(x)
    run(context, node)
    addresses = [address(context, one) for one in context.gradients.settled]
    assert len(set(addresses)) == len(addresses)
    assert len(set(addresses) & set(node.addresses)) <= (kind is IntoBoth)
    context.gradients.settled[x].mul_(0.0)
    assert all(
        one is x or grad.tolist() == [2.0] * 1000 for one, grad in context.gradients.settled.items()
    )


def test_what_comes_later_is_added_in_place_if_nobody_holds_the_sum_so_far() -> None:
    context, x = DistAutogradContext(1), leaf()
    run(context, Into(x))
    before = address(context, x)
    for _ in range(3):
        run(context, Into(x))
    assert address(context, x) == before
    assert context.gradients.settled[x].tolist() == [8.0] * 1000


@pytest.mark.parametrize("hold", [lambda grad: grad[:], lambda grad: grad._array[:], memoryview])
def test_what_is_added_later_does_not_change_what_looks_into_the_sum_so_far(hold: Any) -> None:
    context, x = DistAutogradContext(1), leaf()
    run(context, Into(x))
    grad = context.gradients.settled[x]
    held = hold(grad._array if hold is memoryview else grad)
    del grad
    run(context, Into(x))
    assert context.gradients.settled[x].tolist() == [4.0] * 1000
    assert held.tolist() == [2.0] * 1000


def test_what_is_added_later_does_not_change_an_array_that_was_given_out() -> None:
    context, x = DistAutogradContext(1), leaf()
    run(context, Into(x))
    tensor = context.gradients.settled[x]
    array = tensor._array
    run(context, Into(x))
    assert context.gradients.settled[x] is tensor
    assert tensor.tolist() == [4.0] * 1000
    assert array.tolist() == [2.0] * 1000


# -- passes that may still fail --------------------------------------------------------------------


def one(value: float) -> np.ndarray[Any, Any]:
    return np.array([value])


def test_what_a_failed_pass_has_given_is_dropped() -> None:
    gradients, x = Gradients(), leaf()
    gradients.stage(1, x, one(1.0))
    assert not gradients.settled
    gradients.settle(1, False)
    gradients.settle(1, True)
    assert not gradients.settled
    gradients.stage(2, x, one(2.0))
    gradients.stage(3, x, one(4.0))
    gradients.settle(3, True)
    gradients.settle(2, True)
    assert gradients.settled[x].tolist() == [6.0]


def passes_of(starter: int) -> list[int]:
    return [(starter << RANK_SHIFT) + number for number in (1, 2, 3)]


@pytest.mark.parametrize(("good", "sum_so_far"), [(0, None), (1, 1.0), (2, 2.0)])
def test_the_next_pass_tells_which_was_the_last_good_one(
    good: int, sum_so_far: float | None
) -> None:
    """Only the latest of those staged can be it."""
    context, x = DistAutogradContext(1), leaf()
    numbers = passes_of(1)
    for value, pass_id in enumerate(numbers[:2], 1):
        context.stage(pass_id, x, one(value))
    others = passes_of(2)[0]
    context.stage(others, x, one(8.0))
    context.settle_before(numbers[2], numbers[good - 1] if good else 0)
    found = context.gradients.settled.get(x)
    assert (None if found is None else found.item()) == sum_so_far
    assert list(context.gradients.staged) == [others]


def test_who_asks_for_gradients_gets_those_of_finished_passes_of_others() -> None:
    context, x = DistAutogradContext(1), leaf()
    own, finished, running, failed, reported = (passes_of(rank)[0] for rank in range(5))
    for value, pass_id in enumerate((own, finished, running, failed, reported)):
        context.stage(pass_id, x, one(10.0**value))
    context.passes = {
        1: (finished, None),
        2: (running, SimpleNamespace(reported=False)),  # type: ignore[dict-item]
        4: (reported, SimpleNamespace(reported=True)),  # type: ignore[dict-item]
    }
    context.ended.add(failed)
    context.settle_finished(0)
    assert context.gradients.settled[x].tolist() == [10_010.0]
    assert list(context.gradients.staged) == [own, running]
