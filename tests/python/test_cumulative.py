"""Cumulative operations beyond the rows of sort_cases.py: lengths, accuracy, special values, stitching, threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from oracle import to_numpy

NAMES = {
    "cumulative_sum": np.add,
    "cumulative_product": np.multiply,
    "cumulative_minimum": np.minimum,
    "cumulative_maximum": np.maximum,
}


def run(op: str, array: np.ndarray, shape: tuple[int, ...] | None = None, **options: Any) -> np.ndarray:
    graph = ts.Graph()
    x = graph.placeholder(array.shape if shape is None else shape, array.dtype.name)
    keywords = {name: options.pop(name) for name in ("stitch", "interpret", "threads") if name in options}
    return to_numpy(graph.run({x: array}, getattr(ts, op)(x, **options), **keywords))


@pytest.mark.parametrize("size", [1, 2, 7, 8, 16, 17, 63, 64, 65, 127, 1024, 1025, 5000, 100_003])
@pytest.mark.parametrize("op", NAMES)
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_of_any_length(op: str, size: int, reverse: bool) -> None:
    array = np.random.default_rng(size).integers(-5, 6, size).astype(np.int32)
    turned = array[::-1] if reverse else array
    expected = NAMES[op].accumulate(turned, dtype=np.int32)
    for shape in ((size,), (-1,)):
        got = run(op, array, shape, reverse=reverse)
        np.testing.assert_array_equal(got, expected[::-1] if reverse else expected)


@pytest.mark.parametrize(
    "shape", [(5, 3000), (3000, 5), (3, 700, 2), (1, 70_000), (70_000, 1), (70_000, 3), (2, 40_000)]
)
@pytest.mark.parametrize("exclusive", [False, True])
def test_matrices_of_floats(shape: tuple[int, ...], exclusive: bool) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for axis in range(len(shape)):
        exact = np.cumsum(array.astype(np.float64), axis)
        if exclusive:
            exact = exact - array
        got = run("cumulative_sum", array, axis=axis, exclusive=exclusive)
        np.testing.assert_allclose(got, exact, rtol=1e-6, atol=3e-6 * max(1.0, float(np.abs(exact).max())))
        largest = run("cumulative_maximum", array, axis=axis)
        np.testing.assert_array_equal(largest, np.maximum.accumulate(array, axis))


def test_an_executable_for_long_rows_runs_short_ones() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    executable = graph.compile([x], [ts.cumulative_sum(x), ts.cumulative_minimum(x, reverse=True)])
    for size in (100_003, 0, 1, 2, 5, 31, 32, 33, 1000, 70_000):
        array = np.random.default_rng(size).integers(-9, 9, size).astype(np.float32)
        total, least = executable.run(array)
        np.testing.assert_array_equal(total, np.cumsum(array))
        np.testing.assert_array_equal(least, np.minimum.accumulate(array[::-1])[::-1])


@pytest.mark.parametrize("size", [300, 200_000])
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_variable_becomes_its_own_running_sum(size: int, exclusive: bool) -> None:
    array = np.random.default_rng(2).integers(-3, 4, size).astype(np.float32)
    graph = ts.Graph()
    v = graph.variable(array)
    step = graph.assign(v, ts.cumulative_sum(v, exclusive=exclusive))
    graph.run({}, [], [step])
    exact = np.cumsum(array)
    np.testing.assert_array_equal(graph.variable_value(v), exact - array if exclusive else exact)


@pytest.mark.parametrize("shape", [(8,), (300,), (5, 100), (100, 5), (70_000,)])
def test_products_are_summed(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(4).integers(-4, 5, shape).astype(np.float32)
    graph = ts.Graph()
    x = graph.placeholder(shape)
    for axis in range(len(shape)):
        results = graph.run({x: array}, [ts.cumulative_sum(x * 0.5, axis=axis), ts.cumulative_sum(x * x, axis=axis)])
        np.testing.assert_array_equal(results[0], np.cumsum(array * 0.5, axis))
        np.testing.assert_array_equal(results[1], np.cumsum(array * array, axis))


def test_inside_a_loop() -> None:
    """The running sum of the running sum of the running sum, sorted each time (it is in order already)."""
    graph = ts.Graph()
    x = graph.placeholder((3, 20))
    y = ts.for_loop(3, lambda _, z: ts.sort(ts.cumulative_sum(z, axis=1), axis=1), x)
    array = np.random.default_rng(3).integers(0, 3, (3, 20)).astype(np.float32)
    expected = np.cumsum(np.cumsum(np.cumsum(array, 1), 1), 1)
    np.testing.assert_array_equal(graph.run({x: array}, y), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3_000_017,), (200_001, 8)])
def test_long_sums_keep_their_accuracy(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.full(shape, 0.1, dtype)
    step = array.ravel()[0].astype(np.longdouble)
    exact = step * np.arange(1, shape[0] + 1, dtype=np.longdouble).reshape(-1, *[1] * (len(shape) - 1))
    got = run("cumulative_sum", array, axis=0)
    # One after the other, float32 would be off by a percent, and float64 by 1e-11.
    assert float(np.abs(got / exact - 1).max()) <= {"float32": 2e-6, "float64": 1e-13}[dtype]


def test_half_sums_are_accumulated_in_float32() -> None:
    array = np.full(10_000, 0.25, np.float16)
    np.testing.assert_array_equal(run("cumulative_sum", array), 0.25 * np.arange(1, 10_001).astype(np.float16))
    assert run("cumulative_sum", array)[-1] == 2500


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_wrap_in_their_dtype(dtype: str) -> None:
    array = np.random.default_rng(1).integers(1, 100, (3, 400)).astype(dtype)
    for op in ("cumulative_sum", "cumulative_product"):
        np.testing.assert_array_equal(run(op, array), NAMES[op].accumulate(array, axis=-1, dtype=array.dtype))


def test_bools_are_counted() -> None:
    array = np.ones(1000, bool)
    got = run("cumulative_sum", array)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, np.arange(1, 1001))
    flags = np.array([True, True, False, True])
    np.testing.assert_array_equal(run("cumulative_product", flags), [1, 1, 0, 0])
    np.testing.assert_array_equal(run("cumulative_minimum", flags), [True, True, False, False])
    np.testing.assert_array_equal(run("cumulative_maximum", ~flags), [False, False, True, True])
    np.testing.assert_array_equal(run("cumulative_minimum", flags, exclusive=True), [True, True, True, False])


@pytest.mark.parametrize("op", NAMES)
@pytest.mark.parametrize("size", [50, 3000, 80_000])
def test_special_values(op: str, size: int) -> None:
    rng = np.random.default_rng(3)
    array = rng.choice([1.0, -1.0, 0.5, 2.0], size).astype(np.float32)
    for place, value in ((size // 3, np.inf), (size // 2, -np.inf), (2 * size // 3, np.nan)):
        array[place] = value
    with np.errstate(all="ignore"):
        expected = NAMES[op].accumulate(array.astype(np.float64))
        if op == "cumulative_product":
            expected = np.multiply.accumulate(array)
        np.testing.assert_allclose(run(op, array), expected, rtol=1e-5, atol=1e-3)


def test_products_overflow_only_where_the_result_does() -> None:
    array = np.tile(np.array([1e-30, 1e30, 1e30, 1e-30], np.float32), 40)
    expected = np.multiply.accumulate(array)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(run("cumulative_product", array), expected, rtol=1e-4)
    rows = np.tile(array, (9, 1))
    np.testing.assert_allclose(run("cumulative_product", rows), np.tile(expected, (9, 1)), rtol=1e-4)
    zero = np.array([0.0] + [1e30] * 40, np.float32)
    np.testing.assert_array_equal(run("cumulative_product", zero), np.zeros(41))


def test_exclusive_starts() -> None:
    for dtype in ("int8", "uint16", "int64", "uint64"):
        info = np.iinfo(dtype)
        array = np.array([3, 1, 2], dtype)
        np.testing.assert_array_equal(
            run("cumulative_minimum", array, exclusive=True), np.array([info.max, 3, 1], dtype)
        )
        np.testing.assert_array_equal(
            run("cumulative_maximum", array, exclusive=True), np.array([info.min, 3, 3], dtype)
        )
    array = np.array([3, 1, 2], np.float32)
    np.testing.assert_array_equal(run("cumulative_minimum", array, exclusive=True), [np.inf, 3, 1])
    np.testing.assert_array_equal(run("cumulative_maximum", array, exclusive=True, reverse=True), [2, 2, -np.inf])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (1,), (1, 1), (4, 1), (1, 4)])
@pytest.mark.parametrize("op", NAMES)
def test_empty_and_single(op: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 2
    for axis in range(len(shape)):
        for feed_shape in (shape, (-1,) * len(shape)):
            got = run(op, array, feed_shape, axis=axis)
            np.testing.assert_array_equal(got, NAMES[op].accumulate(array, axis=axis))
            assert run(op, array, feed_shape, axis=axis, exclusive=True).shape == shape


def test_strided_feeds() -> None:
    whole = np.random.default_rng(4).standard_normal((40, 60)).astype(np.float32)
    for array in (whole[::2, ::-3], whole.T, np.broadcast_to(whole[:1], (7, 60))):
        for axis in (0, 1):
            got = run("cumulative_sum", array, axis=axis)
            np.testing.assert_allclose(got, np.cumsum(array, axis, dtype=np.float64), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"stitch": False}, {"interpret": True}])
@pytest.mark.parametrize("shape", [(6, 300), (300, 6)])
def test_neighbours_are_stitched(options: dict[str, bool], shape: tuple[int, ...]) -> None:
    """Softmax, then its running sum, then what is made of that: as for sampling from the largest probabilities."""
    array = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    graph = ts.Graph()
    x = graph.placeholder(shape)
    p = ts.softmax(x, axis=-1)
    running = ts.cumulative_sum(p, axis=-1)
    kept = ts.where(running < 0.9, p, 0.0)
    total = ts.sum(running * 2.0, axis=-1)
    back = ts.cumulative_sum(p, axis=-1, reverse=True) + running
    results = graph.run({x: array}, [running, kept, total, back], **options)
    wide = np.exp(array.astype(np.float64))
    wide /= wide.sum(-1, keepdims=True)
    exact = np.cumsum(wide, -1)
    np.testing.assert_allclose(results[0], exact, rtol=2e-6)
    near = np.abs(exact - 0.9) < 1e-5
    np.testing.assert_allclose(np.where(near, 0, results[1]), np.where(near | (exact >= 0.9), 0, wide), rtol=2e-6)
    np.testing.assert_allclose(results[2], 2 * exact.sum(-1), rtol=2e-6)
    np.testing.assert_allclose(results[3], 1 + wide, rtol=3e-6)


def test_a_softmax_and_its_running_sum_are_one_kernel() -> None:
    graph = ts.Graph()
    x = graph.placeholder((64, 1000))
    executable = graph.compile([x], ts.where(ts.cumulative_sum(ts.softmax(x)) < 0.9, x, 0.0))
    assert len(executable.report().regions) == 1


def test_results_do_not_depend_on_threads() -> None:
    array = np.random.default_rng(6).standard_normal(1_000_003).astype(np.float32)
    results = [run("cumulative_sum", array, threads=threads) for threads in (1, 2)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], np.cumsum(array.astype(np.float64)), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("zeros", [(), (2,), (0, 3), (1, 2, 5)])
def test_gradient_of_a_product_with_zeros(exclusive: bool, reverse: bool, zeros: tuple[int, ...]) -> None:
    """Against the definition: the products without one factor."""
    rng = np.random.default_rng(7)
    array = rng.uniform(0.5, 2, 6)
    array[list(zeros)] = 0
    seed = rng.standard_normal(6)
    graph = ts.Graph()
    x = graph.placeholder((6,), "float64")
    y = ts.cumulative_product(x, exclusive=exclusive, reverse=reverse)
    (gradient,) = graph.run({x: array}, [ts.gradients(y, [x], seed=graph.constant(seed))[x]])
    expected = np.zeros(6)
    for i in range(6):
        inside = [j for j in range(6) if (j >= i if reverse else j <= i) and not (exclusive and j == i)]
        for j in inside:
            expected[j] += seed[i] * np.prod([array[k] for k in inside if k != j])
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_extremes_goes_to_what_was_taken(exclusive: bool, reverse: bool) -> None:
    array = np.array([[2.0, 5.0, 1.0, 4.0, 7.0, 3.0]])
    seed = np.arange(1.0, 7.0)[None]
    graph = ts.Graph()
    x = graph.placeholder((1, 6), "float64")
    y = ts.cumulative_maximum(x, exclusive=exclusive, reverse=reverse)
    (gradient,) = graph.run({x: array}, [ts.gradients(y, [x], seed=graph.constant(seed))[x]])
    expected = np.zeros((1, 6))
    for i in range(6):
        inside = [j for j in range(6) if (j >= i if reverse else j <= i) and not (exclusive and j == i)]
        if inside:
            expected[0, max(inside, key=lambda j: array[0, j])] += seed[0, i]
    np.testing.assert_array_equal(gradient, expected)


def test_errors_say_what_is_allowed() -> None:
    graph = ts.Graph()
    with pytest.raises(ts.UserError, match="cumulative_sum"):
        ts.cumulative_sum(graph.placeholder((3, 4)), axis=2)
    with pytest.raises(ts.UserError, match="cumulative_sum"):
        ts.cumulative_sum(graph.placeholder(()))
    with pytest.raises(TypeError, match="cumulative_product"):
        ts.cumulative_product(graph.placeholder((3,), "complex64"))
    with pytest.raises(TypeError, match="cumulative_maximum"):
        ts.cumulative_maximum(graph.placeholder((3,), "complex64"))
