"""Draws without a state in the bodies of loops: anew in each iteration and each run, the same for the same seed, equal
to the generator written from the paper, and the same numbers in a gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import random_reference as reference
import topstitch as ts

SEED = 99


def state(iterations: tuple[int, ...], run: int = 0, stream: int = 0, seed: int = SEED) -> tuple[int, int, int]:
    """As docs/training.md says: each loop makes another key of the number of its iteration, the outermost first."""
    key, high = seed, (stream << 40) + run
    for index in iterations:
        counter = [index % 2**32, index >> 32, high % 2**32, high >> 32]
        low, upper = reference.philox(np.array([counter], np.uint64), (key % 2**32, key >> 32))[0, :2]
        key = int(low) | (int(upper) << 32)
    return 0, high, key


def draw(shape: tuple[int, ...] = (5,), **options: Any) -> ts.Tensor:
    return ts.random_uniform(shape, **options)[0]


def expected(iterations: tuple[int, ...], count: int = 5, **which: int) -> np.ndarray:
    return reference.unit(state(iterations, **which), count).astype(np.float32)


def scan_rows(graph: ts.Graph, length: int | str = 4) -> ts.Tensor:
    return ts.scan(lambda carried, _: (None, draw(graph=graph)), None, length=length, graph=graph)[1]


def test_each_iteration_and_each_run_draws_anew() -> None:
    graph = ts.Graph(seed=SEED)
    rows = scan_rows(graph)
    for run in range(3):
        want = [expected((k,), run=run) for k in range(4)]
        np.testing.assert_array_equal(graph.run({}, rows), want)
    graph.set_seed(SEED)
    np.testing.assert_array_equal(graph.run({}, rows), [expected((k,)) for k in range(4)])


def test_for_while_and_reversed_loops() -> None:
    graph = ts.Graph(seed=SEED)
    zero = graph.constant(np.zeros(5, np.float32))
    total = ts.for_loop(3, lambda _, carried: carried + draw(graph=graph), zero)
    count = graph.placeholder((), dtype=np.int32)
    bounded = ts.for_loop(count, lambda _, carried: carried + draw(graph=graph), zero)
    last = ts.while_loop(lambda v: ts.sum(v) < 2.6, lambda v: draw(graph=graph), zero)
    steps = graph.constant(np.arange(4, dtype=np.float32))
    backwards = ts.scan(lambda c, s: (None, s + draw((), graph=graph)), None, steps, reverse=True)[1]
    got = graph.run({count: np.int32(3)}, [total, bounded, last, backwards])
    for stream in (0, 1):
        want = sum((expected((k,), stream=stream) for k in range(3)), np.zeros(5, np.float32))
        np.testing.assert_array_equal(got[stream], want)
    k = 0
    while expected((k,), stream=2).sum() < 2.6:
        k += 1
    assert k > 0
    np.testing.assert_array_equal(got[2], expected((k,), stream=2))
    np.testing.assert_array_equal(got[3], [s + expected((s,), 1, stream=3)[0] for s in range(4)])


def test_a_condition_may_draw() -> None:
    graph = ts.Graph(seed=SEED)
    count = ts.while_loop(lambda n: draw((), graph=graph) < 0.97, lambda n: n + 1, graph.constant(np.int32(0)))
    k = 0
    while expected((k,), 1)[0] < 0.97:
        k += 1
    assert int(graph.run({}, count)) == k > 0


def test_loops_and_branches_in_loops() -> None:
    graph = ts.Graph(seed=SEED)

    def inner(_: Any, k: ts.Tensor) -> Any:
        return None, ts.if_else(k > 1, lambda: draw(graph=graph), lambda: -draw(graph=graph))

    def outer(_: Any, __: Any) -> Any:
        return None, ts.scan(inner, None, graph.constant(np.arange(3, dtype=np.int32)))[1]

    got = graph.run({}, ts.scan(outer, None, length=2, graph=graph)[1])
    want = [[expected((i, k), stream=0) if k > 1 else -expected((i, k), stream=1) for k in range(3)] for i in range(2)]
    np.testing.assert_array_equal(got, want)


def test_a_gradient_sees_the_same_numbers() -> None:
    """Of a chain of dropouts: where something was dropped the gradient is 0, elsewhere the product of the scales."""
    graph = ts.Graph(seed=SEED)
    x = graph.placeholder((1000,))
    y = ts.scan(lambda carried, _: (ts.dropout(carried, 0.5), None), x, length=3)[0]
    loss = ts.sum(y * y)
    grad = ts.gradients(loss, [x])[x]
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    out, slope = graph.run({x: values}, [y, grad])
    kept = np.asarray(out) != 0
    assert 80 < kept.sum() < 170
    np.testing.assert_array_equal(np.asarray(slope), np.where(kept, 2 * 64 * values, 0))


def test_a_state_of_the_users_is_not_touched() -> None:
    graph = ts.Graph(seed=SEED)
    first = ts.random_state(seed=5, graph=graph)

    def body(carried: ts.Tensor, _: Any) -> Any:
        values, after = ts.random_uniform((5,), state=carried)
        return after, values

    rows = graph.run({}, ts.scan(body, first, length=2)[1])
    np.testing.assert_array_equal(rows, [reference.unit((16 * k, 0, 5), 5).astype(np.float32) for k in range(2)])
    assert graph.variables == []


def test_an_open_length_compiles_once_and_files_keep_it(tmp_path: Path) -> None:
    graph = ts.Graph(seed=SEED)
    x = graph.placeholder((-1,), name="x")
    rows = ts.scan(lambda carried, part: (None, part + draw(graph=graph)), None, x)[1]
    graph.save(tmp_path / "g.safetensors")
    kept = graph.compile([x], rows)
    kept.save(tmp_path / "e.safetensors")
    for length in (2, 7, 0):
        run = (2, 7, 0).index(length)
        want = np.array([expected((k,), run=run) for k in range(length)], np.float32).reshape(length, 5)
        np.testing.assert_array_equal(kept.run([np.zeros(length, np.float32)]), want)
    again = ts.Executable.load(tmp_path / "e.safetensors")
    np.testing.assert_array_equal(again.run([np.zeros(1, np.float32)]), [expected((0,))])
    loaded = ts.Graph.load(tmp_path / "g.safetensors")
    assert str(loaded) == str(graph)


def test_equal_seeds_and_streams_differ_between_iterations() -> None:
    """200 iterations of 8 streams: no two rows are equal, and together they are uniform."""
    graph = ts.Graph(seed=0)
    rows = [scan_rows(graph, 200) for _ in range(8)]
    got = np.concatenate([np.asarray(r) for r in graph.run({}, rows)])
    assert len(np.unique(got[:, :2], axis=0)) == 1600
    assert got.mean() == pytest.approx(0.5, abs=0.012)  # four standard deviations of 8000 uniform numbers
