"""Philox 4x32-10 and the distributions in NumPy, written from the papers.

`words` arranges the words of blocks as docs/training.md says that elements take them.
"""

from __future__ import annotations

import numpy as np
import scipy.special as special

MASK = np.uint64(0xFFFFFFFF)


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """The four words for each row of four counter words (J. K. Salmon et al., SC 2011)."""
    x = [counter[:, k].astype(np.uint64) for k in range(4)]
    k0, k1 = key
    for _ in range(10):
        p0 = x[0] * np.uint64(0xD2511F53)
        p1 = x[2] * np.uint64(0xCD9E8D57)
        x = [
            (p1 >> np.uint64(32)) ^ x[1] ^ np.uint64(k0),
            p1 & MASK,
            (p0 >> np.uint64(32)) ^ x[3] ^ np.uint64(k1),
            p0 & MASK,
        ]
        k0 = (k0 + 0x9E3779B9) % 2**32
        k1 = (k1 + 0xBB67AE85) % 2**32
    return np.stack(x, 1)


def words(state: tuple[int, int, int], count: int, each: int = 1) -> np.ndarray:
    """`each` words for each of `count` elements: 16 blocks lie side by side, and elements 16 apart share one."""
    elements = 64 // each
    groups = -(-count // elements)
    first = state[0] + (state[1] << 64)
    numbers = [(first + block) % 2**128 for block in range(groups * 16)]
    counter = np.array([[(n >> (32 * k)) % 2**32 for k in range(4)] for n in numbers], np.uint64).reshape(-1, 4)
    blocks = philox(counter, (state[2] % 2**32, state[2] >> 32))
    parts = blocks.reshape(groups, 16, 4 // each, each).transpose(0, 2, 1, 3)
    return parts.reshape(-1, each)[:count]


def after(state: tuple[int, int, int], count: int, each: int = 1) -> np.ndarray:
    counter = (state[0] + (state[1] << 64) + -(-count * each // 64) * 16) % 2**128
    return np.array([counter % 2**64, counter >> 64, state[2]], np.uint64)


def words64(state: tuple[int, int, int], count: int) -> np.ndarray:
    pair = words(state, count, 2)
    return pair[:, 0] | (pair[:, 1] << np.uint64(32))


def unit(state: tuple[int, int, int], count: int, dtype: str = "float32") -> np.ndarray:
    if dtype == "float64":
        return (words64(state, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return (words(state, count)[:, 0] >> np.uint64(8)).astype(np.float64) * 2.0**-24


def standard_normal(state: tuple[int, int, int], count: int, dtype: str = "float32") -> np.ndarray:
    """By the quantile of half a probability, with the lowest bit as the sign."""
    wide = dtype == "float64"
    w = words64(state, count) if wide else words(state, count)[:, 0]
    bits = 53 if wide else 31
    whole = w >> np.uint64(64 - bits if wide else 32 - bits)
    below = (whole.astype(np.float64) + 0.5) * 2.0 ** -(bits + 1)
    above = ((np.uint64(2**bits - 1) - whole).astype(np.float64) + 0.5) * 2.0 ** -(bits + 1)  # 0.5 - below, exactly
    z = np.where(below < 0.25, -special.ndtri(below), np.sqrt(2) * special.erfinv(2 * above))
    return np.where(w & np.uint64(1), -z, z)


def box_muller(state: tuple[int, int, int], count: int) -> np.ndarray:
    """For float32: neighbouring vectors of 16 elements share the radius and the angle."""
    whole = words(state, -(-count // 64) * 64)[:, 0].reshape(-1, 2, 16)
    u = ((whole[:, 0] >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-31
    angle = 2 * np.pi * (whole[:, 1] >> np.uint64(8)).astype(np.float64) * 2.0**-24
    radius = np.sqrt(-2 * np.log(u))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)[:count]


def integers(state: tuple[int, int, int], count: int, minimum: int, maximum: int) -> list[int]:
    span = maximum - minimum + 1
    if span == 2**64:
        return [minimum + int(w) for w in words64(state, count)]
    each = 2 if span <= 2**32 else 4
    rows = words(state, count, each)
    return [minimum + (sum(int(w) << (32 * k) for k, w in enumerate(row)) * span >> (32 * each)) for row in rows]
