"""What options promise about results, and that running with ever new shapes keeps no memory.

Expected bits come from NumPy, one operation at a time.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import floats, raised


def test_deterministic_results_do_not_depend_on_threads() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    w = np.random.default_rng(1).standard_normal((257, 33)).astype(np.float32)
    targets = [ts.sum(ts.sin(x)), ts.sum(x, axis=0), ts.mean(ts.exp(x), axis=1), ts.gelu(x @ w), ts.softmax(x, axis=-1)]
    array = np.random.default_rng(0).standard_normal((700, 257)).astype(np.float32)
    before = ts.num_threads()
    try:
        ts.set_num_threads(3)
        bits = {
            tuple(np.asarray(r).tobytes() for r in graph.run({x: array}, targets, threads=n, deterministic=True))
            for n in (1, 2, 3, 0)
        }
        ts.set_num_threads(1)
        bits.add(tuple(np.asarray(r).tobytes() for r in graph.run({x: array}, targets, deterministic=True)))
    finally:
        ts.set_num_threads(before)
    assert len(bits) == 1
    total = np.sin(array.astype(np.float64)).sum()
    assert np.frombuffer(next(iter(bits))[0], np.float32)[0] == pytest.approx(total, rel=1e-3, abs=0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_strict_mathematics_rounds_each_operation(dtype: Any) -> None:
    graph = ts.Graph()
    x, y, z = (graph.placeholder((-1,), dtype) for _ in range(3))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(5000).astype(dtype) for _ in range(2))
    c = -(a * b) + rng.standard_normal(5000).astype(dtype) * np.finfo(dtype).eps  # cancels: one rounding would show
    feeds = {x: a, y: b, z: c}
    got = graph.run(feeds, [x * y + z, x * y - z * z, (x + y) * z + x], math="strict")
    for result, expected in zip(got, [a * b + c, a * b - c * c, (a + b) * c + a], strict=True):
        np.testing.assert_array_equal(result, expected)
    fused = np.asarray(graph.run(feeds, x * y + z, math="standard")).astype(np.float64)
    if dtype is np.float32:
        exact = a.astype(np.float64) * b + c
        assert np.abs(fused - exact).max() <= np.abs(a * b + c - exact).max()


def test_optimization_levels_give_the_same_bits() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 20))
    targets = [ts.tanh(x) * x + 0.1, ts.sum(x * x, axis=1), ts.softmax(x), x @ np.ones((20, 7), np.float32)]
    array = np.random.default_rng(0).standard_normal((37, 20)).astype(np.float32)
    zero, one = (graph.run({x: array}, targets, optimization_level=level) for level in (0, 1))
    for slow, fast in zip(zero, one, strict=True):
        np.testing.assert_array_equal(slow, fast)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("threads", [-1, 1.0, "1", None, True]),
        ("optimization_level", [-1, 2, 3, 2**80, -(2**80), 1.0, "1", None, False]),
        ("deterministic", [1, 0, None, "yes"]),
        ("stitch", [1, None]),
        ("interpret", ["no", 0]),
        ("math", ["fast", None, 1, "STRICT", b"strict"]),
        ("device", ["abacus", 7, None, ""]),
        ("tile", [1]),
    ],
)
def test_options_that_are_refused(name: str, values: list[Any]) -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    for value in values:
        for call in (
            lambda v=value: graph.run({x: floats(1)}, x * 2.0, **{name: v}),
            lambda v=value: graph.run_async({x: floats(1)}, x * 2.0, **{name: v}),
            lambda v=value: graph.compile([x], x * 2.0, **{name: v}),
            lambda v=value: graph.compile_async([x], x * 2.0, **{name: v}),
            lambda v=value: graph.encode(ts.CommandBuffer(), {x: floats(1)}, x * 2.0, **{name: v}),
        ):
            assert isinstance(raised(call), (TypeError, ValueError)), (name, value)
    assert graph.run({x: floats(1)}, x * 2.0, threads=2**20, device=ts.Device("cpu")).tolist() == [2]


def test_huge_options_are_named_as_they_are() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    for name in ("threads", "optimization_level"):
        error = raised(lambda name=name: graph.compile([x], x * 2.0, **{name: 2**80}))
        assert error is None or "-1" not in str(error)


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_changing_shapes_leak_nothing() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    v = graph.variable(np.zeros(8, np.float32))
    y = ts.softmax(x * 2.0, axis=-1)
    step = v.assign(v + ts.sum(x))
    queue = ts.Queue()

    def run(k: int) -> None:
        array = np.ones((k * 37 % 300 + 2, k * 53 % 200 + 2), np.float32)
        out = np.empty_like(array)
        graph.run({x: array}, [y], [step])
        job = graph.run_async({x: array.T}, y, queue=queue)
        job.add_done_callback(lambda done: None)
        commands = ts.CommandBuffer(queue)
        first = graph.encode(commands, {x: array}, y)
        graph.encode(commands, {x: first}, y)
        commands.signal(ts.Event(), 1)
        failing = graph.run_async({x: np.ones(3, np.float32)}, y, queue=queue)
        assert commands.commit().result()[0].shape == array.shape
        assert job.result().shape == array.T.shape
        assert failing.exception() is not None
        graph.compile([x], y).run(array, out=out) if k % 100 == 0 else None

    for k in range(600):
        run(k)
    gc.collect()
    before = resident()
    for k in range(600, 1600):
        run(k)
    gc.collect()
    assert resident() - before < 6 << 20
