"""Functions that see gradients."""

import pytest

import tensorplay as tp


@pytest.fixture
def x():
    return tp.tensor([1.0, 2.0], requires_grad=True)


def test_a_leaf_hook_sees_the_whole_gradient_once(x):
    seen = []
    x.register_hook(lambda grad: seen.append(grad.tolist()))
    (x * 2 + x * x).sum().backward()
    assert seen == [[4.0, 6.0]]


def test_a_hook_can_replace_the_gradient(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 10)
    x.register_hook(lambda grad: grad + 1)
    y.sum().backward()
    assert x.grad.tolist() == [21.0, 21.0]


def test_hooks_run_in_order_and_can_be_removed(x):
    order = []
    first = x.register_hook(lambda _: order.append("first"))
    x.register_hook(lambda _: order.append("second"))
    x.sum().backward()
    first.remove()
    first.remove()
    x.sum().backward()
    assert order == ["first", "second", "second"]


def test_a_handle_can_be_a_block(x):
    seen = []
    with x.register_hook(seen.append):
        x.sum().backward()
    x.sum().backward()
    assert len(seen) == 1


def test_a_hook_that_keeps_the_gradient_has_it_for_itself(x):
    kept = []
    x.register_hook(kept.append)
    (x * 3).sum().backward()
    x.grad.zero_()
    assert kept[0].tolist() == [3.0, 3.0]


def test_retained_gradients_of_inner_tensors(x):
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    z = (y * y).sum()
    z.backward(retain_graph=True)
    assert y.grad.tolist() == [4.0, 8.0]
    z.backward()
    assert y.grad.tolist() == [8.0, 16.0]
    assert not x.retains_grad


def test_the_retained_gradient_is_what_other_hooks_made_of_it(x):
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda grad: grad * 10)
    y.sum().backward()
    assert y.grad.tolist() == [10.0, 10.0]


def test_a_retained_gradient_follows_an_in_place_write(x):
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * 5).sum().backward()
    assert y.grad.tolist() == [5.0, 5.0]
    assert x.grad.tolist() == [30.0, 30.0]


def test_pieces_of_several_have_hooks_of_their_own(x):
    first, second = (x * 1).unbind()
    first.register_hook(lambda grad: grad * 2)
    second.retain_grad()
    (first + second).backward()
    assert x.grad.tolist() == [2.0, 1.0]
    assert second.grad.item() == 1.0


def test_hooks_take_part_in_the_recorded_pass(x):
    x.register_hook(lambda grad: grad * grad)
    (dx,) = tp.autograd.grad((x * x).sum(), x, create_graph=True)
    assert dx.tolist() == [4.0, 16.0]
    dx.sum().backward()
    # d(4 x^2)/dx = 8 x, and the hook squares that.
    assert x.grad.tolist() == [64.0, 256.0]


def test_a_hook_may_return_none_in_a_pass_that_is_not_recorded(x):
    modes = []
    x.register_hook(lambda _: modes.append(tp.is_grad_enabled()))
    x.sum().backward()
    assert modes == [False]


def test_the_hook_after_accumulation_sees_the_leaf(x):
    seen = []
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    x.sum().backward()
    x.sum().backward()
    assert seen == [[1.0, 1.0], [2.0, 2.0]]


def test_a_hook_after_accumulation_can_drop_the_gradient(x):
    def consume(leaf):
        leaf.grad = None

    handle = x.register_post_accumulate_grad_hook(consume)
    x.sum().backward()
    assert x.grad is None
    handle.remove()
    x.sum().backward()
    assert x.grad is not None


def test_hooks_need_a_gradient_to_see(x):
    constant = tp.ones(2)
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        constant.register_hook(print)
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        constant.register_post_accumulate_grad_hook(print)
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        constant.retain_grad()
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        (lambda grad: grad[:1], RuntimeError, r"changed the size .* from \(2,\) to \(1,\)"),
        (lambda grad: grad.sum(), RuntimeError, r"changed the size .* from \(2,\) to \(\)"),
        (lambda grad: grad.double(), RuntimeError, "changed the type .* from float32 to float64"),
        (lambda grad: 5, TypeError, "must return a Tensor or None, .*<lambda>.* returned int"),
        (lambda grad: grad.numpy(), TypeError, "returned ndarray"),
    ],
)
def test_a_hook_may_not_return_something_else(x, inner, returned, error, text):
    y = x * 2
    (y if inner else x).register_hook(returned)
    with pytest.raises(error, match=text):
        y.sum().backward()
    assert x.grad is None


def test_a_hook_of_the_accumulation_sees_each_pass_s_gradient_afterwards(x):
    seen = []
    ((node, _), _) = (x * x).grad_fn.next_functions
    handle = node.register_hook(lambda inputs, grads: seen.append((inputs, grads, x.grad.tolist())))
    x.register_hook(lambda grad: grad * 10)
    for _ in range(2):
        (x * 2 + x).sum().backward()
    handle.remove()
    x.sum().backward()
    assert [(inputs, now) for inputs, _, now in seen] == [((), [30.0] * 2), ((), [60.0] * 2)]
    assert [grad.tolist() for _, (grad,), _ in seen] == [[30.0, 30.0]] * 2
