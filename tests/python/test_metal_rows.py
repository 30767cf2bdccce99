"""Rows on a Metal device: cumulative operations and sorting, whose elements the threads of a group share out.

What the values are compared with is NumPy's, in float64 where a sum rounds. Without a Metal device all is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from oracle import to_numpy
from sort_reference import order

METAL = next((device for device in ts.devices() if device.type == "metal"), None)
pytestmark = pytest.mark.skipif(METAL is None, reason="there is no Metal device here")

COMBINED = {
    "cumulative_sum": np.add,
    "cumulative_product": np.multiply,
    "cumulative_minimum": np.minimum,
    "cumulative_maximum": np.maximum,
}
DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "float16", "float32"]


def run(array: np.ndarray, build: Callable[[ts.Tensor], Any], shape: tuple[int, ...] | None = None) -> list[np.ndarray]:
    graph = ts.Graph()
    x = graph.placeholder(array.shape if shape is None else shape, array.dtype.name)
    results = build(x)
    executable = graph.compile([x], list(results), device=METAL)
    assert not [region["remark"] for region in executable.report().regions if region["remark"]]
    found = executable.run(array)
    return [to_numpy(result) for result in (found if isinstance(found, (list, tuple)) else [found])]


def check_sums(array: np.ndarray, axis: int, shape: tuple[int, ...] | None = None) -> None:
    """All up to each element and those before it, from both ends."""

    def both_ways(x: ts.Tensor) -> list[ts.Tensor]:
        return [
            ts.cumulative_sum(x, axis=axis),
            ts.cumulative_sum(x, axis=axis, exclusive=True),
            ts.cumulative_sum(x, axis=axis, reverse=True),
        ]

    wide = array.astype(np.float64)
    exact = np.cumsum(wide, axis)
    backwards = np.flip(np.cumsum(np.flip(wide, axis), axis), axis)
    scale = float(np.abs(exact).max()) if array.size else 0.0
    for result, expected in zip(run(array, both_ways, shape), (exact, exact - wide, backwards), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6 * (1 + scale))


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 65, 128, 129, 511, 513, 1025, 5000])
def test_sums_of_rows_of_any_length(length: int) -> None:
    check_sums(np.random.default_rng(length).standard_normal((3, length)).astype(np.float32), 1)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((70_000,), 0), ((2, 40_000), 1), ((400, 20), 1), ((2100, 3), 0), ((300, 270), 0), ((3, 700, 2), 1), ((3, 0), 1)],
)
def test_sums_of_long_rows_many_rows_and_columns(shape: tuple[int, ...], axis: int) -> None:
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    check_sums(array, axis)


def test_an_executable_for_rows_of_any_length() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    executable = graph.compile([x], [ts.cumulative_sum(x), ts.cumulative_minimum(x, reverse=True)], device=METAL)
    for shape in ((2, 3000), (3, 1), (0, 5), (5, 0), (1, 40_000), (4, 77)):
        array = np.random.default_rng(shape[1]).integers(-9, 9, shape).astype(np.float32)
        total, least = executable.run(array)
        np.testing.assert_array_equal(total, np.cumsum(array, 1))
        np.testing.assert_array_equal(least, np.minimum.accumulate(array[:, ::-1], 1)[:, ::-1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_cumulative_operations_of_every_dtype(dtype: str) -> None:
    """Integers wrap in their dtype; what float16 holds of small numbers is exact."""
    rng = np.random.default_rng(2)
    array = rng.integers(0, 2, (2, 900)).astype(dtype)
    if array.dtype.kind in "iu":
        array = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (2, 900), endpoint=True, dtype=dtype)
    results = run(array, lambda x: [getattr(ts, op)(x) for op in COMBINED])
    for result, (op, ufunc) in zip(results, COMBINED.items(), strict=True):
        counts = dtype == "bool" and op in ("cumulative_sum", "cumulative_product")
        expected = ufunc.accumulate(array, 1, dtype=np.int64 if counts else array.dtype)
        np.testing.assert_array_equal(result, expected, err_msg=op)


@pytest.mark.parametrize("op", COMBINED)
def test_special_values(op: str) -> None:
    array = np.random.default_rng(3).choice([1.0, -1.0, 0.5, 2.0, -0.0], (4, 1200)).astype(np.float32)
    array[1, 400], array[1, 800] = np.inf, -np.inf
    array[2, 700] = np.nan
    array[3, 5], array[3, 1000] = -np.inf, 0.0
    with np.errstate(all="ignore"):
        wide = array if op == "cumulative_product" else array.astype(np.float64)
        expected = COMBINED[op].accumulate(wide, 1)
    (result,) = run(array, lambda x: [getattr(ts, op)(x)])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("factors", [[0.25, 4.0], [1e-30, 1e30, 1e30, 1e-30], [0.5, 1.0], [2.0], [-1.0, 1.0, 2.0, 0.5]])
def test_products_leave_the_range_only_where_they_do_in_order(factors: list[float]) -> None:
    """Powers of two are exact; once infinite or zero, a product stays that."""
    rng = np.random.default_rng(9)
    array = np.resize(np.array(factors, np.float32), (2, 4800))
    array[1] = rng.permutation(array[1]) if len(factors) != 4 else array[1]
    with np.errstate(all="ignore"):
        expected = np.multiply.accumulate(array, 1)
    (result,) = run(array, lambda x: [ts.cumulative_product(x)])
    np.testing.assert_allclose(result, expected, rtol=0 if factors[0] != 1e-30 else 1e-4)


@pytest.mark.parametrize("shape", [(3, 5000), (4, 50), (2, 300), (5000, 3)])
def test_products_of_floats(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(10).uniform(0.98, 1.02, shape).astype(np.float32)
    axis = int(np.argmax(shape))
    forwards, backwards = run(
        array,
        lambda x: [ts.cumulative_product(x, axis=axis), ts.cumulative_product(x * 1.0, axis=axis, reverse=True)],
    )
    wide = array.astype(np.float64)
    np.testing.assert_allclose(forwards, np.cumprod(wide, axis), rtol=1e-4)
    np.testing.assert_allclose(backwards, np.flip(np.cumprod(np.flip(wide, axis), axis), axis), rtol=1e-4)


def test_a_variable_becomes_its_own_running_product() -> None:
    """In a chunk that is taken in order, all threads read what one of them replaces."""
    array = np.random.default_rng(11).choice(np.array([0.25, 4, -4], np.float32), (2, 3000))
    graph = ts.Graph()
    v = graph.variable(array, name="v")
    graph.run({}, [], [v.assign(ts.cumulative_product(v))], device=METAL)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(to_numpy(graph.variable_value(v)), np.multiply.accumulate(array, 1))


def test_long_sums_keep_their_accuracy() -> None:
    """Of 0.1 a hundred thousand times; one after the other, float32 would be off by a thousandth."""
    array = np.full(100_000, 0.1, np.float32)
    exact = array[0].astype(np.float64) * np.arange(1, array.size + 1)
    (result,) = run(array, lambda x: [ts.cumulative_sum(x)])
    assert float(np.abs(result / exact - 1).max()) <= 1e-6


def test_neighbours_and_running_sums_of_running_sums_are_one_kernel() -> None:
    array = np.random.default_rng(4).standard_normal((2, 1500)).astype(np.float32)

    def build(x: ts.Tensor) -> list[ts.Tensor]:
        p = ts.softmax(x)
        running = ts.cumulative_sum(p)
        return [ts.where(running < 0.5, p, 0.0), ts.cumulative_sum(running * 2.0), ts.sum(running, axis=-1)]

    kept, twice, total = run(array, build)
    p = np.exp(array.astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    exact = np.cumsum(p, -1)
    near = np.abs(exact - 0.5) < 1e-5
    np.testing.assert_allclose(np.where(near, 0, kept), np.where(near | (exact >= 0.5), 0, p), rtol=3e-6)
    np.testing.assert_allclose(twice, 2 * np.cumsum(exact, -1), rtol=3e-6)
    np.testing.assert_allclose(total, exact.sum(-1), rtol=3e-6)
    numbers = np.random.default_rng(5).integers(-9, 10, (3, 700)).astype(np.int32)
    thrice = run(numbers, lambda x: [ts.cumulative_sum(ts.cumulative_sum(ts.cumulative_sum(x)) * 3)])[0]
    expected = np.cumsum(np.cumsum(np.cumsum(numbers, 1, dtype=np.int32), 1, dtype=np.int32) * 3, 1, dtype=np.int32)
    np.testing.assert_array_equal(thrice, expected)


def test_positions_of_extremes_and_variables_in_place() -> None:
    """The gradient of a maximum goes to the first position of it; a variable becomes its own running sum."""
    array = np.random.default_rng(6).integers(0, 50, (2, 600)).astype(np.float32)
    graph = ts.Graph()
    v = graph.variable(array, name="v")
    y = ts.cumulative_maximum(v * 1.0)
    gradient = ts.gradients(ts.sum(y), [v])[v]
    found = graph.run({}, [gradient], [v.assign(ts.cumulative_sum(v))], device=METAL)
    expected = np.zeros(array.shape)
    for row, counts in zip(array, expected, strict=True):
        for end in range(1, row.size + 1):
            counts[np.argmax(row[:end])] += 1
    np.testing.assert_array_equal(to_numpy(found[0]), expected)
    np.testing.assert_array_equal(to_numpy(graph.variable_value(v)), np.cumsum(array, 1))


# --- Sorting.


def hostile(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Ties everywhere, the extremes of integers, NaN of both signs, infinities and both zeros."""
    rng = np.random.default_rng(7)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        return rng.choice(np.array([info.min, info.max, 0, 1, 2, 3, info.max - 1], dtype), shape)
    array = (rng.integers(-50, 50, shape) / 4).astype(dtype)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], dtype)
    return np.where(rng.random(shape) < 0.2, rng.choice(special, shape), array).astype(dtype)


def check_sorted(array: np.ndarray, axis: int = -1, shape: tuple[int, ...] | None = None) -> None:
    ascending, positions, descending = run(
        array,
        lambda x: [ts.sort(x, axis=axis), ts.argsort(x, axis=axis), ts.argsort(x, axis=axis, descending=True)],
        shape,
    )
    expected = order(array, axis, False)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(descending, order(array, axis, True))
    wanted = np.take_along_axis(array, expected, axis)
    np.testing.assert_array_equal(ascending, wanted)
    if array.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(ascending), np.signbit(wanted))


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 100, 1024, 1025, 2049, 5000])
def test_rows_of_any_length_are_sorted(length: int) -> None:
    check_sorted(hostile((3, length), "float32"))


@pytest.mark.parametrize(
    ("shape", "axis"), [((70_000,), 0), ((300, 24), 1), ((1500, 3), 0), ((2, 40, 3), 1), ((3, 0), 1), ((0, 5), 1)]
)
def test_long_rows_many_rows_and_other_axes_are_sorted(shape: tuple[int, ...], axis: int) -> None:
    check_sorted(hostile(shape, "float32"), axis)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_sorted(dtype: str) -> None:
    check_sorted(hostile((2, 1300), dtype))


def test_rows_in_order_and_of_one_value_are_sorted() -> None:
    line = np.arange(3000, dtype=np.int32)
    check_sorted(np.stack([line, line[::-1], np.zeros_like(line), line // 700]))


def test_what_is_sorted_is_stitched_to_it() -> None:
    array = np.random.default_rng(8).standard_normal((2, 1200)).astype(np.float32)
    graph = ts.Graph()
    x = graph.placeholder(array.shape)
    executable = graph.compile([x], ts.argsort(ts.absolute(ts.transpose(x)), axis=0), device=METAL)
    assert len(executable.report().regions) == 1
    np.testing.assert_array_equal(to_numpy(executable.run(array)), np.argsort(np.abs(array), 1, kind="stable").T)


def test_an_executable_sorts_rows_of_any_length() -> None:
    """It has a kernel for each merge that the longest row may need; a run launches those that its rows do."""
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), "int16")
    executable = graph.compile([x], [ts.argsort(x)], device=METAL)
    for shape in ((2, 3000), (3, 1), (0, 5), (5, 0), (1, 20_000), (4, 256), (4, 257), (1, 1025)):
        array = hostile(shape, "int16")
        np.testing.assert_array_equal(to_numpy(executable.run(array)[0]), order(array, 1, False))


@pytest.mark.parametrize(
    ("length", "k"),
    [(1, 1), (20, 3), (1000, 1), (1024, 7), (1030, 16), (3000, 64), (3000, 65), (66 * 1024 + 3, 10), (900, 0)],
)
def test_the_first_few(length: int, k: int) -> None:
    array = hostile((2, length), "float32")
    found = run(array, lambda x: [*ts.top_k(x, k), *ts.bottom_k(x, k)])
    for (values, positions), largest in ((found[:2], True), (found[2:], False)):
        expected = order(array, -1, largest)[:, :k]
        np.testing.assert_array_equal(positions, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(array, expected, -1))


def test_the_first_few_of_rows_of_any_length() -> None:
    """Also where the last block has fewer elements than blocks keep."""
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    executable = graph.compile([x], ts.top_k(x, 20), device=METAL)
    for shape in ((2, 3000), (3, 20), (1, 21), (1, 66 * 1024 + 3), (0, 40)):
        array = hostile(shape, "float32")
        np.testing.assert_array_equal(to_numpy(executable.run(array)[1]), order(array, 1, True)[:, :20])


def test_float64_is_sorted_on_the_cpu() -> None:
    """By the kernels that were made for groups of threads."""
    array = hostile((2, 2500), "float64")
    graph = ts.Graph()
    x = graph.placeholder(array.shape, "float64")
    targets = [ts.argsort(x), ts.top_k(x, 9)[1], ts.cumulative_maximum(x)]
    found = [to_numpy(y) for y in graph.run({x: array}, targets, device=METAL)]
    np.testing.assert_array_equal(found[0], order(array, 1, False))
    np.testing.assert_array_equal(found[1], order(array, 1, True)[:, :9])
    np.testing.assert_array_equal(found[2], np.maximum.accumulate(array, 1))
