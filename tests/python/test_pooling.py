"""Pooling against NumPy, window by window: every option, in every combination, by random search.

The rows of op_cases.py cover dtypes, layouts of memory and derivatives by finite differences; here are the options.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from op_cases import np_dtype
from oracle import assert_matches, widen
from pool_reference import Pool

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
KINDS = ("max", "avg", "l2")


def random_options(rng: np.random.Generator, axes: int, extents: tuple[int, ...]) -> dict[str, Any] | None:
    """Options with which at least one window fits along each axis, or None."""

    def numbers(low: int, high: int) -> Any:
        return int(rng.integers(low, high)) if rng.random() < 0.3 else [int(v) for v in rng.integers(low, high, axes)]

    options: dict[str, Any] = {"kernel": numbers(1, 5), "ceil_mode": bool(rng.integers(2))}
    if rng.random() < 0.7:
        options["stride"] = numbers(1, 5)
    if rng.random() < 0.5:
        options["dilation"] = numbers(1, 4)
    form = rng.integers(6)
    if form < 3:
        options["padding"] = ("same", "same_lower", "valid")[form]
    elif form == 3:
        options["padding"] = numbers(0, 4)
    elif form == 4:
        options["padding"] = [int(v) for v in rng.integers(0, 4, 2 * axes)]
    fits = all(
        axis.extent + axis.before + axis.after >= (axis.kernel - 1) * axis.dilation + 1
        for axis in Pool(extents, axes, **options).axes
    )
    return options if fits else None


def random_case(rng: np.random.Generator, axes: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    while True:
        leading = (int(rng.integers(0, 3)) if rng.random() < 0.2 else 2, 3)
        extents = tuple(int(v) for v in rng.integers(1, 9 if axes < 3 else 5, axes))
        if options := random_options(rng, axes, extents):
            return leading + extents, options


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, special: bool) -> np.ndarray:
    if np_dtype(dtype).kind in "iu":
        facts = np.iinfo(dtype)
        values = rng.integers(max(facts.min, -3), 4, shape).astype(dtype)
        return np.where(rng.random(shape) < 0.2, np.array(facts.min, dtype), values) if special else values
    # Few different values, so that there are ties.
    values = rng.integers(-4, 5, shape) / 2 if rng.random() < 0.5 else rng.uniform(-3, 3, shape)
    if special:
        values = np.where(rng.random(shape) < 0.05, np.nan, values)
        values = np.where(rng.random(shape) < 0.3, -np.inf, values)
    return values.astype(np_dtype(dtype))


def seeds(count: int) -> Any:
    return pytest.mark.parametrize("seed", range(count))


class Built:
    """One operation in a graph, fed with an array in the layout that the options name."""

    def __init__(self, op: str, x: np.ndarray, axes: int, options: dict[str, Any], dynamic: str = "") -> None:
        self.last = options.get("data_layout", "").endswith("C")
        self.x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if self.last else x
        shape = [int(v) for v in self.x.shape]
        if dynamic == "batch":
            shape[0] = -1
        elif dynamic == "all":
            shape = [-1] * len(shape)
        self.graph = ts.Graph()
        self.feed = self.graph.placeholder(shape, dtype=x.dtype.name)
        outputs = getattr(ts, op)(self.feed, **options)
        self.outputs = outputs if isinstance(outputs, list) else [outputs]

    def run(self, targets: list[Any], **options: Any) -> list[np.ndarray]:
        """The results, with the spatial axes last."""
        results = [np.asarray(result) for result in self.graph.run({self.feed: self.x}, targets, **options)]
        return [np.moveaxis(result, -1, 1) for result in results] if self.last else results


def reference(kind: str, pool: Pool, x: np.ndarray, include: bool) -> np.ndarray:
    if kind == "max":
        return pool.maximum(x)[0]
    return pool.average(x, include) if kind == "avg" else pool.norm(x)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@seeds(16)
def test_values_and_gradients(kind: str, axes: int, seed: int) -> None:
    rng = np.random.default_rng([seed, axes, KINDS.index(kind)])
    shape, options = random_case(rng, axes)
    dtype = ("float32", "float64", "float16", "bfloat16")[seed % 4]
    x = random_values(rng, shape, dtype, special=False)
    pool = Pool(shape, axes, **options)
    call = dict(options, data_layout=LAYOUTS[axes][int(rng.integers(2))])
    include = kind == "avg" and bool(rng.integers(2))
    if include:
        call["include_padding"] = True
    dynamic = ("", "batch", "all")[int(rng.integers(3))]
    built = Built(f"{kind}_pool{axes}d", x, axes, call, dynamic)
    weights = rng.integers(-3, 4, pool.out_shape)  # exact in every dtype
    laid_out = np.moveaxis(weights, 1, -1) if built.last else weights
    objective = ts.sum(built.outputs[0] * laid_out.astype(np_dtype(dtype)))
    gradient = ts.gradients(objective, [built.feed])[built.feed]
    wide = widen(x)
    for stitch in (True, False):
        y, slope = built.run([built.outputs[0], gradient], stitch=stitch)
        what = f"{kind} {shape} {call} {dynamic} stitch={stitch}"
        assert_matches(y, reference(kind, pool, wide, include), 4, what)
        # The scale is that of the terms: they may cancel.
        assert_matches(slope, pool.gradient(kind, wide, weights.astype(np.float64), include), 12, what, 9.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint8", "int32", "int64", "uint16"])
@pytest.mark.parametrize("axes", [1, 2, 3])
@seeds(4)
def test_indices(axes: int, dtype: str, seed: int) -> None:
    """With NaN, with ties, and with the lowest values, which are equal to what padding counts as."""
    rng = np.random.default_rng([seed, axes])
    shape, options = random_case(rng, axes)
    x = random_values(rng, shape, dtype, special=True)
    y, globally, locally = Pool(shape, axes, **options).maximum(widen(x))
    call = dict(options, data_layout=LAYOUTS[axes][int(rng.integers(2))])
    for mode, wanted in (("global", globally), ("local", locally)):
        index_dtype = ("int32", "int64")[int(rng.integers(2))]
        modes = {"index_mode": mode, "index_dtype": index_dtype}
        built = Built(f"max_pool{axes}d_with_indices", x, axes, call | modes, ("", "all")[seed % 2])
        for stitch in (True, False):
            values, indices = built.run(built.outputs, stitch=stitch)
            inside = wanted >= 0
            what = f"{shape} {call} {mode} stitch={stitch}"
            assert indices.dtype.name == index_dtype
            np.testing.assert_array_equal(indices, wanted, err_msg=what)
            np.testing.assert_array_equal(widen(values)[inside], y[inside], err_msg=what)
            lowest = -np.inf if np_dtype(dtype).kind not in "iu" else np.iinfo(dtype).min
            assert (values[~inside] == lowest).all()


@seeds(12)
def test_gradient_of_ties_and_nan(seed: int) -> None:
    """The first of equal elements gets all of it, also where that is -infinity beside padding."""
    rng = np.random.default_rng(seed)
    shape, options = random_case(rng, 2)
    x = random_values(rng, shape, "float64", special=True)
    pool = Pool(shape, 2, **options)
    weights = rng.uniform(0.5, 1.5, pool.out_shape)
    for op in ("max_pool2d", "max_pool2d_with_indices"):
        built = Built(op, x, 2, options)
        gradient = ts.gradients(ts.sum(built.outputs[0] * weights), [built.feed])[built.feed]
        (slope,) = built.run([gradient])
        np.testing.assert_allclose(slope, pool.gradient("max", x, weights), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@seeds(6)
def test_second_derivatives(kind: str, seed: int) -> None:
    """Of sum(pool(x)**3), along a direction, against differences of the first ones."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    axes = 1 + seed % 3
    shape, options = random_case(rng, axes)
    x = rng.permutation(int(np.prod(shape))).reshape(shape) / 7 + 0.1
    direction = rng.standard_normal(shape)
    pool = Pool(shape, axes, **options)
    built = Built(f"{kind}_pool{axes}d", x, axes, options)
    # A wholly padded window is -infinity in a maximum: it takes no part.
    y = built.outputs[0]
    y = ts.where(ts.is_finite(y), y, 0.0) if kind == "max" else y
    first = ts.gradients(ts.sum(y * y * y), [built.feed])[built.feed]
    second = ts.gradients(ts.sum(first * direction), [built.feed])[built.feed]

    def slope(at: np.ndarray) -> np.ndarray:
        value = reference(kind, pool, at, False)
        value = np.where(np.isfinite(value), value, 0)
        return pool.gradient(kind, at, 3 * value**2)

    h = 1e-4
    expected = (slope(x + h * direction) - slope(x - h * direction)) / (2 * h)
    for stitch in (True, False):
        (result,) = built.run([second], stitch=stitch)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * max(1, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("kind", KINDS)
@seeds(3)
def test_four_axes(kind: str, seed: int) -> None:
    """Windows over the last four axes of tensors of any rank."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    shape = (*(2,) * (seed % 3), *(int(v) for v in rng.integers(2, 5, 4)))
    options = {"kernel": [2, 1, 3, 2], "stride": [1, 2, 1, 2], "padding": [0, 1, 0, 0, 1, 1, 0, 1], "ceil_mode": True}
    x = random_values(rng, shape, "float32", special=False)
    pool = Pool(shape, 4, **options)
    graph = ts.Graph()
    feed = graph.placeholder(shape)
    y = getattr(ts, f"{kind}_pool4d")(feed, **options)
    gradient = ts.gradients(ts.sum(y), [feed])[feed]
    value, slope = graph.run({feed: x}, [y, gradient])
    assert_matches(value, reference(kind, pool, x.astype(np.float64), False), 4, "value")
    assert_matches(slope, pool.gradient(kind, x.astype(np.float64), np.ones(pool.out_shape)), 16, "slope", 4.0)
    if kind == "max":
        _, indices = ts.max_pool4d_with_indices(feed, **options)
        np.testing.assert_array_equal(graph.run({feed: x}, indices), pool.maximum(x)[1])


@pytest.mark.parametrize("padding", [0, 1, "same", "same_lower"])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_one_executable_for_many_sizes(padding: Any, ceil_mode: bool) -> None:
    """The extents are symbols: one variant serves inputs of different heights and widths."""
    rng = np.random.default_rng(0)
    options = {"kernel": [3, 2], "stride": [2, 3], "padding": padding, "ceil_mode": ceil_mode}
    graph = ts.Graph()
    feed = graph.placeholder((-1, 2, -1, -1), dtype="float64")
    targets = []
    for kind in KINDS:
        y = getattr(ts, f"{kind}_pool2d")(feed, **options)
        targets += [y, ts.gradients(ts.sum(y), [feed])[feed]]
    for shape in [(2, 2, 5, 7), (3, 2, 8, 6), (4, 2, 11, 9), (1, 2, 3, 2), (2, 2, 4, 4)]:
        x = rng.uniform(-3, 3, shape)
        pool = Pool(shape, 2, **options)
        results = graph.run({feed: x}, targets)
        for k, kind in enumerate(KINDS):
            assert_matches(results[2 * k], reference(kind, pool, x, False), 4, f"{kind} {shape}")
            slope = pool.gradient(kind, x, np.ones(pool.out_shape))
            assert_matches(results[2 * k + 1], slope, 12, f"{kind} {shape} gradient", 4.0)


def test_l2_of_zeros_has_no_slope() -> None:
    graph = ts.Graph()
    x = graph.placeholder((1, 1, 4))
    y = ts.l2_pool1d(x, 2)
    first = ts.gradients(ts.sum(y), [x])[x]
    second = ts.gradients(ts.sum(first), [x])[x]
    results = graph.run({x: np.float32([[[0, 0, 3, 4]]])}, [y, first, second])
    np.testing.assert_allclose(results[0], [[[0, 5]]])
    np.testing.assert_allclose(results[1], [[[0, 0, 0.6, 0.8]]])
    np.testing.assert_allclose(results[2], [[[0, 0, (16 - 12) / 125, (9 - 12) / 125]]], rtol=1e-5)


def test_windows_of_padding_only() -> None:
    graph = ts.Graph()
    x = graph.placeholder((1, 1, 2))
    y, index = ts.max_pool1d_with_indices(x, 1, padding=2)
    average, norm = ts.avg_pool1d(x, 1, padding=2), ts.l2_pool1d(x, 1, padding=2)
    results = graph.run({x: np.float32([[[3, 4]]])}, [y, index, average, norm])
    np.testing.assert_array_equal(results[0], [[[-np.inf, -np.inf, 3, 4, -np.inf, -np.inf]]])
    np.testing.assert_array_equal(results[1], [[[-1, -1, 0, 1, -1, -1]]])
    np.testing.assert_array_equal(results[2], [[[0, 0, 3, 4, 0, 0]]])
    np.testing.assert_array_equal(results[3], [[[0, 0, 3, 4, 0, 0]]])


def test_average_of_halves_is_rounded_once() -> None:
    """2048 + 1 is no float16: the sum has to be a float32."""
    graph = ts.Graph()
    x = graph.placeholder((1, 1, 4), dtype="float16")
    fed = np.float16([[[2048, 1, 1, 2]]])
    assert graph.run({x: fed}, ts.avg_pool1d(x, 4)).item() == 513.0
    big = np.float16([[[60000, 60000, 60000, 60000]]])
    assert graph.run({x: big}, ts.avg_pool1d(x, 4)).item() == np.float16(60000)


def test_stitched_with_its_neighbours() -> None:
    """What comes before is computed in the window, and the results do not depend on it."""
    rng = np.random.default_rng(1)
    shape = (2, 3, 8, 8)
    graph = ts.Graph()
    x, b = graph.placeholder(shape), graph.placeholder((3, 1, 1))
    y = ts.max_pool2d(ts.relu(x + b), 2) * 2.0
    gradient = ts.gradients(ts.sum(y), [x])[x]
    feeds = {x: rng.uniform(-1, 1, shape).astype(np.float32), b: rng.uniform(-1, 1, (3, 1, 1)).astype(np.float32)}
    before = np.maximum(feeds[x] + feeds[b], 0)
    pool = Pool(shape, 2, 2)
    for stitch in (True, False):
        value, slope = graph.run(feeds, [y, gradient], stitch=stitch)
        np.testing.assert_array_equal(value, 2 * pool.maximum(before)[0])
        wanted = pool.gradient("max", before.astype(np.float64), np.full(pool.out_shape, 2.0)) * (before > 0)
        np.testing.assert_array_equal(slope, wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 0}, "kernel is 0; it must be at least 1"),
        ({"kernel": [2, 2, 2]}, "kernel has 3 numbers; give one for all spatial axes or 2"),
        ({"kernel": 2, "stride": 0}, "stride is 0; it must be at least 1"),
        ({"kernel": 2, "stride": [1, 1, 1]}, "stride has 3 numbers"),
        ({"kernel": 2, "dilation": -1}, "dilation is -1; it must be at least 1"),
        ({"kernel": 2, "padding": -1}, "padding has -1; it must be 0 or more"),
        ({"kernel": 2, "padding": [1, 2, 3]}, "padding has 3 numbers; give one for all 2 spatial axes"),
        ({"kernel": 7}, "the window spans 7 positions along spatial axis 0, but the input has 5"),
        ({"kernel": 3, "dilation": 3}, "the window spans 7 positions"),
        ({"kernel": 2, "padding": "full"}, "same_lower"),
        ({"kernel": 2, "data_layout": "CHWN"}, "NHWC"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    x = ts.Graph().placeholder((1, 2, 5, 6))
    for kind in KINDS:
        with pytest.raises(ts.UserError, match=rf"^\[{kind}_pool2d\]") as caught:
            getattr(ts, f"{kind}_pool2d")(x, **options)
        assert message in str(caught.value)


def test_errors_about_the_input() -> None:
    graph = ts.Graph()
    x = graph.placeholder((3, 4))
    with pytest.raises(ts.UserError, match=r'has shape \(3, 4\), but the layout "NCHW" needs 4 axes'):
        ts.max_pool2d(x, 2)
    with pytest.raises(ts.UserError, match="has 2 axes, but the window needs 4"):
        ts.max_pool4d(x, 2)
    integers = graph.placeholder((1, 1, 4), dtype="int32")
    for op in (ts.avg_pool1d, ts.l2_pool1d):
        with pytest.raises(ts.UserError, match="int32, but floating-point is needed"):
            op(integers, 2)
    with pytest.raises(ts.UserError, match="bool, but integer or floating-point is needed"):
        ts.max_pool1d(graph.placeholder((1, 1, 4), dtype="bool"), 2)
    with pytest.raises(ts.UserError, match="index_dtype is float32, but indices are int32 or int64"):
        ts.max_pool1d_with_indices(integers, 2, index_dtype="float32")


def test_window_that_turns_out_too_large() -> None:
    """There is no window, then. Where the extent is known, it is an error; and 1 is always known."""
    graph = ts.Graph()
    x = graph.placeholder((1, 1, -1))
    y = ts.avg_pool1d(x, 3, stride=1)
    gradient = ts.gradients(ts.sum(y), [x])[x]
    for extent, windows in ((4, 2), (2, 0), (5, 3)):
        fed = np.ones((1, 1, extent), np.float32)
        value, slope = graph.run({x: fed}, [y, gradient])
        assert value.shape == (1, 1, windows)
        assert np.asarray(slope).sum() == windows
    with pytest.raises(ts.UserError, match="spans 3 positions along spatial axis 0, but the input has 1; use"):
        graph.run({x: np.ones((1, 1, 1), np.float32)}, y)


@pytest.mark.parametrize("width", [4, 5, 7, 8, 14])
def test_lanes_run_along_short_rows(width: int) -> None:
    """Few lanes that read and write in one go are better than many that reach across memory."""
    graph = ts.Graph()
    x = graph.placeholder((16, 32, 2 * width, 2 * width))
    y = ts.max_pool2d(x, 2)
    fed = np.random.default_rng(0).standard_normal((16, 32, 2 * width, 2 * width), np.float32)
    executable = graph.compile([x], y)
    expected = fed.reshape(16, 32, width, 2, width, 2).max((3, 5))
    np.testing.assert_array_equal(executable.run(fed), expected)
    (region,) = executable.report().regions
    assert f"vector i1({width})" in region["schedule"]
