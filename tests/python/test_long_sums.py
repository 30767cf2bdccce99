"""Long sums keep their accuracy, and long chains of views do not exhaust the stack.

The exact values are those of float64 sums of the same float32 numbers (constants: a product).
"""

from __future__ import annotations

import numpy as np
import pytest

import topstitch as ts


@pytest.mark.parametrize("size", [4095, 4096, 8191, 100_003, 3_000_017])
@pytest.mark.parametrize("symbolic", [False, True])
def test_sums_of_equal_numbers(size: int, symbolic: bool) -> None:
    array = np.full(size, 0.1, np.float32)
    graph = ts.Graph()
    x = graph.placeholder((-1,) if symbolic else (size,))
    total, mean, spread = graph.run({x: array}, [ts.sum(x), ts.mean(x), ts.variance(x)])
    exact = float(np.float32(0.1)) * size
    assert abs(float(total) - exact) <= 1e-6 * exact
    assert abs(float(mean) - float(np.float32(0.1))) <= 1e-7
    assert abs(float(spread)) <= 1e-13


@pytest.mark.parametrize("shape", [(200_001, 8), (3, 60_000, 5), (40_000, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_over_one_axis(shape: tuple[int, ...], axis: int) -> None:
    array = np.random.default_rng(0).random(shape, dtype=np.float32) + np.float32(0.1)
    graph = ts.Graph()
    x = graph.placeholder(shape)
    expected = array.astype(np.float64).sum(axis)
    np.testing.assert_allclose(np.asarray(graph.run({x: array}, ts.sum(x, axis=axis))), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64"])
def test_other_dtypes(dtype: str) -> None:
    array = np.full(1_000_003, 0.01, dtype)
    graph = ts.Graph()
    x = graph.placeholder(array.shape, dtype)
    exact = complex(array[0]) * array.size
    got = complex(np.asarray(graph.run({x: array}, ts.sum(x))))
    assert abs(got - exact) <= {"float16": 5e-4, "float64": 1e-13, "complex64": 1e-6}[dtype] * abs(exact)


@pytest.mark.parametrize("size", [4096, 20_000])
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_of_positive_numbers(size: int, dynamic: bool) -> None:
    rng = np.random.default_rng(0)
    a = rng.random((128, size), dtype=np.float32) + np.float32(0.1)
    b = rng.random((size, 130), dtype=np.float32) + np.float32(0.1)
    graph = ts.Graph()
    steps = -1 if dynamic else size
    ta, tb = graph.placeholder((128, steps)), graph.placeholder((steps, 130))
    got = np.asarray(graph.run({ta: a, tb: b}, ta @ tb))
    np.testing.assert_allclose(got, a.astype(np.float64) @ b.astype(np.float64), rtol=1.5e-6)


def test_a_chain_of_views() -> None:
    graph = ts.Graph()
    x = graph.placeholder((4,))
    y = x
    for _ in range(20_000):
        y = ts.reverse(y, axis=[0])
    assert graph.run({x: np.arange(4, dtype=np.float32)}, y + 1.0).tolist() == [1, 2, 3, 4]
