"""Command buffers: runs that read earlier ones, committing once, handlers, failure in the middle.

Work is held back by events, so that no test depends on how fast anything is.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import PATIENCE, Doubler, floats, held


@pytest.fixture(scope="module")
def doubler() -> Doubler:
    return Doubler()


def test_results_feed_what_is_encoded_later(doubler: Doubler) -> None:
    graph = ts.Graph()
    a, b = graph.placeholder((-1, -1), name="a"), graph.placeholder((-1, -1), name="b")
    product, total = graph.compile([a, b], a @ b), graph.compile([a], {"sum": ts.sum(a, axis=0), "a": a + 1.0})
    commands = ts.CommandBuffer(ts.Queue())
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((5, 6)).astype(np.float32), rng.standard_normal((6, 4)).astype(np.float32)
    first = product.encode(commands, left, right)
    second = product.encode(commands, first.T, first[::-1])
    third = total.encode(commands, second[1:3, ::2])
    fourth = graph.encode(commands, {a: first.reshape(10, 2)}, (ts.sum(a),))
    assert first.shape == (5, 4)
    assert third["sum"].shape == (2,)
    assert isinstance(fourth, tuple)
    results = commands.commit().result(PATIENCE)
    expected = left.astype(np.float64) @ right
    squared = expected.T @ expected[::-1]
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second, squared, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(third["sum"], squared[1:3, ::2].sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(third["a"], squared[1:3, ::2] + 1, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fourth[0], expected.sum(), rtol=1e-4, atol=1e-4)
    assert len(results) == 5
    assert all(
        np.shares_memory(r, e)
        for r, e in zip(results, [first, second, third["sum"], third["a"], fourth[0]], strict=True)
    )


def test_results_into_arrays_that_later_runs_read(doubler: Doubler) -> None:
    commands = ts.CommandBuffer(ts.Queue())
    memory = np.arange(8, dtype=np.float32)
    strided = memory[::2]
    assert doubler.executable.encode(commands, memory[1::2], out=strided) is strided
    doubler.executable.encode(commands, strided, out=strided)
    last = doubler.executable.encode(commands, memory)
    commands.commit().result(PATIENCE)
    assert memory.tolist() == [4, 1, 12, 3, 20, 5, 28, 7]
    assert last.tolist() == [8, 2, 24, 6, 40, 10, 56, 14]


def test_commit_once(doubler: Doubler) -> None:
    commands = ts.CommandBuffer(queue := ts.Queue())
    assert repr(commands) == "<CommandBuffer encoding>"
    job = commands.commit()
    for call in (
        commands.commit,
        lambda: doubler.executable.encode(commands, floats(1)),
        lambda: commands.wait_for(ts.Event(), 1),
        lambda: commands.signal(ts.Event(), 1),
    ):
        with pytest.raises(ts.UserError, match="committed already"):
            call()
    assert job.result(PATIENCE) == []
    assert commands.status == job.status == "completed"
    assert repr(job) == "<Job completed>"
    assert queue.wait(PATIENCE)


def test_nothing_is_encoded_by_an_error(doubler: Doubler) -> None:
    commands = ts.CommandBuffer(ts.Queue())
    for error, bad in ((TypeError, np.ones(3, np.int32)), (ValueError, np.ones((2, 2), np.float32))):
        with pytest.raises(error):
            doubler.executable.encode(commands, bad)
    with pytest.raises(ValueError, match="result 0"):
        doubler.executable.encode(commands, floats(1, 2), out=floats(1, 2, 3))
    doubler.executable.encode(commands, floats(3))
    assert [r.tolist() for r in commands.commit().result(PATIENCE)] == [[6]]


def test_handlers_are_called_in_order(doubler: Doubler) -> None:
    calls: list[Any] = []
    finished = threading.Event()
    gate, first = held(queue := ts.Queue())
    commands = ts.CommandBuffer(queue)
    for k in range(2):
        commands.add_scheduled_handler(lambda k=k: calls.append(("scheduled", k, commands.status)))
        commands.add_completed_handler(lambda k=k: calls.append(("completed", k, commands.status)))
    doubler.executable.encode(commands, floats(1))
    job = commands.commit()
    job.add_done_callback(lambda done: calls.append(done is job))
    job.add_done_callback(lambda _: finished.set())
    assert calls == []
    assert job.status == "committed"
    gate.signal(1)
    assert finished.wait(PATIENCE)
    scheduled = [("scheduled", k, "running") for k in (0, 1)]
    assert calls == [*scheduled, *[("completed", k, "completed") for k in (0, 1)], True]
    assert first.done()


def test_handlers_that_raise(doubler: Doubler, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_value))
    commands = ts.CommandBuffer(queue := ts.Queue())
    finished = threading.Event()

    def fail() -> None:
        raise LookupError("on purpose")

    def leave() -> None:
        sys.exit(3)

    commands.add_scheduled_handler(fail)
    commands.add_completed_handler(leave)
    commands.add_completed_handler(finished.set)
    doubler.executable.encode(commands, floats(1))
    assert [r.tolist() for r in commands.commit().result(PATIENCE)] == [[2]]
    assert finished.wait(PATIENCE)
    assert doubler.executable.run_async(floats(2), queue=queue).result(PATIENCE).tolist() == [4]
    assert [type(error) for error in reported] == [LookupError, SystemExit]


def test_scheduled_handlers_must_not_wait_for_their_own_queue(doubler: Doubler) -> None:
    queue, errors, finished = ts.Queue(), [], threading.Event()
    gate, _ = held(queue)
    commands = ts.CommandBuffer(queue)
    doubler.executable.encode(commands, floats(1))

    def scheduled() -> None:
        for wait in (job.wait, job.result, job.exception, later.wait, later.result, queue.wait):
            try:
                wait()
            except ts.UserError as error:
                errors.append(str(error))

    commands.add_scheduled_handler(scheduled)
    job = commands.commit()
    later = doubler.executable.run_async(floats(2), queue=queue)
    job.add_done_callback(lambda done: (errors.append(done.result()[0].tolist()), finished.set()))
    gate.signal(1)
    assert finished.wait(PATIENCE)
    assert later.result(PATIENCE).tolist() == [4]
    assert [error for error in errors if error != [2]] == errors[:6]
    assert all("never" in error for error in errors[:6])


def test_a_failing_run_in_the_middle(doubler: Doubler) -> None:
    graph = ts.Graph()
    a, v = graph.placeholder((-1,)), graph.variable(np.float32(0))
    step = v.assign(v + ts.sum(a))
    commands = ts.CommandBuffer(queue := ts.Queue())
    event, missing = ts.Event(), ts.Event()
    graph.encode(commands, {a: floats(1, 2)}, operations=[step])
    commands.signal(event, 1)
    commands.wait_for(missing, 1)
    graph.encode(commands, {a: floats(10)}, operations=[step])
    commands.signal(event, 2)
    job = commands.commit()
    breaker = ts.CommandBuffer(ts.Queue())
    breaker.wait_for(ts.Event(), 1)
    breaker.signal(missing, 1)
    breaker.commit().cancel()
    with pytest.raises(ts.UserError, match="has failed"):
        job.result(PATIENCE)
    assert (job.status, event.value, float(graph.variable_value(v))) == ("failed", 1, 3)
    assert graph.run_async({a: floats(4)}, operations=[step], queue=queue).exception(PATIENCE) is None
    assert float(graph.variable_value(v)) == 7


def test_cancelled_means_that_nothing_was_changed(doubler: Doubler) -> None:
    commands = ts.CommandBuffer(ts.Queue())
    begun, go = ts.Event(), ts.Event()
    before = doubler.value()
    doubler.graph.encode(commands, operations=[doubler.step])
    commands.signal(begun, 1)
    commands.wait_for(go, 1)
    job = commands.commit()
    assert begun.wait(1, PATIENCE)
    claimed = job.cancel()
    job.wait(0.5)  # it may heed that, or go on when it can
    go.signal(1)
    assert job.wait(PATIENCE)
    assert doubler.value() == before + 1
    assert not claimed
    assert not job.cancelled()


def test_command_buffers_that_are_dropped() -> None:
    class Marker:
        pass

    marker = Marker()
    alive = weakref.ref(marker)
    commands = ts.CommandBuffer()
    commands.add_completed_handler(lambda commands=commands, marker=marker: None)
    del commands, marker
    gc.collect()
    assert alive() is None


def test_arguments_of_other_types(doubler: Doubler) -> None:
    commands, queue = ts.CommandBuffer(), ts.Queue()
    for call in (
        lambda: ts.Queue("cpu", "label"),
        lambda: ts.Queue(label=None),
        lambda: ts.Queue(7),
        lambda: ts.CommandBuffer("queue"),
        lambda: ts.CommandBuffer(doubler.graph),
        lambda: commands.wait_for(None, 1),
        lambda: commands.signal("event", 1),
        lambda: commands.add_completed_handler(None),
        lambda: commands.add_scheduled_handler(7),
        lambda: doubler.graph.encode(None, {}, doubler.double),
        lambda: doubler.graph.encode(queue, {}, doubler.double),
        lambda: doubler.executable.encode(doubler.graph, floats(1)),
        lambda: doubler.executable.run_async(floats(1), queue=commands),
        lambda: doubler.executable.run_async(floats(1), queue="default"),
        lambda: ts.Job(),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="cpu"):
        ts.Device("abacus")
    assert commands.status == "encoding"
    assert commands.commit().result(PATIENCE) == []


def test_handlers_come_before_committing() -> None:
    commands = ts.CommandBuffer()
    commands.commit().result(PATIENCE)
    for add in (commands.add_completed_handler, commands.add_scheduled_handler):
        with pytest.raises(ts.UserError, match="committed already"):
            add(print)
