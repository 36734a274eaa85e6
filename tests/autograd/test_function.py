"""Operations with a backward rule of the user's own."""

import gc
import weakref

import numpy as np
import pytest

import tensorplay as tp
from tensorplay.autograd import Function, grad, gradcheck, gradgradcheck, once_differentiable


def leaf(*values):
    return tp.tensor(values, dtype=tp.float64, requires_grad=True)


class Cube(Function):
    """Computes with NumPy; its rule with tensors."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tp.from_numpy(x.detach().numpy() ** 3)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * x * 3


class ExpAndProduct(Function):
    """Several outputs, one of them saved, another not a tensor; an argument that is no tensor."""

    @staticmethod
    def forward(ctx, a, power, b):
        ctx.power = power
        exp = tp.from_numpy(np.exp(a.detach().numpy()))
        ctx.save_for_backward(a, b, exp, None)
        return exp, a.detach() ** power * b.detach(), "extra"

    @staticmethod
    def backward(ctx, g_exp, g_product, _):
        a, b, exp, nothing = ctx.saved_tensors
        assert nothing is None
        n = ctx.power
        return g_exp * exp + g_product * b * n * a ** (n - 1), None, g_product * a**n


def test_the_rule_is_used():
    x = leaf(2.0, 3.0)
    y = Cube.apply(x)
    assert y.tolist() == [8.0, 27.0]
    y.sum().backward()
    assert x.grad.tolist() == [12.0, 27.0]
    assert y.grad_fn.name() == "CubeBackward"


def test_rules_of_tensors_can_be_differentiated():
    x = leaf(0.5, -1.5)
    assert gradcheck(Cube.apply, x)
    assert gradgradcheck(Cube.apply, x)


def test_several_outputs_and_other_arguments():
    def run(a, b):
        exp, product, extra = ExpAndProduct.apply(a, 3, b)
        assert extra == "extra"
        return exp * product

    a, b = leaf(0.5, -1.5), leaf(2.0, 1.0)
    assert gradcheck(run, (a, b))
    assert gradgradcheck(run, (a, b))


def test_the_gradient_of_one_output_alone_is_found_also_in_the_second_order():
    a, b = leaf(0.5), leaf(2.0)
    exp, _, _ = ExpAndProduct.apply(a, 3, b)
    (first,) = grad(exp, a, create_graph=True)
    d_exp, d_a = grad(first, [exp, a])
    # first = exp, written in terms of the output itself.
    assert d_exp.item() == 1.0
    assert d_a.item() == pytest.approx(np.exp(0.5))


class PowersOfE(Function):
    """Two outputs, which the gradient needs."""

    @staticmethod
    def forward(ctx, x):
        first, second = x.exp(), (2 * x).exp()
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    def backward(ctx, for_first, for_second):
        first, second = ctx.saved_tensors
        return for_first * first + 2 * for_second * second


def test_saved_outputs_get_all_their_gradients_in_the_second_order():
    """What an output is used for outside, and in the first gradient, adds up."""
    x = tp.tensor([0.3, -0.2], dtype=tp.float64, requires_grad=True)

    def product(x):
        first, second = PowersOfE.apply(x)
        return first * second * second

    assert gradgradcheck(product, (x,))


def test_unused_outputs_have_zero_gradient_or_none():
    seen = []

    class Pair(Function):
        materialize = True

        @classmethod
        def forward(cls, ctx, x):
            ctx.set_materialize_grads(cls.materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a, b))
            return a if b is None else a + b

    x = leaf(1.0)
    Pair.apply(x)[0].sum().backward()
    assert seen[-1][1].tolist() == [0.0]
    Pair.materialize = False
    Pair.apply(x)[0].sum().backward()
    assert seen[-1][1] is None


def test_outputs_can_be_without_gradient():
    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            order = tp.from_numpy(np.argsort(x.detach().numpy()))
            ctx.order = order
            rounded = x * 1.0
            ctx.mark_non_differentiable(rounded)
            return x[order], order, rounded

        @staticmethod
        def backward(ctx, g, *_):
            out = tp.zeros_like(g)
            out[ctx.order] = g
            return out

    x = leaf(3.0, 1.0, 2.0)
    values, order, rounded = Sort.apply(x)
    assert values.requires_grad
    assert not order.requires_grad
    assert not rounded.requires_grad
    (values * leaf(1.0, 2.0, 3.0).detach()).sum().backward()
    assert x.grad.tolist() == [3.0, 1.0, 2.0]


def test_an_input_may_be_returned_as_it_is():
    class Through(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(1.0)
    y = Through.apply(x)
    assert y is not x
    y.sum().backward()
    assert x.grad.tolist() == [5.0]


def test_the_context_says_which_gradients_are_wanted():
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx, a, b, c):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad)
            a, b = ctx.saved_tensors
            return g * b, g * a, None

    a, b = leaf(2.0), tp.ones(1, dtype=tp.float64)
    Product.apply(a, b, "c").sum().backward()
    assert seen == [(True, False, False)]
    assert b.grad is None


def test_forward_may_do_without_the_context():
    class Scale(Function):
        @staticmethod
        def forward(x, factor):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.factor = inputs

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None

    x = leaf(1.0)
    Scale.apply(x, 4).sum().backward()
    assert x.grad.tolist() == [4.0]


def test_nothing_is_recorded_where_nothing_is_wanted():
    assert not Cube.apply(tp.ones(1)).requires_grad
    with tp.no_grad():
        assert not Cube.apply(leaf(1.0)).requires_grad


def test_what_is_computed_inside_is_not_recorded():
    modes = []

    class Probe(Function):
        @staticmethod
        def forward(ctx, x):
            modes.append(tp.is_grad_enabled())
            return x * 1

        @staticmethod
        def backward(ctx, g):
            modes.append(tp.is_grad_enabled())
            return g

    x = leaf(1.0)
    Probe.apply(x).sum().backward()
    assert modes == [False, False]
    Probe.apply(x).sum().backward(create_graph=True)
    assert modes[2:] == [False, True]


@pytest.mark.parametrize("which", ["input", "output", "other"])
def test_writing_to_a_saved_tensor_is_noticed(which):
    class Saves(Function):
        @staticmethod
        def forward(ctx, x):
            tensors = {"input": x, "output": x * 2, "other": x * 3}
            ctx.save_for_backward(tensors[which])
            kept.append(tensors[which])
            return tensors["output"]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    kept = []
    y = leaf(1.0) * 1.0
    z = Saves.apply(y)
    with tp.no_grad():
        kept[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation: SavesBackward"):
        z.sum().backward()


def test_saved_tensors_are_freed_by_the_pass():
    x = leaf(1.0)
    y = Cube.apply(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert x.grad.tolist() == [6.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    ctx = y.grad_fn.ctx
    with pytest.raises(RuntimeError, match="after they have been freed"):
        _ = ctx.saved_tensors


def test_a_call_leaves_no_cycle():
    x = leaf(1.0, 2.0)
    out = ExpAndProduct.apply(x, 2, x)
    node = weakref.ref(out[0].grad_fn)
    gc.disable()
    try:
        del out
        assert node() is None
    finally:
        gc.enable()


def test_a_wrong_number_of_gradients_is_an_error():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 1\)"):
        Wrong.apply(leaf(1.0), leaf(1.0)).sum().backward()


def test_nones_behind_the_last_gradient_are_allowed():
    class Generous(Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None, None

    x = leaf(1.0)
    Generous.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0]


def test_gradients_are_brought_to_shape_and_type_or_refused():
    class Returns(Function):
        shape = ()

        @staticmethod
        def forward(ctx, a):
            return a * 2

        @classmethod
        def backward(cls, ctx, g):
            return tp.ones(*cls.shape, dtype=tp.float32)

    x = leaf(1.0, 2.0)
    Returns.shape = (3, 2)
    Returns.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert x.grad.dtype == tp.float64
    Returns.shape = (3,)
    with pytest.raises(RuntimeError, match="invalid gradient at index 0 - got"):
        Returns.apply(x).sum().backward()


def test_once_differentiable_refuses_the_second_derivative():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return tp.from_numpy(g.numpy() * 2 * x.detach().numpy())

    x = leaf(3.0)
    assert grad(Square.apply(x), x)[0].item() == 6.0
    (first,) = grad(Square.apply(x), x, create_graph=True)
    assert first.item() == 6.0
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        first.sum().backward()


def test_only_tensors_can_be_saved():
    class Saves(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(np.ones(1))

    with pytest.raises(TypeError, match="can only save variables"):
        Saves.apply(leaf(1.0))


def test_missing_methods_are_named():
    class Empty(Function):
        pass

    with pytest.raises(NotImplementedError, match="must implement the forward"):
        Empty.apply(leaf(1.0))


class Parts(Function):
    """Real parts, and the number itself times a real factor; all gradients complex."""

    @staticmethod
    def forward(ctx, z, factor):
        ctx.save_for_backward(z, factor)
        return z.real.clone(), z * factor

    @staticmethod
    def backward(ctx, g_real, g_product):
        z, factor = ctx.saved_tensors
        assert g_product.is_complex()
        return g_real + g_product * factor, g_product * z.conj()


def test_complex_numbers_go_through():
    """A real input gets the real part of a gradient that is complex."""
    z = tp.tensor([1 + 2j, -1j], dtype=tp.complex128, requires_grad=True)
    factor = leaf(2.0, 3.0)
    assert gradcheck(Parts.apply, (z, factor))
    assert gradgradcheck(Parts.apply, (z, factor))
    real, product = Parts.apply(z, factor)
    assert (real.dtype, product.dtype) == (tp.float64, tp.complex128)
    real.sum().backward()  # the other output's gradient is zero, and complex
    assert z.grad.tolist() == [1.0, 1.0]
    assert factor.grad.dtype == tp.float64
