"""Convolution, its gradients, transposed and depthwise convolution, against NumPy in float64 (conv_reference.py).

Random descriptors over all dimensions, layouts, strides, dilations, groups and paddings; then the known failures of
others, each as a test of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import conv_reference as reference
import topstitch as ts
from oracle import assert_sum_of_products

SPATIAL = "DHW"


@dataclass
class Problem:
    """One convolution. Shapes are channels first; the layouts say how they are fed."""

    batch: int
    channels: int
    outputs: int
    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: list[tuple[int, int]]
    groups: int = 1
    style: str | None = None
    data_last: bool = False
    weights_last: bool = False
    dtype: str = "float32"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def axes(self) -> int:
        return len(self.extents)

    @property
    def attributes(self) -> dict[str, Any]:
        names = SPATIAL[-self.axes :]
        return {
            "stride": list(self.stride),
            "dilation": list(self.dilation),
            "padding": self.style or [amount for pair in self.padding for amount in pair],
            "groups": self.groups,
            "data_layout": f"N{names}C" if self.data_last else f"NC{names}",
            "weights_layout": f"{names}IO" if self.weights_last else f"OI{names}",
        }

    @property
    def geometry(self) -> tuple[Any, ...]:
        return self.stride, self.dilation, self.padding, self.groups

    @property
    def out(self) -> list[int]:
        return reference.windows(self.extents, self.kernel, self.stride, self.dilation, self.padding)

    def fed(self, array: np.ndarray, weights: bool = False) -> np.ndarray:
        """From channels first to the layout of the problem."""
        if weights and self.weights_last:
            return np.ascontiguousarray(array.transpose([*range(2, array.ndim), 1, 0]))
        if not weights and self.data_last:
            return np.ascontiguousarray(np.moveaxis(array, 1, -1))
        return array

    def arrays(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Data, weights and a gradient of the result."""
        rng = np.random.default_rng(seed)
        shapes = [
            (self.batch, self.channels, *self.extents),
            (self.outputs, self.channels // self.groups, *self.kernel),
            (self.batch, self.outputs, *self.out),
        ]
        if self.dtype.startswith("int"):
            x, w, g = (rng.integers(-9, 9, shape).astype(self.dtype) for shape in shapes)
        else:
            x, w, g = (rng.standard_normal(shape).astype(self.dtype) for shape in shapes)
        return x, w, g


def check(p: Problem, seed: int = 0, **options: Any) -> None:
    """The forward convolution and both gradients."""
    x, w, g = p.arrays(seed)
    wide = np.int64 if x.dtype.kind == "i" else np.float64
    name = f"conv{p.axes}d"
    graph = ts.Graph()
    fx, fw, fg = p.fed(x), p.fed(w, True), p.fed(g)
    tx, tw, tg = (graph.placeholder(a.shape, str(a.dtype)) for a in (fx, fw, fg))
    y = getattr(ts, name)(tx, tw, **p.attributes)
    dx = getattr(ts, f"{name}_data_gradient")(tg, tw, tx, **p.attributes)
    dw = getattr(ts, f"{name}_weights_gradient")(tg, tx, tw, **p.attributes)
    feeds = {tx: fx, tw: fw, tg: fg}
    results = graph.run(feeds, [y, dx, dw], **options)

    def both(function: Any, a: np.ndarray, b: np.ndarray, *more: Any) -> tuple[np.ndarray, np.ndarray]:
        a, b = a.astype(wide), b.astype(wide)
        return function(a, b, *more), function(np.abs(a), np.abs(b), *more)

    taps = int(np.prod(p.kernel)) * p.channels // p.groups
    with np.errstate(over="ignore"):
        expected = both(reference.conv, x, w, *p.geometry)
        assert_sum_of_products(results[0], p.fed(expected[0]), p.fed(expected[1]), taps, f"forward {p}")
        expected = both(reference.data_gradient, g, w, p.extents, *p.geometry)
        taps = int(np.prod(p.kernel)) * p.outputs // p.groups
        assert_sum_of_products(results[1], p.fed(expected[0]), p.fed(expected[1]), taps, f"data gradient {p}")
        expected = both(reference.weights_gradient, x, g, p.kernel, *p.geometry)
        count = p.batch * int(np.prod(p.out))
        assert_sum_of_products(
            results[2], p.fed(expected[0], True), p.fed(expected[1], True), count, f"weights gradient {p}"
        )


def random_problem(rng: np.random.Generator, axes: int, large: bool = False) -> Problem:
    def pick(*choices: int) -> int:
        return int(rng.choice(choices))

    groups = pick(1, 1, 1, 2, 3)
    channels = groups * (pick(1, 3, 8, 17) if large else pick(1, 2, 3, 5))
    outputs = groups * (pick(1, 6, 16, 33) if large else pick(1, 2, 4, 9))
    stride = tuple(pick(1, 1, 2, 3) for _ in range(axes))
    dilation = tuple(pick(1, 1, 1, 2) for _ in range(axes))
    kernel = tuple(pick(1, 2, 3, 3, 5) for _ in range(axes))
    style = [None, None, "same", "same_lower", "valid"][pick(0, 1, 2, 3, 4)]
    extents, padding = [], []
    for k, d in zip(kernel, dilation, strict=True):
        extent = pick(1, 5, 9, 14, 28) if axes < 3 else pick(1, 4, 7)
        pair = (pick(0, 1, 2), pick(0, 1, 2)) if style is None else (0, 0)
        if style in (None, "valid"):
            extent = max(extent, (k - 1) * d + 1 - sum(pair))
        extents.append(extent)
        padding.append(pair)
    if style in ("same", "same_lower"):
        padding = reference.same_padding(extents, kernel, stride, dilation, style == "same_lower")
    return Problem(pick(1, 2, 3), channels, outputs, tuple(extents), kernel, stride, dilation, padding, groups, style,
                   bool(pick(0, 1)), bool(pick(0, 1)))  # fmt: skip


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("seed", range(16))
def test_random_descriptors(axes: int, seed: int) -> None:
    rng = np.random.default_rng(100 * axes + seed)
    check(random_problem(rng, axes, large=seed % 2 == 0), seed, stitch=seed % 5 != 4)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_dtypes(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 2, large=True)
    problem.dtype = dtype
    check(problem, seed)


@pytest.fixture(params=[1, 2, 16])
def threads(request: pytest.FixtureRequest) -> Any:
    """Tiles are chosen for a number of threads."""
    before = ts.num_threads()
    ts.set_num_threads(request.param)
    yield request.param
    ts.set_num_threads(before)


LARGE = {
    "many blocks": Problem(2, 70, 40, (9, 9), (3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)]),
    "deep": Problem(1, 300, 17, (7, 7), (3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)]),
    "one channel": Problem(3, 1, 32, (28, 28), (5, 5), (1, 1), (1, 1), [(2, 2), (2, 2)]),
    "one output": Problem(3, 32, 1, (28, 28), (5, 5), (1, 1), (1, 1), [(2, 2), (2, 2)]),
    "one channel, strided": Problem(3, 1, 40, (28, 27), (5, 5), (2, 2), (1, 1), [(2, 2), (2, 2)]),
    "one channel, odd": Problem(2, 1, 33, (29, 46), (3, 5), (3, 1), (1, 2), [(1, 0), (2, 3)]),
    "rows past whole vectors": Problem(2, 2, 70, (19, 33), (3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)]),
    "strided": Problem(4, 16, 24, (14, 14), (5, 5), (2, 2), (1, 1), [(2, 2), (2, 2)]),
    "odd strided": Problem(4, 16, 24, (15, 13), (5, 4), (2, 3), (1, 1), [(2, 1), (0, 3)]),
    "pointwise": Problem(2, 48, 70, (20, 20), (1, 1), (1, 1), (1, 1), [(0, 0), (0, 0)]),
    "strided pointwise": Problem(2, 48, 70, (21, 20), (1, 1), (2, 2), (1, 1), [(0, 0), (0, 0)]),
    "strided and dilated pointwise": Problem(2, 48, 70, (21, 20), (1, 1), (2, 2), (2, 2), [(0, 0), (0, 0)]),
    "strided and dilated": Problem(2, 24, 40, (21, 20), (3, 2), (2, 3), (2, 2), [(2, 1), (0, 3)]),
    "wide": Problem(1, 3, 8, (4, 300), (3, 7), (1, 1), (1, 2), [(1, 1), (6, 6)]),
    "volume": Problem(2, 9, 20, (6, 7, 8), (3, 3, 3), (1, 2, 1), (1, 1, 1), [(1, 1), (1, 1), (0, 1)]),
    "signal": Problem(2, 24, 40, (400,), (9,), (1,), (2,), [(8, 8)]),
    "depthwise": Problem(2, 40, 40, (17, 18), (3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)], groups=40),
    "window larger than the data": Problem(2, 8, 16, (2, 3), (5, 5), (1, 1), (1, 1), [(3, 3), (2, 2)]),
}


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("name", LARGE)
def test_tiles(name: str, last: bool, threads: int) -> None:
    """Sizes that the tiled kernels take, around their panels and blocks."""
    problem = LARGE[name]
    check(Problem(**{**problem.__dict__, "data_last": last, "weights_last": last}), seed=len(name))


# --- Known failures of others, and their kind (numbers of public issues).


def run_conv(x: np.ndarray, w: np.ndarray, axes: int = 2, **attributes: Any) -> np.ndarray:
    graph = ts.Graph()
    tx, tw = graph.placeholder(x.shape, str(x.dtype)), graph.placeholder(w.shape, str(w.dtype))
    (y,) = graph.run({tx: x, tw: w}, [getattr(ts, f"conv{axes}d")(tx, tw, **attributes)])
    return np.asarray(y)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_that_are_not_contiguous(dtype: str) -> None:
    """118115, 192212: weights and data cut out of larger arrays."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((24, 16, 5, 3, 3)).astype(dtype)
    data = rng.standard_normal((2, 40, 20, 32)).astype(dtype)
    for k in (0, 3):
        w, x = weights[:, :, k], data[:, 39:7:-2, ::2, ::-1]
        expected = reference.conv(x.astype(float), w.astype(float), (1, 1), (1, 1), [(1, 1), (1, 1)])
        bound = reference.conv(np.abs(x.astype(float)), np.abs(w.astype(float)), (1, 1), (1, 1), [(1, 1), (1, 1)])
        assert_sum_of_products(run_conv(x, w, padding=1), expected, bound, 144, f"view {k}")


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_depthwise_with_a_tall_kernel(batch: int) -> None:
    """188335: as many groups as channels, a kernel of (256, 1)."""
    check(Problem(batch, 8, 8, (300, 5), (256, 1), (1, 1), (1, 1), [(0, 0), (0, 0)], groups=8), batch)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_transposed_volumes(stride: int, dtype: str) -> None:
    """130256, 154615, 160739: three spatial axes, in all floating types; with output_padding and groups."""
    rng = np.random.default_rng(stride)
    x = rng.standard_normal((2, 6, 3, 4, 2)).astype(dtype)
    w = rng.standard_normal((6, 5, 3, 2, 3)).astype(dtype)
    for more in range(stride):
        graph = ts.Graph()
        tx, tw = graph.placeholder(x.shape, dtype), graph.placeholder(w.shape, dtype)
        y = ts.conv_transpose3d(tx, tw, stride=stride, padding=[1, 0, 1], output_padding=more, groups=2)
        extents = [(n - 1) * stride + k - 2 * p + more for n, k, p in zip((3, 4, 2), (3, 2, 3), (1, 0, 1), strict=True)]
        assert tuple(y.shape) == (2, 10, *extents)
        (got,) = graph.run({tx: x, tw: w}, [y])
        geometry = [stride] * 3, [1] * 3, [(1, 1), (0, 0), (1, 1)], 2
        expected = reference.data_gradient(x.astype(float), w.astype(float), extents, *geometry)
        bound = reference.data_gradient(np.abs(x.astype(float)), np.abs(w.astype(float)), extents, *geometry)
        assert_sum_of_products(got, expected, bound, 54, f"output_padding {more}")


def test_transposed_depthwise_with_more_output_padding_than_padding() -> None:
    """169236: the padding that follows from it is negative at the end."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 5, 5)).astype("f"), rng.standard_normal((4, 1, 3, 3)).astype("f")
    graph = ts.Graph()
    tx, tw = graph.placeholder(x.shape), graph.placeholder(w.shape)
    y = ts.conv_transpose2d(tx, tw, stride=3, padding=0, output_padding=2, groups=4)
    (got,) = graph.run({tx: x, tw: w}, [y])
    expected = reference.data_gradient(x.astype(float), w.astype(float), (17, 17), (3, 3), (1, 1), [(0, 0)] * 2, 4)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(0, 3, 4), (2, 0, 4), (2, 3, 0)], ids=["batch", "channels", "outputs"])
def test_empty(sizes: tuple[int, int, int]) -> None:
    """Without a batch, channels or outputs there are no results, or sums of nothing."""
    batch, channels, outputs = sizes
    x, w = np.ones((batch, channels, 6, 6), np.float32), np.ones((outputs, channels, 3, 3), np.float32)
    y = run_conv(x, w, padding=1)
    assert y.shape == (batch, outputs, 6, 6)
    assert not y.any()
    graph = ts.Graph()
    tx, tw, tg = (graph.placeholder(a.shape) for a in (x, w, y))
    gradients = [ts.conv2d_data_gradient(tg, tw, tx, padding=1), ts.conv2d_weights_gradient(tg, tx, tw, padding=1)]
    dx, dw = graph.run({tx: x, tw: w, tg: y}, gradients)
    assert (np.asarray(dx).shape, np.asarray(dw).shape) == (x.shape, w.shape)


def test_empty_batch_of_pointwise_convolutions() -> None:
    """A product that nobody reads: its consumer has no elements."""
    graph = ts.Graph()
    x, w = graph.placeholder((0, 2, 6, 7)), graph.placeholder((2, 3, 1, 1))
    arrays = [np.ones(tuple(t.shape), np.float32) for t in (x, w)]
    y = ts.conv_transpose2d(x, w)
    dw = ts.gradients(ts.sum(y * y), [w])[w]
    got, gradient = graph.compile([x, w], [y, dw]).run(*arrays)
    assert np.asarray(got).shape == (0, 3, 6, 7)
    assert not np.asarray(gradient).any()


@pytest.mark.parametrize("kernel", [1, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_nan_stays_where_it_is_read(stride: int, dilation: int, kernel: int) -> None:
    """A window that does not read a NaN is not touched by it, in the result and in the gradient."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 8, 16, 16)).astype("f"), rng.standard_normal((12, 8, kernel, kernel)).astype("f")
    options: dict[str, Any] = {"stride": stride, "dilation": dilation, "padding": 3}
    geometry = (stride, stride), (dilation, dilation), [(3, 3), (3, 3)]
    clean = run_conv(x, w, **options)
    x[1, 3, 5, 6] = np.nan
    marked = reference.conv(np.isnan(x).astype(float), np.ones_like(w, float), *geometry) > 0
    got = run_conv(x, w, **options)
    np.testing.assert_array_equal(np.isnan(got), marked)
    np.testing.assert_array_equal(got[~marked], clean[~marked])

    gradient = rng.standard_normal(clean.shape).astype("f")
    gradient[0, 2, 1, 2] = np.inf
    graph = ts.Graph()
    tg, tw, tx = (graph.placeholder(a.shape) for a in (gradient, w, x))
    (dx,) = graph.run({tg: gradient, tw: w, tx: x}, [ts.conv2d_data_gradient(tg, tw, tx, **options)])
    marked = reference.data_gradient(
        (~np.isfinite(gradient)).astype(float), np.ones_like(w, float), (16, 16), *geometry
    )
    np.testing.assert_array_equal(~np.isfinite(dx), marked > 0)


# --- In a graph.


def layer(graph: ts.Graph, batch: Any, extent: Any) -> tuple[list[Any], Any]:
    x, w = graph.placeholder((batch, 3, extent, 12)), graph.placeholder((8, 3, 3, 3))
    b = graph.placeholder((8, 1, 1))
    return [x, w, b], ts.relu(ts.conv2d(x, w, padding=1) + b)


def arrays_of(batch: int, extent: int) -> list[np.ndarray]:
    rng = np.random.default_rng(batch)
    shapes = ((batch, 3, extent, 12), (8, 3, 3, 3), (8, 1, 1))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("dynamic", [(-1, 12), (-1, -1), ("n", "h")], ids=str)
def test_dims_that_are_known_at_run_time_only(dynamic: tuple[Any, Any], threads: int) -> None:
    """One executable for all batch sizes and heights; gradients too."""
    graph = ts.Graph()
    placeholders, y = layer(graph, *dynamic)
    gradients = ts.gradients(ts.sum(y * y), placeholders)
    targets = [y, *(gradients[p] for p in placeholders)]
    executable = graph.compile(placeholders, targets)
    for batch, extent in ((1, 12), (5, 12), (16, 12), (3, 12 if dynamic[1] == 12 else 7)):
        arrays = arrays_of(batch, extent)
        got = executable.run(*arrays)
        x, w, b = (a.astype(float) for a in arrays)
        geometry = (1, 1), (1, 1), [(1, 1), (1, 1)]
        z = reference.conv(x, w, *geometry) + b
        y_expected = np.maximum(z, 0)
        g = 2 * y_expected
        expected = [y_expected, reference.data_gradient(g, w, x.shape[2:], *geometry),
                    reference.weights_gradient(x, g, (3, 3), *geometry), g.sum((0, 2, 3)).reshape(8, 1, 1)]  # fmt: skip
        for have, want in zip(got, expected, strict=True):
            np.testing.assert_allclose(have, want, rtol=2e-4, atol=2e-4 * np.abs(want).max())


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
def test_a_layer_is_one_region(last: bool) -> None:
    """Bias, activation and residual are finished with the sums; the data's own expression is read once."""
    rng = np.random.default_rng(0)
    x, w, b, r = (rng.standard_normal(s).astype("f") for s in ((4, 16, 14, 14), (32, 16, 3, 3), 32, (4, 32, 14, 14)))
    z = reference.conv(np.maximum(x.astype(float), 0), w.astype(float), (1, 1), (1, 1), [(1, 1), (1, 1)])
    expected = np.maximum(z + b[:, None, None], 0) + r
    if last:
        x, r, expected = (np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in (x, r, expected))
        w = np.ascontiguousarray(w.transpose(2, 3, 1, 0))
    else:
        b = b[:, None, None]
    layouts = {"data_layout": "NHWC", "weights_layout": "HWIO"} if last else {}
    graph = ts.Graph()
    tx, tw, tb, tr = (graph.placeholder(a.shape) for a in (x, w, b, r))
    y = ts.relu(ts.conv2d(ts.relu(tx), tw, padding="same", **layouts) + tb) + tr
    executable = graph.compile([tx, tw, tb, tr], y)
    np.testing.assert_allclose(executable.run(x, w, b, r), expected, rtol=1e-4, atol=1e-4)
    report = str(executable.report())
    assert report.count("stitched:") == 1, report
    assert "windows in" in report


def test_compiled_before_the_sizes_are_known() -> None:
    """Unknown dims that have to fit others wait for the first run; no memory is reserved for made-up sizes."""
    graph = ts.Graph()
    x, w = graph.placeholder((2, -1, 8)), graph.placeholder((6, 1, 3))
    executable = graph.compile([x, w], ts.conv1d(x, w, groups=3))
    data, weights = np.ones((2, 3, 8), np.float32), np.ones((6, 1, 3), np.float32)
    np.testing.assert_array_equal(executable.run(data, weights), np.full((2, 6, 6), 3.0))
    with pytest.raises(ValueError, match="4 channels, which 3 groups do not divide"):
        executable.run(np.ones((2, 4, 8), np.float32), weights)

    x, w = graph.placeholder((-1, 3, -1, -1)), graph.placeholder((8, 3, 3, 3))
    y = ts.conv2d(x, w, padding="same")
    dw = ts.gradients(ts.sum(y * y), [w])[w]
    executable = graph.compile([x, w], dw)
    data, weights = np.ones((2, 3, 5, 6), np.float32), np.zeros((8, 3, 3, 3), np.float32)
    assert not np.asarray(executable.run(data, weights)).any()


def test_second_derivatives_through_batch_statistics() -> None:
    """Regions that others depend on in a roundabout way; against central differences of the first derivative."""

    def network(graph: ts.Graph, x: Any) -> Any:
        rng = np.random.default_rng(0)
        first, second = (graph.constant(rng.random(shape)) for shape in ((8, 8, 2), (4, 8, 2)))
        y = ts.conv1d(x, first)
        mean = ts.mean(y, axis=[0, 2], keepdims=True)
        y = (y - mean) * ts.rsqrt(ts.variance(y, axis=[0, 2], keepdims=True) + 0.1)
        return ts.conv1d(y, second)

    graph = ts.Graph()
    x, v = graph.placeholder((2, 8, 7), "float64"), graph.placeholder((2, 8, 7), "float64")
    y = network(graph, x)
    slope = ts.gradients(ts.sum(y * y * y), [x])[x]
    along = ts.gradients(ts.sum(slope * v), [x])[x]
    rng = np.random.default_rng(1)
    point, direction = rng.random((2, 8, 7)), rng.random((2, 8, 7))
    step = 1e-5
    (got,) = graph.run({x: point, v: direction}, [along])
    first = graph.compile([x], slope)
    expected = (np.asarray(first.run(point + step * direction)) - first.run(point - step * direction)) / (2 * step)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_it_does_not_depend_on_the_number_of_threads() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder((8, 16, 14, 14)), graph.placeholder((24, 16, 5, 5))
    y = ts.conv2d(x, w, padding=2)
    dw = ts.gradients(ts.sum(y * y), [w])[w]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(tuple(t.shape)).astype(np.float32) for t in (x, w)]
    executable = graph.compile([x, w], [y, dw])
    first = executable.run(*arrays)
    for _ in range(5):
        for a, b in zip(executable.run(*arrays), first, strict=True):
            np.testing.assert_array_equal(a, b)


# --- Errors.

X, W = (2, 6, 9, 9), (8, 6, 3, 3)
ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "zero stride": ({"stride": 0}, "stride is 0; it must be at least 1"),
    "negative dilation": ({"dilation": [1, -1]}, "dilation is -1"),
    "three strides": ({"stride": [1, 1, 1]}, "stride has 3 numbers"),
    "three paddings": ({"padding": [1, 1, 1]}, "padding has 3 numbers"),
    "negative padding": ({"padding": -1}, "padding has -1"),
    "unknown padding": ({"padding": "sane"}, "did you mean 'same'"),
    "capital letters": ({"padding": "SAME"}, "did you mean 'same'"),
    "no groups": ({"groups": 0}, "groups is 0"),
    "groups that do not divide": ({"groups": 4}, "6 channels, which 4 groups do not divide"),
    "groups without their weights": ({"groups": 2}, "check data_layout, weights_layout and groups"),
    "the other layout": ({"data_layout": "NHWC"}, "check data_layout"),
    "unknown layout": ({"data_layout": "CHWN"}, "allowed are"),
    "window too large": ({"dilation": 5}, "spans 11 positions along spatial axis 0, but the input has 9"),
    "huge stride": ({"stride": 2**40}, "at most"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    graph = ts.Graph()
    x, w = graph.placeholder(X), graph.placeholder(W)
    attributes, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        ts.conv2d(x, w, **attributes)


def test_errors_of_shapes_and_dtypes() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder(X), graph.placeholder(W)
    with pytest.raises(ValueError, match='the layout "NCHW" needs 4 axes'):
        ts.conv2d(graph.placeholder((6, 9, 9)), w)
    with pytest.raises(ValueError, match='the layout "OIW" needs 3 axes'):
        ts.conv1d(graph.placeholder((2, 6, 9)), w)
    with pytest.raises(TypeError, match="float64"):
        ts.conv2d(x, graph.placeholder(W, "float64"))
    with pytest.raises(TypeError, match="bool"):
        ts.conv2d(graph.placeholder(X, "bool"), graph.placeholder(W, "bool"))
    with pytest.raises(ValueError, match=r"gradient.*has shape"):
        ts.conv2d_data_gradient(graph.placeholder((2, 8, 5, 5)), w, x)
    with pytest.raises(ValueError, match="must be below the stride, 2"):
        ts.conv_transpose2d(graph.placeholder((2, 8, 7, 7)), w, stride=2, output_padding=2)
    with pytest.raises(ValueError, match=r"output_shape .* has 8 windows"):
        ts.conv_transpose2d(graph.placeholder((2, 8, 7, 7)), w, stride=2, output_shape=(17, 15))
    with pytest.raises(ValueError, match="give output_shape for a smaller one"):
        ts.conv_transpose2d(graph.placeholder((2, 8, 7, 7)), w, stride=2, padding="same", output_padding=1)
    with pytest.raises(ValueError, match="its extents must be numbers"):
        ts.conv_transpose2d(graph.placeholder((2, 8, 7, 7)), w, stride=2, output_shape=(-1, 15))
    with pytest.raises(ValueError, match="padding has 2147483648; it must be at most"):
        ts.conv2d(x, w, padding=2**31)
    with pytest.raises(ValueError, match="6 channels, but the weights are for 8"):
        ts.conv_transpose2d(x, w)
    with pytest.raises(ValueError, match="use less padding"):
        ts.conv_transpose2d(graph.placeholder((2, 8, 1, 1)), w, padding=4)
    with pytest.raises(ValueError, match="they must be equal"):
        ts.depthwise_conv2d(x, graph.placeholder((1, 5, 3, 3)))


def test_channels_of_a_depthwise_convolution_may_be_told_by_its_weights() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder((2, -1, 6, 6)), graph.placeholder((2, 4, 3, 3))
    y = ts.depthwise_conv2d(x, w)
    gradient = ts.gradients(ts.sum(y), [w])[w]
    data = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    (got,) = graph.run({x: data, w: np.ones((2, 4, 3, 3), np.float32)}, [gradient])
    windows = np.lib.stride_tricks.sliding_window_view(data.astype(float), (4, 4), (2, 3)).sum((0, 4, 5))
    np.testing.assert_allclose(got, np.broadcast_to(windows, (2, 4, 3, 3)), rtol=1e-4, atol=1e-4)


def test_numbers_may_be_arrays() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder(X), graph.placeholder(W)
    assert tuple(ts.conv2d(x, w, stride=np.array([2, 1])).shape) == (2, 8, 4, 7)
    assert tuple(ts.conv2d(x, w, stride=np.int64(2)).shape) == (2, 8, 4, 4)
    assert tuple(ts.conv2d(x, w, padding=[(1, 2), (0, 1)]).shape) == (2, 8, 10, 8)
    assert tuple(ts.conv2d(graph.placeholder((2, 6, 0, 9)), w, padding="same").shape) == (2, 8, 0, 9)


def test_a_window_that_turns_out_too_large() -> None:
    """The height is known at run time only."""
    graph = ts.Graph()
    x, w = graph.placeholder((1, 1, -1, 9)), graph.placeholder((1, 1, 5, 5))
    y = ts.conv2d(x, w)
    (got,) = graph.run({x: np.ones((1, 1, 5, 9), np.float32), w: np.ones((1, 1, 5, 5), np.float32)}, [y])
    assert np.asarray(got).shape == (1, 1, 1, 5)
    with pytest.raises(ValueError, match="window"):
        graph.run({x: np.ones((1, 1, 3, 9), np.float32), w: np.ones((1, 1, 5, 5), np.float32)}, [y])


def test_products_of_one_term() -> None:
    """One output channel and a kernel of one tap: nothing is left to be summed."""
    rng = np.random.default_rng(41)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 28, 28, 8), (1, 8, 1, 1)))
    graph = ts.Graph()
    a, b = graph.placeholder(x.shape), graph.placeholder(w.shape)
    y = ts.conv2d(a, b, stride=2, data_layout="NHWC")
    gradient = ts.gradients(ts.sum(y * y), [a])[a]
    expected = np.zeros(x.shape)
    outputs = x[:, ::2, ::2].astype(np.float64) @ w[0, :, 0, 0].astype(np.float64)
    expected[:, ::2, ::2] = 2 * outputs[..., None] * w[0, :, 0, 0]
    np.testing.assert_allclose(graph.run({a: x, b: w}, gradient), expected, rtol=1e-5, atol=1e-5)

    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 1, 14, 9), (1, 8, 2, 1)))
    graph = ts.Graph()
    a, b = graph.placeholder(x.shape), graph.placeholder(w.shape)
    y = ts.conv_transpose2d(a, b, stride=[3, 1], padding=[1, 1, 1, 1])
    full = np.zeros((8, 8, 3 * 13 + 2, 9))
    for tap in range(2):
        full[:, :, tap : tap + 40 : 3] += x.astype(np.float64) * w[0, :, tap, 0, None, None]
    np.testing.assert_allclose(graph.run({a: x, b: w}, y), full[:, :, 1:-1, 1:-1], rtol=1e-5, atol=1e-6)


def test_feeds_whose_axes_seem_to_lie_side_by_side() -> None:
    """Strides of 1 and -1 elements along several axes, and strides that are known at run time only."""
    rng = np.random.default_rng(43)
    memory = rng.uniform(-1, 1, 40000).astype(np.float32)
    strided = np.lib.stride_tricks.as_strided
    cases = [
        (strided(memory, (6, 16, 16, 8), (4, 4 * 640, 4 * 40, 4)), (16, 8, 3, 3), "NHWC"),
        (strided(memory, (16, 6, 6, 16), (4, 64, 8, 4)), (4, 16, 3, 3), "NHWC"),
        (strided(memory[100:], (2, 9, 9, 16), (-4, 4, 4, 1200)), (4, 9, 3, 3), "NCHW"),
    ]
    for data, shape, layout in cases:
        w = rng.uniform(-1, 1, shape).astype(np.float32)
        graph = ts.Graph()
        a, b = graph.placeholder(data.shape), graph.placeholder(shape)
        y = ts.conv2d(a, b, padding=1, data_layout=layout)
        gradient = ts.gradients(ts.sum(y * y), [b])[b]
        got = graph.run({a: data, b: w}, [y, gradient])
        first = data.astype(np.float64) if layout == "NCHW" else np.moveaxis(data.astype(np.float64), -1, 1)
        geometry = ((1, 1), (1, 1), [(1, 1), (1, 1)], 1)
        expected = reference.conv(first, w.astype(np.float64), *geometry)
        slope = reference.weights_gradient(first, 2 * expected, (3, 3), *geometry)
        shown = np.asarray(got[0]) if layout == "NCHW" else np.moveaxis(np.asarray(got[0]), -1, 1)
        np.testing.assert_allclose(shown, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got[1], slope, rtol=1e-3, atol=1e-3 * np.abs(slope).max())

    graph = ts.Graph()  # one channel in each group, of as many as the run says
    a, b = graph.placeholder((1, 16, 16, -1)), graph.placeholder((24, 1, 3, 3))
    y = ts.conv2d(a, b, padding=1, groups=3, data_layout="NHWC")
    data, w = (
        rng.standard_normal((1, 16, 16, 3)).astype(np.float32),
        rng.standard_normal((24, 1, 3, 3)).astype(np.float32),
    )
    first = np.moveaxis(data.astype(np.float64), -1, 1)
    expected = reference.conv(first, w.astype(np.float64), (1, 1), (1, 1), [(1, 1), (1, 1)], 3)
    np.testing.assert_allclose(
        np.moveaxis(np.asarray(graph.run({a: data, b: w}, y)), -1, 1), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("interpret", [False, True])
def test_no_window_reads_the_data(interpret: bool) -> None:
    """Even taps and steps, an odd padding, one row: each window reads padding only, so that nothing has a gradient."""
    rng = np.random.default_rng(0)
    graph = ts.Graph()
    x, w = graph.placeholder((1, 31, 1, 60)), graph.placeholder((16, 31, 10, 3))
    layout = {"stride": (2, 1), "dilation": (2, 1), "padding": [(9, 9), (0, 0)]}
    y = ts.conv2d(x, w, **layout)
    g = graph.placeholder(tuple(y.shape))
    gradient = ts.conv2d_data_gradient(g, w, x, **layout)
    feeds = {t: rng.standard_normal(tuple(t.shape), np.float32) for t in (x, w, g)}
    result, slope = graph.run(feeds, [y, gradient], interpret=interpret)
    np.testing.assert_array_equal(np.asarray(result), 0)
    np.testing.assert_array_equal(np.asarray(slope), 0)
