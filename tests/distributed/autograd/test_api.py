"""`backward` and its gradients, over calls of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tensorplay as tp
from distributed.autograd.driving import HARSH, context_of, on_first, rank
from distributed.autograd.remote import (
    add,
    both,
    constant,
    detached,
    fetch,
    grad_attribute,
    gradient_of,
    identity,
    mul,
    nothing,
    number,
    parameter,
    square_parameter,
    times_parameter,
    twice,
    via,
    via_async,
    via_reference,
    without_grad,
)
from harness.loopback import run_world
from tensorplay import nn
from tensorplay.distributed import autograd as dist_autograd
from tensorplay.distributed import rpc

Grads = dict[tp.Tensor, tp.Tensor]


def leaf(value: float = 1.0) -> tp.Tensor:
    return tp.full((2,), value, requires_grad=True)


def values(grads: Grads, *leaves: tp.Tensor) -> list[Any]:
    """The first element of each leaf's gradient; and there are no others."""
    assert set(grads) == set(leaves)
    for one in leaves:
        assert grads[one].shape == one.shape
        assert len(set(grads[one].reshape(-1).tolist())) == 1
    return [grads[one].reshape(-1).tolist()[0] for one in leaves]


def gradients_of(loss: Callable[[], tp.Tensor]) -> Grads:
    """The gradients on this worker of a loss, computed and differentiated in a context."""
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [loss()])
        return dist_autograd.get_gradients(context_id)


# -- the same expression, wherever it is computed --------------------------------------------------


def call_sync(to: int, function: Callable[..., Any], *args: Any) -> Any:
    return rpc.rpc_sync(to, function, args=args)


WAYS: dict[str, Callable[..., Any]] = {
    "here": lambda to, function, *args: function(*args),
    "sync": call_sync,
    "async": via_async,
    "reference": via_reference,
    "self": lambda to, function, *args: rpc.rpc_sync(0, function, args=args),
    "self async": lambda to, function, *args: rpc.rpc_async(0, function, args=args).wait(),
    "self reference": lambda to, function, *args: rpc.remote(0, function, args=args).to_here(),
    "nested": lambda to, function, *args: via([to, 2], function, *args),
    "nested back": lambda to, function, *args: via([to, 0], function, *args),
    "nested twice back": lambda to, function, *args: via([to, 2, 0, 1, 0, 2], function, *args),
    "nested self": lambda to, function, *args: via([to, to, to], function, *args),
    "nested async": lambda to, function, *args: rpc.rpc_sync(
        to, via_async, args=(2, function, *args)
    ),
    "nested reference": lambda to, function, *args: rpc.rpc_sync(
        to, via_reference, args=(2, function, *args)
    ),
    "reference of a third": lambda to, function, *args: rpc.rpc_sync(
        to, fetch, args=(rpc.remote(2, function, args=args),)
    ),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]


@pytest.fixture(params=[None, HARSH], ids=["fair", "harsh"])
def weather(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_both_arguments_get_their_gradients(way: Callable[..., Any], weather: Any) -> None:
    def program() -> None:
        a, b = leaf(2.0), leaf(5.0)
        grads = gradients_of(lambda: way(1, mul, a, b).sum())
        assert values(grads, a, b) == [5.0, 2.0]
        assert a.grad is None
        assert b.grad is None

    on_first(program, size=3, weather=weather)


def test_only_what_leads_to_the_loss_has_a_gradient(way: Callable[..., Any]) -> None:
    def program() -> None:
        used, unused_result, unused_argument = leaf(2.0), leaf(), leaf()

        def loss() -> tp.Tensor:
            way(1, twice, unused_result)
            first, _ = way(1, identity, [used, unused_argument])
            return first.sum()

        assert values(gradients_of(loss), used) == [1.0]

    on_first(program, size=3)


def test_a_long_chain_of_calls(way: Callable[..., Any]) -> None:
    def program() -> None:
        x = leaf()

        def loss() -> tp.Tensor:
            value: tp.Tensor = x
            for _ in range(10):
                value = way(1, twice, value)
            return value.sum()

        assert values(gradients_of(loss), x) == [1024.0]

    on_first(program, size=3)


def test_one_tensor_in_many_calls_adds_up(way: Callable[..., Any]) -> None:
    def program() -> None:
        x = leaf(3.0)

        def loss() -> tp.Tensor:
            return (way(1, mul, x, x) + way(1, add, x, x) + x + way(2, twice, x)).sum()

        assert values(gradients_of(loss), x) == [6.0 + 2 + 1 + 2]

    on_first(program, size=3)


@pytest.mark.parametrize(
    "function", [constant, number, nothing, without_grad, detached], ids=lambda f: f.__name__
)
def test_results_that_gradients_do_not_pass(
    function: Callable[..., Any], way: Callable[..., Any]
) -> None:
    def program() -> None:
        x, y = leaf(), leaf()

        def loss() -> tp.Tensor:
            result = way(1, function, x)
            loss = (y * (1.0 if result is None else result)).sum()
            assert isinstance(loss, tp.Tensor)
            return loss

        assert set(gradients_of(loss)) == {y}

    on_first(program, size=3)


def test_a_parameter_on_each_worker_gets_its_own_gradient(way: Callable[..., Any]) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf(2.0)
            loss = (
                way(1, times_parameter, x) + rpc.rpc_sync(2, times_parameter, args=(x, "v"))
            ).sum()
            dist_autograd.backward(context_id, loss)
            here = dist_autograd.get_gradients(context_id)
            assert here.pop(x).tolist() == [6.0, 6.0]
            found = [
                rpc.rpc_sync(to, gradient_of, args=(context_id, name))
                for name in ("w", "v")
                for to in range(3)
            ]
            assert found.count([2.0, 2.0]) == 2
            assert found.count(None) == 4
            assert found[3 + 2] == [2.0, 2.0]
            for to in range(3):
                assert rpc.rpc_sync(to, grad_attribute) is None

    on_first(program, size=3)


def test_local_gradients_through_a_call_raise_unless_they_are_whole() -> None:
    def program() -> None:
        x = leaf(2.0)
        with dist_autograd.context() as context_id:
            result = rpc.rpc_sync(1, mul, args=(x, x))
            loss = (x * result).sum()
            for wanted in (x, [x, result]):
                with pytest.raises(RuntimeError, match="goes through a remote call: use"):
                    tp.autograd.grad(loss, wanted, retain_graph=True)
            # All of what leads to the result is here; so is all of what does not lead to a call.
            (grad,) = tp.autograd.grad(loss, result, retain_graph=True)
            assert grad.tolist() == [2.0, 2.0]
            (grad,) = tp.autograd.grad((x * x).sum(), x)
            assert grad.tolist() == [4.0, 4.0]
            dist_autograd.backward(context_id, [loss])
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [12.0, 12.0]

    on_first(program)


# -- arguments, results ----------------------------------------------------------------------------


def test_a_module_parameter_as_argument_keeps_its_edge() -> None:
    def program() -> None:
        p = nn.Parameter(tp.full((2,), 3.0))
        q = nn.Parameter(tp.full((2,), 4.0))
        assert values(gradients_of(lambda: rpc.rpc_sync(1, mul, args=(p, q)).sum()), p, q) == [4, 3]

    on_first(program)


def test_each_fetch_of_a_reference_adds_its_gradient() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            reference = rpc.remote(1, times_parameter, args=(x,))
            loss = (reference.to_here() + reference.to_here() * 10).sum()
            reference.to_here()
            dist_autograd.backward(context_id, loss)
            assert values(dist_autograd.get_gradients(context_id), x) == [33.0]
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [11.0, 11.0]

    on_first(program)


def test_a_reference_passed_to_a_third_worker() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            reference = rpc.remote(1, square_parameter)
            loss = (rpc.rpc_sync(2, fetch, args=(reference,)) + reference.to_here()).sum()
            dist_autograd.backward(context_id, loss)
            assert dist_autograd.get_gradients(context_id) == {}
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [12.0, 12.0]

    on_first(program, size=3)


def test_a_reference_made_before_the_context() -> None:
    def program() -> None:
        reference = rpc.remote(1, parameter)
        with dist_autograd.context() as context_id:
            loss = (reference.to_here() * leaf(7.0)).sum()
            dist_autograd.backward(context_id, loss)
            assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [7.0, 7.0]

    on_first(program)


def test_a_leaf_on_its_owner_through_its_own_reference() -> None:
    def program() -> None:
        x = leaf(2.0)
        reference = rpc.RRef(x)
        grads = gradients_of(
            lambda: (reference.to_here() * rpc.rpc_sync(1, identity, args=(x,))).sum()
        )
        assert values(grads, x) == [4.0]

    on_first(program)


def test_some_of_several_results_are_used() -> None:
    def program() -> None:
        x = leaf()
        grads = gradients_of(lambda: rpc.rpc_sync(1, both, args=(x,))[0].sum())
        assert values(grads, x) == [2.0]

    on_first(program)


def split(x: tp.Tensor) -> list[tp.Tensor]:
    return [x[0:1], x[1:3], x[3:]]


def test_results_that_are_views_of_one_tensor() -> None:
    def program() -> None:
        x = tp.ones(6, requires_grad=True)
        with dist_autograd.context() as context_id:
            parts = rpc.rpc_sync(1, split, args=(x,))
            dist_autograd.backward(context_id, (parts[0] * 5).sum() + (parts[2] * 7).sum())
            grads = dist_autograd.get_gradients(context_id)
        assert grads[x].tolist() == [5.0, 0.0, 0.0, 7.0, 7.0, 7.0]

    on_first(program)


def test_arguments_that_are_views_scatter_into_their_base() -> None:
    def program() -> None:
        x = tp.ones(4, requires_grad=True)
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, mul, args=(x[:2], x[2:])).sum() + rpc.rpc_sync(
                1, twice, args=(x[1],)
            )
            dist_autograd.backward(context_id, loss)
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [1.0, 3.0, 1.0, 1.0]

    on_first(program)


def in_place(x: tp.Tensor) -> tp.Tensor:
    y = x * 1
    y.mul_(3.0)
    return y


def test_in_place_operations_on_the_callee() -> None:
    def program() -> None:
        x = leaf()
        assert values(gradients_of(lambda: rpc.rpc_sync(1, in_place, args=(x,)).sum()), x) == [3.0]

    on_first(program)


@pytest.mark.parametrize("dtype", [tp.float16, tp.float32, tp.float64])
@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (0,), (2, 0), (40, 50)])
def test_gradients_have_the_leaf_s_shape_and_type(shape: Sequence[int], dtype: Any) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = tp.ones(*shape, dtype=dtype).requires_grad_()
            loss = rpc.rpc_sync(1, twice, args=(x,)).sum()
            dist_autograd.backward(context_id, loss)
            grad = dist_autograd.get_gradients(context_id)[x]
            assert grad.shape == x.shape
            assert grad.dtype == dtype
            assert (grad.numpy() == 2).all()

    on_first(program)


def test_types_may_differ_along_the_way() -> None:
    def program() -> None:
        x = tp.ones(2, dtype=tp.float32, requires_grad=True)
        y = tp.ones(2, dtype=tp.float64, requires_grad=True)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, rpc.rpc_sync(1, mul, args=(x, y)).sum())
            grads = dist_autograd.get_gradients(context_id)
            assert [grads[x].dtype, grads[y].dtype] == [tp.float32, tp.float64]

    on_first(program)


def test_tensors_that_travel_out_of_band() -> None:
    def program() -> None:
        x = tp.ones(100_000, requires_grad=True)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, rpc.rpc_sync(1, mul, args=(x, x)).sum())
            grad = dist_autograd.get_gradients(context_id)[x]
            assert np.array_equal(grad.numpy(), np.full(100_000, 2.0, np.float32))

    on_first(program, weather=HARSH)


def test_a_caller_that_changes_its_argument_in_place_later() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            y = x * 2
            future = rpc.rpc_async(1, mul, args=(y, y))
            y.mul_(100.0)
            dist_autograd.backward(context_id, future.wait().sum())
            assert values(dist_autograd.get_gradients(context_id), x) == [8.0]

    on_first(program, weather=HARSH)


# -- roots -----------------------------------------------------------------------------------------


def test_a_bare_tensor_as_root() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, rpc.rpc_sync(1, twice, args=(x,)).sum())
            assert values(dist_autograd.get_gradients(context_id), x) == [2.0]

    on_first(program)


@pytest.mark.parametrize("kind", [list, tuple])
def test_several_roots_add_up_also_the_same_one_twice(kind: Any) -> None:
    def program() -> None:
        x, y = leaf(), leaf()
        with dist_autograd.context() as context_id:
            a = rpc.rpc_sync(1, twice, args=(x,)).sum()
            b = (y * 3).sum()
            dist_autograd.backward(context_id, kind([a, b, a]))
            assert values(dist_autograd.get_gradients(context_id), x, y) == [4.0, 3.0]

    on_first(program)


def summed(x: tp.Tensor) -> tp.Tensor:
    return x.sum()


def test_a_received_tensor_itself_as_root() -> None:
    def program() -> None:
        x = leaf()
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, rpc.rpc_sync(1, summed, args=(x,)))
            assert values(dist_autograd.get_gradients(context_id), x) == [1.0]

    on_first(program)


def test_any_shape_with_one_element_is_a_scalar() -> None:
    def program() -> None:
        x = tp.ones(1, 1, requires_grad=True)
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, rpc.rpc_sync(1, twice, args=(x,)))
            assert dist_autograd.get_gradients(context_id)[x].tolist() == [[2.0]]

    on_first(program)


def test_a_graph_that_crosses_no_border() -> None:
    def program() -> None:
        x = leaf(3.0)
        assert values(gradients_of(lambda: (x * x).sum()), x) == [6.0]
        assert x.grad is None

    on_first(program, size=1)


def start_there(context_id: int, x: tp.Tensor) -> Any:
    """A callee that differentiates in its caller's context; its caller is a worker like any."""
    loss = times_parameter(x) * rpc.rpc_sync(0, parameter, args=("r",))
    dist_autograd.backward(context_id, loss.sum())
    return dist_autograd.get_gradients(context_id)[parameter()].tolist()


def test_a_pass_may_be_started_by_a_callee() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf(2.0)
            # r = 3 here, w = 3 there: the loss is x w r.
            assert rpc.rpc_sync(1, start_there, args=(context_id, x)) == [6.0, 6.0]
            assert values(dist_autograd.get_gradients(context_id), x, parameter("r")) == [9.0, 6.0]

    on_first(program)


def call_back(x: tp.Tensor) -> tp.Tensor:
    """Ask the caller for something, so that the worker with the loss is a callee too."""
    result: tp.Tensor = x * rpc.rpc_sync(0, times_parameter, args=(x,))
    return result


def test_roots_on_a_worker_that_is_a_callee_too() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf(2.0)
            dist_autograd.backward(context_id, rpc.rpc_sync(1, call_back, args=(x,)).sum())
            assert values(dist_autograd.get_gradients(context_id), x, parameter()) == [12.0, 4.0]

    on_first(program)


# -- several passes --------------------------------------------------------------------------------


def test_passes_over_a_retained_graph_accumulate() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, via, args=([2], times_parameter, x)).sum()
            for n in range(1, 6):
                dist_autograd.backward(context_id, [loss], retain_graph=True)
                assert values(dist_autograd.get_gradients(context_id), x) == [3.0 * n]
            dist_autograd.backward(context_id, [loss])
            assert rpc.rpc_sync(2, gradient_of, args=(context_id,)) == [6.0, 6.0]
            with pytest.raises(RuntimeError, match="second time"):
                dist_autograd.backward(context_id, [loss])

    on_first(program, size=3)


def test_a_thousand_passes_over_one_graph() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, twice, args=(x,)).sum()
            for _ in range(1000):
                dist_autograd.backward(context_id, loss, retain_graph=True)
            assert values(dist_autograd.get_gradients(context_id), x) == [2000.0]

    on_first(program)


def test_a_second_loss_after_a_first_backward() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            for n in range(1, 4):
                loss = rpc.rpc_sync(1, times_parameter, args=(x,)).sum()
                dist_autograd.backward(context_id, loss)
                assert values(dist_autograd.get_gradients(context_id), x) == [3.0 * n]
                assert rpc.rpc_sync(1, gradient_of, args=(context_id,)) == [float(n)] * 2

    on_first(program)


def test_a_second_loss_beside_a_first_with_parts_that_were_unused() -> None:
    """What the first pass has used up stands under a result that neither uses."""

    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            kept = rpc.remote(1, identity, args=(x,))
            first = kept.to_here()
            rpc.rpc_sync(1, fetch_twice, args=(kept,))
            unused = rpc.rpc_sync(1, fetch_twice, args=(kept,))
            dist_autograd.backward(context_id, first.sum())
            y = leaf()
            dist_autograd.backward(context_id, rpc.rpc_sync(1, twice, args=(y,)).sum())
            assert values(dist_autograd.get_gradients(context_id), x, y) == [1.0, 2.0]
            # It leads to what is gone.
            with pytest.raises(RuntimeError, match="second time"):
                dist_autograd.backward(context_id, unused.sum())

    on_first(program)


def fetch_twice(reference: rpc.RRef[Any]) -> Any:
    return reference.local_value() * 2


def test_pairs_that_were_used_are_forgotten_and_others_are_not() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            used = rpc.rpc_sync(1, twice, args=(x,))
            later = rpc.rpc_sync(1, twice, args=(x,))
            context = context_of(context_id)
            assert len(context.sends) == len(context.recvs) == 2
            dist_autograd.backward(context_id, used.sum(), retain_graph=True)
            assert len(context.sends) == len(context.recvs) == 2
            dist_autograd.backward(context_id, used.sum())
            assert len(context.sends) == len(context.recvs) == 1
            dist_autograd.backward(context_id, later.sum())
            assert len(context.sends) == len(context.recvs) == 0
            assert values(dist_autograd.get_gradients(context_id), x) == [6.0]

    on_first(program)


def test_passes_that_several_workers_start_in_one_context_at_once() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            starting = [rpc.rpc_async(to, start_with, args=(context_id, x)) for to in (1, 2, 3) * 5]
            for future in starting:
                future.wait()
            assert values(dist_autograd.get_gradients(context_id), x) == [45.0]
            for to in (1, 2, 3):
                assert rpc.rpc_sync(to, gradient_of, args=(context_id,)) == [5.0, 5.0]

    on_first(program, size=4, weather=HARSH)


def start_with(context_id: int, x: tp.Tensor) -> None:
    dist_autograd.backward(context_id, times_parameter(x).sum(), retain_graph=True)


def test_a_leaf_s_hooks_run_once_a_pass_and_may_change_the_gradient() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            seen: list[Any] = []

            def hook(grad: tp.Tensor) -> tp.Tensor:
                seen.append(grad.tolist())
                return grad * 10

            x.register_hook(hook)
            loss = (rpc.rpc_sync(1, twice, args=(x,)) + rpc.rpc_sync(1, mul, args=(x, x)) + x).sum()
            dist_autograd.backward(context_id, loss)
            assert seen == [[5.0, 5.0]]
            assert values(dist_autograd.get_gradients(context_id), x) == [50.0]

    on_first(program)


def test_hooks_on_what_was_received_and_sent() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            y = x * 1
            y.register_hook(lambda grad: grad * 3)
            received = rpc.rpc_sync(1, twice, args=(y,))
            received.register_hook(lambda grad: grad * 5)
            received.retain_grad()
            dist_autograd.backward(context_id, received.sum())
            assert values(dist_autograd.get_gradients(context_id), x) == [30.0]
            assert received.grad.tolist() == [5.0, 5.0]

    on_first(program)


class Adjoint(tp.autograd.Function):
    """The identity; its rule has another worker double the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return rpc.rpc_sync((rank() + 1) % 3, twice, args=(grad,))


def adjoint(x: Any) -> Any:
    return Adjoint.apply(x)


def test_rules_may_call_other_workers(weather: Any) -> None:
    """Also those that wait for the pass, or run a rule of it themselves."""

    def program() -> None:
        x = leaf()
        for _ in range(10):
            with dist_autograd.context() as context_id:
                a, b = adjoint(x), rpc.rpc_sync(1, adjoint, args=(x,))
                c = rpc.rpc_sync(2, via, args=([1], adjoint, x))
                dist_autograd.backward(context_id, adjoint(a + b + c).sum())
                assert values(dist_autograd.get_gradients(context_id), x) == [12.0]

    on_first(program, size=3, weather=weather)


def test_gradients_taken_over_are_not_shared() -> None:
    """Two leaves that get the same gradient get an array each, as does the message."""

    def program() -> None:
        with dist_autograd.context() as context_id:
            x, y = leaf(), leaf()
            dist_autograd.backward(context_id, (rpc.rpc_sync(1, identity, args=(x,)) + x + y).sum())
            grads = dist_autograd.get_gradients(context_id)
            grads[y].mul_(100.0)
            assert values(grads, x, y) == [2.0, 100.0]

    on_first(program)


# -- mistakes --------------------------------------------------------------------------------------


def loss() -> tp.Tensor:
    return leaf().sum()


#: What `backward` is called with, given a context's id; what it raises, and what that says.
MISTAKES: dict[str, tuple[Callable[[int], tuple[Any, Any]], type[Exception], str]] = {
    "no id": (lambda c: (None, loss()), TypeError, "incompatible function arguments"),
    "a tensor as id": (lambda c: (loss(), loss()), TypeError, "context_id must be an int"),
    "a bool as id": (lambda c: (True, loss()), TypeError, "context_id must be an int"),
    "no roots": (lambda c: (c, None), TypeError, "incompatible function arguments: roots must be"),
    "no roots for no id": (lambda c: (c + 100, None), TypeError, "roots must be a Tensor or a"),
    "an empty list for no id": (lambda c: (c + 100, []), RuntimeError, "Could not find autograd"),
    "a vector that needs none": (lambda c: (c, tp.ones(2)), RuntimeError, "requires_grad not set"),
    "a leaf that is a vector": (lambda c: (c, leaf()), RuntimeError, "is not a scalar, all roots"),
    "a number": (lambda c: (c, [1.0]), TypeError, "roots must be a Tensor or a list"),
    "an array": (lambda c: (c, np.ones(1)), TypeError, "roots must be a Tensor or a list"),
    "unknown id": (lambda c: (c + 100, loss()), RuntimeError, "autograd context with id: "),
    "elsewhere": (lambda c: (1 << 48, loss()), RuntimeError, "with id: 281474976710656 .it is not"),
    "an empty list": (lambda c: (c, []), RuntimeError, "No tensors provided for gradient"),
    "no grad": (lambda c: (c, tp.ones(())), RuntimeError, "requires_grad not set on root"),
    "one of two": (lambda c: (c, [loss(), tp.ones(())]), RuntimeError, "requires_grad not set"),
    "a vector": (lambda c: (c, leaf() * 2), RuntimeError, "all roots need to be scalar"),
    "a leaf": (lambda c: (c, tp.ones((), requires_grad=True)), RuntimeError, "is a leaf"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_raises_at_once_and_leaves_the_context_in_order(mistake: str) -> None:
    arguments, error, text = MISTAKES[mistake]

    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, twice, args=(x,)).sum()
            with pytest.raises(error, match=text):
                dist_autograd.backward(*arguments(context_id))
            dist_autograd.backward(context_id=context_id, roots=[loss], retain_graph=False)
            assert values(dist_autograd.get_gradients(context_id), x) == [2.0]

    on_first(program)


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        ("1", TypeError),
        (True, TypeError),
        (-1, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
    ],
)
def test_a_timeout_that_is_none(timeout: Any, error: type[Exception]) -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, twice, args=(x,)).sum()
            with pytest.raises(error, match="backward: timeout must be a number of seconds"):
                dist_autograd.backward(context_id, loss, timeout=timeout)
            # Nothing has been done; and 0 is no limit, as in calls.
            dist_autograd.backward(context_id, loss, timeout=0)
            assert values(dist_autograd.get_gradients(context_id), x) == [2.0]

    on_first(program)


@pytest.mark.parametrize("wrong", ["1", 1.0, True, loss(), [1]])
def test_an_id_that_is_none(wrong: Any) -> None:
    def program() -> None:
        for ask in (dist_autograd.get_gradients, dist_autograd.get_graph):
            with pytest.raises(TypeError, match="context_id must be an int, got "):
                ask(wrong)

    on_first(program, size=1)


def test_before_rpc_is_up() -> None:
    assert dist_autograd.is_available()
    assert not dist_autograd.is_initialized()
    for call in (
        lambda: dist_autograd.backward(0, [leaf().sum()]),
        lambda: dist_autograd.get_gradients(0),
    ):
        with pytest.raises(RuntimeError, match="RPC has not been initialized"):
            call()


def test_while_rpc_is_up() -> None:
    def program(this: int) -> None:
        assert dist_autograd.is_initialized()
        assert rank() == this

    run_world(2, program)


def test_a_released_context() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync(1, twice, args=(leaf(),)).sum()
        with pytest.raises(RuntimeError, match=rf"id: {context_id} .it has been released"):
            dist_autograd.backward(context_id, loss)

    on_first(program)


def test_a_result_of_another_context() -> None:
    def program() -> None:
        with dist_autograd.context():
            foreign = rpc.rpc_sync(1, twice, args=(leaf(),)).sum()
        with dist_autograd.context() as context_id:
            x = leaf()
            with pytest.raises(RuntimeError, match="another context"):
                dist_autograd.backward(context_id, foreign)
            dist_autograd.backward(context_id, rpc.rpc_sync(1, twice, args=(x,)).sum())
            assert values(dist_autograd.get_gradients(context_id), x) == [2.0]

    on_first(program)


def test_a_local_backward_through_a_call_names_the_right_one() -> None:
    def program() -> None:
        with dist_autograd.context() as context_id:
            x = leaf()
            loss = rpc.rpc_sync(1, twice, args=(x,)).sum()
            with pytest.raises(RuntimeError, match=r"distributed\.autograd\.backward"):
                loss.backward()
            dist_autograd.backward(context_id, loss)
            assert x.grad is None

    on_first(program)
