"""Many Python threads on the same graphs: distinct inputs, shared variables, lock order, thread counts.

Threads start together; what fails in one of them fails the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import PATIENCE, Doubler, floats, raised

THREADS = 16


def in_threads(work: Callable[[int], None], count: int = THREADS) -> None:
    """Starts them together."""
    barrier = threading.Barrier(count)

    def begin(k: int) -> None:
        barrier.wait(PATIENCE)
        work(k)

    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(begin, k) for k in range(count)]:
            future.result(PATIENCE)


def test_one_executable_in_many_threads() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 32))
    w = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32)
    executable = graph.compile([x], {"product": ts.tanh(x @ w), "sum": ts.sum(x, axis=0)})

    def work(k: int) -> None:
        array = np.random.default_rng(k).standard_normal((k + 2, 32)).astype(np.float32)
        wide = array.astype(np.float64)
        for turn in range(20):
            feed = array if turn % 2 else np.asfortranarray(array)
            result = executable.run(feed) if turn % 3 else executable.run_async(feed).result(PATIENCE)
            np.testing.assert_allclose(result["product"], np.tanh(wide @ w), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(result["sum"], wide.sum(0), rtol=1e-4, atol=1e-4)

    in_threads(work)


def test_every_update_counts() -> None:
    doubler = Doubler()
    queues = [ts.Queue() for _ in range(3)]

    def work(k: int) -> None:
        for turn in range(30):
            if turn % 2:
                doubler.graph.run({}, operations=[doubler.step])
            else:
                doubler.graph.run_async(operations=[doubler.step], queue=queues[k % 3])
            doubler.graph.run({doubler.x: floats(k)}, doubler.double)

    in_threads(work)
    assert all(queue.wait(PATIENCE) for queue in queues)
    assert doubler.value() == THREADS * 30


def test_opposite_orders_do_not_deadlock() -> None:
    """And what one run updates together is read together."""
    graph = ts.Graph()
    a, b = graph.variable(np.zeros(100)), graph.variable(np.zeros(100))
    forth, back = [a.assign(a + 1.0), b.assign(b + 1.0)], [b.assign(b + 2.0), a.assign(a + 2.0)]
    executables = [graph.compile([], None, forth), graph.compile([], None, back), graph.compile([], [b - a, a * 1.0])]

    def work(k: int) -> None:
        for turn in range(30):
            executables[(k + turn) % 2].run()
            difference, _ = executables[2].run()
            assert not difference.numpy().any()

    in_threads(work)
    total = sum(1 + (k + turn) % 2 for k in range(THREADS) for turn in range(30))
    assert graph.variable_value(a).tolist() == graph.variable_value(b).tolist() == [total] * 100


def test_setting_a_variable_meanwhile() -> None:
    graph = ts.Graph()
    v = graph.variable(np.zeros(1000, np.float32))
    add = v.assign(v + 1.0)

    def work(k: int) -> None:
        for turn in range(30):
            if k % 2:
                graph.run({}, operations=[add])
            else:
                graph.set_variable_value(v, np.full(1000, 1000 * turn, np.float32))
            assert len(np.unique(graph.variable_value(v))) == 1

    in_threads(work, 4)


def test_building_and_compiling_the_same_graph() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1,))

    def work(k: int) -> None:
        for turn in range(3):
            y = x * float(k) + float(turn)
            assert graph.run({x: floats(1, 2)}, y).tolist() == [k + turn, 2 * k + turn]

    in_threads(work, 4)


def test_thread_counts_of_executables() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    y = ts.sum(ts.sin(x)) * 2.0
    array = np.linspace(0, 10, 200_001, dtype=np.float32)
    expected = 2 * np.sin(array.astype(np.float64)).sum()
    before = ts.num_threads()

    def work(k: int) -> None:
        for turn in range(6):
            ts.set_num_threads(1 + (k + turn) % 4)
            assert 1 <= ts.num_threads() <= 4
            assert float(graph.run({x: array}, y, threads=k % 4)) == pytest.approx(expected, rel=1e-4)

    try:
        in_threads(work, 8)
    finally:
        ts.set_num_threads(before)
    for threads in (1, 2):
        kernels = graph.compile([x], y, threads=threads).profile(array, runs=1).kernels
        assert max(kernel["threads"] for kernel in kernels) <= threads
    for wrong in (-1, 1.0, "2", None, True):
        assert isinstance(raised(lambda w=wrong: graph.run({x: array}, y, threads=w)), (TypeError, ValueError))
    for wrong in (0, -1, 1.5, None, "2"):
        assert isinstance(raised(ts.set_num_threads, wrong), (TypeError, ValueError))
    assert ts.num_threads() == before


def test_more_threads_are_used_at_once() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    executable = graph.compile([x], ts.sin(x) + 0.125)
    array = np.zeros(1_000_000, np.float32)
    before = ts.num_threads()
    try:
        ts.set_num_threads(1)
        executable.run(array)
        ts.set_num_threads(2)
        (kernel,) = executable.profile(array, runs=1).kernels
        assert kernel["threads"] == 2
    finally:
        ts.set_num_threads(before)
