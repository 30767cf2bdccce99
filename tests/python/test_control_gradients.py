"""Gradients of branches and loops, in float64 against central differences and hand-written back propagation.

A loop's gradient is a loop in the opposite direction; gradients of gradients are checked the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topstitch as ts

STEP = 1e-6


def differences(function: Callable[..., float], values: list[np.ndarray]) -> list[np.ndarray]:
    """Central differences of a scalar function with respect to every element of its arguments."""
    results = []
    for k, value in enumerate(values):
        gradient = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            moved = [v.copy() for v in values]
            moved[k][at] += STEP
            above = function(*moved)
            moved[k][at] -= 2 * STEP
            gradient[at] = (above - function(*moved)) / (2 * STEP)
        results.append(gradient)
    return results


def check(build: Callable[..., Any], reference: Callable[..., float], values: list[np.ndarray], **options: Any) -> None:
    """`build` makes the loss of placeholders for the values; `reference` is the same in NumPy."""
    graph = ts.Graph()
    inputs = [graph.placeholder(value.shape, dtype=ts.float64) for value in values]
    loss = build(*inputs)
    gradients = ts.gradients(loss, inputs)
    feeds = dict(zip(inputs, values, strict=True))
    got_loss, *got = graph.run(feeds, [loss, *(gradients[x] for x in inputs)], **options)
    np.testing.assert_allclose(float(got_loss), reference(*values), rtol=1e-12)
    for value, expected in zip(got, differences(reference, values), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-8)


def random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("options", [{}, {"stitch": False}, {"interpret": True}])
def test_a_recurrent_layer(reverse: bool, options: dict[str, Any]) -> None:
    def build(x: Any, h: Any, w: Any) -> Any:
        def step(hidden: Any, part: Any) -> Any:
            new = ts.tanh(hidden @ w + part)
            return new, new * part

        last, outputs = ts.scan(step, h, x, reverse=reverse)
        return ts.sum(ts.square(last)) + ts.sum(ts.sin(outputs))

    def reference(x: np.ndarray, h: np.ndarray, w: np.ndarray) -> float:
        total = 0.0
        for part in x[::-1] if reverse else x:
            h = np.tanh(h @ w + part)
            total += float(np.sin(h * part).sum())
        return total + float((h**2).sum())

    check(build, reference, random((4, 2, 3), (2, 3), (3, 3)), **options)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("batch", [2, 40])  # in the larger one the sums of products are taken in the loop
def test_matrices_of_products(batch: int, reverse: bool) -> None:
    """One on the left, transposed, in two products, in parts, and beside a use that is no product."""

    def build(x: Any, h: Any, w: Any, v: Any, u: Any) -> Any:
        def step(hidden: Any, part: Any) -> Any:
            first, second = ts.split(v, 2, axis=0)
            mixed = ts.tanh(hidden @ w + part @ ts.transpose(w)) @ first - part @ second
            new = ts.tanh(ts.transpose(u @ ts.transpose(mixed)) + hidden * u[0])
            return new, new * part

        last, outputs = ts.scan(step, h, x, reverse=reverse)
        return (ts.sum(ts.square(last)) + ts.sum(ts.sin(outputs))) / float(batch)

    def reference(x: np.ndarray, h: np.ndarray, w: np.ndarray, v: np.ndarray, u: np.ndarray) -> float:
        total = 0.0
        for part in x[::-1] if reverse else x:
            mixed = np.tanh(h @ w + part @ w.T) @ v[:3] - part @ v[3:]
            h = np.tanh((u @ mixed.T).T + h * u[0])
            total += float(np.sin(h * part).sum())
        return (total + float((h**2).sum())) / batch

    check(build, reference, random((4, batch, 3), (batch, 3), (3, 3), (6, 3), (3, 3)))


@pytest.mark.parametrize("length", [0, 1, 5])
def test_sums_of_products_are_taken_behind_the_loop(length: int) -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1, 3), dtype=ts.float64)
    w = graph.placeholder((3, 3), dtype=ts.float64)
    total, _ = ts.scan(lambda c, part: (c + ts.sum(ts.square(part @ w)), None), graph.constant(np.float64(0)), x)
    gradient = ts.gradients(total, [w])[w]
    assert "carried=2" not in graph.text()  # neither loop carries a sum beside `total`
    (values, matrix) = random((length, 2, 3), (3, 3))
    flat = values.reshape(-1, 3)
    expected = 2 * flat.T @ flat @ matrix
    np.testing.assert_allclose(graph.run({x: values, w: matrix}, gradient), expected, rtol=1e-12, atol=1e-14)


def test_what_is_carried_but_not_used_gets_zeros() -> None:
    def build(x: Any, y: Any) -> Any:
        last, _ = ts.for_loop(3, lambda _, c: (c[0] * x, c[1] + 1), (x, y))
        return ts.sum(last)

    check(build, lambda x, y: float((x**4).sum()), random((3,), (2,)))


def test_integers_are_carried_beside() -> None:
    def build(x: Any) -> Any:
        def step(carried: Any, part: Any) -> Any:
            value, count = carried
            return (value * part + ts.cast(count, dtype=ts.float64), count + 1), None

        (value, _), _ = ts.scan(step, (x[0] * 0.5, x.graph.constant(1, dtype=ts.int32)), x)
        return ts.sum(value)

    def reference(x: np.ndarray) -> float:
        value = x[0] * 0.5
        for k in range(len(x)):
            value = value * x[k] + k + 1
        return float(value.sum())

    check(build, reference, random((4, 2)))


def test_loops_in_loops() -> None:
    def build(x: Any, w: Any) -> Any:
        def outer(total: Any, row: Any) -> Any:
            inner = ts.for_loop(3, lambda j, c: ts.tanh(c * w + ts.cast(j, dtype=ts.float64)), row)
            return total + inner, inner * total

        total, outputs = ts.scan(outer, w, x)
        return ts.sum(total) + ts.sum(outputs)

    def reference(x: np.ndarray, w: np.ndarray) -> float:
        total, loss = w.copy(), 0.0
        for row in x:
            inner = row
            for j in range(3):
                inner = np.tanh(inner * w + j)
            loss += float((inner * total).sum())
            total = total + inner
        return loss + float(total.sum())

    check(build, reference, random((3, 2), (2,)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches(sign: float) -> None:
    def build(x: Any, y: Any) -> Any:
        result, other = ts.if_else(ts.sum(x) > 0, lambda: (x * y, ts.exp(y)), lambda: (ts.sin(x), x * 2))
        return ts.sum(ts.square(result)) + ts.sum(other)

    def reference(x: np.ndarray, y: np.ndarray) -> float:
        result, other = (x * y, np.exp(y)) if x.sum() > 0 else (np.sin(x), x * 2)
        return float((result**2).sum() + other.sum())

    x, y = random((3,), (3,))
    check(build, reference, [sign * np.abs(x), y])


def test_branches_in_loops() -> None:
    def build(x: Any, w: Any) -> Any:
        def step(carried: Any, part: Any) -> Any:
            new = ts.if_else(ts.sum(part) > 0, lambda: carried * w + part, lambda: ts.sin(carried) * part)
            return new, new

        last, outputs = ts.scan(step, w, x)
        return ts.sum(last) + ts.sum(ts.square(outputs))

    def reference(x: np.ndarray, w: np.ndarray) -> float:
        carried, loss = w, 0.0
        for part in x:
            carried = carried * w + part if part.sum() > 0 else np.sin(carried) * part
            loss += float((carried**2).sum())
        return loss + float(carried.sum())

    check(build, reference, random((6, 2), (2,)))


def test_gradients_of_gradients() -> None:
    def build(x: Any, w: Any) -> Any:
        last, outputs = ts.scan(lambda c, p: (ts.tanh(c * w + p), c * p), x[0], x)
        loss = ts.sum(ts.square(last)) + ts.sum(outputs)
        first = ts.gradients(loss, [x, w])
        return ts.sum(ts.sin(first[x])) + ts.sum(ts.square(first[w]))

    def first_gradients(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Back propagation by hand."""
        carried = [x[0]]
        for part in x:
            carried.append(np.tanh(carried[-1] * w + part))
        dx, dw = np.zeros_like(x), np.zeros_like(w)
        dc = 2 * carried[-1]
        for k in reversed(range(len(x))):
            dz = dc * (1 - carried[k + 1] ** 2)
            dx[k] += dz + carried[k]
            dw += dz * carried[k]
            dc = dz * w + x[k]
        dx[0] += dc
        return dx, dw

    def reference(x: np.ndarray, w: np.ndarray) -> float:
        dx, dw = first_gradients(x, w)
        return float(np.sin(dx).sum() + (dw**2).sum())

    check(build, reference, random((4, 3), (3,)))


def test_gradients_taken_inside_a_body() -> None:
    """Newton's method for cube roots: the derivative is a tensor of the body."""
    graph = ts.Graph()
    a = graph.placeholder((3,), dtype=ts.float64)

    def newton(_: Any, x: Any) -> Any:
        f = x * x * x - a
        return x - f / ts.gradients(ts.sum(f), [x])[x]

    root = ts.for_loop(40, newton, ts.full_like(a, 1.0, dtype=ts.float64))
    value = np.array([2.0, 10.0, 0.1])
    np.testing.assert_allclose(graph.run({a: value}, root), np.cbrt(value), rtol=1e-12)


def test_gradients_of_tensors_around_a_body_taken_inside() -> None:
    graph = ts.Graph()
    w = graph.placeholder((2,), dtype=ts.float64)

    def step(_: Any, total: Any) -> Any:
        loss = ts.sum(w * w * total)
        return total + 0.1 * ts.gradients(loss, [w])[w]

    result = ts.for_loop(3, step, graph.constant(np.ones(2)))
    value = np.array([0.5, -1.0])
    expected = np.ones(2)
    for _ in range(3):
        expected = expected + 0.1 * 2 * value * expected
    np.testing.assert_allclose(graph.run({w: value}, result), expected)


def test_lengths_known_only_at_run_time() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 2), dtype=ts.float64)
    last, _ = ts.scan(lambda c, p: (c * p, None), graph.constant(np.ones(2)), x)
    gradient = ts.gradients(ts.sum(last), [x])[x]
    for length in (1, 5, 3):
        (value,) = random((length, 2))
        expected = value.prod(axis=0) / value
        np.testing.assert_allclose(graph.run({x: value}, gradient), expected, rtol=1e-10)


def test_the_history_is_kept_only_for_gradients() -> None:
    graph = ts.Graph()
    x = graph.placeholder((64, 1024))
    last, _ = ts.scan(lambda c, p: (ts.sin(c + p), None), graph.constant(np.zeros(1024, np.float32)), x)
    plain = graph.compile([x], last).report().arena_bytes
    with_gradient = graph.compile([x], ts.gradients(ts.sum(last), [x])[x]).report().arena_bytes
    assert plain < 64 * 1024 * 4 <= with_gradient


def test_a_while_loop_says_why_it_has_no_gradient() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2,))
    last = ts.while_loop(lambda c: ts.sum(c) < 10, lambda c: c * 2, x)
    with pytest.raises(ValueError, match="number of its iterations is not known"):
        ts.gradients(ts.sum(last), [x])


def test_terms_that_are_used_many_times_are_summed_once() -> None:
    """2^40 paths lead to the captured matrix; what is the same in all iterations is not stacked."""
    graph = ts.Graph()
    w, p, still = (graph.placeholder((3, 3), dtype=ts.float64) for _ in range(3))
    values = [0.1 * v for v in random((3, 3), (3, 3), (3, 3))]

    def body(carried: ts.Tensor, _: object) -> tuple[ts.Tensor, None]:
        doubled = w
        for _ in range(40):
            doubled = doubled + doubled
        return ts.tanh(carried + p @ (doubled * 2.0**-40)) + still @ w * carried, None

    last, _ = ts.scan(body, p, length=3)
    gradient = ts.gradients(ts.sum(last), [w])[w]
    feeds = dict(zip((w, p, still), values, strict=True))

    def loss(matrix: np.ndarray) -> float:
        carried = values[1]
        for _ in range(3):
            carried = np.tanh(carried + values[1] @ matrix) + values[2] @ matrix * carried
        return float(carried.sum())

    expected = np.zeros((3, 3))
    for at in np.ndindex(3, 3):
        step = np.zeros((3, 3))
        step[at] = 1e-6
        expected[at] = (loss(values[0] + step) - loss(values[0] - step)) / 2e-6
    np.testing.assert_allclose(graph.run(feeds, gradient), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("length", [3, "n", -1])
@pytest.mark.parametrize("scale", [1.0, 0.9])
def test_scans_that_are_linear_in_everything(length: int | str, scale: float) -> None:
    """Their gradient needs no history and no sequence, but a length."""
    graph = ts.Graph()
    parts = graph.placeholder((length, 2), dtype=ts.float64)
    last, _ = ts.scan(lambda c, x: (scale * c + 0.1 * x, None), graph.constant(np.zeros(2)), parts)
    slope = ts.gradients(ts.sum(last), [parts])[parts]
    (result,) = graph.run({parts: np.ones((3, 2))}, [slope])
    expected = 0.1 * scale ** np.array([[2.0], [1.0], [0.0]]) * np.ones(2)
    np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("loop", ["while_loop", "for_loop"])
def test_stop_gradient_cuts_the_path_to_a_loop_without_gradient(loop: str) -> None:
    graph = ts.Graph()
    x = graph.placeholder((2,), dtype=ts.float64)
    start = ts.stop_gradient(ts.sum(x))
    if loop == "while_loop":
        n = ts.while_loop(lambda v: v < 10.0, lambda v: v + 1.0, start)
    else:
        n = ts.for_loop(graph.constant(7, dtype=ts.int32), lambda i, v: v + 1.0, start)
    (slope,) = graph.run({x: [1.0, 2.0]}, [ts.gradients(ts.sum(n * x), [x])[x]])
    np.testing.assert_array_equal(slope, [10.0, 10.0])
