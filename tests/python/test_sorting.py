"""Sorting beyond the rows of sort_cases.py: every method, ties, special values, sizes, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from sort_reference import order

SIZES = [1, 2, 3, 31, 64, 96, 97, 257, 1000, 20_000, 70_000]


def run(op: str, array: np.ndarray, shape: tuple[int, ...] | None = None, **options: Any) -> Any:
    graph = ts.Graph()
    x = graph.placeholder(array.shape if shape is None else shape, array.dtype.name)
    keywords = {name: options.pop(name) for name in ("stitch", "interpret", "threads") if name in options}
    y = getattr(ts, op)(x, **options)
    results = graph.run({x: array}, list(y) if isinstance(y, (list, tuple)) else [y], **keywords)
    arrays = [np.asarray(result) for result in results]
    return arrays if len(arrays) > 1 else arrays[0]


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"uint{8 * array.itemsize}")


def hostile(size: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Ties, zeros of both signs, infinities and NaNs of several patterns, extreme integers."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, size).astype(bool)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        array = rng.integers(info.min, info.max, size, endpoint=True, dtype=dtype)
        array[rng.random(size) < 0.3] = 7
        return array
    array = rng.standard_normal(size).astype(dtype)
    for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).tiny / 4, 1.0):
        array[rng.random(size) < 0.05] = value
    return array


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "int32", "int64", "uint16", "uint64", "bool"]
)
@pytest.mark.parametrize("descending", [False, True])
def test_order_is_stable_and_nan_the_largest(size: int, dtype: str, descending: bool) -> None:
    array = hostile(size, dtype)
    expected = order(array, 0, descending)
    places = run("argsort", array, descending=descending)
    assert places.dtype == np.int32
    np.testing.assert_array_equal(places, expected)
    values = run("sort", array, descending=descending)
    np.testing.assert_array_equal(bits(values), bits(array[expected]))


@pytest.mark.parametrize("size", [50, 700, 70_000])
def test_dynamic_lengths(size: int) -> None:
    array = hostile(size, "float32", 1)
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    executable = graph.compile([x], [ts.sort(x), ts.argsort(x)])
    for length in (size, 0, 1, 2, size // 3):
        values, places = executable.run(array[:length])
        expected = order(array[:length], 0, False)
        np.testing.assert_array_equal(places, expected)
        np.testing.assert_array_equal(values, array[:length][expected])


@pytest.mark.parametrize("shape", [(5, 30), (30, 5), (3, 200, 4), (1, 70_000), (70_000, 1), (2, 3, 400)])
@pytest.mark.parametrize("descending", [False, True])
def test_axes(shape: tuple[int, ...], descending: bool) -> None:
    array = hostile(int(np.prod(shape)), "float32").reshape(shape)
    for axis in range(-1, len(shape)):
        expected = order(array, axis, descending)
        np.testing.assert_array_equal(run("argsort", array, axis=axis, descending=descending), expected)
        values = run("sort", array, axis=axis, descending=descending)
        np.testing.assert_array_equal(values, np.take_along_axis(array, expected, axis))


@pytest.mark.parametrize("length", [30, 96, 1000, 5000])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "float64", "bool"])
@pytest.mark.parametrize("largest", [False, True])
def test_first_few(length: int, dtype: str, largest: bool) -> None:
    array = hostile(3 * length, dtype, length).reshape(3, length)
    expected = order(array, -1, largest)
    for k in sorted({0, 1, 16, 17, 30, 64, 65, length - 1, length}):
        if k > length:
            continue
        values, places = run("top_k" if largest else "bottom_k", array, k=k)
        np.testing.assert_array_equal(places, expected[:, :k])
        np.testing.assert_array_equal(values, np.take_along_axis(array, expected[:, :k], -1))


@pytest.mark.parametrize("trend", ["ascending", "descending", "equal", "nan"])
def test_first_few_of_rows_in_order(trend: str) -> None:
    """Every element is a better one, or none is."""
    line = {
        "ascending": np.arange(3000.0),
        "descending": -np.arange(3000.0),
        "equal": np.ones(3000),
        "nan": np.full(3000, np.nan),
    }[trend].astype(np.float32)
    for op, largest in (("top_k", True), ("bottom_k", False)):
        values, places = run(op, line, k=20)
        np.testing.assert_array_equal(places, order(line, 0, largest)[:20])
        np.testing.assert_array_equal(values, line[order(line, 0, largest)[:20]])


def test_first_few_along_other_axes_and_dynamic() -> None:
    array = hostile(4 * 900 * 3, "float32").reshape(4, 900, 3)
    for axis, k in ((0, 2), (1, 10), (2, 3)):
        expected = np.take(order(array, axis, True), np.arange(k), axis)
        for shape in (array.shape, (-1, -1, -1)):
            values, places = run("top_k", array, shape, k=k, axis=axis)
            np.testing.assert_array_equal(places, expected)
            np.testing.assert_array_equal(values, np.take_along_axis(array, expected, axis))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (1,), (4, 1), (0, 200), (200, 0)])
def test_empty_and_single(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for axis in range(len(shape)):
        for feed_shape in (shape, (-1,) * len(shape)):
            np.testing.assert_array_equal(run("sort", array, feed_shape, axis=axis), array)
            np.testing.assert_array_equal(run("argsort", array, feed_shape, axis=axis), np.argsort(array, axis))
            k = min(1, shape[axis])
            values, places = run("top_k", array, feed_shape, axis=axis, k=k)
            assert values.shape == places.shape == (*shape[:axis], k, *shape[axis + 1 :])


@pytest.mark.parametrize("options", [{}, {"stitch": False}, {"interpret": True}])
@pytest.mark.parametrize("length", [40, 300])
def test_producers_are_stitched(options: dict[str, bool], length: int) -> None:
    array = np.random.default_rng(2).standard_normal((4, length)).astype(np.float32)
    graph = ts.Graph()
    x = graph.placeholder(array.shape)
    negated = -x
    results = graph.run(
        {x: array}, [ts.sort(negated), *ts.top_k(ts.absolute(x), 3), ts.argsort(ts.square(x) + 1.0)], **options
    )
    np.testing.assert_array_equal(results[0], np.sort(-array))
    expected = order(np.abs(array), -1, True)[:, :3]
    np.testing.assert_array_equal(results[1], np.take_along_axis(np.abs(array), expected, -1))
    np.testing.assert_array_equal(results[2], expected)
    np.testing.assert_array_equal(results[3], order(array * array + np.float32(1), -1, False))


@pytest.mark.parametrize("size", [50, 5000, 200_000])
def test_a_variable_is_replaced_by_itself_in_order(size: int) -> None:
    array = hostile(size, "float32")
    graph = ts.Graph()
    v = graph.variable(array)
    graph.run({}, [], [graph.assign(v, ts.sort(v))])
    np.testing.assert_array_equal(graph.variable_value(v), np.sort(array, kind="stable"))


def test_strided_feeds() -> None:
    whole = hostile(200 * 300, "float32").reshape(200, 300)
    for array in (whole[::2, ::-1], whole.T, np.broadcast_to(whole[:1], (5, 300))):
        for axis in (0, 1):
            np.testing.assert_array_equal(run("argsort", array, axis=axis), order(array, axis, False))


def test_threads_share_a_long_row() -> None:
    array = hostile(300_001, "float32")
    for threads in (1, 2):
        np.testing.assert_array_equal(run("argsort", array, threads=threads), order(array, 0, False))
        values = run("sort", array, descending=True, threads=threads)
        np.testing.assert_array_equal(values, array[order(array, 0, True)])


@pytest.mark.parametrize("descending", [False, True])
def test_gradient_of_sort(descending: bool) -> None:
    rng = np.random.default_rng(8)
    array, seed = rng.standard_normal((3, 20)), rng.standard_normal((3, 20))
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), "float64")
    y = ts.sort(x, descending=descending)
    (gradient,) = graph.run({x: array}, [ts.gradients(y, [x], seed=graph.constant(seed))[x]])
    expected = np.zeros((3, 20))
    np.put_along_axis(expected, order(array, -1, descending), seed, -1)
    np.testing.assert_array_equal(gradient, expected)


def test_gradient_of_top_k() -> None:
    rng = np.random.default_rng(9)
    array, seed = rng.standard_normal((3, 500)), rng.standard_normal((3, 12))
    graph = ts.Graph()
    x = graph.placeholder((3, -1), "float64")
    values, _ = ts.top_k(x, 12)
    (gradient,) = graph.run({x: array}, [ts.gradients(values, [x], seed=graph.constant(seed))[x]])
    expected = np.zeros((3, 500))
    np.put_along_axis(expected, order(array, -1, True)[:, :12], seed, -1)
    np.testing.assert_array_equal(gradient, expected)


def test_errors_say_what_is_allowed() -> None:
    graph = ts.Graph()
    x = graph.placeholder((3, 4))
    with pytest.raises(ts.UserError, match=r"k is 5.*has 4 elements"):
        ts.top_k(x, 5)
    with pytest.raises(ts.UserError, match="k is -1"):
        ts.bottom_k(x, -1)
    with pytest.raises(ts.UserError, match="sort"):
        ts.sort(x, axis=2)
    with pytest.raises(ts.UserError, match="sort"):
        ts.sort(graph.placeholder(()))
    with pytest.raises(TypeError, match="no order"):
        ts.argsort(graph.placeholder((3,), "complex64"))


def test_a_row_that_turns_out_too_short_is_refused() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2, -1))
    executable = graph.compile([x], ts.top_k(x, 5))
    executable.run(np.ones((2, 100), np.float32))
    for length in (4, 1, 0):
        with pytest.raises(ts.UserError, match=rf"k is 5.*has {length} elements"):
            executable.run(np.ones((2, length), np.float32))
    assert np.asarray(executable.run(np.ones((2, 5), np.float32))[1]).tolist() == [[0, 1, 2, 3, 4]] * 2
