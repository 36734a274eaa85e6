"""Activations, losses, attention and recurrent layers: for test_gradients.py."""

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it
from tensorplay.ops.recurrent import steps_of
from tensorplay.ops.recurrent_gru import gru_layer
from tensorplay.ops.recurrent_lstm import lstm_layer
from tensorplay.ops.recurrent_plain import rnn_layer

SIGNS = [1.0, -1.0, -1.0, 1.0]


def signs(like):
    return tp.tensor(SIGNS, dtype=like.dtype)


def weighed(results):
    """All results as one, each with a weight of its own."""
    return tp.cat([(one * (i + 1)).reshape(-1) for i, one in enumerate(results)])


def recurrent(real, layer, gates, states, sizes, reverse, *extra):
    """A layer over packed rows: the function, and its inputs."""

    def function(x, *rest):
        start, weights = rest[:states], rest[states:]
        weights = (*weights, *(None,) * (4 - len(weights)))
        return weighed(layer(x, *start, weights, steps_of(sizes, reverse), *extra))

    inputs = [real(sum(sizes), 2), *[real(sizes[0], 3, seed=i) for i in range(states)]]
    inputs += [real(3 * gates, 2, seed=5), real(3 * gates, 3, seed=6)]
    inputs += [real(3 * gates, seed=7), real(3 * gates, seed=8)]
    return function, tuple(inputs)


def without_biases(case):
    function, inputs = case
    return function, inputs[:-2]


def only_last_state(x, h, c, w_ih, w_hh):
    return lstm_layer(x, h, c, (w_ih, w_hh, None, None), steps_of([2, 1], False))[2]


def same_state_twice(x, h, w_ih, w_hh):
    """One tensor in two places."""
    return weighed(lstm_layer(x, h, h, (w_ih, w_hh, None, None), steps_of([2, 2], False)))


def cases(real, positive, distinct):
    """name: (function, inputs)."""

    def chances(*shape, seed=0):
        """Between 0.1 and 0.9."""
        drawn = (positive(*shape, seed=seed) - 0.3) / 1.4 * 0.8 + 0.1
        return drawn.detach().requires_grad_()

    pair = (real(2, 3), real(2, 3, seed=1))
    far = (real(2, 3) * 2, real(2, 3, seed=1))
    lstm = (real, lstm_layer, 4, 2)
    gru = (real, gru_layer, 3, 1)
    rnn = (real, rnn_layer, 1, 1)

    return {
        "leaky_relu": (lambda a: F.leaky_relu(a * a * a, 0.2), (real(6),)),
        "hardtanh": (lambda a: F.hardtanh(a * a * a, -1.5, 1.0), (real(8),)),
        "relu6": (lambda a: F.relu6(a * 6), (real(8),)),
        "elu": (lambda a: F.elu(a, 1.5), (real(6),)),
        "celu": (lambda a: F.celu(a, 1.5), (real(6),)),
        "selu": (F.selu, (real(6),)),
        "softplus": (lambda a: F.softplus(a * 4, 2.0, 4.0), (real(8),)),
        "logsigmoid": (F.logsigmoid, (real(6),)),
        "silu": (F.silu, (real(6),)),
        "mish": (F.mish, (real(6),)),
        "softsign": (F.softsign, (real(6),)),
        "tanhshrink": (F.tanhshrink, (real(6),)),
        "hardsigmoid": (lambda a: F.hardsigmoid(a * 2) * a, (real(6),)),
        "hardswish": (lambda a: F.hardswish(a * 2), (real(6),)),
        "gelu, tanh": (lambda a: F.gelu(a, "tanh"), (real(6),)),
        "gelu": (F.gelu, (real(6),)),
        "glu": (lambda a: F.glu(a, 1), (real(2, 4),)),
        "prelu": (F.prelu, (real(2, 3), real(3, seed=1))),
        "softmin": (lambda a: F.softmin(a, 1), (real(2, 3),)),
        "attention": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            (real(2, 3, 4), real(2, 3, 4, seed=1), real(2, 3, 2, seed=2)),
        ),
        "huber_loss": (lambda a, b: F.huber_loss(a, b, delta=0.7), far),
        "huber_loss, none": (lambda a, b: F.huber_loss(a, b, "none"), far),
        "smooth_l1_loss": (lambda a, b: F.smooth_l1_loss(a, b, "sum", 0.7), (far[0], far[1][:1])),
        "binary_cross_entropy": (
            F.binary_cross_entropy,
            (chances(2, 3), chances(2, 3, seed=1)),
        ),
        "binary_cross_entropy_with_logits": (
            lambda a, b, w: F.binary_cross_entropy_with_logits(a, b, reduction="sum", pos_weight=w),
            (real(2, 3), chances(2, 3, seed=1), positive(3, seed=2)),
        ),
        "binary_cross_entropy_with_logits, mean": (
            F.binary_cross_entropy_with_logits,
            (real(2, 3), chances(2, 3, seed=1)),
        ),
        "kl_div": (lambda a, b: F.kl_div(a, b, "batchmean"), (real(2, 3), chances(2, 3))),
        "kl_div, logarithms": (lambda a, b: F.kl_div(a, b, "sum", True), pair),
        "poisson_nll_loss": (
            lambda a, b: F.poisson_nll_loss(a, b, full=True),
            (real(2, 3), positive(2, 3) * 2),
        ),
        "gaussian_nll_loss": (F.gaussian_nll_loss, (*pair, positive(2, 1))),
        "cosine_embedding_loss": (
            lambda a, b: F.cosine_embedding_loss(a, b, signs(a), 0.1),
            (real(4, 3), real(4, 3, seed=1)),
        ),
        "margin_ranking_loss": (
            lambda a, b: F.margin_ranking_loss(a * a, b, signs(a), 0.1),
            (real(4), real(4, seed=1)),
        ),
        "hinge_embedding_loss": (lambda a: F.hinge_embedding_loss(a * a, signs(a)), (real(4),)),
        "soft_margin_loss": (lambda a: F.soft_margin_loss(a, signs(a)), (real(4),)),
        "triplet_margin_loss": (
            lambda a, b, c: F.triplet_margin_loss(a, b, c, swap=True),
            (*pair, real(2, 3, seed=2)),
        ),
        "lstm": recurrent(*lstm, [2, 2], False),
        "lstm, backwards": recurrent(*lstm, [2, 2], True),
        "lstm, different lengths": without_biases(recurrent(*lstm, [3, 1], False)),
        "lstm, different lengths, backwards": recurrent(*lstm, [2, 1], True),
        "lstm, last state": (only_last_state, without_biases(recurrent(*lstm, [2, 1], False))[1]),
        "lstm, same state twice": (
            same_state_twice,
            (real(4, 2), real(2, 3, seed=1), real(12, 2, seed=2), real(12, 3, seed=3)),
        ),
        "gru": recurrent(*gru, [2, 2], False),
        "gru, different lengths": without_biases(recurrent(*gru, [3, 1], False)),
        "gru, different lengths, backwards": recurrent(*gru, [2, 1], True),
        "rnn": recurrent(*rnn, [2, 2], False, "tanh"),
        "rnn, relu": recurrent(*rnn, [2, 2], True, "relu"),
        "rnn, different lengths": without_biases(recurrent(*rnn, [2, 1], False, "tanh")),
    }


def complex_cases(waves):
    """None of these takes complex numbers."""
    return {}
