"""What the compiler does about work in loops: what is the same in all iterations is computed once, in front of the
loop, and gradients read what the loop itself has computed, where computing it again would take longer.

Where things are computed is read off the report; values come from NumPy loops in float64 and central differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from test_control_gradients import differences

SCALE = 0.3


def places(exe: ts.Executable, operation: str) -> list[int]:
    """For each kernel with such an operation: in how many loops and branches it lies."""
    regions = exe.report().regions
    bodies = ("scan", "while_loop", "if_else")
    around = [region["name"] for region in regions if region["operations"][0].split()[0] in bodies]
    return sorted(
        sum(region["name"].startswith(name + "_") for name in around)
        for region in regions
        for described in region["operations"]
        if described.split()[0] == operation
    )


def random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(11)
    return [SCALE * rng.standard_normal(shape) for shape in shapes]


def check_gradients(loss: Any, reference: Any, values: dict[Any, np.ndarray]) -> ts.Executable:
    """Against central differences of `reference`, on placeholders for the values; gives what computed them."""
    inputs = list(values)
    gradients = ts.gradients(loss, inputs)
    exe: ts.Executable = loss.graph.compile(inputs, [loss, *(gradients[x] for x in inputs)])
    got_loss, *got = exe.run([values[x] for x in inputs])
    np.testing.assert_allclose(float(np.asarray(got_loss)), reference(*values.values()), rtol=1e-11)
    for value, expected in zip(got, differences(reference, list(values.values())), strict=True):
        np.testing.assert_allclose(np.asarray(value), expected, rtol=3e-6, atol=1e-8)
    return exe


# --- What is the same in all iterations.


@pytest.mark.parametrize("length", [0, 1, 4])
def test_what_stays_the_same_is_computed_once(length: int) -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 5), dtype=ts.float64)
    w, b = (graph.placeholder(shape, dtype=ts.float64) for shape in ((5, 5), (5,)))

    def step(c: Any, part: Any) -> Any:
        return ts.tanh(c @ ts.exp(w) + part * ts.sum(w @ w, axis=0)), c * ts.sinh(b)

    last, rows = ts.scan(step, b, x)
    (xv, wv, bv) = random((length, 5), (5, 5), (5,))
    exe = graph.compile([x, w, b], [last, rows])
    got = exe.run([xv, wv, bv])
    c, expected = bv, []
    for part in xv:
        expected.append(c * np.sinh(bv))
        c = np.tanh(c @ np.exp(wv) + part * (wv @ wv).sum(axis=0))
    np.testing.assert_allclose(np.asarray(got[0]), c, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(got[1]), np.reshape(expected, (length, 5)), rtol=1e-12)
    assert places(exe, "exp") == places(exe, "sinh") == places(exe, "sum") == [0]
    assert places(exe, "matmul") == [0, 1]
    assert places(exe, "tanh") == [1]


def test_it_leaves_as_many_loops_as_it_can() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder((3, 4), dtype=ts.float64), graph.placeholder((4,), dtype=ts.float64)

    def outer(total: Any, row: Any) -> Any:
        def inner(j: Any, c: Any) -> Any:
            return ts.tanh(c * ts.exp(w) + ts.sin(row) + ts.cos(c))

        return total + ts.for_loop(3, inner, row), None

    total, _ = ts.scan(outer, w, x)
    (xv, wv) = random((3, 4), (4,))
    exe = graph.compile([x, w], total)
    expected = wv
    for row in xv:
        c = row
        for _ in range(3):
            c = np.tanh(c * np.exp(wv) + np.sin(row) + np.cos(c))
        expected = expected + c
    np.testing.assert_allclose(np.asarray(exe.run([xv, wv])), expected, rtol=1e-12)
    assert [places(exe, name) for name in ("exp", "sin", "cos")] == [[0], [1], [2]]


def test_conditions_of_while_loops_too() -> None:
    graph = ts.Graph()
    x, limit = graph.placeholder((4,), dtype=ts.float64), graph.placeholder((4, 4), dtype=ts.float64)
    result = ts.while_loop(
        lambda c: ts.sum(c) < ts.sum(ts.exp(limit) @ limit), lambda c: c + ts.cosh(x) + ts.sum(ts.exp(limit)), x
    )
    exe = graph.compile([x, limit], result)
    (xv,) = random((4,))
    for size, runs in ((2.0, True), (-2.0, False)):
        lv = np.full((4, 4), size)
        expected = xv
        while expected.sum() < (np.exp(lv) @ lv).sum():
            assert runs
            expected = expected + np.cosh(xv) + np.exp(lv).sum()
        np.testing.assert_allclose(np.asarray(exe.run([xv, lv])), expected, rtol=1e-12)
    assert places(exe, "matmul") == places(exe, "cosh") == places(exe, "exp") == [0]


def test_nothing_leaves_a_branch() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder((3, 4), dtype=ts.float64), graph.placeholder((4,), dtype=ts.float64)

    def step(c: Any, part: Any) -> Any:
        return ts.if_else(ts.sum(part) > 0, lambda: c + ts.exp(w), lambda: c * 0.5), None

    last, _ = ts.scan(step, w, x)
    exe = graph.compile([x, w], last)
    (xv, wv) = random((3, 4), (4,))
    expected = wv
    for part in xv:
        expected = expected + np.exp(wv) if part.sum() > 0 else 0.5 * expected
    np.testing.assert_allclose(np.asarray(exe.run([xv, wv])), expected, rtol=1e-12)
    assert places(exe, "exp") == [2]


def test_loops_that_never_run_do_no_harm() -> None:
    """In front of them: a division by zero, indices out of range, and a loop that would not end."""
    graph = ts.Graph()
    x = graph.placeholder((-1, 6), dtype=ts.int32)
    zero, index = graph.placeholder((6,), dtype=ts.int32), graph.placeholder((6,), dtype=ts.int32)

    def step(c: Any, part: Any) -> Any:
        endless = ts.while_loop(lambda v: ts.sum(v) > 0, lambda v: v + 0, zero + 1)
        return c // zero + c % zero + index // zero + ts.gather(index, index * 1000000007) + part + endless, None

    first = graph.placeholder((6,), dtype=ts.int32)
    last, _ = ts.scan(step, first, x)
    value = np.arange(6, dtype=np.int32)
    feeds = {x: np.zeros((0, 6), np.int32), zero: np.zeros(6, np.int32), index: value - 3, first: value}
    np.testing.assert_array_equal(graph.run(feeds, last), value)

    never = ts.while_loop(lambda v: ts.any(ts.equal(zero, 1)), lambda v: v // zero + ts.gather(index, index * 7), first)
    del feeds[x]
    np.testing.assert_array_equal(graph.run(feeds, never), value)


def test_cheap_and_growing_operations_stay_where_they_are_read() -> None:
    graph = ts.Graph()
    b = graph.placeholder((64,))
    x = graph.placeholder((8, 256, 64))
    _, rows = ts.scan(lambda c, part: (None, part * (ts.broadcast_to(b, (256, 64)) * part[0, 0])), None, x)
    exe = graph.compile([x, b], rows)
    assert len(exe.report().regions) == 2  # the loop, and its kernel


def test_random_numbers_of_one_state_are_drawn_once() -> None:
    graph = ts.Graph()
    state = ts.random_state(seed=3, graph=graph)
    x = graph.placeholder((4, 7))
    _, rows = ts.scan(lambda c, part: (None, part + ts.random_normal((7,), state=state)[0]), None, x)
    once = ts.random_normal((7,), state=state)[0]
    exe = graph.compile([x], [rows, once])
    got, noise = exe.run([np.zeros((4, 7), np.float32)])
    np.testing.assert_array_equal(np.asarray(got), np.tile(np.asarray(noise), (4, 1)))


# --- What gradients read instead of computing it again.


@pytest.mark.parametrize("reverse", [False, True])
def test_products_are_not_computed_again(reverse: bool) -> None:
    graph = ts.Graph()
    x, h, w, v = (graph.placeholder(s, dtype=ts.float64) for s in ((4, 2, 48), (2, 48), (48, 48), (48, 48)))

    def step(c: Any, part: Any) -> Any:
        hidden = ts.tanh(c @ w + part)
        return ts.sin(hidden @ v) * c, hidden

    last, rows = ts.scan(step, h, x, reverse=reverse)

    def reference(x: np.ndarray, h: np.ndarray, w: np.ndarray, v: np.ndarray) -> float:
        total = 0.0
        for part in x[::-1] if reverse else x:
            hidden = np.tanh(h @ w + part)
            total += float((hidden**2).sum())
            h = np.sin(hidden @ v) * h
        return total + float(h.sum())

    values = dict(zip((x, h, w, v), random((4, 2, 48), (2, 48), (48, 48), (48, 48)), strict=True))
    gradients = ts.gradients(ts.sum(last) + ts.sum(ts.square(rows)), list(values))
    exe = graph.compile(list(values), [gradients[t] for t in values])
    # Two products forwards, two backwards for what is carried, and two behind the loops for the matrices.
    assert places(exe, "matmul") == [0, 0, 1, 1, 1, 1]
    got = [np.asarray(g) for g in exe.run(list(values.values()))]
    rng = np.random.default_rng(5)
    for k, value in enumerate(values.values()):  # derivatives along a direction
        direction = rng.standard_normal(value.shape)
        moved = [[u + s * 1e-6 * direction if k == j else u for j, u in enumerate(values.values())] for s in (1, -1)]
        expected = (reference(*moved[0]) - reference(*moved[1])) / 2e-6
        np.testing.assert_allclose((got[k] * direction).sum(), expected, rtol=1e-6)


def test_cheap_values_are_computed_again() -> None:
    graph = ts.Graph()
    x = graph.placeholder((16, 1024))
    last, _ = ts.scan(lambda c, p: (ts.tanh(c * p) * p, None), x[0], x)
    exe = graph.compile([x], ts.gradients(ts.sum(last), [x])[x])
    assert places(exe, "tanh") == [1, 1]


@pytest.mark.parametrize(("columns", "kept"), [(128, True), (512, False)])
def test_what_is_kept_stays_in_proportion(columns: int, kept: bool) -> None:
    """Of rows that are 16 times as long as those that are carried, nothing is kept."""
    graph = ts.Graph()
    first, w, v = (graph.placeholder(shape) for shape in ((8, 32), (32, columns), (columns, 32)))
    last, _ = ts.scan(lambda c, _: (ts.tanh(c @ w) @ v, None), first, length=100)
    exe = graph.compile([first, w, v], ts.gradients(ts.sum(last), [first])[first])
    assert places(exe, "tanh") == ([1] if kept else [1, 1])
    assert places(exe, "matmul") == ([1] * 4 if kept else [1] * 5)
    stack = 100 * 8 * columns * 4
    assert (exe.report().arena_bytes > stack) == kept


def test_loops_in_loops_recall_each_other() -> None:
    graph = ts.Graph()
    shapes = ((3, 2, 5), (2, 5), (5, 5))
    x, h, w = (graph.placeholder(s, dtype=ts.float64) for s in shapes)

    def outer(total: Any, part: Any) -> Any:
        def inner(c: Any, row: Any) -> Any:
            return ts.tanh(c @ w + row), c * row

        c, rows = ts.scan(inner, total[0], part)
        return total + c, rows

    total, rows = ts.scan(outer, h, x)
    loss = ts.sum(ts.square(total)) + ts.sum(rows)

    def reference(x: np.ndarray, h: np.ndarray, w: np.ndarray) -> float:
        loss = 0.0
        for part in x:
            c = h[0]
            for row in part:
                loss += float((c * row).sum())
                c = np.tanh(c @ w + row)
            h = h + c
        return loss + float((h**2).sum())

    check_gradients(loss, reference, dict(zip((x, h, w), random(*shapes), strict=True)))


def test_gradients_of_gradients() -> None:
    """Of a product whose derivative is known: d/dw of |d/dh sum((h w)^k)|."""
    graph = ts.Graph()
    h, w = graph.placeholder((1, 40), dtype=ts.float64), graph.placeholder((40, 40), dtype=ts.float64)
    last, _ = ts.scan(lambda c, _: (ts.sin(c @ w), None), h, length=3)
    by_h = ts.gradients(ts.sum(last), [h])[h]
    loss = ts.sum(ts.square(by_h))
    by_w = ts.gradients(loss, [w])[w]
    (hv, wv) = random((1, 40), (40, 40))

    def reference(w: np.ndarray) -> float:
        carried = [hv]
        for _ in range(3):
            carried.append(np.sin(carried[-1] @ w))
        slope = np.ones((1, 40))
        for k in (2, 1, 0):
            slope = (slope * np.cos(carried[k] @ w)) @ w.T
        return float((slope**2).sum())

    got_loss, got = graph.run({h: hv, w: wv}, [loss, by_w])
    np.testing.assert_allclose(float(np.asarray(got_loss)), reference(wv), rtol=1e-11)
    direction = np.random.default_rng(1).standard_normal((40, 40))
    expected = (reference(wv + 1e-6 * direction) - reference(wv - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose((np.asarray(got) * direction).sum(), expected, rtol=1e-6)


def test_random_numbers_are_the_same_in_the_gradient() -> None:
    graph = ts.Graph(seed=7)
    x = graph.placeholder((32,), dtype=ts.float64)

    def step(c: Any, _: Any) -> Any:
        return c * ts.random_normal((32,), dtype=ts.float64, graph=graph)[0], None

    last, _ = ts.scan(step, x, length=5)
    slope = ts.gradients(ts.sum(last), [x])[x]
    (value,) = random((32,))
    got, slopes = graph.run({x: value}, [last, slope])
    np.testing.assert_allclose(np.asarray(got), np.asarray(slopes) * value, rtol=1e-12)


def test_an_open_length_and_batch() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("time", "batch", 48), dtype=ts.float64)
    w = graph.placeholder((48, 48), dtype=ts.float64)
    last, _ = ts.scan(lambda c, p: (ts.tanh(c @ w + p), None), x[0], x)
    slope = ts.gradients(ts.sum(last), [w])[w]
    exe = graph.compile([x, w], slope)
    for shape in ((3, 2, 48), (1, 2, 48), (5, 7, 48), (5, 1, 48), (0, 3, 48)):
        (xv, wv) = random((max(shape[0], 1), *shape[1:]), (48, 48))
        got = np.asarray(exe.run([xv, wv]))
        carried = [xv[0]]
        for part in xv:
            carried.append(np.tanh(carried[-1] @ wv + part))
        expected, dc = np.zeros((48, 48)), np.ones(shape[1:])
        for k in reversed(range(len(xv))):
            dz = dc * (1 - carried[k + 1] ** 2)
            expected += carried[k].T @ dz
            dc = dz @ wv.T
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-13)
    assert places(exe, "matmul") == [0, 1, 1]


# --- Factors of products are packed in front of loops.


def launches(exe: ts.Executable, inputs: list[np.ndarray]) -> tuple[list[int], list[int]]:
    """How often the kernels that pack factors of products run, and those that multiply."""
    kernels = [k for k in exe.profile(inputs, runs=1).kernels if k["operations"][0].startswith("matmul")]
    return (
        sorted(k["launches"] for k in kernels if k["flops"] == 0),
        sorted(k["launches"] for k in kernels if k["flops"] > 0),
    )


@pytest.mark.parametrize("length", [0, 1, 6])
def test_factors_are_packed_once(length: int) -> None:
    """On either side, turned, and with something stitched to them; in each run anew."""
    graph = ts.Graph()
    shapes = ((length, 30, 70), (30, 70), (70, 70), (70, 70), (30, 30))
    x = graph.placeholder((-1, 30, 70), dtype=ts.float64)
    h, w, v, u = (graph.placeholder(s, dtype=ts.float64) for s in shapes[1:])

    def step(c: Any, part: Any) -> Any:
        return ts.tanh(u @ (c @ ts.transpose(w)) + part @ (v * 0.5)), c

    last, rows = ts.scan(step, h, x)
    exe = graph.compile([x, h, w, v, u], [last, rows])
    xv, hv, wv, vv, uv = random(*shapes)
    for _ in range(2):
        got, got_rows = exe.run([xv, hv, wv, vv, uv])
        c, expected = hv, []
        for part in xv:
            expected.append(c)
            c = np.tanh(uv @ (c @ wv.T) + part @ (0.5 * vv))
        np.testing.assert_allclose(np.asarray(got), c, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(np.asarray(got_rows).ravel(), np.ravel(expected), rtol=1e-11, atol=1e-13)
        wv, vv, uv = wv + 0.01, vv - 0.01, uv * 1.5
    packed, multiplied = launches(exe, [xv, hv, wv, vv, uv])
    assert packed == [1, 1, 1]
    assert multiplied == [length] * 3 or length == 0


@pytest.mark.parametrize("bounded", [True, False])
def test_factors_are_packed_in_front_of_the_outermost_loop(bounded: bool) -> None:
    """What is the same in the inner loop only is packed in each iteration of the outer one."""
    graph = ts.Graph()
    shapes = ((5, 64, 64), (40, 64), (64, 64))
    x, h, w = (graph.placeholder(s, dtype=ts.float64) for s in shapes)

    def outer(c: Any, part: Any) -> Any:
        def inner(i: Any, c: Any) -> Any:
            return ts.tanh(c @ w @ part + ts.cast(i, dtype=ts.float64))

        if bounded:
            return ts.for_loop(3, inner, c), None
        first = (graph.constant(0, dtype=ts.int32), c)
        return ts.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, inner(*s)), first)[1], None

    exe = graph.compile([x, h, w], ts.scan(outer, h, x)[0])
    xv, hv, wv = (0.3 * value for value in random(*shapes))  # so that rounding errors do not grow
    c = hv
    for part in xv:
        for i in range(3):
            c = np.tanh(c @ wv @ part + i)
    np.testing.assert_allclose(np.asarray(exe.run([xv, hv, wv])), c, rtol=1e-10, atol=1e-13)
    assert launches(exe, [xv, hv, wv]) == ([1, 5], [15, 15])


def test_nothing_is_packed_in_front_of_a_branch() -> None:
    graph = ts.Graph()
    shapes = ((6, 40, 64), (40, 64), (64, 64))
    x, h, w = (graph.placeholder(s, dtype=ts.float64) for s in shapes)

    def step(c: Any, part: Any) -> Any:
        return ts.if_else(ts.sum(part) > 0, lambda: ts.tanh(c @ w + part), lambda: ts.sin(c)), None

    exe = graph.compile([x, h, w], ts.scan(step, h, x)[0])
    xv, hv, wv = random(*shapes)
    for sign in (1, -1):
        values = sign * np.abs(xv)
        c = hv
        for part in values:
            c = np.tanh(c @ wv + part) if part.sum() > 0 else np.sin(c)
        np.testing.assert_allclose(np.asarray(exe.run([values, hv, wv])), c, rtol=1e-10, atol=1e-13)
    assert launches(exe, [-np.abs(xv), hv, wv]) == ([], [])


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 17, 23])
@pytest.mark.parametrize("turned", [False, True])
def test_few_rows_times_a_weight(rows: int, turned: bool) -> None:
    """From four rows on it is packed, which pays only because that is done once."""
    graph = ts.Graph()
    shapes = ((7, rows, 96), (rows, 96), (96, 96))
    x, h, w = (graph.placeholder(s, dtype=ts.float64) for s in shapes)
    last, _ = ts.scan(lambda c, p: (ts.tanh(c @ (ts.transpose(w) if turned else w) + p), None), h, x)
    exe = graph.compile([x, h, w], last)
    xv, hv, wv = (0.3 * value for value in random(*shapes))
    c = hv
    for part in xv:
        c = np.tanh(c @ (wv.T if turned else wv) + part)
    np.testing.assert_allclose(np.asarray(exe.run([xv, hv, wv])), c, rtol=1e-11, atol=1e-14)
    assert launches(exe, [xv, hv, wv]) == ([1] if rows >= 4 else [], [7])
