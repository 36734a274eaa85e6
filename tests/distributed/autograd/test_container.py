"""What a worker keeps of contexts: which there are, and their gradients."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.autograd.graph import Node
from tensorplay.distributed.autograd.backward_pass import BackwardPass
from tensorplay.distributed.autograd.container import Container
from tensorplay.distributed.autograd.context import DistAutogradContext


def test_a_context_is_made_on_first_sight_and_not_again_after_its_release() -> None:
    container = Container(1)
    context = container.get(7)
    assert context is container.get(7) is container.retrieve(7)
    assert container.release(7) is context
    assert container.release(7) is None
    assert container.get(7) is None
    with pytest.raises(RuntimeError, match=r"id: 7 \(it has been released\)"):
        container.retrieve(7)


def test_a_release_that_comes_first_is_remembered() -> None:
    container = Container(1)
    assert container.release(7) is None
    assert container.get(7) is None
    assert len(container) == 0


def test_the_memory_of_released_ids_is_bounded() -> None:
    container = Container(1)
    for context_id in range(20_000):
        container.release(context_id)
    assert len(container._released) <= 16_384
    assert container.get(19_999) is None


def test_ids_of_contexts_and_messages_are_unique_over_workers() -> None:
    first = [Container(rank).new().id for rank in (0, 1, 65535)]
    assert first == [0, 1 << 48, 65535 << 48]


def test_threads_that_see_a_context_first_at_once_see_the_same() -> None:
    container = Container(0)
    for context_id in range(200):
        begin = threading.Barrier(4)
        found: list[Any] = []

        def look(begin: Any = begin, found: Any = found, context_id: int = context_id) -> None:
            begin.wait()
            found.append(container.get(context_id))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1


# -- gradients -------------------------------------------------------------------------------------


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
    running = BackwardPass(0, {}, {}, (), context.accumulate, lambda instruction: None)
    running.join([(node, np.array(1.0))])
    running.advance()
    assert running.done


def address(context: DistAutogradContext, one: tp.Tensor) -> int:
    return int(context.grads[one]._array.ctypes.data)


@pytest.mark.parametrize("kind", [Into, IntoView])
def test_a_gradient_that_nobody_else_holds_is_taken_over(kind: type[Into]) -> None:
    context, x = DistAutogradContext(1), leaf()
    node = kind(x)
    run(context, node)
    (start,) = node.addresses
    assert address(context, x) == start + (kind is IntoView) * 999 * 8
    assert context.grads[x].tolist() == [2.0] * 1000


@pytest.mark.parametrize("kind", [IntoBoth, IntoHeld, IntoReadOnly])
def test_one_that_others_hold_is_copied(kind: type[Into]) -> None:
    context, x, y = DistAutogradContext(1), leaf(), leaf()
    node = kind(x, y) if kind is IntoBoth else kind(x)
    run(context, node)
    addresses = [address(context, one) for one in context.grads]
    assert len(set(addresses)) == len(addresses)
    assert len(set(addresses) & set(node.addresses)) <= (kind is IntoBoth)
    context.grads[x].mul_(0.0)
    assert all(one is x or grad.tolist() == [2.0] * 1000 for one, grad in context.grads.items())


def test_what_comes_later_is_added_in_place_if_nobody_holds_the_sum_so_far() -> None:
    context, x = DistAutogradContext(1), leaf()
    run(context, Into(x))
    before = address(context, x)
    for _ in range(3):
        run(context, Into(x))
    assert address(context, x) == before
    assert context.grads[x].tolist() == [8.0] * 1000


@pytest.mark.parametrize("hold", [lambda grad: grad[:], lambda grad: grad._array[:], memoryview])
def test_what_is_added_later_does_not_change_what_looks_into_the_sum_so_far(hold: Any) -> None:
    context, x = DistAutogradContext(1), leaf()
    run(context, Into(x))
    grad = context.grads[x]
    held = hold(grad._array if hold is memoryview else grad)
    del grad
    run(context, Into(x))
    assert context.grads[x].tolist() == [4.0] * 1000
    assert held.tolist() == [2.0] * 1000


def test_what_is_added_later_does_not_change_an_array_that_was_given_out() -> None:
    context, x = DistAutogradContext(1), leaf()
    run(context, Into(x))
    tensor = context.grads[x]
    array = tensor._array
    run(context, Into(x))
    assert context.grads[x] is tensor
    assert tensor.tolist() == [4.0] * 1000
    assert array.tolist() == [2.0] * 1000
