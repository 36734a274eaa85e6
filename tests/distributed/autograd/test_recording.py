"""What is recorded when tensors cross from one worker to another."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import tensorplay as tp
from distributed.autograd.driving import context_of, eventually, on_first
from distributed.autograd.remote import (
    Recorded,
    add,
    both,
    constant,
    current_context,
    fail,
    identity,
    mul,
    number,
    recorded,
    total,
    twice,
    via,
    without_grad,
)
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.rpc.current import current_agent


def leaf(*shape: int) -> tp.Tensor:
    return tp.ones(*(shape or (2,)), requires_grad=True)


def ask(worker: int, context_id: int) -> Recorded:
    """What a worker has recorded.  By a thread of no context, so that nothing is added."""
    with tp.no_grad():
        answer: Recorded = rpc.rpc_sync(worker, recorded, args=(context_id,))
    return answer


def test_a_call_records_a_pair_each_way() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            a, b = leaf(), leaf()
            result = rpc.rpc_sync(1, add, args=(a, b))
            here, there = recorded(context_id), ask(1, context_id)
            (request,) = here.sends
            (answer,) = here.recvs
            assert here.sends[request] == (
                "SendRpcBackward",
                1,
                ["AccumulateGrad", "AccumulateGrad"],
            )
            assert here.recvs[answer] == ("RecvRpcBackward", 1, 1)
            assert there.sends == {answer: ("SendRpcBackward", 0, ["AddBackward0"])}
            assert there.recvs == {request: ("RecvRpcBackward", 0, 2)}
            assert result.grad_fn is context_of(context_id)._recv_functions()[answer]
            assert result.grad_fn.name() == "RecvRpcBackward"
            (send,) = context_of(context_id)._send_functions().values()
            assert [edge.variable for edge, _ in send.next_functions] == [a, b]
            # Worker 1's ids have its rank in the top bits, as contexts have.
            assert (context_id >> 48, request >> 48, answer >> 48) == (0, 0, 1)

    on_first(program)


def test_the_ends_lead_into_the_graphs_in_the_order_of_the_message() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            a, b = leaf(), leaf()
            plain = tp.ones(2)
            computed = a * b
            rpc.rpc_sync(1, number, args=(b, plain, {"x": computed, "y": [a]}))
            (send,) = context_of(context_id)._send_functions().values()
            first, second, third = [edge for edge, _ in send.next_functions]
            assert first.variable is b
            assert second is computed.grad_fn
            assert third.variable is a

    on_first(program)


def test_without_tensors_that_need_gradients_only_the_context_travels() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            assert rpc.rpc_sync(1, current_context) == context_id
            rpc.rpc_sync(1, add, args=(tp.ones(2), tp.ones(2)))
            here, there = recorded(context_id), ask(1, context_id)
            assert here == ({}, {}, {1})
            assert there == ({}, {}, {0})

    on_first(program)


def test_each_tensor_needs_a_gradient_there_if_it_does_here() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            needs, does_not = rpc.rpc_sync(1, both, args=(leaf(),))
            assert needs.requires_grad
            assert needs.grad_fn is not None
            assert not does_not.requires_grad
            assert does_not.grad_fn is None
            assert [outputs for _, _, outputs in recorded(context_id).recvs.values()] == [1]

    on_first(program)


def test_an_answer_without_gradients_has_no_pair() -> None:
    def program() -> None:
        for function in (number, constant, without_grad, fail):
            with dist_autograd.context() as context_id:
                try:
                    rpc.rpc_sync(1, function, args=(leaf(),))
                except KeyError:
                    assert function is fail
                here, there = recorded(context_id), ask(1, context_id)
                assert (len(here.sends), len(here.recvs)) == (1, 0)
                assert (len(there.sends), len(there.recvs)) == (0, 1)

    on_first(program)


def test_under_no_grad_nothing_is_recorded_and_no_context_travels() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            with tp.no_grad():
                result = rpc.rpc_sync(1, twice, args=(leaf(),))
                assert rpc.rpc_sync(1, current_context) == -1
            assert recorded(context_id) == ({}, {}, set())
            # As outside any context: a leaf of its own.
            assert result.requires_grad
            assert result.is_leaf

    on_first(program)


def test_the_callee_records_whatever_the_caller_s_grad_mode_was_before() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            with tp.no_grad():
                x = leaf() * 2
            assert not x.requires_grad
            w = rpc.rpc_sync(1, identity, args=(leaf(),))
            assert w.requires_grad
            assert len(recorded(context_id).sends) == 1

    on_first(program)


def test_outside_a_context_tensors_arrive_as_leaves() -> None:
    def program() -> None:
        x = leaf()
        for result in (rpc.rpc_sync(1, identity, args=(x,)), rpc.rpc_sync(1, twice, args=(x,))):
            assert result.requires_grad
            assert result.is_leaf
        plain = rpc.rpc_sync(1, twice, args=(tp.ones(2),))
        assert not plain.requires_grad

    on_first(program)


def test_workers_know_those_they_exchanged_messages_with() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            rpc.rpc_sync(1, via, args=([2], add, leaf(), leaf()))
            rpc.rpc_sync(3, number)
            known = [
                recorded(context_id).known,
                *[ask(rank, context_id).known for rank in (1, 2, 3)],
            ]
            assert known == [{1, 3}, {0, 2}, {1}, {0}]

    on_first(program, size=4)


def test_a_nested_call_records_pairs_on_its_way() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            rpc.rpc_sync(1, via, args=([2, 0], mul, leaf(), leaf()))
            here, one, two = recorded(context_id), ask(1, context_id), ask(2, context_id)
            assert [peer for _, peer, _ in here.sends.values()] == [1, 2]
            assert [peer for _, peer, _ in here.recvs.values()] == [2, 1]
            assert [peer for _, peer, _ in one.sends.values()] == [2, 0]
            assert [peer for _, peer, _ in one.recvs.values()] == [0, 2]
            assert [peer for _, peer, _ in two.sends.values()] == [0, 1]
            assert [peer for _, peer, _ in two.recvs.values()] == [1, 0]
            for part in (here, one, two):
                assert {name for name, _, _ in part.sends.values()} == {"SendRpcBackward"}

    on_first(program, size=3)


def test_a_call_to_oneself_records_both_ends_of_both_pairs_here() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            result = rpc.rpc_sync(0, identity, args=(x,))
            assert result is not x
            here = recorded(context_id)
            assert len(here.sends) == 2
            assert list(here.sends) == list(here.recvs)
            assert here.known == {0}

    on_first(program, size=1)


def test_the_creation_and_each_fetch_of_a_reference_have_pairs() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            reference = rpc.remote(1, twice, args=(leaf(),))
            first, second = reference.to_here(), reference.to_here()
            here, there = recorded(context_id), ask(1, context_id)
            assert len(here.sends) == 1
            assert len(here.recvs) == 2
            assert list(there.recvs) == list(here.sends)
            assert list(there.sends) == list(here.recvs)
            assert first.grad_fn is not second.grad_fn

    on_first(program)


def test_the_same_tensor_twice_in_a_message_is_one() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            a, b = rpc.rpc_sync(1, identity, args=([x, x],))
            assert a is b
            here = recorded(context_id)
            assert [edges for _, _, edges in here.sends.values()] == [["AccumulateGrad"]]
            assert [outputs for _, _, outputs in here.recvs.values()] == [1]

    on_first(program)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Record:
    weight: Any
    others: list[Any]

    def values(self) -> list[Any]:
        return [self.weight, *self.others]


def dismember(value: Any) -> Any:
    return total(value.values() if isinstance(value, Record) else value)


CONTAINERS: list[Callable[[Any, Any, Any], Any]] = [
    lambda x, y, z: [x, [y, (z,)]],
    lambda x, y, z: {"x": x, "more": {"y": y, 3: z}},
    lambda x, y, z: (x, Pair(y, z)),
    lambda x, y, z: Record(x, [y, {"z": z}]),
]


@pytest.mark.parametrize("wrapped", CONTAINERS)
def test_tensors_are_found_in_containers_of_any_kind(wrapped: Callable[..., Any]) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x, y, z = leaf(), leaf(3), tp.ones(4)
            result = rpc.rpc_sync(1, dismember, args=(wrapped(x, y, z),))
            assert result.item() == 9
            ((_, _, edges),) = recorded(context_id).sends.values()
            assert edges == ["AccumulateGrad"] * 2
            dist_autograd.backward(context_id, result)
            grads = dist_autograd.get_gradients(context_id)
            assert {one: grad.tolist() for one, grad in grads.items()} == {x: [1] * 2, y: [1] * 3}

    on_first(program)


@pytest.mark.parametrize("wrapped", CONTAINERS)
def test_and_so_they_are_in_results(wrapped: Callable[..., Any]) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x, y, z = leaf(), leaf(3), tp.ones(4)
            result = rpc.rpc_sync(1, identity, args=(wrapped(x, y, z),))
            dist_autograd.backward(context_id, dismember(result))
            grads = dist_autograd.get_gradients(context_id)
            assert {one: grad.tolist() for one, grad in grads.items()} == {x: [1] * 2, y: [1] * 3}

    on_first(program)


# -- messages that come to nothing -------------------------------------------------------------


def check_backward_works(context_id: int, x: tp.Tensor) -> None:
    """A pass over the context ends, and is exact."""
    before = dist_autograd.get_gradients(context_id).get(x)
    start = 0.0 if before is None else before.tolist()[0]
    dist_autograd.backward(context_id, rpc.rpc_sync(1, twice, args=(x,)).sum())
    assert dist_autograd.get_gradients(context_id)[x].tolist() == [start + 2.0] * 2


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


class UnpicklableThere:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __reduce__(self) -> Any:
        return (raise_on_arrival, (self.x,))


def raise_on_arrival(x: Any) -> Any:
    raise ArithmeticError("does not unpickle")


def unpicklable_result(x: Any) -> Any:
    return [x * 2, Unpicklable()]


def result_unpicklable_here(x: Any) -> Any:
    return UnpicklableThere(x * 2)


def test_a_request_that_cannot_be_pickled_leaves_no_trace() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            with pytest.raises(TypeError, match="not this one"):
                rpc.rpc_sync(1, identity, args=(x, Unpicklable()))
            assert recorded(context_id) == ({}, {}, set())
            check_backward_works(context_id, x)

    on_first(program)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (fail, KeyError),
        (unpicklable_result, TypeError),
        (result_unpicklable_here, ArithmeticError),
    ],
)
def test_a_call_that_fails_somewhere_is_an_unused_one(
    function: Callable[..., Any], error: type[Exception]
) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            with pytest.raises(error):
                rpc.rpc_sync(1, function, args=(x,))
            check_backward_works(context_id, x)
            with pytest.raises(error):
                rpc.remote(1, function, args=(x,)).to_here()
            check_backward_works(context_id, x)

    on_first(program)


def test_a_request_that_does_not_unpickle_is_an_unused_one() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            with pytest.raises(ArithmeticError, match="does not unpickle"):
                rpc.rpc_sync(1, identity, args=(UnpicklableThere(x),))
            assert [outputs for _, _, outputs in ask(1, context_id).recvs.values()] == [1]
            check_backward_works(context_id, x)

    on_first(program)


def twice_later(x: Any) -> Any:
    time.sleep(0.15)
    return x * 2


def test_an_answer_that_comes_too_late_is_an_unused_one() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            with pytest.raises(rpc.RpcTimeoutError):
                rpc.rpc_sync(1, twice_later, args=(x,), timeout=0.02)
            # Now the answer is not even under way; then it has come.
            check_backward_works(context_id, x)
            eventually(lambda: len(recorded(context_id).recvs) >= 1)
            check_backward_works(context_id, x)

    on_first(program)


def test_a_send_function_whose_message_cannot_be_sent_is_taken_back() -> None:
    def program() -> None:
        agent = current_agent()
        with dist_autograd.context() as context_id:
            x = leaf()
            send = agent.transport.send

            def refuse(message: Any) -> None:
                message.on_failure(message, RuntimeError("the network is down"))

            agent.transport.send = refuse  # type: ignore[method-assign]
            try:
                with pytest.raises(RuntimeError, match="network is down"):
                    rpc.rpc_sync(1, twice, args=(x,))
            finally:
                agent.transport.send = send  # type: ignore[method-assign]
            assert recorded(context_id).sends == {}
            check_backward_works(context_id, x)

    on_first(program)


def test_results_that_are_never_fetched_are_unused() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            rpc.remote(1, twice, args=(x,))
            rpc.rpc_async(1, twice, args=(x,))
            check_backward_works(context_id, x)

    on_first(program)
