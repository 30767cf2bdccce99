"""Convolutions by minimal filtering: edges of tiles, panels and lanes, layouts and dtypes, against float64.

Errors are compared with the largest sum of magnitudes among the results, since a tile's results share their roundings.
Filters are small enough for any second-level cache: larger ones are transformed where that saves more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import conv_reference as reference
import topstitch as ts
from oracle import assert_sum_of_products

UNIT = (1, 1)


def random(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_close(got: Any, expected: np.ndarray, magnitude: np.ndarray, taps: int) -> None:
    assert_sum_of_products(got, expected, np.full_like(expected, magnitude.max()), taps, str(expected.shape))


def assert_filtered(executable: ts.Executable) -> None:
    assert any("products of transforms" in region["schedule"] for region in executable.report().regions)


def check(x: np.ndarray, w: np.ndarray, padding: list[tuple[int, int]], stride: int = 1, **options: Any) -> None:
    """The convolution and its data gradient. In steps, small caches make the direct sum better."""
    steps = (stride, stride)
    graph = ts.Graph()
    px, pw = graph.placeholder(x.shape, str(x.dtype)), graph.placeholder(w.shape, str(w.dtype))
    y = ts.conv2d(px, pw, stride=stride, padding=padding)
    wide, weights = x.astype(np.float64), w.astype(np.float64)
    executable = graph.compile([px, pw], y, **options)
    if stride == 1:
        assert_filtered(executable)
    expected = reference.conv(wide, weights, steps, UNIT, padding)
    magnitude = reference.conv(np.abs(wide), np.abs(weights), steps, UNIT, padding)
    assert_close(executable.run(x, w), expected, magnitude, w[0].size)

    g = random(expected.shape, 2, str(x.dtype))
    pg = graph.placeholder(g.shape, str(g.dtype))
    back = graph.compile([pg, pw, px], ts.conv2d_data_gradient(pg, pw, px, stride=stride, padding=padding), **options)
    if stride == 1:
        assert_filtered(back)
    arguments = (w.astype(np.float64), x.shape[2:], steps, UNIT, padding)
    expected = reference.data_gradient(g.astype(np.float64), *arguments)
    magnitude = reference.data_gradient(np.abs(g.astype(np.float64)), np.abs(arguments[0]), *arguments[1:])
    assert_close(back.run(g, w, x), expected, magnitude, w[:, 0].size)


def check_weights(
    x: np.ndarray,
    kernel: tuple[int, int],
    outputs: int,
    padding: list[tuple[int, int]],
    stride: int = 1,
    **options: Any,
) -> None:
    """The gradient of the filter, whose sums run over tiles of places."""
    steps = (stride, stride)
    out = reference.windows(x.shape[2:], kernel, steps, UNIT, padding)
    g = random((len(x), outputs, *out), 3, str(x.dtype))
    shape = (outputs, x.shape[1], *kernel)
    graph = ts.Graph()
    px, pg = graph.placeholder(x.shape, str(x.dtype)), graph.placeholder(g.shape, str(g.dtype))
    like = graph.placeholder(shape, str(x.dtype))
    y = ts.conv2d_weights_gradient(pg, px, like, stride=stride, padding=padding)
    executable = graph.compile([px, pg, like], y, **options)
    assert_filtered(executable)
    wide, incoming = x.astype(np.float64), g.astype(np.float64)
    expected = reference.weights_gradient(wide, incoming, kernel, steps, UNIT, padding)
    magnitude = reference.weights_gradient(np.abs(wide), np.abs(incoming), kernel, steps, UNIT, padding)
    assert_close(executable.run(x, g, np.zeros(shape, x.dtype)), expected, magnitude, g[:, 0].size)


@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (4, 4), (3, 5), (5, 4)])
@pytest.mark.parametrize("size", [(24, 24), (23, 29), (40, 17)])
def test_edges_of_tiles(kernel: tuple[int, int], size: tuple[int, int]) -> None:
    check(random((3, 40, *size)), random((44, 40, *kernel), 1), [(k // 2, k // 2) for k in kernel])


@pytest.mark.parametrize(("channels", "outputs"), [(28, 64), (33, 40), (41, 43), (65, 28), (18, 97)])
def test_edges_of_panels_and_lanes(channels: int, outputs: int) -> None:
    check(random((2, channels, 36, 31)), random((outputs, channels, 3, 3), 1), [(1, 1), (1, 1)])


@pytest.mark.parametrize("padding", [[(0, 0), (0, 0)], [(2, 0), (0, 1)], [(0, 2), (2, 2)], [(5, 4), (3, 6)]])
def test_padding(padding: list[tuple[int, int]]) -> None:
    check(random((1, 32, 33, 28)), random((48, 32, 3, 3), 1), padding)


@pytest.mark.parametrize("kernel", [(5, 5), (6, 6), (7, 5)])
@pytest.mark.parametrize("size", [(48, 48), (47, 64)])
def test_steps_of_two(kernel: tuple[int, int], size: tuple[int, int]) -> None:
    """Even and odd rows and columns are images of their own, which add up; of gradients, they are results."""
    padding = [(k // 2, (k - 1) // 2) for k in kernel]
    check(random((2, 32, *size)), random((48, 32, *kernel), 1), padding, stride=2)


@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (4, 4), (3, 5), (5, 4)])
@pytest.mark.parametrize("size", [(24, 24), (23, 29), (40, 17)])
def test_edges_of_tiles_of_weights(kernel: tuple[int, int], size: tuple[int, int]) -> None:
    check_weights(random((3, 40, *size)), kernel, 44, [(k // 2, k // 2) for k in kernel])


@pytest.mark.parametrize(("channels", "outputs"), [(28, 64), (33, 40), (41, 43), (65, 28), (18, 97), (130, 66)])
def test_edges_of_panels_and_lanes_of_weights(channels: int, outputs: int) -> None:
    check_weights(random((2, channels, 36, 31)), (3, 3), outputs, [(1, 1), (1, 1)])


@pytest.mark.parametrize("padding", [[(0, 0), (0, 0)], [(2, 0), (0, 1)], [(0, 2), (2, 2)], [(5, 4), (3, 6)]])
def test_padding_of_weights(padding: list[tuple[int, int]]) -> None:
    check_weights(random((1, 32, 33, 28)), (3, 3), 48, padding)


@pytest.mark.parametrize("kernel", [(5, 5), (6, 6)])
@pytest.mark.parametrize("size", [(48, 48), (47, 64)])
def test_weights_in_steps_of_two(kernel: tuple[int, int], size: tuple[int, int]) -> None:
    padding = [(k // 2, (k - 1) // 2) for k in kernel]
    check_weights(random((2, 32, *size)), kernel, 96, padding, stride=2)


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("channels", [32, 64])
def test_parts_of_the_sum_of_weights(threads: int, channels: int) -> None:
    """Where rows and columns are fewer than threads, parts of the sum are added in the end, in one order."""
    check_weights(random((5, channels, 20, 22)), (3, 3), 32, [(1, 1), (1, 1)], threads=threads)
    check_weights(random((2, channels, 20, 22)), (3, 3), 32, [(1, 1), (1, 1)], threads=threads, interpret=True)


def test_any_batch_of_weights() -> None:
    """One compilation serves all batch sizes, and the update of the filter is in the last kernel."""
    graph = ts.Graph()
    x, g = graph.placeholder((-1, 32, 21, 21)), graph.placeholder((-1, 48, 21, 21))
    old = random((48, 32, 3, 3), 1)
    w = graph.constant(old)
    y = w - 0.01 * ts.conv2d_weights_gradient(g, x, w, padding=1)
    types = {x: ts.ShapedType((-1, 32, 21, 21)), g: ts.ShapedType((-1, 48, 21, 21))}
    executable = graph.compile(types, y)
    assert_filtered(executable)
    assert len(executable.report().regions) == 1
    for batch in (5, 1, 0, 33):
        fx, fg = random((batch, 32, 21, 21), batch), random((batch, 48, 21, 21), batch + 1)
        slope = reference.weights_gradient(
            fx.astype(np.float64), fg.astype(np.float64), (3, 3), UNIT, UNIT, [(1, 1), (1, 1)]
        )
        got = np.asarray(executable.run(fx, fg))
        np.testing.assert_allclose(got, old - 0.01 * slope, rtol=1e-6, atol=2e-6 * max(1, np.abs(slope).max() / 100))


def test_weights_with_channels_last() -> None:
    x, g = random((2, 26, 31, 44)), random((2, 26, 31, 40), 1)
    graph = ts.Graph()
    px, pg, like = graph.placeholder(x.shape), graph.placeholder(g.shape), graph.placeholder((3, 3, 44, 40))
    layout: dict[str, Any] = {"padding": 1, "data_layout": "NHWC", "weights_layout": "HWIO"}
    executable = graph.compile([px, pg, like], ts.conv2d_weights_gradient(pg, px, like, **layout))
    assert_filtered(executable)
    got = np.asarray(executable.run(x, g, np.zeros((3, 3, 44, 40), np.float32))).transpose(3, 2, 0, 1)
    wide, incoming = (a.astype(np.float64).transpose(0, 3, 1, 2) for a in (x, g))
    arguments = ((3, 3), UNIT, UNIT, [(1, 1), (1, 1)])
    expected = reference.weights_gradient(wide, incoming, *arguments)
    magnitude = reference.weights_gradient(np.abs(wide), np.abs(incoming), *arguments)
    assert_close(got, expected, magnitude, g[..., 0].size)


def test_weights_in_half_precision() -> None:
    check_weights(random((2, 32, 24, 24), 0, "float16"), (3, 3), 48, [(1, 1), (1, 1)])


@pytest.mark.parametrize("part", ["data", "filter", "weights"])
def test_what_no_window_reaches(part: str) -> None:
    """Windows that go by two leave a last column out: what is not finite there changes nothing."""
    x, w = random((2, 32, 48, 48)), random((96, 32, 5, 5), 1)
    g = random((2, 96, 22, 22), 2)  # windows that start at 0, 2, ..., 42 and read up to 46
    x[:, :, 47, :] = np.nan
    x[:, :, :, 47] = np.inf
    graph = ts.Graph()
    px, pw, pg = (graph.placeholder(a.shape) for a in (x, w, g))
    if part == "weights":
        executable = graph.compile([px, pg, pw], ts.conv2d_weights_gradient(pg, px, pw, stride=2))
        got, expected = executable.run(x, g, w), reference.weights_gradient(x, g, (5, 5), (2, 2), UNIT, [(0, 0)] * 2)
        assert_filtered(executable)
    elif part == "filter":
        executable = graph.compile([px, pw], ts.conv2d(px, pw, stride=2))
        got, expected = executable.run(x, w), reference.conv(x, w, (2, 2), UNIT, [(0, 0)] * 2)
    else:
        executable = graph.compile([pg, pw, px], ts.conv2d_data_gradient(pg, pw, px, stride=2))
        got, expected = executable.run(g, w, x), reference.data_gradient(g, w, (48, 48), (2, 2), UNIT, [(0, 0)] * 2)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_many_channels() -> None:
    check(random((2, 512, 16, 16)), random((512, 512, 3, 3), 1), [(1, 1), (1, 1)])


def test_the_interpreter_agrees() -> None:
    check(random((1, 33, 24, 20)), random((34, 33, 3, 3), 1), [(1, 1), (1, 1)], interpret=True)


@pytest.mark.parametrize("threads", [1, 3])
def test_any_batch_with_what_is_stitched(threads: int) -> None:
    """One compilation serves all batch sizes; the bias, the activation and a skip connection are in the last kernel."""
    graph = ts.Graph()
    x = graph.placeholder((-1, 32, 21, 21))
    w, bias = random((32, 32, 3, 3), 1) / 17, random((32, 1, 1), 2)
    y = ts.relu(ts.conv2d(x, graph.constant(w), padding=1) + graph.constant(bias)) + x
    executable = graph.compile({x: ts.ShapedType((-1, 32, 21, 21))}, y, threads=threads)
    for batch in (5, 1, 64, 0, 7):
        fed = random((batch, 32, 21, 21), batch)
        got = np.asarray(executable.run(fed))
        wide = reference.conv(fed.astype(np.float64), w.astype(np.float64), UNIT, UNIT, [(1, 1), (1, 1)])
        np.testing.assert_allclose(got, np.maximum(wide + bias, 0) + fed, rtol=1e-5, atol=2e-5)
    assert_filtered(executable)
    assert len(executable.report().regions) == 1


@pytest.mark.parametrize("activated", [False, True])
@pytest.mark.parametrize("weights_layout", ["HWIO", "OIHW"])
def test_channels_last(weights_layout: str, activated: bool) -> None:
    x, w = random((2, 26, 31, 44)), random((40, 44, 3, 3), 1) / 20
    graph = ts.Graph()
    px = graph.placeholder(x.shape)
    pw = graph.placeholder((3, 3, 44, 40) if weights_layout == "HWIO" else w.shape)
    y = ts.conv2d(px, pw, padding=1, data_layout="NHWC", weights_layout=weights_layout)
    executable = graph.compile([px, pw], ts.tanh(y) if activated else y)
    assert_filtered(executable)
    got = executable.run(x, np.ascontiguousarray(w.transpose(2, 3, 1, 0)) if weights_layout == "HWIO" else w)
    wide = x.astype(np.float64).transpose(0, 3, 1, 2)
    expected = reference.conv(wide, w.astype(np.float64), UNIT, UNIT, [(1, 1), (1, 1)])
    expected = (np.tanh(expected) if activated else expected).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=2e-5)  # sums are up to 4.5


def test_half_precision() -> None:
    """Sums and transforms are float32, as they are otherwise."""
    check(random((2, 32, 24, 24), 0, "float16"), random((32, 32, 3, 3), 1, "float16"), [(1, 1), (1, 1)])


def test_training_of_the_filter() -> None:
    """Gradients of the filter, and second derivatives, through a convolution of this kind."""
    torch = pytest.importorskip("torch")
    x, w = random((2, 32, 20, 20)), random((32, 32, 3, 3), 1) / 17
    graph = ts.Graph()
    px, pw = graph.placeholder(x.shape), graph.placeholder(w.shape)
    y = ts.sum(ts.tanh(ts.conv2d(px, pw, padding=1)))
    slopes = ts.gradients(y, [px, pw])
    second = ts.gradients(ts.sum(slopes[px] * slopes[px]), [pw])[pw]
    got = graph.run({px: x, pw: w}, [slopes[px], slopes[pw], second])
    tx, tw = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, w))
    first = torch.autograd.grad(
        torch.tanh(torch.nn.functional.conv2d(tx, tw, padding=1)).sum(), [tx, tw], create_graph=True
    )
    expected = [*first, torch.autograd.grad((first[0] * first[0]).sum(), tw)[0]]
    for mine, theirs in zip(got, expected, strict=True):
        wide = theirs.detach().numpy()
        np.testing.assert_allclose(np.asarray(mine), wide, rtol=0, atol=2e-5 * np.abs(wide).max())


def test_strict_mathematics_sums_directly() -> None:
    """What is not finite stays where its products are; otherwise it spreads over its tile."""
    x, w = random((1, 32, 24, 24)), random((32, 32, 3, 3), 1)
    x[0, 3, 10, 10] = np.nan
    graph = ts.Graph()
    px, pw = graph.placeholder(x.shape), graph.placeholder(w.shape)
    y = ts.conv2d(px, pw, padding=1)
    strict = graph.compile([px, pw], y, math="strict")
    wrong = np.isnan(np.asarray(strict.run(x, w)))
    expected = np.zeros_like(wrong)
    expected[:, :, 9:12, 9:12] = True
    np.testing.assert_array_equal(wrong, expected)
    standard = graph.compile([px, pw], y)
    assert_filtered(standard)
    spread = np.isnan(np.asarray(standard.run(x, w)))
    assert spread[expected].all()
    assert not spread[:, :, :4].any()
    assert not spread[:, :, 16:].any()


@pytest.mark.parametrize("outputs", [32, 33])
def test_phases_of_gradients_with_channels_last(outputs: int) -> None:
    """Results of all phases lie side by side with their channels, and panels go across them."""
    x, w = random((2, 48, 48, outputs)), random((5, 5, outputs, 48), 1)
    graph = ts.Graph()
    px, pw = graph.placeholder(x.shape), graph.placeholder(w.shape)
    layout: dict[str, Any] = {"stride": 2, "padding": 2, "data_layout": "NHWC", "weights_layout": "HWIO"}
    pg = graph.placeholder((2, 24, 24, 48))
    g = random((2, 24, 24, 48), 2)
    back = graph.compile([pg, pw, px], ts.conv2d_data_gradient(pg, pw, px, **layout))
    wide, weights = (a.astype(np.float64) for a in (g.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)))
    arguments = ((48, 48), (2, 2), UNIT, [(2, 2), (2, 2)])
    expected = reference.data_gradient(wide, weights, *arguments)
    magnitude = reference.data_gradient(np.abs(wide), np.abs(weights), *arguments)
    got = np.asarray(back.run(g, w, x)).transpose(0, 3, 1, 2)
    assert_close(got, expected, magnitude, w[..., 0].size)


def test_wide_images() -> None:
    """Blocks of tiles begin and end anywhere in a row, so that they stay small."""
    check(random((1, 32, 12, 1501)), random((32, 32, 3, 3), 1), [(1, 1), (1, 1)])
