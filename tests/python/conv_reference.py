"""Convolution in NumPy, from its definition: one pass over the padded data for each tap, in float64 or int64.

Data are [batch, channels, ...], weights [output channels, channels of a group, ...].
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

Pairs = Sequence[tuple[int, int]]


def same_padding(extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
                 lower: bool = False) -> list[tuple[int, int]]:  # fmt: skip
    pairs = []
    for n, k, s, d in zip(extents, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less = total // 2
        pairs.append((total - less, less) if lower else (less, total - less))
    return pairs


def windows(extents: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
            padding: Pairs) -> list[int]:  # fmt: skip
    return [
        (n + sum(p) - (k - 1) * d - 1) // s + 1
        for n, k, s, d, p in zip(extents, kernel, stride, dilation, padding, strict=True)
    ]


def taps(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], out: Sequence[int]
         ) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:  # fmt: skip
    """Each tap, and what the windows read of the padded data with it."""
    for tap in itertools.product(*map(range, kernel)):
        yield (
            tap,
            tuple(
                slice(k * d, k * d + (o - 1) * s + 1, s) for k, s, d, o in zip(tap, stride, dilation, out, strict=True)
            ),
        )


def padded(x: np.ndarray, padding: Pairs) -> np.ndarray:
    return np.pad(x, [(0, 0), (0, 0), *padding])


def conv(x: np.ndarray, w: np.ndarray, stride: Sequence[int], dilation: Sequence[int], padding: Pairs,
         groups: int = 1) -> np.ndarray:  # fmt: skip
    out = windows(x.shape[2:], w.shape[2:], stride, dilation, padding)
    batch, outputs, inputs = x.shape[0], w.shape[0] // groups, w.shape[1]
    y = np.zeros((batch, w.shape[0], *out), x.dtype)
    source = padded(x, padding)
    for tap, region in taps(w.shape[2:], stride, dilation, out):
        for g in range(groups):
            part = source[(slice(None), slice(g * inputs, (g + 1) * inputs), *region)]
            weights = w[(slice(g * outputs, (g + 1) * outputs), slice(None), *tap)]
            y[:, g * outputs : (g + 1) * outputs] += np.einsum("nc...,oc->no...", part, weights)
    return y


def data_gradient(gradient: np.ndarray, w: np.ndarray, extents: Sequence[int], stride: Sequence[int],
                  dilation: Sequence[int], padding: Pairs, groups: int = 1) -> np.ndarray:  # fmt: skip
    """Every window adds gradient times weight to what it has read."""
    outputs, inputs = w.shape[0] // groups, w.shape[1]
    shape = [n + sum(p) for n, p in zip(extents, padding, strict=True)]
    x = np.zeros((gradient.shape[0], inputs * groups, *shape), gradient.dtype)
    for tap, region in taps(w.shape[2:], stride, dilation, gradient.shape[2:]):
        for g in range(groups):
            weights = w[(slice(g * outputs, (g + 1) * outputs), slice(None), *tap)]
            part = gradient[:, g * outputs : (g + 1) * outputs]
            x[(slice(None), slice(g * inputs, (g + 1) * inputs), *region)] += np.einsum(
                "no...,oc->nc...", part, weights
            )
    cut = tuple(slice(p[0], p[0] + n) for n, p in zip(extents, padding, strict=True))
    return x[(slice(None), slice(None), *cut)]


def weights_gradient(x: np.ndarray, gradient: np.ndarray, kernel: Sequence[int], stride: Sequence[int],
                     dilation: Sequence[int], padding: Pairs, groups: int = 1) -> np.ndarray:  # fmt: skip
    inputs, outputs = x.shape[1] // groups, gradient.shape[1] // groups
    w = np.zeros((gradient.shape[1], inputs, *kernel), x.dtype)
    source = padded(x, padding)
    for tap, region in taps(kernel, stride, dilation, gradient.shape[2:]):
        for g in range(groups):
            part = source[(slice(None), slice(g * inputs, (g + 1) * inputs), *region)]
            incoming = gradient[:, g * outputs : (g + 1) * outputs]
            flat = [a.reshape(*a.shape[:2], int(np.prod(a.shape[2:]))) for a in (part, incoming)]
            w[(slice(g * outputs, (g + 1) * outputs), slice(None), *tap)] = np.einsum("nct,not->oc", *flat)
    return w
