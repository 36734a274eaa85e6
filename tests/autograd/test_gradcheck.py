"""The check itself: it passes what is right and fails what is wrong."""

import pytest

import tensorplay as tp
from tensorplay.autograd import Function, GradcheckError, gradcheck, gradgradcheck


class Scaled(Function):
    """Doubles, with a rule that says it multiplies by `factor`."""

    factor = 2.0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @classmethod
    def backward(cls, ctx, g):
        return g * cls.factor


@pytest.fixture
def x():
    return tp.tensor([1.0, -2.0], dtype=tp.float64, requires_grad=True)


def test_right_rules_pass(x):
    assert gradcheck(Scaled.apply, x)
    assert gradcheck(lambda a, b, c: (a * b, a + c), (x, 3.0, tp.ones(2)))


def test_wrong_rules_fail_and_are_shown(x, monkeypatch):
    monkeypatch.setattr(Scaled, "factor", 2.5)
    with pytest.raises(GradcheckError) as failure:
        gradcheck(lambda a, b: (a * b, Scaled.apply(b)), (x, x.detach().requires_grad_()))
    text = str(failure.value)
    assert "output 1 with respect to input 1" in text
    assert "numerical:\n[[2" in text
    assert "analytical:\n[[2.5" in text
    assert gradcheck(Scaled.apply, x, raise_exception=False) is False


def test_wrong_second_derivatives_fail(x):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.detach() ** 3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * (x * x.detach())

    assert gradcheck(Wrong.apply, x)
    with pytest.raises(GradcheckError):
        gradgradcheck(Wrong.apply, x)


def test_a_gradient_that_was_cut_off_is_missed(x):
    with pytest.raises(GradcheckError, match="output 1"):
        gradcheck(lambda a: (a * a, a.detach() * 2 + a * 0), x)


def test_inputs_must_be_fit_for_it(x):
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(tp.exp, tp.ones(2))
    with pytest.raises(ValueError, match="Input #1 requires gradient and is not a double"):
        gradcheck(tp.add, (x, tp.ones(2, requires_grad=True)))
    with pytest.raises(ValueError, match="outputs requires grad"):
        gradcheck(lambda a: a.detach(), x)


def test_inputs_are_not_changed(x):
    before = x.tolist()
    gradgradcheck(tp.exp, x, tp.ones(2, dtype=tp.float64, requires_grad=True))
    assert x.tolist() == before
    assert x.grad is None


class Turned(Function):
    """Times ``1 + 2j``, with a rule that multiplies by `factor`."""

    factor = 1 - 2j

    @staticmethod
    def forward(ctx, z):
        return z * (1 + 2j)

    @classmethod
    def backward(cls, ctx, g):
        return g * cls.factor


@pytest.fixture
def z():
    return tp.tensor([1 + 2j, -3j], dtype=tp.complex128, requires_grad=True)


def test_complex_numbers_are_checked_in_both_parts(x, z, monkeypatch):
    assert gradcheck(Turned.apply, z)
    assert gradgradcheck(Turned.apply, z)
    assert gradcheck(lambda a, b: (a * b, a.abs(), b), (z, x))
    assert gradgradcheck(lambda a, b: (a * b * a.conj(), (a / b).angle()), (z, x))
    monkeypatch.setattr(Turned, "factor", 1 + 2j)
    with pytest.raises(GradcheckError, match="of complex ones for each part") as failure:
        gradcheck(Turned.apply, z)
    assert "numerical:\n[[ 1. -2.  0.  0.]\n [ 2.  1." in str(failure.value)
    assert "analytical:\n[[ 1.  2.  0.  0.]\n [-2.  1." in str(failure.value)
    assert gradcheck(Turned.apply, z, raise_exception=False) is False


def test_complex_inputs_have_double_precision():
    with pytest.raises(ValueError, match=r"Input #0 .* complex64 is too coarse"):
        gradcheck(tp.exp, tp.ones(2, dtype=tp.complex64, requires_grad=True))
