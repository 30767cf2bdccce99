"""Factors of products that are read where they are, and long blocks of those that are packed, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from oracle import assert_sum_of_products


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(a: np.ndarray, b: np.ndarray) -> None:
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape, str(a.dtype)), graph.placeholder(b.shape, str(b.dtype))
    left, right = a.astype(np.float64), b.astype(np.float64)
    bound = np.abs(left) @ np.abs(right)
    assert_sum_of_products(graph.run({x: a, w: b}, x @ w), left @ right, bound, a.shape[-1], f"{a.shape} @ {b.shape}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left", [np.s_[:, ::-1], np.s_[::-1], np.s_[:, ::2], np.s_[7:-3, 5:65]])
@pytest.mark.parametrize("right", [np.s_[:, ::-1], np.s_[::-1], np.s_[:, ::2], np.s_[3:-4, 1:-1]])
def test_small_factors_of_any_strides(left: Any, right: Any, dtype: str) -> None:
    """They are read where they are when their columns lie side by side, and never past an end."""
    a = random((45, 120), dtype)[left]
    b = random((150, 194), dtype, 1)[right][: a.shape[1], :96]
    check(a[:, : b.shape[0]], b)
    check(np.stack([a, -a])[:, :, : b.shape[0]], b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(24, 2592, 300), (64, 1024, 700), (61, 2304, 513), (70, 3040, 1111)])
@pytest.mark.parametrize("rows", [np.s_[:], np.s_[::-1], np.s_[::2]])
@pytest.mark.parametrize("threads", [1, 3])
def test_columns_that_few_rows_need(m: int, n: int, k: int, rows: Any, threads: int, dtype: str) -> None:
    """They pass by where they are, in blocks of whole rows, and bias and activation come in the end."""
    a, b = random((m, k), dtype), random((2 * k, n + 64), dtype, 1)[rows][:k, 32 : n + 32]
    bias = random((n,), dtype, 2)
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape, dtype), graph.placeholder(b.shape, dtype)
    executable = graph.compile([x, w], ts.relu(x @ w + graph.constant(bias)), threads=threads)
    wide = a.astype(np.float64) @ b.astype(np.float64) + bias
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) + np.abs(bias)
    assert_sum_of_products(executable.run(a, b), np.maximum(wide, 0), magnitude, k + 1, str(executable.report()))


def test_small_factors_that_do_not_change() -> None:
    """A row after the last panel reads what is there, and writes nothing."""
    graph = ts.Graph()
    x = graph.placeholder((29, 64))
    weights, bias = random((64, 64), seed=1), random((64,), seed=2)
    y = ts.relu(x @ graph.constant(weights) + graph.constant(bias))
    slope = ts.gradients(ts.sum(y * y), [x])[x]
    a = random((29, 64))
    result, gradient = graph.run({x: a}, [y, slope])
    expected = np.maximum(a.astype(np.float64) @ weights + bias, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, 2 * expected @ weights.T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(1025, 97, 2048), (1100, 64, 2049), (1024, 40, 4100)])
def test_long_blocks_of_many_rows(m: int, n: int, k: int) -> None:
    check(random((m, k)), random((k, n), seed=1))
