"""Named dims in the attributes of operations: each run replaces them by the sizes of the feeds, 0 and 1 included.

Expected values are NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts

SIZES = [5, 1, 0, 2, 7]


def _values(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("interpret", [False, True])
def test_broadcast_to_named(interpret: bool) -> None:
    graph = ts.Graph()
    x = graph.placeholder(("batch", 3))
    row = graph.placeholder((1, 3))
    scalar = graph.constant(np.float32(2.5))
    targets = [ts.broadcast_to(value, ("batch", 3)) for value in (x, row, scalar)]
    for batch in SIZES:
        array, one = _values(batch, 3), _values(1, 3)
        results = graph.run({x: array, row: one}, targets, interpret=interpret)
        for result, expected in zip(results, (array, one, np.float32(2.5)), strict=True):
            np.testing.assert_array_equal(result, np.broadcast_to(expected, (batch, 3)))


def test_reshape_named() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("batch", 3, 4))
    targets = [
        ts.reshape(x, shape)
        for shape in [("batch", 12), ("batch", -1), (-1, 12), ("3*batch", 4), (2, "6*batch"), ("batch", 2, -1)]
    ]
    for batch in SIZES:
        array = _values(batch, 3, 4)
        results = graph.run({x: array}, targets)
        shapes = [(batch, 12), (batch, 12), (batch, 12), (3 * batch, 4), (2, 6 * batch), (batch, 2, 6)]
        for result, shape in zip(results, shapes, strict=True):
            np.testing.assert_array_equal(result, array.reshape(shape))


def test_coordinates_named() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("batch", 3))
    (rows,) = graph.apply("coordinates", [], {"shape": ("batch", 3), "axis": 0})
    for batch in SIZES:
        (result, _) = graph.run({x: _values(batch, 3)}, [rows, x])
        np.testing.assert_array_equal(result, np.indices((batch, 3))[0])


def test_gradient_through_named() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("batch", 3))
    w = graph.placeholder((3,))
    loss = ts.sum(x * ts.broadcast_to(w, ("batch", 3)) * 2.0)
    gradient = ts.gradients(loss, [w])[w]
    for batch in SIZES:
        array = _values(batch, 3)
        result = graph.run({x: array, w: _values(3)}, gradient)
        np.testing.assert_array_equal(result, 2 * array.sum(axis=0))


def test_names_that_do_not_agree() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("n",), name="x")
    y = graph.placeholder(("2*n + 1",), name="y")
    total = ts.sum(x) + ts.sum(y)
    executable = graph.compile([x, y], total)
    for n in SIZES:
        assert float(executable.run(np.ones(n, np.float32), np.ones(2 * n + 1, np.float32))) == 3 * n + 1
        with pytest.raises(ValueError, match=r"dim 2\*n \+ 1 of placeholder 'y' is"):
            executable.run(np.ones(n, np.float32), np.ones(2 * n + 2, np.float32))


def test_name_that_nothing_is_fed_for() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("n", 3))
    y = ts.broadcast_to(x, ("m", "n", 3))
    with pytest.raises(ValueError, match=r"\[broadcast_to\] the dim m is not known in this run"):
        graph.run({x: _values(2, 3)}, y)
    # A placeholder that is fed for its shape alone.
    m = graph.placeholder(("m",))
    result = graph.run({x: _values(2, 3), m: np.zeros(4, np.float32)}, y)
    np.testing.assert_array_equal(result, np.broadcast_to(_values(2, 3), (4, 2, 3)))


def test_names_narrowed_by_compile() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("n", 3))
    y = graph.placeholder(("n",))
    z = ts.broadcast_to(ts.sum(x, axis=0), ("n", 3)) + ts.expand_dims(y, 1)
    narrowed = {x: ts.ShapedType((4, 3)), y: ts.ShapedType((-1,))}
    for types in (narrowed, {x: ts.ShapedType(("m", 3)), y: ts.ShapedType(("m",))}):
        executable = graph.compile(types, z)
        result = executable.run(_values(4, 3), _values(4))
        np.testing.assert_array_equal(result, _values(4, 3).sum(axis=0) + np.zeros((4, 3)) + _values(4)[:, None])
        with pytest.raises(ValueError, match="agree"):
            executable.run(_values(4, 3), _values(5))
