"""Branches and loops: values, state, dynamic sizes, caching, text and files, threads of control, errors.

Expected values come from NumPy loops in float64; gradients are in test_control_gradients.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import PRELUDE, run_child


def run(target: Any, feeds: dict[Any, Any] | None = None, **options: Any) -> Any:
    """The values of one target or a list of them."""
    leaf = target[0] if isinstance(target, (list, tuple)) else target
    return leaf.graph.run(feeds or {}, target, **options)


def zeros_like(tensor: Any) -> Any:
    return ts.full_like(tensor, 0, dtype=tensor.dtype)


OPTIONS = [{}, {"stitch": False}, {"threads": 1}, {"interpret": True}]


@pytest.mark.parametrize("options", OPTIONS)
def test_while_loop_counts_the_steps_of_a_collatz_sequence(options: dict[str, Any]) -> None:
    graph = ts.Graph()
    start = graph.placeholder((), dtype=ts.int64)

    def step(carried: Any) -> Any:
        value, count = carried
        even = ts.equal(value % 2, 0)
        return ts.where(even, value // 2, 3 * value + 1), count + 1

    _, steps = ts.while_loop(lambda carried: carried[0] > 1, step, (start, graph.constant(0, dtype=ts.int32)))
    for number, expected in [(27, 111), (1, 0), (6, 8), (97, 118)]:
        assert int(run(steps, {start: np.int64(number)}, **options)) == expected


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_stacks_outputs_and_carries_state(options: dict[str, Any], reverse: bool) -> None:
    rng = np.random.default_rng(1)
    x_value = rng.standard_normal((7, 3, 5)).astype(np.float32)
    w_value = rng.standard_normal((5, 5)).astype(np.float32)
    graph = ts.Graph()
    x = graph.placeholder((-1, 3, 5))
    w = graph.variable(w_value, name="w")

    def step(hidden: Any, part: Any) -> Any:
        new = ts.tanh(hidden @ w + part)
        return new, {"double": 2 * new, "old": hidden}

    last, stacked = ts.scan(step, graph.constant(np.zeros((3, 5), np.float32)), x, reverse=reverse)
    values = run([last, stacked["double"], stacked["old"]], {x: x_value}, **options)

    hidden = np.zeros((3, 5))
    double, old = np.zeros((7, 3, 5)), np.zeros((7, 3, 5))
    for k in reversed(range(7)) if reverse else range(7):
        old[k] = hidden
        hidden = np.tanh(hidden @ w_value.astype(np.float64) + x_value[k])
        double[k] = 2 * hidden
    for value, expected in zip(values, [hidden, double, old], strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


def test_carried_tensors_may_trade_places() -> None:
    graph = ts.Graph()
    a = graph.placeholder((4,), dtype=ts.int64)
    b = graph.placeholder((4,), dtype=ts.int64)
    pair = ts.for_loop(10, lambda _, carried: (carried[1], carried[0] + carried[1]), (a, b))
    swapped = ts.for_loop(3, lambda _, carried: (carried[1], carried[0]), (a, b))
    values = run([*pair, *swapped], {a: np.zeros(4, np.int64), b: np.ones(4, np.int64)})
    assert [int(value[0]) for value in values] == [55, 89, 1, 0]


def test_the_index_counts_in_a_for_loop() -> None:
    graph = ts.Graph()
    zero = graph.constant(0, dtype=ts.int32)
    for count, expected in [(5, 10), (0, 0), ((2, 11, 3), 2 + 5 + 8), ((4, 2), 0), ((-3, 2), -5)]:
        total = ts.for_loop(count, lambda index, total: total + index, zero)
        assert int(run(total)) == expected


def test_a_for_loop_to_a_tensor_runs_as_often_as_it_says() -> None:
    graph = ts.Graph()
    n = graph.placeholder((), dtype=ts.int32)
    total = ts.for_loop(n, lambda index, total: total + index * index, graph.constant(0, dtype=ts.int32))
    stepped = ts.for_loop((1, n, 4), lambda index, total: total + index, graph.constant(0, dtype=ts.int32))
    for count in (0, 1, 10, 1000):
        values = run([total, stepped], {n: np.int32(count)})
        assert [int(v) for v in values] == [sum(k * k for k in range(count)), sum(range(1, count, 4))]


@pytest.mark.parametrize("options", OPTIONS)
def test_if_else_takes_one_branch(options: dict[str, Any]) -> None:
    graph = ts.Graph()
    p = graph.placeholder((), dtype=ts.bool_)
    x = graph.placeholder((-1, 4))
    outside = x * 3
    first, second = ts.if_else(
        p, lambda: (outside + 1, ts.sum(x, axis=0)), lambda: (x - 1, graph.constant(np.zeros(4, np.float32)))
    )
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    a, b = run([first, second], {p: np.bool_(True), x: value}, **options)
    np.testing.assert_array_equal(a, value * 3 + 1)
    np.testing.assert_array_equal(b, value.sum(axis=0))
    a, b = run([first, second], {p: np.bool_(False), x: value}, **options)
    np.testing.assert_array_equal(a, value - 1)
    np.testing.assert_array_equal(b, np.zeros(4))


def test_the_other_branch_is_not_computed() -> None:
    graph = ts.Graph()
    p = graph.placeholder((), dtype=ts.bool_)

    def never() -> Any:
        return ts.while_loop(lambda i: i >= 0, lambda i: i * 0, graph.constant(1, dtype=ts.int32))

    result = ts.if_else(p, lambda: graph.constant(5, dtype=ts.int32), never)
    assert int(run(result, {p: np.bool_(True)})) == 5  # the other branch never ends


def test_loops_lie_in_loops_and_branches() -> None:
    graph = ts.Graph()
    x = graph.placeholder((3,), dtype=ts.float64)

    def outer(i: Any, total: Any) -> Any:
        def inner(j: Any, part: Any) -> Any:
            odd = ts.equal(j % 2, 1)
            return ts.if_else(odd, lambda: part + x * ts.cast(i * j, dtype=ts.float64), lambda: part - x)

        return total + ts.for_loop(4, inner, zeros_like(x))

    result = ts.for_loop(3, outer, graph.constant(np.zeros(3)))
    value = np.array([1.0, -2.0, 0.5])
    expected = sum((i * j) * value if j % 2 else -value for i in range(3) for j in range(4))
    np.testing.assert_allclose(run(result, {x: value}), expected)


def test_a_stacked_loop_in_a_stacked_loop() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1, 2), dtype=ts.float64)

    def outer(total: Any, plane: Any) -> Any:
        last, rows = ts.scan(lambda t, row: (t + row, t * row), total, plane)
        return last, rows

    last, rows = ts.scan(outer, graph.constant(np.ones(2)), x)
    value = np.random.default_rng(3).standard_normal((3, 4, 2))
    total, expected = np.ones(2), np.zeros((3, 4, 2))
    for i in range(3):
        for j in range(4):
            expected[i, j] = total * value[i, j]
            total = total + value[i, j]
    got_last, got_rows = run([last, rows], {x: value})
    np.testing.assert_allclose(got_last, total)
    np.testing.assert_allclose(got_rows, expected)


def test_loops_of_no_iterations_give_what_they_start_with() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 2))
    last, outputs = ts.scan(lambda c, p: (c + p, c), graph.constant(np.ones(2, np.float32)), x)
    never = ts.while_loop(lambda c: c[0] < 0, lambda c: (c[0], c[1] * 2), (graph.constant(1.0), x))
    value = np.full((3, 2), 5, np.float32)
    np.testing.assert_array_equal(run(never[1], {x: value}), value)
    a, b = run([last, outputs], {x: np.zeros((0, 2), np.float32)})
    np.testing.assert_array_equal(a, np.ones(2))
    assert b.shape == (0, 2)


def test_an_unseen_length_compiles_nothing() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("time", "batch", 3))
    last, outputs = ts.scan(lambda c, p: (ts.tanh(c + p), c), zeros_like(ts.sum(x, axis=0)), x)
    run([last, outputs], {x: np.zeros((5, 7, 3), np.float32)})
    before = ts.cache_statistics()["kernels"]["compiled"]
    rng = np.random.default_rng(2)
    for length, batch in [(11, 9), (40, 2), (3, 31)]:
        value = rng.standard_normal((length, batch, 3)).astype(np.float32)
        got, stacked = run([last, outputs], {x: value})
        carried = np.zeros((batch, 3))
        for k in range(length):
            np.testing.assert_allclose(stacked[k], carried, rtol=1e-4, atol=1e-5)
            carried = np.tanh(carried + value[k])
        np.testing.assert_allclose(got, carried, rtol=1e-4, atol=1e-5)
    assert ts.cache_statistics()["kernels"]["compiled"] == before


def test_sequences_may_have_any_strides() -> None:
    graph = ts.Graph()
    x = graph.placeholder((4, 3))
    total, rows = ts.scan(lambda c, p: (c + p, c * p), graph.constant(np.zeros(3, np.float32)), x)
    value = np.arange(24, dtype=np.float32).reshape(3, 8).T[::-2]
    got_total, got_rows = run([total, rows], {x: value})
    np.testing.assert_array_equal(got_total, value.sum(axis=0))
    np.testing.assert_array_equal(got_rows, (np.cumsum(value, axis=0) - value) * value)


def test_variables_are_updated_by_what_a_loop_gives() -> None:
    graph = ts.Graph()
    state = graph.variable(np.arange(3, dtype=np.float32), name="state")
    new = ts.for_loop(4, lambda _, carried: carried * 2, state)
    step = graph.assign(state, new)
    first = graph.run({}, [state, new], [step])
    np.testing.assert_array_equal(first[0], [0, 1, 2])
    np.testing.assert_array_equal(first[1], [0, 16, 32])
    graph.run({}, [], [step])
    np.testing.assert_array_equal(graph.variable_value(state), [0, 256, 512])


@pytest.mark.parametrize("dtype", [ts.bool_, ts.uint8, ts.int64, ts.float16, ts.bfloat16, ts.float64, ts.complex64])
def test_tensors_of_every_kind_are_carried_and_stacked(dtype: Any) -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 5), dtype=dtype)
    last, outputs = ts.scan(lambda c, p: (p, c), zeros_like(x[0]), x)
    value = ts.NDArray(np.arange(15).reshape(3, 5) % 7, dtype=dtype)
    got_last, got = run([last, outputs], {x: value})
    reference = np.asarray(value)
    np.testing.assert_array_equal(np.asarray(got_last), reference[-1])
    np.testing.assert_array_equal(np.asarray(got)[1:], reference[:-1])


def test_constants_of_the_graph_around_are_constants_inside() -> None:
    graph = ts.Graph()
    table = graph.constant(np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32))
    start = graph.placeholder((), dtype=ts.int32)

    def step(index: Any, _: Any) -> Any:
        row = ts.squeeze(
            ts.gather_along_axis(table, ts.broadcast_to(ts.reshape(index, (1, 1)), (1, 4)), axis=0), axis=0
        )
        return ts.cast(ts.argmax(row, axis=0), dtype=ts.int32) + index, row

    last, rows = ts.scan(step, start, length=3)
    got_last, got_rows = run([last, rows], {start: np.int32(2)})
    values = np.asarray(table.operation.attributes["value"])
    index = 2
    for k in range(3):
        np.testing.assert_array_equal(got_rows[k], values[index])
        index += int(values[index].argmax())
    assert int(got_last) == index


# --- Text, hashes, files, reports.


def example_graph() -> tuple[Any, Any, Any]:
    graph = ts.Graph()
    x = graph.placeholder(("time", 3), name="x")
    big = graph.constant(np.linspace(0, 1, 60, dtype=np.float32).reshape(20, 3), name="big")

    def step(carried: Any, part: Any) -> Any:
        new = ts.if_else(
            carried[0][0] > 0.5, lambda: part + ts.sum(big, axis=0), lambda: part * np.arange(3, dtype=np.float32)
        )
        return (new, carried[1] + 1), new

    (last, count), outputs = ts.scan(step, (zeros_like(x[0]), graph.constant(0, dtype=ts.int32)), x, name="walk")
    limit = ts.while_loop(lambda v: v < 100, lambda v: v * 3, graph.constant(2.0))
    return graph, x, [last, count, outputs, limit]


def test_text_is_read_back_as_it_is() -> None:
    graph, x, targets = example_graph()
    text = str(graph)
    assert "function(" in text
    assert "returns(" in text
    again = ts.Graph.parse(text)
    assert str(again) == text
    assert again.structural_hash() == graph.structural_hash()
    again.verify()
    value = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)
    expected = graph.run({x: value}, targets)
    operations = graph.operations
    same = []
    for target in targets:
        place = operations.index(target.operation)
        same.append(again.operations[place].outputs[target.operation.outputs.index(target)])
    for a, b in zip(again.run({again.placeholders[0]: value}, same), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_different_body_is_a_different_graph() -> None:
    def graph_with(factor: float) -> Any:
        graph = ts.Graph()
        x = graph.placeholder((3,))
        ts.for_loop(4, lambda _, c: c * factor, x)
        return graph

    assert graph_with(2).structural_hash() == graph_with(2).structural_hash()
    assert graph_with(2).structural_hash() != graph_with(3).structural_hash()


def test_graphs_and_executables_are_saved_and_loaded(tmp_path: Any) -> None:
    graph, x, targets = example_graph()
    value = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)
    expected = graph.run({x: value}, targets)
    graph.save(tmp_path / "graph.safetensors")
    loaded = ts.Graph.load(tmp_path / "graph.safetensors")
    assert loaded.structural_hash() == graph.structural_hash()
    executable = graph.compile([x], targets)
    executable.save(tmp_path / "executable.safetensors")
    again = ts.Executable.load(tmp_path / "executable.safetensors")
    for a, b in zip(again.run([value]), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_reports_and_profiles_show_loops() -> None:
    graph, x, targets = example_graph()
    executable = graph.compile([x], targets)
    value = np.zeros((6, 3), np.float32)
    executable.run([value])
    text = str(executable.report())
    for part in ("scan 'walk'", "while", "either the kernels"):
        assert part in text
    profile = executable.profile([value], runs=3)
    assert max(kernel["launches"] for kernel in profile.kernels) == 6
    assert "launches" in str(profile)


def test_equal_graphs_share_a_program() -> None:
    first, x, targets = example_graph()
    value = np.zeros((6, 3), np.float32)
    first.run({x: value}, targets)
    before = ts.cache_statistics()["kernels"]["compiled"]
    second, y, others = example_graph()
    second.run({y: value}, others)
    assert ts.cache_statistics()["kernels"]["compiled"] == before


# --- Interruption.


def test_ctrl_c_ends_an_endless_loop() -> None:
    script = (
        PRELUDE
        + """
endless = ts.while_loop(lambda n: n >= 0, lambda n: n * 0 + 1, graph.constant(1, dtype=ts.int32))
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    graph.run({}, endless)
except KeyboardInterrupt:
    print("interrupted")
print(float(graph.run({x: four}, double)[3]))
"""
    )
    assert run_child(script).split() == ["interrupted", "6.0"]


def test_a_loop_may_have_2147483647_iterations_at_most() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2,))
    result = ts.for_loop(2**31, lambda _, c: c + 1, x)
    with pytest.raises(ValueError, match="2147483647"):
        run(result, {x: np.zeros(2, np.float32)})


# --- Errors.


def make() -> tuple[Any, Any]:
    graph = ts.Graph()
    return graph, graph.placeholder((3,), name="x")


def test_errors_of_bodies_name_the_mistake_and_the_line() -> None:
    graph, x = make()
    with pytest.raises(TypeError, match=r"carried tensor 0 is float32\(3,\).*int32.*cast.*test_control_flow.py"):
        ts.for_loop(3, lambda _, c: ts.cast(c, dtype=ts.int32), x)
    with pytest.raises(ValueError, match=r"keep its dtype and shape"):
        ts.for_loop(3, lambda _, c: ts.concat([c, c], axis=0), x)
    with pytest.raises(TypeError, match="condition must be a bool"):
        ts.while_loop(lambda c: c[0], lambda c: c, x)
    with pytest.raises(ValueError, match="condition must be a scalar"):
        ts.while_loop(lambda c: c > 0, lambda c: c, x)
    with pytest.raises(TypeError, match="scalar bool tensor"):
        ts.while_loop(lambda c: True, lambda c: c, x)
    with pytest.raises(ValueError, match="same structure"):
        ts.for_loop(3, lambda _, c: (c, c), x)
    with pytest.raises(TypeError, match="must return a pair"):
        ts.scan(lambda c, p: c, x, x)
    with pytest.raises(ValueError, match="number of iterations must be given"):
        ts.scan(lambda c, p: (c, None), x)
    with pytest.raises(ValueError, match="first axes of all sequences must agree"):
        ts.scan(lambda c, p: (c, None), x, (x, graph.placeholder((4, 2))))
    with pytest.raises(ValueError, match="no axis to go along"):
        ts.scan(lambda c, p: (c, None), x, ts.sum(x))
    with pytest.raises(ValueError, match="same dtypes and shapes"):
        ts.if_else(ts.sum(x) > 0, lambda: x, lambda: ts.sum(x))
    with pytest.raises(ValueError, match="same structure"):
        ts.if_else(ts.sum(x) > 0, lambda: x, lambda: (x, x))
    with pytest.raises(TypeError, match="predicate must be a bool"):
        ts.if_else(x[0], lambda: x, lambda: x)
    with pytest.raises(TypeError, match="Python's own `if`"):
        ts.if_else(True, lambda: x, lambda: x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="graph is not known"):
        ts.for_loop(3, lambda _, c: c, 1.0)
    with pytest.raises(ValueError, match="at least 1"):
        ts.for_loop((0, 5, 0), lambda _, c: c, x)
    # The graph is as usable as before.
    assert float(run(ts.sum(ts.for_loop(3, lambda _, c: c + 1, x)), {x: np.zeros(3, np.float32)})) == 9


def test_bodies_cannot_reach_for_state() -> None:
    graph, x = make()
    w = graph.variable(np.ones(3, np.float32), name="w")
    with pytest.raises(ValueError, match="assign that in the graph around"):
        ts.for_loop(2, lambda _, c: [graph.assign(w, c), c][1], x)
    with pytest.raises(ValueError, match="create it in the graph around"):
        ts.for_loop(2, lambda _, c: c + graph.variable(np.ones(3, np.float32)), x)
    with pytest.raises(ValueError, match="nothing can be fed"):
        ts.for_loop(2, lambda _, c: c + graph.placeholder((3,)), x)


def test_tensors_of_a_body_stay_inside() -> None:
    _, x = make()
    kept: list[Any] = []
    ts.for_loop(2, lambda _, c: [kept.append(c * 2), c][1], x)
    with pytest.raises(ValueError, match=r"return .* from the body"):
        _ = kept[0] + 1
    with pytest.raises(ValueError, match=r"return .* from the body"):
        _ = x + kept[0]
    other = ts.Graph()
    with pytest.raises(ValueError, match="another graph"):
        ts.for_loop(2, lambda _, c: c + x, other.placeholder((3,)))


def test_an_exception_in_a_body_leaves_the_graph_as_it_was() -> None:
    graph, x = make()
    before = str(graph)

    def fail(*_: Any) -> Any:
        raise RuntimeError("of the user")

    for build in (
        lambda: ts.for_loop(2, fail, x),
        lambda: ts.while_loop(fail, fail, x),
        lambda: ts.if_else(graph.constant(True), lambda: x, fail),
    ):
        with pytest.raises(RuntimeError, match="of the user"):
            build()
    assert len(graph.operations) <= before.count("\n") + 1
    assert ts.sum(x).graph == graph


def test_bodies_may_lie_only_so_deep() -> None:
    _, x = make()

    def nest(depth: int, value: Any) -> Any:
        return value if depth == 0 else ts.for_loop(1, lambda _, c: nest(depth - 1, c + 1), value)

    assert float(run(ts.sum(nest(8, x)), {x: np.zeros(3, np.float32)})) == 24
    with pytest.raises(ValueError, match="deep"):
        nest(100, x)


PARAMETER = "%0 = placeholder(shape=(), dtype=int32)\n"


def scan_text(parameters: str, results: str, carried: int) -> str:
    body = f"function({parameters}) {{\n{PARAMETER}}} returns({results})"
    return f"%0 = scan(body={body}, carried={carried}, sequences=0)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%0 = scan(carried=0, sequences=0)", "body"),
        ("%0 = scan(body=function() {\n} returns(), carried=0, sequences=0)", "parameters"),
        ("%0 = scan(body=function(%0) {\n" + PARAMETER, "expected"),
        (scan_text("%0, %0", "", 0), "twice"),
        (scan_text("", "", 0), "of its own"),
        (scan_text("%0", "%7", 0), "not defined"),
        (scan_text("%0", "", 9), "carried"),
        ("%0 = scan(body=" + "function() {\n%0 = scan(body=" * 200, "deep"),
    ],
)
def test_damaged_text_of_functions_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ts.Graph.parse("topstitch graph 1\n" + text + "\n")


@pytest.mark.parametrize("dtype", ["int32", "int64", "int16", "uint8"])
def test_counts_and_bounds_of_any_integer_dtype(dtype: str) -> None:
    graph = ts.Graph()
    n = graph.placeholder((), dtype=dtype)
    total = ts.for_loop(n, lambda i, c: c + i, graph.constant(0, dtype=ts.int32))
    span = ts.for_loop((2, n, 3), lambda i, c: c + i, graph.constant(0, dtype=ts.int32))
    for value in (0, 1, 2, 3, 12):
        results = graph.run({n: np.array(value, dtype)}, [total, span])
        assert [int(result) for result in results] == [sum(range(value)), sum(range(2, value, 3))]


@pytest.mark.parametrize(
    ("lower", "upper", "step"),
    [(2**31 - 10, 2**31 - 1, 4), (-(2**31), 2**31 - 1, 2**30), (5, 5, 1), (5, -5, 1), (0, 7, 0), (0, 7, -1)],
)
def test_tensor_ranges_at_the_ends_of_int32(lower: int, upper: int, step: int) -> None:
    """The index of a step behind the last does not fit; a step that is not positive gives no iterations."""
    graph = ts.Graph()
    bounds = [graph.placeholder((), dtype=ts.int32) for _ in range(3)]
    zero = graph.constant(0, dtype=ts.int32)
    count, last = ts.for_loop(tuple(bounds), lambda i, c: (c[0] + 1, i), (zero, zero))
    feeds = dict(zip(bounds, (lower, upper, step), strict=True))
    expected = list(range(lower, upper, step)) if step > 0 else []
    assert [int(result) for result in graph.run(feeds, [count, last])] == [
        len(expected),
        expected[-1] if expected else 0,
    ]


def test_a_bound_that_is_no_integer_scalar_is_refused() -> None:
    graph = ts.Graph()
    for bad in (graph.placeholder((), dtype=ts.float32), graph.placeholder((2,), dtype=ts.int32)):
        with pytest.raises(ts.DTypeError, match=r"\[for_loop\] .* must be integer scalars, not"):
            ts.for_loop(bad, lambda i, c: c, graph.constant(0))
