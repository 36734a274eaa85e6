"""Inputs for operations under test."""

import numpy as np

import tensorplay as tp


def real(*shape, seed=0):
    """Numbers of both signs, none near zero."""
    values = np.random.default_rng(seed).uniform(0.3, 1.7, shape)
    signs = np.random.default_rng(seed + 100).choice([-1.0, 1.0], shape)
    return tp.tensor(values * signs, requires_grad=True)


def positive(*shape, seed=0):
    values = np.random.default_rng(seed).uniform(0.3, 1.7, shape)
    return tp.tensor(values, requires_grad=True)


def waves(*shape, seed=0):
    """Complex numbers in all quadrants, none near an axis."""
    return tp.complex(real(*shape, seed=seed), real(*shape, seed=seed + 50))


def distinct(*shape):
    """All different, so that the extrema stay where they are."""
    count = int(np.prod(shape))
    values = np.random.default_rng(7).permutation(count) / 3.0 + 0.1
    return tp.tensor(values.reshape(shape), requires_grad=True)
