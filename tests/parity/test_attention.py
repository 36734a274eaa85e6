"""Attention, against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensorplay as tp  # noqa: E402
from parity.compare import compare  # noqa: E402
from tensorplay import nn  # noqa: E402

random = np.random.default_rng(23)


def normal(*shape):
    return random.normal(size=shape)


MASK = random.random((4, 5)) < 0.6
MASK[:, 0] = True


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_scaled_dot_product(lead, dtype):
    q, k, v = (normal(*lead, n, size).astype(dtype) for n, size in ((4, 6), (5, 6), (5, 2)))

    def attend(library, *args, **options):
        return library.nn.functional.scaled_dot_product_attention(*args, **options)

    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    compare(attend, q, k, v, tolerance=tolerance)
    compare(lambda library, *own: attend(library, *own, scale=0.3), q, k, v, tolerance=tolerance)
    compare(
        lambda library, *own: attend(library, *own, is_causal=True), q, k, v, tolerance=tolerance
    )
    compare(lambda library, *own: attend(library, *own), q, k, v, MASK, tolerance=tolerance)
    bias = normal(4, 5).astype(dtype)
    compare(
        lambda library, a, b, c, m: attend(library, a, b, c, m.detach()),
        *(q, k, v, bias),
        tolerance=tolerance,
    )


def test_a_query_that_may_look_at_nothing():
    q, k, v = (tp.tensor(normal(2, 3), requires_grad=True) for _ in range(3))
    mask = tp.tensor([[False, False], [True, False]])
    out = nn.functional.scaled_dot_product_attention(q, k, v, mask)
    assert out[0].tolist() == [0.0, 0.0, 0.0]
    assert tp.allclose(out[1], v[0])
    out.sum().backward()
    assert all(np.isfinite(one.grad.numpy()).all() for one in (q, k, v))


def test_dropped_weights():
    tp.manual_seed(0)
    q, k = tp.zeros(1, 200, 4), tp.zeros(1, 50, 4)
    out = nn.functional.scaled_dot_product_attention(q, k, tp.ones(1, 50, 1), dropout_p=0.3)
    assert out.std().item() > 0.01
    assert out.mean().item() == pytest.approx(1, abs=0.03)


def both(*sizes, **options):
    theirs = torch.nn.MultiheadAttention(*sizes, **options).double()
    for bias in (theirs.in_proj_bias, theirs.out_proj.bias):
        if bias is not None:
            torch.nn.init.normal_(bias)
    ours = nn.MultiheadAttention(*sizes, **options).double()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return {tp: ours, torch: theirs}


FORMS = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"kdim": 3, "vdim": 5},
    {"kdim": 3, "batch_first": True, "bias": False},
]
PADDING = np.array([[False, False, True, False, True], [False] * 5, [True, False] * 2 + [False]])


@pytest.mark.parametrize("calls", [{}, {"average_attn_weights": False}, {"need_weights": False}])
@pytest.mark.parametrize("form", FORMS)
def test_several_heads(form, calls):
    modules = both(6, 2, **form)
    q, k, v = normal(4, 3, 6), normal(5, 3, form.get("kdim", 6)), normal(5, 3, form.get("vdim", 6))
    if form.get("batch_first"):
        q, k, v = (one.swapaxes(0, 1).copy() for one in (q, k, v))

    def attend(library, query, key, value, padding=None, mask=None):
        out, weights = modules[library](
            query, key, value, key_padding_mask=padding, attn_mask=mask, **calls
        )
        return [out] if weights is None else [out, weights]

    compare(attend, q, k, v)
    compare(attend, q, k, v, PADDING)
    hidden = ~MASK
    hidden[:, 1] = False
    compare(attend, q, k, v, PADDING, hidden)
    compare(
        lambda library, *own: attend(library, *own[:3], None, own[3].detach()),
        q,
        k,
        v,
        normal(4, 5),
    )
    per_head = np.repeat(hidden[None], 6, 0)
    compare(lambda library, *own: attend(library, *own[:3], None, own[3]), q, k, v, per_head)


def test_without_a_batch():
    modules = both(6, 3)
    compare(lambda library, *own: modules[library](*own), normal(4, 6), normal(5, 6), normal(5, 6))


def test_starting_values():
    tp.manual_seed(1)
    layer = nn.MultiheadAttention(64, 4)
    bound = np.sqrt(6 / (4 * 64))
    drawn = layer.in_proj_weight.detach().numpy()
    assert -bound <= drawn.min() < -0.9 * bound
    assert not layer.in_proj_bias.detach().numpy().any()
    assert not layer.out_proj.bias.detach().numpy().any()


def test_bad_arguments():
    with pytest.raises(ValueError, match="divisible by num_heads"):
        nn.MultiheadAttention(5, 2)
    with pytest.raises(ValueError, match="must be greater than 0"):
        nn.MultiheadAttention(0, 2)
    with pytest.raises(ValueError, match="not supported"):
        nn.MultiheadAttention(4, 2, add_zero_attn=True)
    layer, x = nn.MultiheadAttention(4, 2), tp.ones(3, 2, 4)
    with pytest.raises(RuntimeError, match="shape of attn_mask"):
        layer(x, x, x, attn_mask=tp.ones(2, 2))
    with pytest.raises(RuntimeError, match="key_padding_mask shape"):
        layer(x, x, x, key_padding_mask=tp.ones(3, 2))
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(RuntimeError, match="two or all three dimensions"):
        layer(x[0], x, x)
    F = nn.functional  # noqa: N806
    with pytest.raises(RuntimeError, match="attn_mask should not be set"):
        F.scaled_dot_product_attention(x, x, x, tp.ones(2, 2), is_causal=True)
    with pytest.raises(RuntimeError, match="at least two dimensions"):
        F.scaled_dot_product_attention(tp.ones(3), x, x)
