"""Loops in pieces: where another part of a concatenation begins, or padding ends, the innermost loop is cut.

Each piece reads its part without asking where it is. Expected values come from NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts


def random(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * 8
    return values.astype(dtype)


def pieces(exe: ts.Executable) -> int:
    """Of all loops together, not counting those that are whole."""
    schedules = [region["schedule"] for region in exe.report().regions]
    return sum(int(text.split(" in ")[1].split()[0]) for text in schedules if text.endswith("pieces"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.int64, np.bool_, np.complex64])
@pytest.mark.parametrize("interpret", [False, True])
def test_concat(dtype: Any, interpret: bool) -> None:
    lengths = (128, 75, 200, 67)  # each at least four of the widest vectors
    parts = [random(5, n, seed=n, dtype=dtype) for n in lengths]
    graph = ts.Graph()
    inputs = [graph.placeholder(part.shape, dtype=dtype) for part in parts]
    exe = graph.compile(inputs, ts.concat(inputs, axis=1), interpret=interpret)
    np.testing.assert_array_equal(np.asarray(exe.run(parts)), np.concatenate(parts, axis=1))
    assert pieces(exe) == 4


@pytest.mark.parametrize("lengths", [(2, 300), (40, 1, 40), (20, 20), (50,) * 9, (0, 90, 0, 45), (33, 0, 34)])
def test_parts_that_are_short_many_or_empty(lengths: tuple[int, ...]) -> None:
    parts = [random(4, n, 3, seed=n) for n in lengths]
    graph = ts.Graph()
    inputs = [graph.placeholder(part.shape) for part in parts]
    for axis_last in (False, True):
        turned = [np.moveaxis(part, 1, 2).copy() for part in parts] if axis_last else parts
        graph = ts.Graph()
        inputs = [graph.placeholder(part.shape) for part in turned]
        got = graph.run(dict(zip(inputs, turned, strict=True)), ts.concat(inputs, axis=2 if axis_last else 1))
        np.testing.assert_array_equal(np.asarray(got), np.concatenate(turned, axis=2 if axis_last else 1))


def test_with_what_is_stitched_to_it() -> None:
    """Before and behind, twice the same part, and a part that lies backwards."""
    a, b, scale = random(6, 48), random(6, 40, seed=1), random(136, seed=2)
    graph = ts.Graph()
    x, y, s = graph.placeholder(a.shape), graph.placeholder(b.shape), graph.placeholder(scale.shape)
    joined = ts.concat([x * 2, ts.reverse(y, axis=1), x + 1], axis=-1)
    got = graph.run({x: a, y: b, s: scale}, ts.maximum(joined * s, 0.5))
    expected = np.maximum(np.concatenate([a * 2, b[:, ::-1], a + 1], axis=1) * scale, 0.5)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)


def test_a_variable_that_is_replaced_by_its_parts() -> None:
    """Each part moves to where another one was: they cannot be written over the old value at once."""
    graph = ts.Graph()
    value = random(8, 128)
    v = graph.variable(value, name="v")
    graph.run({}, None, v.assign(ts.concat([v[:, 64:], v[:, :64]], axis=1)))
    np.testing.assert_array_equal(graph.variable_value(v), np.roll(value, 64, axis=1))


@pytest.mark.parametrize("mode", ["constant", "reflect", "symmetric", "edge"])
def test_padding(mode: str) -> None:
    value = random(5, 90)
    graph = ts.Graph()
    x = graph.placeholder(value.shape)
    numpy_mode = {"mode": mode} if mode != "constant" else {"mode": mode, "constant_values": 3.0}
    expected = np.pad(value, ((1, 2), (40, 36)), **numpy_mode)
    attributes = {"value": 3.0} if mode == "constant" else {}
    padded = ts.pad(x, [1, 40], [2, 36], mode=mode, **attributes)
    np.testing.assert_array_equal(np.asarray(graph.run({x: value}, padded)), expected)


def test_gradients_and_open_sizes() -> None:
    graph = ts.Graph()
    x, y = graph.placeholder(("n", 64), dtype=ts.float64), graph.placeholder(("n", 80), dtype=ts.float64)
    joined = ts.concat([x, y], axis=1)
    gradients = ts.gradients(ts.sum(ts.square(joined) * joined), [x, y])
    exe = graph.compile([x, y], [joined, gradients[x], gradients[y]])
    for n in (3, 1, 7):
        a, b = random(n, 64, dtype=np.float64), random(n, 80, seed=1, dtype=np.float64)
        got = exe.run([a, b])
        np.testing.assert_array_equal(np.asarray(got[0]), np.concatenate([a, b], axis=1))
        np.testing.assert_allclose(np.asarray(got[1]), 3 * a * a)
        np.testing.assert_allclose(np.asarray(got[2]), 3 * b * b)


def test_numbers_that_are_made_of_the_position() -> None:
    """Coordinates: cut or not, each element knows its place."""
    graph = ts.Graph()
    x = graph.placeholder((3, 200))
    at = ts.coordinates(x, axis=1)
    joined = ts.concat([x[:, :100] * 0, x[:, 100:] * 0], axis=1) + ts.cast(at, dtype=ts.float32)
    got = np.asarray(graph.run({x: random(3, 200)}, joined))
    np.testing.assert_array_equal(got, np.tile(np.arange(200, dtype=np.float32), (3, 1)))
