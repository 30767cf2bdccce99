"""Running: state, control dependencies, dynamic dims, caches, caller-given results, threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import topstitch as ts


def test_results_have_the_form_of_targets() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2,))
    feeds = {x: np.array([1, 2], np.float32)}
    assert isinstance(graph.run(feeds, x + 1.0), ts.NDArray)
    assert [r.tolist() for r in graph.run(feeds, [x + 1.0, x])] == [[2, 3], [1, 2]]
    pair = graph.run(feeds, (x, x * 2.0))
    assert isinstance(pair, tuple)
    assert pair[1].tolist() == [2, 4]
    named = graph.run(feeds, {"double": x * 2.0, 7: x})
    assert named["double"].tolist() == [2, 4]
    assert named[7].tolist() == [1, 2]


def test_same_tensor_twice_and_feeds_as_results() -> None:
    graph = ts.Graph()
    x = graph.placeholder((3,))
    y = ts.exp(x)
    array = np.zeros(3, np.float32)
    a, b, c = graph.run({x: array}, [y, y, x])
    np.asarray(a)[0] = 5
    assert b.tolist() == [1, 1, 1]
    np.asarray(c)[0] = 5
    assert array[0] == 0


def test_variables_read_before_and_after() -> None:
    graph = ts.Graph()
    v = graph.variable(np.float32(1), name="v")
    add = v.assign(v + 1.0)
    with graph.control_dependencies([add]):
        after = v.read()
        double = v.assign(after * 10.0)
    with graph.control_dependencies([double]):
        last = v.read()
    before, middle, end = graph.run({}, [v + 0.0, after, last], [double])
    assert (float(before), float(middle), float(end)) == (1, 2, 20)
    assert float(graph.variable_value(v)) == 20
    graph.run({}, [], [add])
    assert float(graph.variable_value(v)) == 21


def test_variables_swap() -> None:
    graph = ts.Graph()
    a, b = graph.variable(np.arange(4.0, dtype=np.float32)), graph.variable(-np.ones(4, np.float32))
    swap = [a.assign(b), b.assign(a)]
    graph.run({}, [], swap)
    np.testing.assert_array_equal(graph.variable_value(a), -np.ones(4))
    np.testing.assert_array_equal(graph.variable_value(b), np.arange(4.0))


@pytest.mark.parametrize("shape", [(5,), (64, 33), (3, 4, 5)])
def test_update_reads_other_elements(shape: tuple[int, ...]) -> None:
    """An update in place must not see its own new values."""
    graph = ts.Graph()
    start = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    v = graph.variable(start)
    axes = tuple(range(len(shape)))
    graph.run({}, [], [v.assign(ts.reverse(v, axis=axes) + v * 0.5)])
    np.testing.assert_allclose(graph.variable_value(v), np.flip(start) + 0.5 * start, rtol=1e-6)
    start = np.asarray(graph.variable_value(v))
    graph.run({}, [], [v.assign(v / ts.sum(v * v, axis=-1, keepdims=True))])
    np.testing.assert_allclose(graph.variable_value(v), start / (start * start).sum(-1, keepdims=True), rtol=1e-5)


def test_dynamic_dims_compile_once() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 8))
    y = ts.softmax(ts.gelu(x) @ np.ones((8, 5), np.float32), axis=-1)
    executable = graph.compile([x], y)
    rng = np.random.default_rng(0)
    for batch in (3, 64, 17, 3, 1000):
        array = rng.standard_normal((batch, 8)).astype(np.float32)
        np.testing.assert_allclose(
            executable.run(array), graph.run({x: array}, y, interpret=True), rtol=2e-5, atol=1e-6
        )
    assert executable.variants == 1
    assert executable.run(np.zeros((0, 8), np.float32)).shape == (0, 5)
    assert executable.run(np.zeros((1, 8), np.float32)).shape == (1, 5)
    assert executable.variants == 3  # 0 and 1 have patterns of their own


def test_assumption_that_fails_later() -> None:
    """A length that happened to be one more than another compiles again when it no longer is."""
    graph = ts.Graph()
    x, y = graph.placeholder((-1,)), graph.placeholder((-1,))
    z = x[1:] + y
    ones = lambda n: np.ones(n, np.float32)  # noqa: E731
    assert graph.run({x: ones(5), y: ones(4)}, z).tolist() == [2] * 4
    assert graph.run({x: ones(2), y: ones(9)}, z).tolist() == [2] * 9
    with pytest.raises(ValueError, match="broadcast"):
        graph.run({x: ones(7), y: ones(9)}, z)
    assert graph.run({x: ones(7), y: ones(6)}, z).tolist() == [2] * 6


def test_kernels_are_found_again() -> None:
    def report() -> ts.Report:
        graph = ts.Graph()
        x = graph.placeholder((123, 45))
        return graph.compile([x], ts.tanh(x) * 0.321 + ts.sin(x)).report()

    report()
    assert report().kernels_compiled == 0


def test_structural_hash_is_that_of_the_structure() -> None:
    def build(name: str, factor: float) -> ts.Graph:
        graph = ts.Graph()
        x = graph.placeholder((2, "n"), name=name)
        ts.exp(x * factor, name=name)
        return graph

    assert build("a", 2.0).structural_hash() == build("b", 2.0).structural_hash()
    assert build("a", 2.0).structural_hash() != build("a", 3.0).structural_hash()


def test_results_into_given_arrays() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 3))
    executable = graph.compile([x], [x * 2.0, ts.sum(x)])
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    out, total = np.empty((2, 3), np.float32), np.empty((), np.float32)
    executable.run(array, out=[out, total])
    np.testing.assert_array_equal(out, array * 2)
    assert total == 15
    executable.run(array, out=[array, total])  # over its own input
    np.testing.assert_array_equal(array, out)


def test_results_cannot_be_given_what_is_copied() -> None:
    """A list would be converted to an array that the caller never sees."""
    graph = ts.Graph()
    x = graph.placeholder(())
    executable = graph.compile([x], [x * 2.0])
    for out in ([1.5], 1.5, [[1.5]]):
        with pytest.raises(ValueError, match=r"\[run\] out: .* has to be copied"):
            executable.run(np.float32(1), out=out)


def test_feed_freed_while_results_live() -> None:
    graph = ts.Graph()
    x = graph.placeholder((1000,))
    array = np.ones(1000, np.float32)
    result = graph.run({x: array}, x)
    del array
    gc.collect()
    np.testing.assert_array_equal(result, np.ones(1000))


def test_graphs_are_freed() -> None:
    class Marker:
        pass

    def build() -> weakref.ref[Marker]:
        marker = Marker()
        array = np.ones(4, np.float32)
        graph = ts.Graph()
        x = graph.placeholder((4,))
        graph.run({x: array}, ts.exp(x) + 1.0)
        return weakref.ref(marker)

    assert build()() is None
    before = _resident_kilobytes()
    for _ in range(300):
        graph = ts.Graph()
        x = graph.placeholder((1000,))
        graph.run({x: np.ones(1000, np.float32)}, x * 3.0)
    del graph, x
    gc.collect()
    assert _resident_kilobytes() - before < 60_000


def _resident_kilobytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_many_threads_share_an_executable() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 64))
    count = graph.variable(np.float32(0))
    y = ts.softmax(x * 2.0, axis=-1)
    step = count.assign(count + 1.0)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((k + 2, 64)).astype(np.float32) for k in range(8)]
    expected = [np.asarray(graph.run({x: array}, y)) for array in inputs]
    problems: list[str] = []

    def work(k: int) -> None:
        for _ in range(25):
            (result,) = graph.run({x: inputs[k]}, [y], [step])
            if not np.array_equal(result, expected[k]):
                problems.append(f"thread {k}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert float(graph.variable_value(count)) == 8 * 25


def test_same_bits_at_every_run_and_thread_count() -> None:
    graph = ts.Graph()
    x = graph.placeholder((300_000,))
    total = ts.sum(ts.sin(x)) / 3.0
    array = np.random.default_rng(0).standard_normal(300_000).astype(np.float32)
    values = {np.asarray(graph.run({x: array}, total, threads=threads)).tobytes() for threads in (1, 2, 1, 2)}
    assert len(values) == 1
    expected = np.sin(array.astype(np.float64)).sum() / 3
    assert float(graph.run({x: array}, total)) == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_report_explains() -> None:
    graph = ts.Graph()
    x = graph.placeholder((64, 32))
    w = graph.variable(np.ones((32, 16), np.float32), name="w")
    loss = ts.mean(ts.square(ts.softmax(x @ w, axis=-1)))
    step = w.assign(w - 0.1 * ts.gradients(loss, [w])[w])
    report = graph.compile([x], loss, [step]).report()
    text = str(report)
    assert "kept apart" in text
    assert "because" in text
    assert "updated in place: variable 'w'" in text
    assert any("exp" in operation for region in report.regions for operation in region["kept"])
    assert sum(region["bytes_saved"] for region in report.regions) > 0
    assert len(graph.compile([x], loss, [step], stitch=False).report().regions) > len(report.regions)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: 0.5 * x * (1 + ts.erf(x * 0.5**0.5)),
        lambda x: ts.softmax(x, axis=-1),
        lambda x: (x - ts.mean(x, axis=-1, keepdims=True)) * ts.rsqrt(ts.variance(x, axis=-1, keepdims=True) + 1e-5),
        lambda x: ts.softmax_cross_entropy(x, np.full((48, 100), 0.01, np.float32)),
        lambda x: ts.transpose(ts.reshape(x, (100, 48)))[..., ::-1] + ts.pad(x[1:], [1, 0], [0, 0]),
        lambda x: ts.gelu(x @ np.ones((100, 24), np.float32) + np.ones(24, np.float32)),
    ],
    ids=["gelu", "softmax", "layer norm", "cross entropy", "views", "product, bias and gelu"],
)
def test_one_kernel(build) -> None:
    graph = ts.Graph()
    x = graph.placeholder((48, 100))
    assert graph.compile([x], build(x)).report().kernels == 1


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, 0:],
        lambda x: ts.roll(x, [0], axis=[1]),
        lambda x: ts.transpose(x, permutation=[0, 1]),
        lambda x: ts.tile(x, [1, 1]),
        lambda x: ts.reshape(x, (4, 6)),
        lambda x: ts.broadcast_to(x, (4, 6)),
    ],
    ids=["slice", "roll", "transpose", "tile", "reshape", "broadcast"],
)
def test_views_that_move_nothing_cost_nothing(view) -> None:
    graph = ts.Graph()
    x = graph.placeholder((4, 6))
    report = graph.compile([x], ts.exp(view(x)) * ts.reverse(ts.full_like(x, 1.0))).report()
    (region,) = report.regions
    assert [operation.split()[0] for operation in region["operations"]] == ["exp"]


def test_interpreter_exit_with_work_behind() -> None:
    code = """
import numpy as np, threading, topstitch as ts
g = ts.Graph(); x = g.placeholder((-1,)); y = ts.exp(x)
threading.Thread(target=lambda: [g.run({x: np.ones(100000, np.float32)}, y) for _ in range(50)], daemon=True).start()
g.run({x: np.ones(100000, np.float32)}, y)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_operations_without_tensors_are_told_the_graph() -> None:
    graph = ts.Graph()
    rows = ts.coordinates(axis=0, shape=(2, 3), graph=graph)
    assert graph.run({}, rows).tolist() == [[0, 0, 0], [1, 1, 1]]
    with pytest.raises(TypeError, match="graph"):
        ts.coordinates(axis=0, shape=(2, 3))


def test_stop_gradient_hides_one_path() -> None:
    graph = ts.Graph()
    x = graph.placeholder(())
    y = x * ts.stop_gradient(x * x)
    slope = ts.gradients(y, [x])[x]
    assert float(graph.run({x: np.float32(3)}, slope)) == 9


def test_unknown_dims_of_different_axes_may_have_to_agree() -> None:
    graph = ts.Graph()
    a, b = graph.placeholder((-1, -1)), graph.placeholder((-1, -1))
    types = {a: ts.ShapedType((-1, -1)), b: ts.ShapedType((-1, -1))}
    executable = graph.compile(types, a @ b)
    x, y = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    assert executable.run(x, y).tolist() == [[3.0] * 4] * 2
    with pytest.raises(ts.UserError, match="do not fit"):
        graph.compile({a: ts.ShapedType((2, 3)), b: ts.ShapedType((4, -1))}, a @ b)
