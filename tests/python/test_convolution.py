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
from oracle import EPSILON

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


def assert_close(got: Any, expected: np.ndarray, magnitude: np.ndarray, count: int, what: str) -> None:
    """A sum of `count` products errs by about as many roundings of the sum of their magnitudes, at most."""
    got = np.asarray(got)
    assert got.shape == expected.shape, what
    if got.dtype.name not in EPSILON:
        np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=what)
        return
    narrow = got.dtype.name in ("float16", "bfloat16")
    epsilon = 2.0**-23 if narrow else EPSILON[got.dtype.name]
    allowed = (4 + count**0.5) * epsilon * magnitude + EPSILON[got.dtype.name] * np.abs(expected) + 1e-30
    error = np.abs(got.astype(np.float64) - expected)
    assert (error <= allowed).all(), f"{what}: {error.max()} at {np.unravel_index(error.argmax(), error.shape)}"


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
        assert_close(results[0], p.fed(expected[0]), p.fed(expected[1]), taps, f"forward {p}")
        expected = both(reference.data_gradient, g, w, p.extents, *p.geometry)
        taps = int(np.prod(p.kernel)) * p.outputs // p.groups
        assert_close(results[1], p.fed(expected[0]), p.fed(expected[1]), taps, f"data gradient {p}")
        expected = both(reference.weights_gradient, x, g, p.kernel, *p.geometry)
        count = p.batch * int(np.prod(p.out))
        assert_close(results[2], p.fed(expected[0], True), p.fed(expected[1], True), count, f"weights gradient {p}")


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
