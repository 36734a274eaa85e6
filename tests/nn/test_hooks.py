"""Hooks around modules: before and after `forward`, and in the backward pass."""

import pickle

import pytest

import tensorplay as tp
from tensorplay import nn


class Scale(nn.Module):
    def forward(self, x, *, factor=1.0):
        return x * factor


def test_order_and_keyword_arguments():
    layer, seen = Scale(), []
    layer.register_forward_pre_hook(lambda module, args: seen.append("second"))
    layer.register_forward_pre_hook(lambda module, args: seen.append("first"), prepend=True)
    layer.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {"factor": kwargs["factor"] + 1}), with_kwargs=True
    )
    layer.register_forward_hook(
        lambda module, args, kwargs, result: seen.append(kwargs["factor"]), with_kwargs=True
    )
    layer.register_forward_hook(lambda module, args, result: result + 1, prepend=True)
    assert layer(tp.tensor(2.0), factor=2.0).item() == 7.0
    assert seen == ["first", "second", 3.0]
    layer.register_forward_pre_hook(lambda module, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match="None or a tuple of"):
        layer(tp.tensor(2.0), factor=2.0)


class Pair(nn.Module):
    def forward(self, a, b, c=None):
        return a * b, a + b


def test_backward_hooks_see_gradients_of_arguments_and_results():
    layer, seen = Pair(), []
    layer.register_full_backward_hook(lambda *args: seen.append(args))
    a = tp.tensor([2.0], requires_grad=True)
    b = tp.tensor([3.0])
    product, total = layer(a, b, "text")
    (product * 10 + total * 100).sum().backward()
    ((module, grad_input, grad_output),) = seen
    assert module is layer
    assert [one and one.tolist() for one in grad_input] == [[130.0], None, None]
    assert [one.tolist() for one in grad_output] == [[10.0], [100.0]]
    assert a.grad.tolist() == [130.0]


def test_what_they_return_takes_the_place():
    layer = nn.Linear(2, 2, bias=False)
    layer.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 2,))
    handle = layer.register_full_backward_hook(lambda module, ins, outs: (ins[0] * 10,))
    x = tp.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    weight = layer.weight.detach()
    assert tp.allclose(x.grad, 20 * weight.sum(0, keepdim=True))
    assert layer.weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    handle.remove()
    x.grad = None
    layer(x).sum().backward()
    assert tp.allclose(x.grad, 2 * weight.sum(0, keepdim=True))
    layer.register_full_backward_hook(lambda module, ins, outs: (1, 2))
    with pytest.raises(RuntimeError, match="invalid number of grad_input"):
        layer(x).sum().backward()


def test_without_arguments_that_need_a_gradient():
    layer, seen = nn.Linear(1, 1), []
    layer.register_full_backward_hook(lambda module, ins, outs: seen.append((ins, outs[0].item())))
    layer(tp.ones(1, 1)).sum().backward()
    assert seen == [((None,), 1.0)]
    with tp.no_grad():
        layer(tp.ones(1, 1))
    assert len(seen) == 1


def test_a_recorded_pass_goes_through_them():
    layer = Pair()
    layer.register_full_backward_hook(lambda module, ins, outs: (ins[0] * ins[0], ins[1]))
    x = tp.tensor(3.0, requires_grad=True)
    (first,) = tp.autograd.grad(layer(x, tp.tensor(2.0))[0] * x, x, create_graph=True)
    # The gradient of a * b for a is 2 * x, whose square it becomes; beside it stands a * b.
    assert first.item() == 36.0 + 6.0
    (second,) = tp.autograd.grad(first, x)
    # That of a * b goes through the call, and so through the hook, once more.
    assert second.item() == 8 * 3 + 2 * 2


def scaled(module, args, result):
    return result * 2


def test_hooks_travel_with_the_module():
    layer = Scale()
    layer.register_forward_hook(scaled)
    assert pickle.loads(pickle.dumps(layer))(tp.tensor(1.0)).item() == 2.0
