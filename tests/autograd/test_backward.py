"""`backward`: where gradients go, what is kept, and what is refused."""

import threading

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.autograd.graph import Node


def leaf(*values):
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


def test_gradients_reach_all_leaves():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x * w + x).sum().backward()
    assert x.grad.tolist() == [4.0, 5.0]
    assert w.grad.tolist() == [1.0, 2.0]


def test_a_tensor_used_several_times_gets_the_sum():
    x = leaf(2.0)
    y = x * x
    (y * y + y + x).sum().backward()
    assert x.grad.tolist() == [4 * 8.0 + 2 * 2.0 + 1]


def test_passes_accumulate():
    x = leaf(1.0)
    for _ in range(3):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [6.0]


def test_accumulation_is_in_place_so_that_the_grad_stays_the_same_tensor():
    x = leaf(1.0)
    (x * 2).sum().backward()
    first, version = x.grad, x.grad._version[0]
    (x * 2).sum().backward()
    assert x.grad is first
    assert first._version[0] == version + 1


def test_a_grad_that_cannot_be_written_to_is_replaced():
    x = leaf(1.0, 2.0)
    x.grad = tp.ones(1, dtype=tp.float64).expand(2)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_two_leaves_never_share_their_gradient():
    x, y = leaf(1.0), leaf(1.0)
    (x + y).backward(tp.ones(1, dtype=tp.float64))
    x.grad += 1
    assert y.grad.tolist() == [1.0]


def test_neither_do_two_inputs():
    x, y = leaf(1.0), leaf(1.0)
    (x + y).sum().backward(inputs=[x, y])
    x.grad += 1
    assert y.grad.tolist() == [1.0]


def test_passes_of_several_threads_lose_nothing():
    x = tp.zeros(20_000, requires_grad=True)

    def run():
        for _ in range(30):
            x.sum().backward()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.grad.min().item() == x.grad.max().item() == 120.0


def test_the_given_gradient_is_not_taken_over():
    x = leaf(1.0, 2.0)
    start = tp.ones(2, dtype=tp.float64)
    x.backward(start)
    x.grad.zero_()
    assert start.tolist() == [1.0, 1.0]


def test_a_fresh_gradient_is_taken_without_a_copy():
    class Remember(Node):
        __slots__ = ()

        def rule(self, grad):
            fresh = grad * 2
            made.append(id(fresh))
            return (fresh,)

    made = []
    x = leaf(1.0, 2.0)
    out = tp.tensor([1.0, 2.0], dtype=tp.float64)
    out._node, out._requires_grad = Remember((x,)), True
    out.sum().backward()
    assert id(x.grad._array) == made[0]


def test_a_leaf_can_be_the_root():
    x = tp.tensor(3.0, requires_grad=True)
    x.backward()
    assert x.grad.item() == 1.0


def test_roots_may_be_several():
    x = leaf(1.0)
    tp.autograd.backward([(x * 2).sum(), (x * 3).sum()])
    tp.autograd.backward([x * 2, x * 3], [None, tp.tensor([2.0], dtype=tp.float64)])
    assert x.grad.tolist() == [13.0]


def test_a_root_may_appear_twice():
    x = leaf(2.0)
    y = (x * x).sum()
    tp.autograd.backward([y, y])
    assert x.grad.tolist() == [8.0]


def test_only_scalars_have_an_implicit_gradient():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
        (x * 2).backward()


def test_a_tensor_without_history_is_refused():
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad and does"):
        tp.ones(1).backward()


def test_a_gradient_of_another_shape_is_refused():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\]"):
        (x * 2).backward(tp.ones(3))


def test_a_second_pass_needs_the_graph_to_be_retained():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 8.0]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_inputs_restrict_the_pass():
    x, w = leaf(1.0), leaf(2.0)
    y = x * w
    z = (y * y).sum()
    z.backward(inputs=[x, y])
    assert x.grad.tolist() == [2 * 2.0 * 2.0]
    assert y.grad.tolist() == [4.0]
    assert w.grad is None
    with pytest.raises(RuntimeError, match="cannot be empty"):
        z.backward(inputs=[])


def test_constants_and_detached_tensors_get_nothing():
    x, c = leaf(1.0), tp.ones(1, dtype=tp.float64)
    (x * c + x.detach()).sum().backward()
    assert c.grad is None
    assert x.grad.tolist() == [1.0]


def test_a_leaf_that_is_not_reached_keeps_no_gradient():
    x, other = leaf(1.0), leaf(1.0)
    x.sum().backward()
    assert other.grad is None


def test_a_long_chain_is_built_differentiated_and_freed():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    y.sum().backward()
    del y
    assert x.grad.tolist() == [1.0]


def test_a_long_chain_of_views_is_built_differentiated_and_freed():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    for _ in range(10_000):
        y = y.reshape(1, 2).T[:, 0]
    y.sum().backward()
    y.zero_()
    del y
    assert x.grad.tolist() == [1.0, 1.0]


def test_a_long_chain_can_be_differentiated_twice():
    x = leaf(0.5)
    y = x
    for _ in range(5_000):
        y = y + x * 1e-3
    (first,) = tp.autograd.grad((y * y).sum(), x, create_graph=True)
    (second,) = tp.autograd.grad(first, x)
    assert second.item() == pytest.approx(2 * 6.0**2)


def test_a_wide_graph_sums_exactly_once_per_path():
    x = leaf(1.0)
    layer = [x * 1.0 for _ in range(50)]
    for _ in range(5):
        layer = [sum(layer[1:], layer[0]) * 0.02 for _ in range(50)]
    sum(layer[1:], layer[0]).sum().backward()
    assert x.grad.item() == pytest.approx(50.0)


def test_writing_to_a_saved_tensor_is_noticed():
    x, w = leaf(1.0), leaf(2.0)
    y = w * 1.0
    z = x * y
    with tp.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation: MulBackward0"):
        z.sum().backward()


def test_writing_to_what_no_rule_needs_is_allowed():
    x = leaf(1.0)
    y = x * 1.0
    z = y + 1
    with tp.no_grad():
        y.add_(1)
    z.sum().backward()
    assert x.grad.tolist() == [1.0]


def test_writing_through_a_view_is_noticed():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    view = y[:1]
    z = y * y
    with tp.no_grad():
        view.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_writing_after_the_first_pass_is_noticed_by_the_second_order():
    x, w = leaf(1.0), leaf(2.0)
    y = w * 1.0
    (first,) = tp.autograd.grad(((x * y) ** 2).sum(), x, create_graph=True)
    with tp.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()


def test_a_graph_that_leads_to_another_worker_is_refused_before_anything_runs():
    class RecvFunction(Node):
        __slots__ = ()
        special = True

    x = leaf(1.0)
    ran = []
    received = tp.ones(1, dtype=tp.float64)
    received._node, received._requires_grad = RecvFunction(()), True
    y = x * received
    y.register_hook(ran.append)
    for call in (y.sum().backward, lambda: tp.autograd.grad(y.sum(), x)):
        with pytest.raises(RuntimeError, match=r"use tensorplay.distributed.autograd.backward\("):
            call()
    assert not ran
    assert x.grad is None
    # What there is between can be asked for, and what does not go through there.
    assert tp.autograd.grad(y.sum(), received)[0].tolist() == [1.0]
    assert tp.autograd.grad((x * received.detach()).sum(), x)[0].tolist() == [1.0]


def test_gradients_have_the_type_of_their_leaf():
    x = tp.ones(2, requires_grad=True)
    w = tp.ones(2, dtype=tp.float64, requires_grad=True)
    (x * w).sum().backward()
    assert (x.grad.dtype, w.grad.dtype) == (tp.float32, tp.float64)


def test_graphs_can_be_walked():
    x = leaf(1.0, 2.0)
    y = (x * 2).unbind()[1]
    assert y.grad_fn.name() == "UnbindBackward0"
    ((multiplied, number),) = y.grad_fn.next_functions
    assert (multiplied.name(), number) == ("MulBackward0", 0)
    (accumulate, _), nothing = multiplied.next_functions
    assert accumulate.variable is x
    assert accumulate.name() == "AccumulateGrad"
    assert nothing == (None, 0)
    assert repr(multiplied).startswith("<MulBackward0 object at 0x")
    assert x.grad_fn is None
    assert x.is_leaf
    assert not y.is_leaf


def test_grad_is_checked_when_assigned():
    x = leaf(1.0, 2.0)
    x.grad = tp.ones(2, dtype=tp.float64)
    with pytest.raises(RuntimeError, match="data of a different size"):
        x.grad = tp.ones(3, dtype=tp.float64)
    with pytest.raises(RuntimeError, match="data of a different type"):
        x.grad = tp.ones(2)
    with pytest.raises(TypeError, match="expected to be a Tensor"):
        x.grad = np.ones(2)
    x.grad = None
    assert x.grad is None
