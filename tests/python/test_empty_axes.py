"""What is stitched to a reduction over no elements is computed all the same: the sum of nothing is 0, its product 1.

Axes are empty by their declared length, and by what is fed to an open one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topstitch as ts

SHAPES = [
    ((0, 4), (4,)),
    ((0, 2, 4), (2, 4)),
    ((3, 0, 4), (4,)),
    ((0, 4), (1, 4)),
    ((0, 4), (3, 4)),
    ((2, 0, 4), (2, 1, 4)),
]

CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "sum": (lambda a, b: ts.sum(a) + b, lambda a, b: a.sum() + b),
    "sum of products": (lambda a, b: ts.sum(a * a) - b, lambda a, b: 0 - b),
    "product": (lambda a, b: ts.product(a) * b, lambda a, b: b),
    "all": (lambda a, b: ts.where(ts.all(a > 0), b, -b), lambda a, b: b),
    "softmax": (
        lambda a, b: ts.softmax(b * 2.0 + ts.sum(a)),
        lambda a, b: np.exp(2 * b) / np.exp(2 * b).sum(-1, keepdims=True),
    ),
    "one axis": (lambda a, b: ts.sum(ts.sum(a, axis=-1)) + b, lambda a, b: b),
}


@pytest.mark.parametrize("open_dims", [False, True])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("reduced", "other"), SHAPES)
def test_readers_of_reductions_over_nothing(
    reduced: tuple[int, ...], other: tuple[int, ...], case: str, open_dims: bool
) -> None:
    ours, reference = CASES[case]
    a, b = np.zeros(reduced), np.arange(1.0, 1 + np.prod(other)).reshape(other)
    graph = ts.Graph()
    x = graph.placeholder((-1,) * a.ndim if open_dims else reduced, dtype="float64")
    y = graph.placeholder((-1,) * b.ndim if open_dims else other, dtype="float64")
    out = np.full(other, -7.0)
    graph.run({x: a, y: b}, [ours(x, y)], out=[out])
    np.testing.assert_allclose(out, reference(a, b), rtol=1e-12)


def test_gradients_and_loops_beside_reductions_over_nothing() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 4), dtype="float64")
    y = graph.placeholder((4,), dtype="float64")
    b = np.arange(4.0)
    (gradient,) = graph.run({x: np.zeros((0, 4)), y: b}, [ts.gradients(ts.sin(ts.sum(x) + ts.sum(y)), [y])[y]])
    np.testing.assert_allclose(gradient, np.full(4, np.cos(6.0)), rtol=1e-12)
    parts = graph.placeholder((3, 0, 4), dtype="float64")
    last, _ = ts.scan(lambda c, p: (ts.tanh(c + ts.sum(p)), None), y, parts)
    (result,) = graph.run({parts: np.zeros((3, 0, 4)), y: b}, [last])
    np.testing.assert_allclose(result, np.tanh(np.tanh(np.tanh(b))), rtol=1e-12)


def test_what_lacks_a_reduced_axis_is_stored_once() -> None:
    """Beside a sum over rows and columns, a vector as long as the columns is not written again for each row."""
    graph = ts.Graph()
    x = graph.placeholder((100, 4))
    y = graph.placeholder((4,))
    executable = graph.compile([x, y], ts.sum(x) + y)
    assert "lacks an axis that is reduced" in str(executable.report())
