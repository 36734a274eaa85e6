"""Convolution, pooling, folding, normalisation, embedding: what the tests of gradients check."""

import numpy as np

import tensorplay as tp
import tensorplay.nn.functional as F  # noqa: N812  # as programs for PyTorch call it

NUMBERS = tp.tensor([[0, 2], [1, 2]])
IMAGE = np.random.default_rng(3).standard_normal((1, 1, 3, 3))
FLAT = tp.tensor([0, 2, 1, 2, 2])
STARTS = tp.tensor([0, 2, 2])


def cases(real, positive, distinct):
    """By name: ``(function, inputs)``."""
    wide = (real(2, 2, 5, 4), real(4, 1, 3, 2, seed=1), real(4, seed=2))
    narrow = (real(2, 2, 2, 3), real(2, 2, 2, 2, seed=1), real(4, seed=2))
    return {
        "conv2d": (F.conv2d, (real(2, 2, 4, 4), real(3, 2, 3, 2, seed=1), real(3, seed=2))),
        "conv2d, options": (lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (1, 2), 2), wide),
        "conv2d, same": (lambda x, w: F.conv2d(x, w, None, 1, "same", 1, 2), wide[:2]),
        "conv2d, by channel": (
            lambda x, w: F.conv2d(x, w, None, 2, 1, 1, 2),
            (real(2, 2, 4, 5), real(2, 1, 3, 2, seed=1)),
        ),
        "conv2d, weight only": (
            lambda w: F.conv2d(tp.tensor(IMAGE, dtype=w.dtype), w),
            (real(1, 1, 2, 2),),
        ),
        "conv2d, one image": (F.conv2d, (real(1, 3, 3), real(2, 1, 2, 2, seed=1))),
        "conv1d": (
            lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2),
            (real(2, 2, 7), real(3, 2, 3, seed=1), real(3, seed=2)),
        ),
        "conv_transpose2d": (F.conv_transpose2d, (*narrow[:2], real(2, seed=2))),
        "conv_transpose2d, options": (
            lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, (0, 1), 2, (1, 2)),
            narrow,
        ),
        "conv_transpose1d": (
            lambda x, w: F.conv_transpose1d(x, w, None, 2),
            (real(2, 3), real(2, 2, 2, seed=1)),
        ),
        "max_pool2d": (lambda x: F.max_pool2d(x * x, 2), (distinct(1, 2, 4, 4),)),
        "max_pool2d, overlapping": (
            lambda x: F.max_pool2d(x * x, 3, 1, 1, (1, 2), True),
            (distinct(2, 1, 5, 6),),
        ),
        "max_pool1d": (lambda x: F.max_pool1d(x * x, 2, ceil_mode=True), (distinct(2, 2, 5),)),
        "avg_pool2d": (lambda x: F.avg_pool2d(x * x, (2, 3), 1), (real(2, 1, 4, 4),)),
        "avg_pool2d, options": (
            lambda x: F.avg_pool2d(x * x, 3, 2, 1, True, False),
            (real(1, 2, 5, 6),),
        ),
        "avg_pool1d": (lambda x: F.avg_pool1d(x * x, 2), (real(2, 4),)),
        "adaptive_avg_pool2d": (
            lambda x: F.adaptive_avg_pool2d(x * x, (2, 3)),
            (real(1, 2, 5, 4),),
        ),
        "adaptive_max_pool2d": (
            lambda x: F.adaptive_max_pool2d(x * x, (2, 3)),
            (distinct(1, 2, 5, 4),),
        ),
        "unfold": (lambda x: F.unfold(x * x, (2, 3), 1, 1, 2), (real(2, 2, 4, 5),)),
        "fold": (lambda x: F.fold(x * x, (3, 4), 2, 1, 1, (1, 2)), (real(2, 8, 12),)),
        "interpolate": (lambda x: F.interpolate(x * x, scale_factor=(2, 3)), (real(1, 2, 2, 2),)),
        "interpolate, any size": (lambda x: F.interpolate(x * x, 5), (real(2, 1, 3),)),
        "batch_norm": (
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            (real(3, 2, 2), real(2, seed=1), real(2, seed=2)),
        ),
        "batch_norm, bare": (
            lambda x: F.batch_norm(x, None, None, training=True) ** 2,
            (real(4, 2),),
        ),
        "batch_norm, no training": (
            lambda x, w, b: F.batch_norm(
                x, tp.zeros(2, dtype=x.dtype), tp.ones(2, dtype=x.dtype), w, b
            ),
            (real(3, 2, 2), real(2, seed=1), real(2, seed=2)),
        ),
        "layer_norm": (
            lambda x, w, b: F.layer_norm(x, (2, 3), w, b),
            (real(2, 2, 3), real(2, 3, seed=1), real(2, 3, seed=2)),
        ),
        "layer_norm, bias only": (
            lambda b: F.layer_norm(real(2, 3).to(b.dtype), (3,), None, b) * b,
            (real(3),),
        ),
        "group_norm": (
            lambda x, w, b: F.group_norm(x, 2, w, b),
            (real(2, 4, 2), real(4, seed=1), real(4, seed=2)),
        ),
        "instance_norm": (
            lambda x, w: F.instance_norm(x, weight=w),
            (real(2, 2, 3), real(2, seed=1)),
        ),
        "normalize": (F.normalize, (real(2, 3),)),
        "cosine_similarity": (F.cosine_similarity, (real(2, 3), real(2, 3, seed=1))),
        "embedding": (lambda w: F.embedding(NUMBERS, w * w), (real(4, 3),)),
        "embedding, padding": (
            # The row of the padding does not count, so it must not matter in what is compared.
            lambda w: F.embedding(NUMBERS, tp.cat([w * w, w[:1].detach()]), 3),
            (real(3, 2),),
        ),
        "embedding_bag, sum": (
            lambda w, f: F.embedding_bag(FLAT, w * w, STARTS, mode="sum", per_sample_weights=f),
            (real(3, 2), real(5, seed=1)),
        ),
        "embedding_bag, mean": (
            lambda w: F.embedding_bag(NUMBERS, w * w, padding_idx=0),
            (real(3, 2),),
        ),
        "embedding_bag, max": (
            lambda w: F.embedding_bag(FLAT, w * w, STARTS, mode="max"),
            (distinct(3, 2),),
        ),
    }


def complex_cases(waves):
    """Likewise, for complex inputs."""
    return {
        "embedding": (lambda w: F.embedding(NUMBERS, w * w), (waves(3, 2),)),
        "unfold": (lambda x: F.unfold(x * x, 2), (waves(1, 1, 3, 3),)),
    }
