"""Caches in memory: what is shared by structure, what is not, statistics, bounds, explanations; compile options.

Kernels on disk are in test_disk_cache.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import PATIENCE, floats, raised, run_child

Built = tuple[ts.Graph, ts.Tensor, ts.Tensor]


def build(factor: float, dtype: Any = np.float32, size: Any = -1, name: str = "x") -> Built:
    graph = ts.Graph()
    x = graph.placeholder((size,), dtype, name=name)
    return graph, x, ts.tanh(x * factor) + 0.25


def compiled(factor: float, dtype: Any = np.float32, size: Any = -1, **options: Any) -> ts.Executable:
    graph, x, y = build(factor, dtype, size)
    return graph.compile([x], y, **options)


def programs() -> dict[str, int]:
    return ts.cache_statistics()["programs"]


def test_equal_graphs_share_a_program() -> None:
    first = compiled(0.6180339)
    before = programs()
    second = compiled(0.6180339)
    after = programs()
    assert (after["hits"] - before["hits"], after["misses"] - before["misses"]) == (1, 0)
    assert second.report().kernels_compiled == second.report().kernels_from_disk == 0
    assert second.report().kernels == first.report().kernels
    assert "found 1 kernel compiled for an equal graph" in second.explain()
    assert "compiled 1 kernel (1 new" in first.explain()
    array = np.linspace(-3, 3, 50, dtype=np.float32)
    expected = np.tanh(array.astype(np.float64) * 0.6180339) + 0.25
    for executable in (first, second):
        np.testing.assert_allclose(executable.run(array), expected, rtol=1e-5)


def test_reports_name_the_lines_of_their_own_graph() -> None:
    def make(line: str) -> ts.Executable:
        graph = ts.Graph()
        scope = {"ts": ts, "x": graph.placeholder((-1,))}
        exec(compile("y = ts.exp(x * 0.71828)", line, "exec"), scope)
        return graph.compile([scope["x"]], scope["y"])

    first, second = make("first_model.py"), make("second_model.py")
    assert second.report().kernels_compiled == 0
    for executable, own, other in ((first, "first_model", "second_model"), (second, "second_model", "first_model")):
        text = str(executable.report()) + str(executable.report().regions)
        assert f"{own}.py:1" in text
        assert other not in text


def test_variables_are_not_shared() -> None:
    def counter() -> tuple[ts.Graph, ts.Tensor, ts.Operation]:
        graph = ts.Graph()
        v = graph.variable(floats(0), name="v")
        return graph, v, v.assign(v + 1.5)

    (one, v, step), (two, w, other) = counter(), counter()
    one.run({}, operations=[step])
    one.run({}, operations=[step])
    two.run({}, operations=[other])
    assert (one.variable_value(v).item(), two.variable_value(w).item()) == (3, 1.5)


@pytest.mark.parametrize(
    "other",
    [
        lambda: compiled(np.nextafter(np.float32(0.577), np.float32(1))),
        lambda: compiled(0.577, np.float64),
        lambda: compiled(0.577, size=7),
        lambda: compiled(0.577, math="strict"),
        lambda: compiled(0.577, optimization_level=0),
        lambda: compiled(0.577, deterministic=True),
        lambda: compiled(0.577, threads=1),
        lambda: compiled(0.577, stitch=False),
    ],
    ids=["constant", "dtype", "shape", "math", "level", "deterministic", "threads", "stitch"],
)
def test_what_differs_is_not_shared(other: Callable[[], ts.Executable]) -> None:
    compiled(0.577)
    ts.clear_caches()
    first = compiled(0.577)
    before = programs()["misses"]
    second = other()
    assert programs()["misses"] == before + 1
    assert "equal graph" not in second.explain()
    del first


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.0, -0.0), (np.inf, -np.inf), (1.0, float(np.nextafter(np.float32(1), np.float32(2)))), (np.nan, 0.0)],
)
def test_constants_are_told_apart_by_their_bits(first: float, second: float) -> None:
    """Alone and at the end of a long table; -0 + -0 is -0, and -0 + 0 is 0."""
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    array = np.full(4099, -0.0, np.float32)
    table = np.ones(4099, np.float32)
    for value in (first, second, first):
        table[-1] = value
        for constant in (value, table.copy()):
            got, expected = np.asarray(graph.run({x: array}, x + constant)), array + np.float32(constant)
            np.testing.assert_array_equal(got, expected)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_targets_and_operations_have_executables_of_their_own() -> None:
    graph, x, y = build(1.25)
    z = y * 2.0
    v = graph.variable(floats(0))
    step = v.assign(v + 1.0)
    before = ts.cache_statistics()["executables"]
    feeds = {x: floats(1)}
    for _ in range(3):
        graph.run(feeds, y)
        graph.run(feeds, [y, z])
        graph.run(feeds, [z, y])
        graph.run(feeds, y, [step])
        graph.run(feeds, y, threads=1)
    after = ts.cache_statistics()["executables"]
    assert after["misses"] - before["misses"] == 5
    assert after["hits"] - before["hits"] == 10
    assert after["entries"] - before["entries"] == 5
    del graph, x, y, z, v, step, feeds
    assert ts.cache_statistics()["executables"]["entries"] == before["entries"]


def test_explanations_name_what_was_new() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, "n"), name="rows")
    executable = graph.compile([x], x * 3.5)
    assert "ahead of time" in executable.explain()
    for k, (shape, text) in enumerate([((1, 3), "(1, 3)"), ((4, 0), "(4, 0)"), ((5, 5), "(5, 5)")]):
        executable.run(np.ones(shape, np.float32))
        assert f"feed 'rows' is {text} and was" in executable.explain()
        assert executable.variants == 2 + k
        assert executable.explain().count("because: ") == 2 + k
    # Executables of a graph explain themselves in the log.
    out = run_child(
        """
os.dup2(1, 2)
feeds = {x: four}
graph.run(feeds, double)
graph.run(feeds, double)
graph.run(feeds, [double, x])
graph.run({}, operations=[step])
graph.run(feeds, double, threads=1)
graph.run({x: four[::-1]}, double)
""",
        TOPSTITCH_LOG_LEVEL="debug",
    )
    reasons = [line.split("compiling: ")[1] for line in out.splitlines() if "compiling: " in line]
    words = ("first run", "targets", "operations", "options", "strides")
    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True)), reasons


def test_unseen_batch_sizes_compile_nothing() -> None:
    graph = ts.Graph()
    x, labels = graph.placeholder((-1, 12), name="x"), graph.placeholder((-1, 5), name="labels")
    w = graph.variable(np.full((12, 5), 0.125, np.float32))
    loss = ts.softmax_cross_entropy(x @ w, labels, axis=-1, reduction="mean")
    step = w.assign(w - 0.1 * ts.gradients(loss, [w])[w])

    def run(batch: int) -> None:
        feeds = {x: np.ones((batch, 12), np.float32), labels: np.full((batch, 5), 0.2, np.float32)}
        assert float(graph.run(feeds, loss, [step])) == pytest.approx(np.log(5), rel=1e-4)

    run(33)
    before = ts.cache_statistics()
    for batch in (2, 3, 5, 12, 64, 1000, *range(6, 50)):
        run(batch)
    after = ts.cache_statistics()
    assert after["kernels"]["compiled"] == before["kernels"]["compiled"]
    assert after["programs"]["misses"] == before["programs"]["misses"]


def test_compiling_in_the_background() -> None:
    graph, x, y = build(2.875)
    called: list[ts.Job] = []
    finished = threading.Event()
    job = graph.compile_async([x], {"y": y})
    job.add_done_callback(lambda done: (called.append(done), finished.set()))
    executable = job.result(PATIENCE)
    assert finished.wait(PATIENCE)
    assert called == [job]
    assert executable.variants == 1
    before = ts.cache_statistics()["kernels"]["compiled"]
    np.testing.assert_allclose(executable.run(floats(1, 2))["y"], np.tanh([2.875, 5.75]) + 0.25, rtol=1e-6)
    assert ts.cache_statistics()["kernels"]["compiled"] == before
    p, q = graph.placeholder((-1, -1)), graph.placeholder((-1, -1))
    types = {p: ts.ShapedType((2, 3)), q: ts.ShapedType((4, 5))}
    error = raised(graph.compile, types, p @ q)
    assert isinstance(error, ts.UserError)
    reported = graph.compile_async(types, p @ q).exception(PATIENCE)
    assert type(reported) is type(error)
    for wrong in (3, "x", {x: 7}, [None]):
        with pytest.raises((TypeError, ValueError)):
            graph.compile_async(wrong, y)


def test_the_same_is_compiled_once_by_all_who_want_it() -> None:
    before = ts.cache_statistics()["kernels"]["compiled"]
    graphs = [build(3.0625) for _ in range(8)]
    jobs = [graph.compile_async([x], y) for graph, x, y in graphs]
    assert sum(job.result(PATIENCE).report().kernels_compiled for job in jobs) == 1
    assert ts.cache_statistics()["kernels"]["compiled"] == before + 1


def test_reports_count_their_own_kernels_only() -> None:
    before = ts.cache_statistics()["kernels"]["compiled"]
    graphs = [build(3.125 + k / 64) for k in range(16)]
    jobs = [graph.compile_async([x], y) for graph, x, y in graphs]
    counts = [job.result(PATIENCE).report().kernels_compiled for job in jobs]
    assert ts.cache_statistics()["kernels"]["compiled"] == before + 16
    assert counts == [1] * 16


def test_specialising() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), name="x")
    executable = graph.compile({x: ts.ShapedType((-1, 4))}, {"sum": ts.sum(x, axis=0), "T": ts.transpose(x)})
    executable.specialize([ts.ShapedType((1, 4))])
    executable.specialize({x: ts.ShapedType((0, 4))})
    before = (executable.variants, ts.cache_statistics()["kernels"]["compiled"])
    for rows in (0, 1, 5):
        array = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        result = executable.run(array)
        assert result["sum"].tolist() == array.sum(0).tolist()
        assert result["T"].tolist() == array.T.tolist()
        types = executable.output_types([ts.ShapedType((rows, 4))])
        assert [(t.shape, np.dtype(t.dtype)) for t in types] == [((4,), np.float32), ((4, rows), np.float32)]
    assert (executable.variants, ts.cache_statistics()["kernels"]["compiled"]) == before
    for call in (executable.specialize, executable.output_types):
        for wrong in (None, 7, [(2, 4)], [], [ts.ShapedType((2, 4))] * 2, [ts.ShapedType((2, 5))],
                      [ts.ShapedType((2, 4), ts.int32)], {x: (2, 4)}, [ts.ShapedType((2, 4, 1))]):  # fmt: skip
            with pytest.raises((TypeError, ValueError)):
                call(wrong)
    with pytest.raises(ts.UserError, match="not a number"):
        executable.output_types([ts.ShapedType((-1, 4))])


def test_statistics_have_every_cache() -> None:
    statistics = ts.cache_statistics()
    assert set(statistics) == {"executables", "programs", "kernels", "kernel_folder"}
    assert set(statistics["programs"]) == set(statistics["executables"]) == {"hits", "misses", "evictions", "entries"}
    assert set(statistics["kernels"]) == {"hits", "disk_hits", "compiled", "evictions", "entries"}
    assert statistics["kernel_folder"] == ""
    ts.clear_caches()
    assert programs()["entries"] == 0


def test_bounds() -> None:
    code = """
factors = [x * float(k + 2) for k in range(6)]
for _ in range(2):
    for k, y in enumerate(factors):
        assert graph.run({x: four}, y).tolist() == graph.run({x: four}, y).tolist() == [j * (k + 2.0) for j in range(4)]
for part in ("executables", "programs", "kernels"):
    print(ts.cache_statistics()[part]["entries"], ts.cache_statistics()[part]["evictions"])
"""
    bounds = {"TOPSTITCH_EXECUTABLE_CACHE_ENTRIES": "3", "TOPSTITCH_KERNEL_CACHE_ENTRIES": "2"}
    assert run_child(code, **bounds).split() == ["3", "9", "3", "9", "2", "10"]
    for wrong in ("0", "-5"):
        assert run_child(code, TOPSTITCH_EXECUTABLE_CACHE_ENTRIES=wrong).split()[:2] == ["1", "11"]


def test_explanations_after_compiling_ahead() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), name="x")
    executable = graph.compile([x], x * 3.5)
    executable.run(np.ones((4, 3), np.float32))
    executable.run(np.asfortranarray(np.ones((4, 3), np.float32)))
    assert executable.variants == 2
    assert "strides" in executable.explain()


def test_reports_of_graphs_read_from_text_name_nobody_elses_lines() -> None:
    scope: dict[str, Any] = {"ts": ts, "graph": ts.Graph()}
    exec(compile("y = ts.exp((x := graph.placeholder((-1,), name='x')), name='y')", "model.py", "exec"), scope)
    first = scope["graph"].compile([scope["x"]], scope["y"])
    assert "model.py:1" in str(first.report().regions)
    parsed = ts.Graph.parse(scope["graph"].text())
    (x,) = parsed.placeholders
    second = parsed.compile([x], parsed.operations[-1].outputs[0])
    assert "model.py" not in str(second.report().regions)
