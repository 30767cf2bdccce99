"""Gather and scatter beyond the generated rows: duplicates in every mode and dtype, updates in place, threads, loops,
gradients at zeros and ties, hostile indices, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gather_reference as reference
import topstitch as ts

FLAGS, COMPLEX = ("set", "min", "max"), ("set", "add", "subtract", "multiply", "divide")


def run(function: Any, *arrays: np.ndarray, dynamic: bool = False, **options: Any) -> np.ndarray:
    graph = ts.Graph()
    feeds = [graph.placeholder((-1,) * a.ndim if dynamic else a.shape, dtype=ts.NDArray(a).dtype) for a in arrays]
    return np.array(graph.compile(feeds, function(*feeds), **options).run(list(arrays)))


@pytest.mark.parametrize("mode", reference.COMBINE)
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
              "float64", "complex64"],
)  # fmt: skip
def test_duplicates_take_part_in_order(dtype: str, mode: str) -> None:
    """40 updates to 5 elements: what is rounded or wraps does so after each."""
    if (dtype == "bool" and mode not in FLAGS) or (dtype == "complex64" and mode not in COMPLEX):
        pytest.skip("refused, see test_errors")
    rng = np.random.default_rng(1)

    def numbers(*shape: int) -> np.ndarray:
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if np.issubdtype(np.dtype(dtype), np.integer):
            return rng.integers(1, 100, shape).astype(dtype)
        values = rng.uniform(0.5, 1.5, shape)
        return (values + 1j * rng.uniform(0.5, 1.5, shape) if dtype == "complex64" else values).astype(dtype)

    data, updates = numbers(5, 3), numbers(40, 3)
    indices = rng.integers(-5, 5, 40).astype(np.int32)
    with np.errstate(over="ignore"):
        expected = reference.scatter("", data, indices, updates, mode)
    for dynamic in (False, True):
        got = run(lambda d, i, u: ts.scatter(d, i, u, mode=mode), data, indices, updates, dynamic=dynamic)
        assert got.dtype == expected.dtype
        if dtype == "complex64" and mode in ("multiply", "divide"):
            np.testing.assert_allclose(got, expected, rtol=1e-4)
        else:
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_number_of_threads_and_stitching_do_not_matter(axis: int) -> None:
    rng = np.random.default_rng(2)
    data = rng.standard_normal((70, 90, 65)).astype(np.float32)
    indices = rng.integers(-80, 80, (4, 50)).astype(np.int64)
    updates = rng.standard_normal((*data.shape[:axis], 4, 50, *data.shape[axis + 1 :])).astype(np.float32)

    def graph(d: ts.Tensor, i: ts.Tensor, u: ts.Tensor) -> ts.Tensor:
        return ts.scatter(d * 2, i, ts.absolute(u), axis=axis, mode="add")

    expected = data * 2
    moved, slices = np.moveaxis(expected, axis, 0), np.moveaxis(np.abs(updates), (axis, axis + 1), (0, 1))
    for at in np.ndindex(4, 50):
        if -data.shape[axis] <= indices[at] < data.shape[axis]:
            moved[indices[at]] += slices[at]
    for options in ({}, {"threads": 1}, {"threads": 2}, {"threads": 7}, {"stitch": False}):
        np.testing.assert_array_equal(run(graph, data, indices, updates, **options), expected)
    np.testing.assert_array_equal(run(graph, data, indices, updates, dynamic=True), expected)


def test_a_variable_is_updated_in_place() -> None:
    rng = np.random.default_rng(3)
    table = rng.standard_normal((50, 8)).astype(np.float32)
    graph = ts.Graph()
    variable = graph.variable(table, name="table")
    ids = graph.placeholder((-1,), dtype=np.int32)
    step = graph.placeholder((-1, 8))
    before = ts.gather(variable, ids)
    executable = graph.compile(
        [ids, step], before, operations=[variable.assign(ts.scatter(variable, ids, step, mode="subtract"))]
    )
    assert "updated in place: variable 'table'" in str(executable.report())
    for size in (1, 7, 300):
        which, amount = rng.integers(-50, 50, size), rng.standard_normal((size, 8)).astype(np.float32)
        np.testing.assert_array_equal(executable.run([which.astype(np.int32), amount]), table[which])
        np.subtract.at(table, which, amount)
        np.testing.assert_array_equal(graph.run({}, variable.read()), table)


def test_updates_that_read_the_variable_see_its_old_value() -> None:
    rng = np.random.default_rng(4)
    table = rng.standard_normal((20, 3)).astype(np.float32)
    to, source = rng.integers(0, 20, 64).astype(np.int32), rng.integers(0, 20, 64).astype(np.int32)
    graph = ts.Graph()
    variable = graph.variable(table)
    new = ts.scatter(variable, to, 2 * ts.gather(variable, source), mode="add")
    graph.run({}, [], operations=[variable.assign(new)])
    expected = table.copy()
    np.add.at(expected, to, 2 * table[source])
    np.testing.assert_allclose(graph.run({}, variable.read()), expected, rtol=1e-6)

    scaled = graph.variable(table)  # what the updates go into is computed from the variable
    graph.run({}, [], operations=[scaled.assign(ts.scatter(scaled * 0.5, to, scaled[:1], mode="add"))])
    expected = table * np.float32(0.5)
    np.add.at(expected, to, table[:1])
    np.testing.assert_allclose(graph.run({}, scaled.read()), expected, rtol=1e-6)


def test_what_is_stitched_and_what_is_kept_apart() -> None:
    graph = ts.Graph()
    x, u = graph.placeholder((6, 4)), graph.placeholder((9, 4, 5))
    i = graph.placeholder((9,), dtype=np.int32)
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(t.shape).astype(np.float32) for t in (x, u)]
    which = rng.integers(0, 6, 9).astype(np.int32)
    sums = ts.sum(u, axis=2)
    y = ts.tanh(ts.scatter(ts.exp(x), i + 0, ts.sin(sums), mode="add"))
    executable = graph.compile([x, u, i], [y, sums])
    expected = np.exp(arrays[0], dtype=np.float64)
    np.add.at(expected, which, np.sin(arrays[1].sum(2, dtype=np.float64)))
    got, total = executable.run([*arrays, which])
    np.testing.assert_allclose(got, np.tanh(expected), rtol=2e-6)
    np.testing.assert_allclose(total, arrays[1].sum(2), rtol=1e-5)
    report = str(executable.report())
    assert "3 kernels" in report
    assert "a scatter is done when the last update has been made" in report


def test_a_cache_in_a_loop() -> None:
    """Rows are written one after the other into a carried tensor, and read back by position."""
    rng = np.random.default_rng(6)
    rows = rng.standard_normal((12, 5)).astype(np.float32)
    graph = ts.Graph()
    fed = graph.placeholder((-1, 5))

    def body(carried: list[ts.Tensor], row: ts.Tensor) -> Any:
        k, cache, total = carried
        cache = ts.scatter(cache, k, row)
        return [k + 1, cache, total + ts.gather(cache, k // 2)], None

    zeros = graph.constant(np.zeros((12, 5), np.float32))
    (_, cache, total), _ = ts.scan(body, [graph.constant(np.int32(0)), zeros, zeros[0]], fed)
    np.testing.assert_array_equal(graph.run({fed: rows}, cache), rows)
    np.testing.assert_allclose(graph.run({fed: rows}, total), rows[np.arange(12) // 2].sum(0), rtol=1e-6)


def gradients(mode: str, data: list[float], indices: list[int], updates: list[float], seed: list[float]) -> Any:
    graph = ts.Graph()
    d, u = graph.placeholder((len(data),), dtype=np.float64), graph.placeholder((len(updates),), dtype=np.float64)
    y = ts.scatter(d, graph.constant(np.array(indices, np.int32)), u, mode=mode)
    grads = ts.gradients(ts.sum(y * graph.constant(np.array(seed, np.float64))), [d, u])
    feeds = {d: np.array(data, np.float64), u: np.array(updates, np.float64)}
    return [np.asarray(g).tolist() for g in graph.run(feeds, [grads[d], grads[u]])]


def test_gradients_by_hand() -> None:
    # Only the last of three updates to one element is in the result; one update goes nowhere.
    assert gradients("set", [1, 2, 3], [1, 1, 9, 1], [4, 5, 6, 7], [10, 20, 30]) == [[10, 0, 30], [0, 0, 0, 20]]
    # One factor of zero: only its own derivative is not zero. Two: none is.
    assert gradients("multiply", [2, 3], [0, 0, 1, 1], [0, 5, 0, 0], [1, 1]) == [[0, 0], [10, 0, 0, 0]]
    assert gradients("multiply", [0, 3], [0, 1], [4, 5], [1, 1]) == [[4, 5], [0, 3]]
    assert gradients("divide", [8, 3], [0, 0], [2, 4], [1, 1]) == [[1 / 8, 1], [-0.5, -0.25]]
    # Those that are equal to the largest share: three in element 0, the element itself among them.
    assert gradients("max", [5, 1], [0, 0, 0, 1], [5, 5, 2, 0], [3, 7]) == [[1, 7], [1, 1, 0, 0]]
    assert gradients("min", [5, 1], [0, 0, 0, 1], [2, 5, 2, 0], [3, 7]) == [[0, 0], [1.5, 0, 1.5, 7]]


def test_many_small_gradients_of_16_bits_add_up() -> None:
    """Rounded after each addition, 0.1 would stop growing at 256."""
    graph = ts.Graph()
    table = graph.placeholder((3, 2), dtype=ts.float16)
    ids = graph.constant(np.ones(5000, np.int32))
    grad = ts.gradients(ts.sum(ts.cast(ts.gather(table, ids), ts.float32) * 0.1), [table])[table]
    got = np.asarray(graph.run({table: np.zeros((3, 2), np.float16)}, grad))
    np.testing.assert_array_equal(
        got, np.array([[0, 0], [5000 * float(np.float16(0.1))] * 2, [0, 0]]).astype(np.float16)
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_hostile_indices(dtype: Any) -> None:
    """None of them touches anything, whatever the mode."""
    info = np.iinfo(dtype)
    wild = np.array([info.min, info.max, info.min + 1, 4, -5, 1 << 30, -(1 << 30), 5], dtype)
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    ones = np.ones((8, 3), np.float32)
    for mode in reference.COMBINE:
        got = run(lambda d, i, u, mode=mode: ts.scatter(d, i, u, mode=mode), data, wild, ones)
        np.testing.assert_array_equal(got, data)
    pairs = np.stack([wild, np.zeros_like(wild)], 1)
    np.testing.assert_array_equal(run(lambda d, i, u: ts.scatter_nd(d, i, u), data, pairs, ones[:, 0]), data)
    np.testing.assert_array_equal(run(lambda d, i: ts.gather(d, i), data, wild), np.zeros((8, 3)))
    np.testing.assert_array_equal(run(lambda d, i: ts.gather_nd(d, i), data, pairs), np.zeros(8))


def test_empty_and_extreme_ranks() -> None:
    def check(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, expected: np.ndarray) -> None:
        for dynamic in (False, True):
            got = run(lambda d, i, u: ts.scatter(d, i, u, mode="add"), data, indices, updates, dynamic=dynamic)
            np.testing.assert_array_equal(got, expected)

    ints = np.zeros(0, np.int32)
    check(np.ones((3, 2), np.float32), ints, np.zeros((0, 2), np.float32), np.ones((3, 2)))
    check(np.ones((0, 2), np.float32), np.zeros(4, np.int32), np.ones((4, 2), np.float32), np.ones((0, 2)))
    check(np.ones((3, 0), np.float32), np.zeros(4, np.int32), np.ones((4, 0), np.float32), np.ones((3, 0)))
    check(np.ones(3, np.float32), np.array(1, np.int32), np.array(5, np.float32), np.array([1, 6, 1]))
    deep = np.zeros((1,) * 7 + (3,) + (1,) * 8, np.float32)
    got = run(
        lambda d, i, u: ts.scatter(d, i, u, axis=7), deep, np.array([2], np.int32), np.ones((1,) * 16, np.float32)
    )
    assert got.shape == deep.shape
    assert got.ravel().tolist() == [0, 0, 1]
    got = run(
        lambda d, i, u: ts.scatter_nd(d, i, u),
        deep,
        np.array([[0] * 7 + [1] + [0] * 8], np.int32),
        np.ones(1, np.float32),
    )
    assert got.ravel().tolist() == [0, 1, 0]


def test_strided_feeds_and_results() -> None:
    rng = np.random.default_rng(7)
    data, updates = rng.standard_normal((9, 20)).astype(np.float32), rng.standard_normal((16, 30)).astype(np.float32)
    indices = rng.integers(0, 9, 32).astype(np.int64)
    graph = ts.Graph()
    d, i, u = graph.placeholder((9, 10)), graph.placeholder((16,), dtype=np.int64), graph.placeholder((16, 10))
    y = ts.scatter(d, i, u, mode="add")
    expected = data[:, ::-2].copy()
    np.add.at(expected, indices[::2], updates[:, 5:25:2])
    for memory in (
        np.zeros((9, 10), np.float32),
        np.zeros((10, 9), np.float32).T,
        np.zeros((9, 30), np.float32)[:, 20::-2][:, :10],
    ):
        graph.run({d: data[:, ::-2], i: indices[::2], u: updates[:, 5:25:2]}, y, out=memory)
        np.testing.assert_array_equal(memory, expected)


ERRORS = {
    "float indices": (lambda d, i, u: ts.scatter(d, ts.cast(i, ts.float32), u), "indices are int32 or int64"),
    "another dtype": (lambda d, i, u: ts.scatter(d, i, ts.cast(u, ts.float64)), "use cast to make them equal"),
    "a shape that does not fit": (lambda d, i, u: ts.scatter(d, i, u[:, :2]), r"ask for updates of shape \(5, 3\)"),
    "an axis too many": (lambda d, i, u: ts.scatter(d, i, u, axis=2), "axis"),
    "a mode that is none": (lambda d, i, u: ts.scatter(d, i, u, mode="sum"), "multiply"),
    "sums of flags": (lambda d, i, u: ts.scatter(d > 0, i, u > 0, mode="add"), 'use "max" for or'),
    "batches too many": (lambda d, i, u: ts.gather(d, i, batch_dims=2), "batch_dims is 2"),
    "batches that differ": (lambda d, i, u: ts.gather(d, i, axis=1, batch_dims=1), "must be equal"),
    "an axis among the batches": (lambda d, i, u: ts.gather(u, i, batch_dims=1), "behind those"),
    "positions too long": (lambda d, i, u: ts.gather_nd(d, i), "positions of 5 numbers"),
    "a whole that broadcasts": (lambda d, i, u: ts.scatter_along_axis(d[:1], u > 0, u), "indices are int32"),
    "axes that differ": (
        lambda d, i, u: ts.scatter_along_axis(d[:1], ts.cast(u, ts.int32), u, axis=1), "on every axis but axis 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    build, message = ERRORS[name]
    graph = ts.Graph()
    d, i, u = graph.placeholder((4, 3)), graph.placeholder((5,), dtype=np.int32), graph.placeholder((5, 3))
    with pytest.raises((ts.UserError, ValueError), match=message):
        build(d, i, u)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2,)])
def test_updates_that_read_the_only_element_see_its_old_value(shape: tuple[int, ...]) -> None:
    where = np.zeros(3, np.int32)
    for factor, expected in ((1, 4), (2, 7)):
        graph = ts.Graph()
        variable = graph.variable(np.ones(shape, np.float32))
        first = variable[:1] * factor if factor > 1 else variable[:1]
        graph.run({}, [], operations=[variable.assign(ts.scatter(variable, graph.constant(where), first, mode="add"))])
        assert np.asarray(graph.variable_value(variable)).ravel()[0] == expected
    graph = ts.Graph()
    carried, _ = ts.scan(
        lambda c, _: (ts.scatter(c, graph.constant(where), 2 * c[:1], mode="add"), None),
        graph.constant(np.ones(shape, np.float32)),
        length=2,
    )
    assert np.asarray(graph.run({}, carried)).ravel()[0] == 49
