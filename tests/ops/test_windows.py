"""Convolution and pooling: arguments that do not fit, memory, edges."""

import numpy as np
import pytest

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it
from tensorplay.ops import convolution

IMAGE = tp.ones(1, 2, 5, 5)
WEIGHT = tp.ones(3, 2, 2, 2)

REFUSED = [
    (lambda: F.conv2d(tp.ones(2, 2), WEIGHT), RuntimeError, "Expected 3D .* or 4D .* conv2d"),
    (lambda: F.conv2d(IMAGE, tp.ones(3, 2)), RuntimeError, "expected a weight of 4 dimensions"),
    (lambda: F.conv2d(IMAGE, tp.ones(3, 4, 2, 2)), RuntimeError, "to have 4 channels, but got 2"),
    (lambda: F.conv2d(IMAGE, WEIGHT, groups=2), RuntimeError, "not divisible by groups=2"),
    (lambda: F.conv2d(IMAGE, WEIGHT, tp.ones(2)), RuntimeError, r"expected a bias of shape \[3\]"),
    (lambda: F.conv2d(IMAGE, WEIGHT.double()), RuntimeError, "must have the same type"),
    (lambda: F.conv2d(IMAGE, WEIGHT, stride=0), RuntimeError, "must be positive"),
    (lambda: F.conv2d(IMAGE, WEIGHT, padding=-1), RuntimeError, "padding not negative"),
    (lambda: F.conv2d(IMAGE, WEIGHT, dilation=5), RuntimeError, "Kernel size can't be greater"),
    (lambda: F.conv2d(IMAGE, WEIGHT, padding="some"), ValueError, "'same', 'valid'"),
    (lambda: F.conv2d(IMAGE, WEIGHT, stride=2, padding="same"), RuntimeError, "strided"),
    (lambda: F.conv2d(IMAGE, WEIGHT, stride=(1, 2, 3)), TypeError, "stride must be an integer"),
    (lambda: F.conv2d(IMAGE, WEIGHT, stride=1.5), TypeError, "stride must be an integer"),
    (lambda: F.conv2d(IMAGE.numpy(), WEIGHT), TypeError, "must be a Tensor"),
    (
        lambda: F.conv2d(tp.ones(1, 1, 2, 2, dtype=tp.complex64), tp.ones(1, 1, 1, 1)),
        RuntimeError,
        "complex numbers are not supported",
    ),
    (lambda: F.conv1d(tp.ones(1, 2, 5), tp.ones(3, 2, 2), stride=(1, 1)), TypeError, "one integer"),
    (lambda: F.conv_transpose2d(IMAGE, WEIGHT), RuntimeError, "to have 3 channels, but got 2"),
    (
        lambda: F.conv_transpose2d(IMAGE, tp.ones(2, 1, 2, 2), output_padding=1),
        RuntimeError,
        "output padding must be smaller",
    ),
    (lambda: F.max_pool2d(IMAGE, 6), RuntimeError, "Kernel size can't be greater"),
    (lambda: F.max_pool2d(IMAGE, 2, padding=2), RuntimeError, "pad should be at most half"),
    (lambda: F.max_pool2d(IMAGE > 0, 2), RuntimeError, "expected real numbers"),
    (lambda: F.max_pool1d(tp.ones(3), 2), RuntimeError, "Expected 2D .* or 3D .* max_pool1d"),
    (lambda: F.avg_pool2d(IMAGE.long(), 2), RuntimeError, "expected floating-point numbers"),
    (lambda: F.avg_pool2d(IMAGE, 2, divisor_override=0), RuntimeError, "must be not zero"),
    (lambda: F.adaptive_avg_pool2d(IMAGE, 0), RuntimeError, "sizes must be positive"),
    (lambda: F.adaptive_max_pool2d(IMAGE, (1, 2, 3)), RuntimeError, "one number or two"),
    (lambda: F.interpolate(IMAGE, 3, mode="bilinear"), NotImplementedError, "only 'nearest'"),
    (lambda: F.interpolate(IMAGE), ValueError, "only one of size or scale_factor"),
    (lambda: F.interpolate(IMAGE, (2, 2, 2)), ValueError, "one number or 2"),
    (lambda: F.interpolate(IMAGE, 0), ValueError, "sizes must be positive"),
    (lambda: F.interpolate(tp.ones(2, 2), 3), ValueError, r"expected \(N, C, L\)"),
    (lambda: F.fold(tp.ones(1, 3, 4), 3, 2), RuntimeError, r"expected an input of shape \(N"),
    (lambda: F.fold(tp.ones(1, 4, 5), 3, 2), RuntimeError, r"expected an input of shape \(N"),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_what_does_not_fit_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_batch_without_images():
    x = tp.zeros(0, 2, 5, 5, requires_grad=True)
    weight = WEIGHT.clone().requires_grad_()
    out = F.max_pool2d(F.conv2d(x, weight, padding=1), 2)
    assert out.shape == (0, 3, 3, 3)
    out.sum().backward()
    assert x.grad.shape == x.shape
    assert not weight.grad.numpy().any()


def test_large_images_are_multiplied_in_parts(monkeypatch):
    random = np.random.default_rng(0)
    x = tp.tensor(random.standard_normal((3, 4, 9, 9)), requires_grad=True)
    weight = tp.tensor(random.standard_normal((6, 2, 3, 3)), requires_grad=True)
    results = []
    for block in (1 << 30, 1):
        monkeypatch.setattr(convolution, "_BLOCK", block)
        out = F.conv2d(x, weight, tp.arange(6.0).double(), padding=1, groups=2)
        results.append([out.detach(), *tp.autograd.grad((out * out).sum(), [x, weight])])
    for whole, parts in zip(*results, strict=True):
        assert np.allclose(whole.numpy(), parts.numpy(), rtol=1e-12)


def test_memory_has_the_sample_last_and_a_view_has_it_first():
    out = F.conv2d(tp.ones(3, 2, 5, 5), WEIGHT)
    assert out.numpy().transpose(1, 2, 3, 0).flags.c_contiguous
    flat = out.view(3, -1)
    flat[0] = 0.0
    assert not out[0].numpy().any()
    assert out[1].numpy().all()


def test_views_of_the_users_own_memory_are_never_moved():
    array = np.zeros((2, 3, 4)).transpose(2, 1, 0)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        tp.from_numpy(array).permute(0, 2, 1).view(24)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        tp.zeros(2, 3, 4).permute(2, 0, 1).view(24)


def test_a_write_to_what_a_convolution_saved_is_noticed():
    x = tp.ones(1, 2, 5, 5)
    weight = WEIGHT.clone().requires_grad_()
    out = F.conv2d(x, weight)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_write_to_the_result_of_pooling_is_allowed():
    x = tp.tensor(np.arange(-8.0, 8.0).reshape(1, 1, 4, 4), requires_grad=True)
    F.max_pool2d(x, 2).relu_().sum().backward()
    assert x.grad.numpy().ravel().nonzero()[0].tolist() == [13, 15]


def test_maxima_keep_infinities_and_their_gradients():
    x = tp.tensor([[[-np.inf, -np.inf], [-np.inf, 3.0]]], requires_grad=True)
    out = F.max_pool2d(x, 1)
    assert np.array_equal(out.detach().numpy(), x.detach().numpy())
    F.max_pool2d(x, 2, padding=1).backward(tp.full((1, 2, 2), float("inf")))
    assert x.grad.numpy().tolist() == [[[np.inf, np.inf], [np.inf, np.inf]]]
