"""Convolution of each channel with a weight of its own.

As matrix products these would be as many tiny ones as there are channels.  Here it is one
multiplication of large arrays for each element of a window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorplay.ops.windows import Geometry, padded, samples_first, samples_last, unpadded


def convolve(x: Any, w: Any, geometry: Geometry) -> Any:
    """``(N, C, H, W)`` and ``(C, 1, kh, kw)`` to ``(N, C, oh, ow)``."""
    source = padded(x, geometry)
    factors = w.reshape(len(w), -1, 1, 1, 1)
    shape = (len(w), *geometry.output, source.shape[3])
    out = np.zeros(shape, np.result_type(x, w))
    term = np.empty_like(out)
    for number, (rows, cols) in enumerate(geometry.taps()):
        out += np.multiply(source[:, rows, cols], factors[:, number], out=term)
    return samples_first(out)


def transpose(g: Any, w: Any, geometry: Geometry) -> Any:
    """``(N, C, oh, ow)`` and ``(C, 1, kh, kw)`` to ``(N, C, H, W)``."""
    grad = np.ascontiguousarray(samples_last(g))
    factors = w.reshape(len(w), -1, 1, 1, 1)
    out = np.zeros((len(w), *geometry.padded, grad.shape[3]), np.result_type(g, w))
    term = np.empty(grad.shape, out.dtype)
    for number, (rows, cols) in enumerate(geometry.taps()):
        out[:, rows, cols] += np.multiply(grad, factors[:, number], out=term)
    return unpadded(out, geometry)


def correlate(g: Any, x: Any, geometry: Geometry) -> Any:
    """``(N, C, oh, ow)`` and ``(N, C, H, W)`` to ``(C, 1, kh, kw)``."""
    grad = np.ascontiguousarray(samples_last(g))
    source = padded(x, geometry)
    sums = [
        np.einsum("chwn,chwn->c", grad, source[:, rows, cols]) for rows, cols in geometry.taps()
    ]
    return np.stack(sums, axis=1).reshape(len(grad), 1, *geometry.kernel)
