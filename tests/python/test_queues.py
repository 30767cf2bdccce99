"""Queues and events: order, overlap, failure, cancellation, callbacks.

Work is held back by events, so that no test depends on how fast anything is.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import PATIENCE, Doubler, floats, held, raised


@pytest.fixture(scope="module")
def doubler() -> Doubler:
    return Doubler()


def test_a_queue_runs_in_order(doubler: Doubler) -> None:
    graph = ts.Graph()
    v, x = graph.variable(np.float64(0)), graph.placeholder((), ts.float64)
    step = v.assign(v * 3.0 + x)  # another order gives another number
    queue = ts.Queue(label="ordered")
    gate, _ = held(queue)
    jobs = [graph.run_async({x: np.float64(k)}, operations=[step], queue=queue) for k in range(20)]
    assert queue.pending == 21
    assert repr(queue) == f"<Queue 'ordered' on {ts.Device().name}, 21 pending>"
    assert not queue.wait(0)
    gate.signal(1)
    assert queue.wait(PATIENCE)
    assert all(job.done() for job in jobs)
    expected = 0.0
    for k in range(20):
        expected = expected * 3 + k
    assert float(graph.variable_value(v)) == expected


def test_queues_overlap(doubler: Doubler) -> None:
    """Each needs what the other does in the middle of its own work."""
    a, b = ts.Event(), ts.Event()
    first, second = ts.CommandBuffer(ts.Queue()), ts.CommandBuffer(ts.Queue())
    for commands, mine, other in ((first, a, b), (second, b, a)):
        commands.signal(mine, 1)
        commands.wait_for(other, 1)
        doubler.executable.encode(commands, floats(1, 2))
    for job in (first.commit(), second.commit()):
        assert [r.tolist() for r in job.result(PATIENCE)] == [[2, 4]]


def test_ping_pong() -> None:
    graph = ts.Graph()
    v = graph.variable(np.float32(1))
    add, double = v.assign(v + 1.0), v.assign(v * 2.0)
    ping, pong = ts.Event(), ts.Event()
    one, two = ts.Queue(), ts.Queue()
    jobs = []
    for turn in range(1, 11):
        commands = ts.CommandBuffer(two)
        commands.wait_for(ping, turn)
        graph.encode(commands, operations=[double])
        commands.signal(pong, turn)
        jobs.append(commands.commit())
    for turn in range(1, 11):
        commands = ts.CommandBuffer(one)
        commands.wait_for(pong, turn - 1)
        graph.encode(commands, operations=[add])
        commands.signal(ping, turn)
        jobs.append(commands.commit())
    assert pong.wait(10, PATIENCE)
    assert [job.exception(PATIENCE) for job in jobs] == [None] * 20
    expected = 1.0
    for _ in range(10):
        expected = (expected + 1) * 2
    assert float(graph.variable_value(v)) == expected
    assert repr(ping) == "<Event at 10>"


def test_events_of_the_host() -> None:
    event = ts.Event()
    assert event.value == 0
    assert event.wait(0)
    assert not event.wait(1, 0)
    assert not event.wait(1, timeout=-5)
    assert not event.wait(2**64 - 1, 0.01)
    event.signal(3)
    event.signal(3)
    assert event.wait(2, 0)
    assert event.wait(3, 1e300)
    assert event.wait(3, float("inf"))
    with pytest.raises(ValueError, match="cannot go back to 2"):
        event.signal(2)
    event.signal(2**64 - 1)
    assert event.value == 2**64 - 1


@pytest.mark.parametrize(
    "value",
    [-1, 2**64, 1.0, 1.5, float("nan"), "1", None, [1], np.float32(1.5)],
)
def test_values_of_events_are_counts(value: Any) -> None:
    event, commands = ts.Event(), ts.CommandBuffer()
    for call in (event.signal, event.wait, lambda v: commands.wait_for(event, v), lambda v: commands.signal(event, v)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call(value)
    assert event.value == 0


@pytest.mark.parametrize(
    ("timeout", "error"), [(float("nan"), ValueError), ("1", TypeError), ([], TypeError), (1j, TypeError)]
)
def test_timeouts_are_numbers(doubler: Doubler, timeout: Any, error: type[Exception]) -> None:
    event, job = held(queue := ts.Queue())
    for wait in (job.wait, job.result, job.exception, queue.wait, lambda t: event.wait(1, t)):
        with pytest.raises(error):
            wait(timeout)
    event.signal(1)
    assert job.result(PATIENCE) == []


def test_failure_reaches_those_who_wait(doubler: Doubler) -> None:
    one, two = ts.Queue(), ts.Queue()
    event, gate = ts.Event(), ts.Event()
    failing = ts.CommandBuffer(one)
    failing.wait_for(gate, 1)
    failing.signal(event, 4)
    failed = failing.commit()
    waiting = ts.CommandBuffer(two)
    waiting.wait_for(event, 2)
    doubler.graph.encode(waiting, operations=[doubler.step])
    waiting.signal(chained := ts.Event(), 1)
    before = doubler.value()
    waited = waiting.commit()
    after = doubler.executable.run_async(floats(1), queue=two)
    failed.cancel()
    assert isinstance(failed.exception(PATIENCE), ts.CancelledError)
    with pytest.raises(ts.UserError, match="what was to signal 2 has failed"):
        waited.result(PATIENCE)
    for late, value in ((event, 4), (chained, 1)):
        with pytest.raises(ValueError, match=f"what was to signal {value} has failed"):
            late.wait(value, PATIENCE)
    assert after.result(PATIENCE).tolist() == [2]  # the queue goes on
    assert doubler.value() == before
    assert event.value == 0
    event.signal(4)  # whoever can mend it
    assert event.wait(4, 0)


def test_failure_of_a_later_value_leaves_earlier_ones(doubler: Doubler) -> None:
    event = ts.Event()
    gate, _ = held(one := ts.Queue())
    commands = ts.CommandBuffer(one)
    commands.signal(event, 1)
    commands.commit()
    later = ts.CommandBuffer(ts.Queue())
    later.wait_for(ts.Event(), 1)
    later.signal(event, 2)
    later.commit().cancel()
    try:
        event.wait(1, 0)  # not yet, and not lost either
    finally:
        gate.signal(1)
    assert event.wait(1, PATIENCE)


def test_callbacks_must_not_wait_for_their_own_queue(doubler: Doubler) -> None:
    queue, errors, finished = ts.Queue(), [], threading.Event()
    gate, first = held(queue)
    later = doubler.executable.run_async(floats(2), queue=queue)

    def wait(job: ts.Job) -> None:
        errors.extend(raised(call) for call in (later.wait, later.result, later.exception, queue.wait))
        errors.append(raised(job.result))  # it is done
        finished.set()

    first.add_done_callback(wait)
    gate.signal(1)
    assert finished.wait(PATIENCE)
    assert later.result(PATIENCE).tolist() == [4]
    assert errors.pop() is None
    assert len(errors) == 4
    for error in errors:
        assert isinstance(error, ts.UserError)
        assert "never" in str(error)


def test_handlers_commit_more_to_the_same_queue(doubler: Doubler) -> None:
    queue, results, finished = ts.Queue(), [], threading.Event()

    def again(job: ts.Job) -> None:
        results.append(job.result().tolist())
        if len(results) < 50:
            doubler.executable.run_async(job.result(), queue=queue).add_done_callback(again)
        else:
            finished.set()

    doubler.executable.run_async(floats(2.0**-20), queue=queue).add_done_callback(again)
    assert finished.wait(PATIENCE)
    assert results == [[2.0 ** (k - 19)] for k in range(50)]


def test_cancelling(doubler: Doubler) -> None:
    gate, blocker = held(queue := ts.Queue())
    before, calls = doubler.value(), []
    queued = doubler.graph.run_async(operations=[doubler.step], queue=queue)
    queued.add_done_callback(lambda job: calls.append(job.status))
    assert queued.cancel()
    assert calls == ["cancelled"]
    assert queued.cancel()
    assert queued.cancelled()
    assert queued.done()
    with pytest.raises(ts.CancelledError):
        queued.result()
    blocker.cancel()  # it waits for an event
    assert isinstance(blocker.exception(PATIENCE), ts.CancelledError)
    assert repr(blocker) == "<Job cancelled>"
    finished = doubler.executable.run_async(floats(1), queue=queue)
    assert finished.wait(PATIENCE)
    assert not finished.cancel()
    assert not finished.cancelled()
    assert finished.result().tolist() == [2]
    assert doubler.value() == before
    assert gate.value == 0


def test_waiting_does_not_extend_to_what_is_committed_later() -> None:
    gate, _ = held(queue := ts.Queue())
    waiting = threading.Thread(target=queue.wait, daemon=True)
    waiting.start()
    waiting.join(0.3)  # it is waiting now
    later, job = held(queue)
    waiting.join(0.3)
    gate.signal(1)
    waiting.join(2)
    try:
        assert not waiting.is_alive()
    finally:
        later.signal(1)
        job.wait(PATIENCE)


def test_waiting_includes_what_comes_before_a_cancelled_job() -> None:
    gate, first = held(queue := ts.Queue())
    _, last = held(queue)
    answers: list[tuple[bool, bool]] = []
    ended = threading.Event()
    waiting = threading.Thread(
        target=lambda: (answers.append((queue.wait(PATIENCE), first.done())), ended.set()), daemon=True
    )
    waiting.start()
    waiting.join(0.03)
    last.cancel()
    ended.wait(0.3)
    gate.signal(1)
    waiting.join(PATIENCE)
    assert answers == [(True, True)]


def test_pending_counts_what_is_not_done(doubler: Doubler) -> None:
    queue, seen, called = ts.Queue(), [], threading.Event()
    gate, job = held(queue)
    job.add_done_callback(lambda _: (seen.append(queue.pending), called.set()))
    gate.signal(1)
    assert called.wait(PATIENCE)
    assert seen == [0]


def test_many_queues(doubler: Doubler) -> None:
    jobs = [doubler.executable.run_async(floats(k), queue=ts.Queue()) for k in range(200)]
    assert [job.result(PATIENCE).tolist() for job in jobs] == [[2.0 * k] for k in range(200)]
    gc.collect()
    queue = ts.Queue()
    jobs = [doubler.executable.run_async(floats(k), queue=queue) for k in range(3000)]
    del queue  # what was committed is still done
    assert [job.result(PATIENCE).item() for job in jobs] == [2.0 * k for k in range(3000)]
