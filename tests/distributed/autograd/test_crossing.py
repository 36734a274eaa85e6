"""What tensors are like on the other side: found wherever they are, the same ones, in the graph."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

import tensorplay as tp
from distributed.autograd.driving import on_first
from distributed.autograd.remote import identity, mul, number, times_parameter, twice, via
from tensorplay import nn
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc
from tensorplay.distributed.autograd.functions import RecvRpcBackward, SendRpcBackward


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


def gradients(context_id: int, *leaves: tp.Tensor) -> list[Any]:
    found = dist_autograd.get_gradients(context_id)
    assert set(found) == set(leaves)
    return [found[one].tolist() for one in leaves]


# -- where tensors are found -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Model:
    def __init__(self) -> None:
        self.x = leaf(3.0)

    def times(self, y: Any) -> Any:
        return self.x * y


def of_x(holder: Any) -> Any:
    return holder.x * 2


def added(values: Any) -> Any:
    return sum(values, tp.zeros(2))


def keys_times_values(values: dict[Any, float]) -> Any:
    return added([key * value for key, value in values.items()])


@pytest.mark.parametrize(
    ("function", "holding", "derivative"),
    [
        (of_x, Frozen, 2.0),
        (of_x, Slotted, 2.0),
        (added, lambda x: {x}, 1.0),
        (added, lambda x: frozenset([x]), 1.0),
        (added, lambda x: (x, x, x * 2), 4.0),
        (keys_times_values, lambda x: {x: 3.0}, 3.0),
    ],
    ids=["frozen", "slots", "set", "frozenset", "twice", "keys"],
)
@pytest.mark.parametrize("to", [0, 1])
def test_tensors_are_found_in_objects_of_all_kinds(
    function: Callable[..., Any], holding: Callable[[Any], Any], derivative: float, to: int
) -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            result = rpc.rpc_sync(to, function, args=(holding(x),))
            dist_autograd.backward(context_id, result.sum())
            assert gradients(context_id, x) == [[derivative] * 2]

    on_first(program)


def test_tensors_are_found_in_what_is_called_and_in_keywords() -> None:
    def program() -> None:
        x, w, model = leaf(), leaf(5.0), Model()
        with dist_autograd.context() as context_id:
            results = [
                rpc.rpc_sync(1, functools.partial(mul, w), args=(x,)),
                rpc.rpc_sync(1, model.times, args=(x,)),
                rpc.rpc_sync(1, mul, kwargs={"b": w, "a": x}),
            ]
            dist_autograd.backward(context_id, sum(results).sum())
            assert gradients(context_id, x, w, model.x) == [[13.0] * 2, [2.0] * 2, [1.0] * 2]

    on_first(program)


def test_a_module_that_is_sent_keeps_its_edges() -> None:
    def program() -> None:
        module = nn.Linear(2, 1)
        x = tp.ones(1, 2)
        with dist_autograd.context() as context_id:
            result = rpc.rpc_sync(1, module, args=(x,)) + rpc.rpc_sync(1, apply, args=(module, x))
            dist_autograd.backward(context_id, result.sum())
            grads = gradients(context_id, module.weight, module.bias)
            assert grads == [[[2.0, 2.0]], [2.0]]

    on_first(program)


def apply(module: Callable[[Any], Any], x: Any) -> Any:
    return module(x)


def what_it_is(x: Any) -> tuple[str, bool, bool]:
    return type(x).__name__, x.is_leaf, x.requires_grad


def test_a_parameter_arrives_as_a_tensor_in_the_graph() -> None:
    def program() -> None:
        parameter = nn.Parameter(tp.ones(2))
        with dist_autograd.context() as context_id:
            for call in (
                lambda: rpc.rpc_sync(1, what_it_is, args=(parameter,)),
                lambda: rpc.rpc_sync(1, what_it_is, kwargs={"x": parameter}),
                lambda: rpc.remote(1, what_it_is, args=(parameter,)).to_here(),
                lambda: rpc.rpc_sync(1, via, args=([2], what_it_is, parameter)),
            ):
                assert call() == ("Tensor", False, True)
            back = rpc.rpc_sync(1, identity, args=(parameter,))
            assert what_it_is(back) == ("Tensor", False, True)
            dist_autograd.backward(context_id, back.sum())
            assert gradients(context_id, parameter) == [[1.0, 1.0]]

    on_first(program, size=3)


# -- the same ones ---------------------------------------------------------------------------------


def own_and_others(x: Any, y: Any) -> list[Any]:
    made = x * y
    return [x, made, y, x, made, x.detach()]


def test_results_may_be_the_arguments_and_are_the_same_where_they_were() -> None:
    def program() -> None:
        x, y = leaf(), leaf(2.0)
        with dist_autograd.context() as context_id:
            a, b, c, a_too, b_too, constant = rpc.rpc_sync(1, own_and_others, args=(x, y))
            assert a is a_too
            assert b is b_too
            assert a is not x
            assert not constant.requires_grad
            (recv,) = dist_autograd._current_context()._recv_functions().values()
            assert recv.outputs == 3
            assert a.grad_fn is b.grad_fn is c.grad_fn is recv
            dist_autograd.backward(context_id, (a + b + c + a_too + b_too + constant).sum())
            assert gradients(context_id, x, y) == [[6.0, 6.0], [3.0, 3.0]]

    on_first(program)


class Failed(Exception):
    """With a tensor among its arguments."""


def fail_with(x: Any) -> None:
    raise Failed(x * 2)


def test_a_tensor_in_an_exception_is_a_leaf() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            with pytest.raises(Failed) as caught:
                rpc.rpc_sync(1, fail_with, args=(x,))
            (tensor,) = caught.value.args
            assert tensor.tolist() == [2.0, 2.0]
            assert tensor.is_leaf
            dist_autograd.backward(context_id, rpc.rpc_sync(1, twice, args=(x,)).sum())
            assert gradients(context_id, x) == [[2.0, 2.0]]

    on_first(program)


# -- in place --------------------------------------------------------------------------------------


def write_over_one(x: Any, y: Any) -> Any:
    x[0] = 7.0
    return y.add_(x)


def test_writing_to_what_was_received_here_and_there() -> None:
    def program() -> None:
        x, y = leaf(), leaf(2.0)
        with dist_autograd.context() as context_id:
            there = rpc.rpc_sync(1, write_over_one, args=(x, y))
            a, b = rpc.rpc_sync(1, identity, args=([x, y],))
            a.mul_(2.0)
            b[1] = 0.0
            a.add_(b)
            view = rpc.rpc_sync(1, identity, args=(x,))
            view[0:1].mul_(10.0)
            result = there + a + view
            assert result.tolist() == [9.0 + 4.0 + 10.0, 3.0 + 2.0 + 1.0]
            dist_autograd.backward(context_id, result.sum())
            assert gradients(context_id, x, y) == [[0.0 + 2 + 10, 1.0 + 2 + 1], [2.0, 1.0]]
            assert (x.tolist(), y.tolist()) == ([1.0, 1.0], [2.0, 2.0])

    on_first(program)


# -- walking ---------------------------------------------------------------------------------------


def names_from(node: Any, stops: list[Any]) -> list[str]:
    """Names of the nodes, depth first; functions that end the graph here go to `stops`."""
    if node is None:
        return ["None"]
    if isinstance(node, RecvRpcBackward):
        stops.append(node.message_id)
    names = [node.name()]
    for after, _ in node.next_functions:
        names += names_from(after, stops)
    return names


def walk_from_send(context_id: int, message_id: int) -> tuple[list[str], list[int]]:
    send = dist_autograd._retrieve_context(context_id)._send_functions()[message_id]
    assert isinstance(send, SendRpcBackward)
    stops: list[int] = []
    return names_from(send, stops), stops


def test_the_graph_can_be_walked_over_workers_by_names_and_messages() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            result = rpc.rpc_sync(1, via, args=([2], times_parameter, x * 2)).sum()
            walked = []
            stops: list[Any] = []
            walked.append((0, names_from(result.grad_fn, stops)))
            # Each recv function's pair is a send function of the worker that it names.
            for worker in (1, 2, 1, 0):
                (message_id,) = stops
                with tp.no_grad():
                    names, stops = rpc.rpc_sync(
                        worker, walk_from_send, args=(context_id, message_id)
                    )
                walked.append((worker, names))
            assert stops == []
            assert walked == [
                (0, ["SumBackward0", "RecvRpcBackward"]),
                (1, ["SendRpcBackward", "RecvRpcBackward"]),
                (2, ["SendRpcBackward", "MulBackward0", "RecvRpcBackward", "AccumulateGrad"]),
                (1, ["SendRpcBackward", "RecvRpcBackward"]),
                (0, ["SendRpcBackward", "MulBackward0", "AccumulateGrad", "None"]),
            ]

    on_first(program, size=3)


def test_functions_are_listed_oldest_first_in_dicts_of_the_caller_s_own() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context():
            for to in (1, 2, 1):
                rpc.rpc_sync(to, twice, args=(x,))
                rpc.rpc_sync(to, number, args=(1,))
            context = dist_autograd._current_context()
            for functions in (context._send_functions, context._recv_functions):
                assert [node.peer for node in functions().values()] == [1, 2, 1]
                assert [node.message_id for node in functions().values()] == list(functions())
                functions().clear()
                assert len(functions()) == 3
            sent = list(context._send_functions())
            assert sent == sorted(sent)
            context._known_worker_ids().clear()
            assert context._known_worker_ids() == {1, 2}

    on_first(program, size=3)
