"""Complex numbers: values, the convention of their gradients, and what they do not have."""

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it


def waves(*numbers, dtype=tp.complex128):
    return tp.tensor(numbers, dtype=dtype, requires_grad=True)


@pytest.fixture
def z():
    return waves(3 + 4j, -1 + 2j)


def test_the_gradient_is_that_of_both_parts(z):
    """``dL/dRe(z) + i dL/dIm(z)``: for ``|z|**2`` it is ``2 z``."""
    (z.abs() ** 2).sum().backward()
    assert z.grad.dtype == tp.complex128
    assert z.grad.tolist() == pytest.approx([6 + 8j, -2 + 4j])


def test_holomorphic_functions_multiply_by_the_conjugate_of_their_derivative(z):
    (dz,) = tp.autograd.grad(z * z, z, tp.tensor([1, 1j], dtype=tp.complex128))
    assert dz.tolist() == [6 - 8j, 1j * (-2 - 4j)]
    (dz,) = tp.autograd.grad(z.exp().real.sum(), z)
    assert np.allclose(dz.numpy(), np.exp(z.detach().numpy()).conj())


def test_descent_leads_to_the_least_value():
    z = waves(0.0, 0.0, dtype=tp.complex64)
    goal = tp.tensor([1 + 2j, -3j])
    optimizer = tp.optim.SGD([z], lr=0.25)
    for _ in range(60):
        optimizer.zero_grad()
        ((z - goal).abs() ** 2).sum().backward()
        optimizer.step()
    assert z.dtype == tp.complex64
    assert tp.allclose(z.detach(), goal)


def test_real_operands_get_real_parts(z):
    x = tp.tensor([1.0, 2.0], dtype=tp.float64, requires_grad=True)
    (x * z).backward(tp.tensor([1 + 1j, 1j], dtype=tp.complex128))
    assert x.grad.dtype == tp.float64
    assert x.grad.tolist() == [7.0, 2.0]  # real parts of gradient times conj(z)
    assert z.grad.tolist() == [1 + 1j, 2j]


@pytest.mark.parametrize("real", [tp.float16, tp.float32, tp.float64])
@pytest.mark.parametrize("wide", [tp.complex64, tp.complex128])
def test_each_operand_has_a_gradient_of_its_own_type(real, wide):
    x = tp.tensor([1.0, 2.0], dtype=real, requires_grad=True)
    z = waves(1 + 1j, 2.0, dtype=wide)
    out = (x * z + x) / 2
    assert out.dtype == tp.promote_types(real, wide)
    out.real.sum().backward()
    assert (x.grad.dtype, z.grad.dtype) == (real, wide)
    assert x.grad.tolist() == [1.0, 1.5]
    assert z.grad.tolist() == [0.5, 1.0]


def test_gradients_of_several_paths_add_up(z):
    (z.real.sum() + (z.imag * 3).sum() + (z * 2j).imag.sum()).backward()
    assert z.grad.tolist() == [3 + 3j, 3 + 3j]
    (z.real + z.imag).sum().backward()
    assert z.grad.tolist() == [4 + 4j, 4 + 4j]


def test_values():
    z = tp.tensor([3 + 4j, -1j, 0j])
    assert z.abs().tolist() == [5.0, 1.0, 0.0]
    assert z.abs().dtype == tp.float32
    assert z.angle().tolist() == pytest.approx([np.arctan2(4, 3), -np.pi / 2, 0.0])
    assert z.sgn().tolist() == pytest.approx([0.6 + 0.8j, -1j, 0j])
    assert z.conj().tolist() == [3 - 4j, 1j, 0j]
    assert (z.real.tolist(), z.imag.tolist()) == ([3.0, 0.0, 0.0], [4.0, -1.0, 0.0])
    assert tp.complex(tp.ones(2, 1), tp.zeros(3)).shape == (2, 3)
    assert tp.polar(tp.tensor(2.0), tp.tensor(np.pi / 2)).item() == pytest.approx(2j)
    assert complex(z[0]) == 3 + 4j
    assert (z.is_complex(), z.is_floating_point()) == (True, False)
    assert not tp.is_complex(z.real)
    assert tp.isfinite(tp.tensor([1 + 1j, complex(0, np.inf)])).tolist() == [True, False]
    assert np.allclose(tp.logsumexp(z, 0).item(), np.log(np.exp(z.numpy()).sum()))
    wild = tp.tensor([1000 + 1j, 999.0])
    assert tp.logsumexp(wild, 0).item() == pytest.approx(999 + np.log(np.exp(1 + 1j) + 1), rel=1e-5)


def test_spread_is_real():
    z = tp.tensor([1 + 2j, 3 - 1j, 1j])
    assert z.var().dtype == tp.float32
    assert z.var().item() == pytest.approx(np.var(z.numpy(), ddof=1))
    assert z.std(unbiased=False).item() == pytest.approx(np.std(z.numpy()))
    for p in (0, 1, 2, 3, float("inf"), -float("inf")):
        assert z.norm(p).dtype == tp.float32
        assert z.norm(p).item() == pytest.approx(np.linalg.norm(z.numpy(), p))


def test_angles_of_real_numbers():
    x = tp.tensor([1.0, -1.0, 0.0, float("nan")], requires_grad=True)
    out = x.angle()
    assert out.dtype == tp.float32
    assert out[:3].tolist() == pytest.approx([0.0, np.pi, 0.0])
    assert np.isnan(out[3].item())
    out.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 0.0]
    assert tp.angle(tp.tensor([-1, 1])).tolist() == pytest.approx([np.pi, 0.0])


def test_gradients_at_zero_are_zero():
    for function in (tp.abs, tp.angle, tp.norm, tp.sgn):
        zero = waves(0j, 0j)
        out = function(zero)
        (first,) = tp.autograd.grad(out, zero, tp.ones_like(out), create_graph=True)
        assert first.tolist() == [0j, 0j], function
        (second,) = tp.autograd.grad(first, zero, tp.ones_like(first), allow_unused=True)
        assert second is None or second.tolist() == [0j, 0j], function


def test_powers_of_zero():
    zero = waves(0j, 0j)
    (zero ** tp.tensor([0.0, 2.0])).real.sum().backward()
    assert zero.grad.tolist() == [0j, 0j]
    exponent = waves(1.0, 2.0)
    (tp.zeros(2, dtype=tp.complex128) ** exponent).real.sum().backward()
    assert exponent.grad.tolist() == [0j, 0j]


def test_parts_are_views():
    z = tp.tensor([1 + 2j, 3j])
    z.real.mul_(10)
    z.imag[1] = 7.0
    tp.view_as_real(z)[0, 1] += 1
    assert z.tolist() == [10 + 3j, 7j]
    z.real = 0.5
    z.imag = tp.tensor([1.0, 2.0])
    assert z.tolist() == [0.5 + 1j, 0.5 + 2j]
    pairs = tp.zeros(2, 2)
    tp.view_as_complex(pairs).fill_(1 + 2j)
    assert pairs.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert tp.view_as_real(z.reshape(2, 1).T).shape == (1, 2, 2)
    x = tp.ones(2)
    x.real = 2.0
    assert x.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="imag is not implemented"):
        x.imag = 1.0
    assert x.real is x
    assert x.conj() is x


def test_a_write_into_a_part_spoils_what_was_saved(z):
    base = z * 1
    out = base * base
    base.real.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.abs().sum().backward()


def test_conj_is_a_tensor_of_its_own():
    z = tp.tensor([1 + 2j])
    other = z.conj()
    other.zero_()
    assert z.tolist() == [1 + 2j]


def test_types_change_both_ways(z):
    x = tp.ones(2, requires_grad=True)
    wide = x.to(tp.complex128)
    wide.backward(tp.tensor([1 + 2j, 3j], dtype=tp.complex128))
    assert x.grad.tolist() == [1.0, 0.0]
    with pytest.warns(np.exceptions.ComplexWarning):
        narrow = z.float()
    narrow.backward(tp.tensor([2.0, 3.0]))
    assert z.grad.tolist() == [2.0, 3.0]


def test_roots_are_real(z):
    with pytest.raises(RuntimeError, match="only for real scalar outputs but got complex128"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match=r"grad_output\[0\] has a dtype of float64 and output"):
        z.backward(tp.ones(2, dtype=tp.float64))
    with pytest.raises(RuntimeError, match=r"grad_output\[0\] has a dtype of complex64 and output"):
        z.abs().backward(tp.ones(2, dtype=tp.complex64))
    z.exp().backward(tp.ones(2, dtype=tp.complex64))
    assert z.grad.dtype == tp.complex128
    with pytest.raises(RuntimeError, match="floating point and complex dtype"):
        tp.ones(2, dtype=tp.int64, requires_grad=True)


WITHOUT = {
    "lt": lambda z: z < z,
    "le, number": lambda z: z <= 1,
    "gt, complex number": lambda z: z.real > 1j,
    "ge": lambda z: tp.ge(z.real, z),
    "max": tp.max,
    "max, dim": lambda z: z.max(0),
    "min": tp.min,
    "min, dim": lambda z: z.min(0),
    "amax": tp.amax,
    "amin": tp.amin,
    "argmax": tp.argmax,
    "argmin": tp.argmin,
    "maximum": lambda z: tp.maximum(z, z.real),
    "minimum": lambda z: tp.minimum(z.real, z),
    "clamp": lambda z: z.clamp(0, 1),
    "clamp, tensors": lambda z: z.clamp(z.real, None),
    "clamp, complex bound": lambda z: z.real.clamp(max=z),
    "clamp_": lambda z: z.clone().clamp_(0, 1),
    "relu": tp.relu,
    "relu_": lambda z: z.clone().relu_(),
    "sign": tp.sign,
    "softmax": lambda z: z.softmax(0),
    "log_softmax": lambda z: z.log_softmax(0),
    "mse_loss": lambda z: F.mse_loss(z, z),
    "nll_loss": lambda z: F.nll_loss(z, tp.tensor(1)),
    "cross_entropy": lambda z: F.cross_entropy(z, tp.tensor(1)),
    "cross_entropy, probabilities": lambda z: F.cross_entropy(z, z.real),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_what_needs_an_order_is_refused(name, z):
    with pytest.raises(NotImplementedError, match=r'" not implemented for complex128: .* order'):
        WITHOUT[name](z)


def test_parts_that_do_not_fit_are_refused():
    x = tp.ones(2)
    with pytest.raises(RuntimeError, match="imag is not implemented for tensors with non-complex"):
        _ = x.imag
    with pytest.raises(RuntimeError, match="view_as_real is only supported for complex"):
        tp.view_as_real(x)
    with pytest.raises(RuntimeError, match=r"float and double tensors, but got .* int64"):
        tp.view_as_complex(tp.zeros(2, dtype=tp.int64))
    with pytest.raises(RuntimeError, match="last dimension of size 2"):
        tp.view_as_complex(tp.zeros(3))
    with pytest.raises(RuntimeError, match="last dimension with stride 1"):
        tp.view_as_complex(tp.zeros(2, 2).T)
    with pytest.raises(RuntimeError, match="Expected both inputs to be Float or Double"):
        tp.complex(x.half(), x.half())
    with pytest.raises(RuntimeError, match="scalar type float32 but got scalar type float64"):
        tp.complex(x, x.double())
    with pytest.raises(RuntimeError, match="must match the size"):
        tp.complex(x, tp.ones(3))
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type float32"):
        x.mul_(tp.tensor([1j, 1j]))


def test_an_infinite_gradient_stays_in_its_part(z):
    for recorded in (False, True):
        start = tp.tensor([float("inf"), 1.0], dtype=tp.float64)
        (found,) = tp.autograd.grad(z.imag, z, start, create_graph=recorded)
        assert found.tolist() == [complex(0, np.inf), 1j]


def test_tensors_without_elements():
    z = tp.zeros(0, dtype=tp.complex64, requires_grad=True)
    pairs = tp.view_as_real(z)
    assert pairs.shape == (0, 2)
    assert tp.view_as_complex(pairs).shape == (0,)
    (tp.view_as_complex(pairs) * z).real.sum().backward()
    assert z.grad.shape == (0,)


def test_random_numbers():
    source = tp.Generator().manual_seed(3)
    z = tp.randn(20000, dtype=tp.complex64, generator=source)
    assert z.dtype == tp.complex64
    assert z.real.var().item() == pytest.approx(0.5, rel=0.05)
    assert z.imag.var().item() == pytest.approx(0.5, rel=0.05)
    z = tp.rand(20000, dtype=tp.complex128, generator=source)
    parts = tp.view_as_real(z)
    assert 0 <= parts.min().item() < 0.01
    assert 0.99 < parts.max().item() < 1
