"""Jobs: results in every form, exceptions, callbacks, asyncio, and who keeps what alive.

Work that must still be in flight waits for an event.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import PATIENCE, Doubler, floats, held, raised


@pytest.fixture(scope="module")
def doubler() -> Doubler:
    return Doubler()


def test_results_have_the_form_of_targets(doubler: Doubler) -> None:
    g, x, y = doubler.graph, doubler.x, doubler.double
    feeds = {x: floats(1, 2)}
    assert g.run_async(feeds, y).result(PATIENCE).tolist() == [2, 4]
    assert [r.tolist() for r in g.run_async(feeds, [y, x]).result(PATIENCE)] == [[2, 4], [1, 2]]
    pair = g.run_async(feeds, (y,)).result(PATIENCE)
    assert isinstance(pair, tuple)
    assert pair[0].tolist() == [2, 4]
    named = g.run_async(feeds, {"y": y, 3: x}).result(PATIENCE)
    assert {key: value.tolist() for key, value in named.items()} == {"y": [2, 4], 3: [1, 2]}
    assert g.run_async({}, operations=[doubler.step]).result(PATIENCE) == []
    job = doubler.executable.run_async([floats(3)])
    assert job.result(PATIENCE).tolist() == job.result().tolist() == [6]
    assert job.exception() is None
    assert job.done()
    assert not job.running()
    assert not job.cancelled()


def test_results_into_given_arrays(doubler: Doubler) -> None:
    executable = doubler.graph.compile([doubler.x], [doubler.double, ts.sum(doubler.x)])
    strided, total = np.zeros(6, np.float32)[::-2], np.zeros((), np.float32)
    out = (strided, total)
    job = executable.run_async(floats(1, 2, 3), out=out, queue=ts.Queue())
    assert job.result(PATIENCE) is out
    assert strided.tolist() == [2, 4, 6]
    assert total == 6
    array = floats(1, 2)
    assert doubler.executable.run_async(array, out=array).result(PATIENCE) is array
    assert array.tolist() == [2, 4]


@pytest.mark.parametrize("feed", [np.ones(3, np.int32), np.ones((2, 2), np.float32), floats(1).reshape(1, 1, 1)])
def test_exceptions_are_those_of_run(doubler: Doubler, feed: np.ndarray) -> None:
    error = raised(doubler.executable.run, feed)
    assert error is not None
    job = doubler.executable.run_async(feed)
    reported = job.exception(PATIENCE)
    assert type(reported) is type(error)
    assert str(reported) == str(error)
    with pytest.raises(type(error)):
        job.result()
    assert job.status == "failed"
    assert raised(doubler.executable.run_async(floats(1), out=floats(1, 2)).result, PATIENCE).__class__ is ts.UserError
    for wrong in (None, "text", object()):
        with pytest.raises((TypeError, ValueError)):
            doubler.executable.run_async(wrong)
    with pytest.raises(TypeError):
        doubler.graph.run_async({doubler.x: floats(1)}, doubler.double, ts.Queue())
    with pytest.raises(TypeError, match="option"):
        doubler.graph.run_async({doubler.x: floats(1)}, doubler.double, thread=1)


def test_timeouts(doubler: Doubler) -> None:
    gate, job = held(ts.Queue())
    assert not job.wait(0)
    assert not job.wait(-1)
    assert not job.wait(timeout=0.01)
    for call in (job.result, job.exception):
        with pytest.raises(TimeoutError, match=r"not done after 0\.01 s"):
            call(timeout=0.01)
    gate.signal(1)
    assert job.wait(1e308)
    assert job.result(float("inf")) == []


def test_callbacks(doubler: Doubler, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_value))
    gate, job = held(queue := ts.Queue())
    seen: list[Any] = []
    finished = threading.Event()

    def fail(_: ts.Job) -> None:
        raise LookupError("on purpose")

    def leave(_: ts.Job) -> None:
        sys.exit(3)

    job.add_done_callback(fail)
    for k in range(500):
        job.add_done_callback(lambda done, k=k: seen.append((k, done is job, done.done())))
    job.add_done_callback(leave)
    job.add_done_callback(lambda: None)  # takes no argument
    job.add_done_callback(lambda _: finished.set())
    for wrong in (None, 7, "f"):
        with pytest.raises(TypeError):
            job.add_done_callback(wrong)
    assert seen == []
    gate.signal(1)
    assert finished.wait(PATIENCE)
    assert seen == [(k, True, True) for k in range(500)]
    seen.clear()
    job.add_done_callback(seen.append)  # at once, on this thread
    assert seen == [job]
    job.add_done_callback(fail)
    assert [type(error) for error in reported] == [LookupError, SystemExit, TypeError, LookupError]
    assert doubler.executable.run_async(floats(1), queue=queue).result(PATIENCE).tolist() == [2]


def test_callbacks_of_failed_and_cancelled_jobs(doubler: Doubler) -> None:
    done = threading.Semaphore(0)
    failed = doubler.executable.run_async(np.ones((2, 2), np.float32))
    failed.add_done_callback(lambda _: done.release())
    gate, _ = held(queue := ts.Queue())
    cancelled = doubler.executable.run_async(floats(1), queue=queue)
    cancelled.add_done_callback(lambda _: done.release())
    cancelled.cancel()
    assert all(done.acquire(timeout=PATIENCE) for _ in range(2))
    gate.signal(1)


def test_await(doubler: Doubler) -> None:
    async def one(k: int) -> float:
        return (await doubler.executable.run_async(floats(k))).item()

    async def main() -> None:
        assert await asyncio.gather(*(one(k) for k in range(40))) == [2.0 * k for k in range(40)]
        jobs = [doubler.executable.run_async(floats(k)) for k in range(5)]
        assert [r.item() for r in await asyncio.gather(*jobs)] == [0, 2, 4, 6, 8]
        assert (await asyncio.wait_for(doubler.executable.run_async(floats(1)), PATIENCE)).item() == 2
        with pytest.raises(ts.DTypeError):
            await doubler.executable.run_async(np.ones(1, np.int8))
        executable = await doubler.graph.compile_async([doubler.x], doubler.double + 1.0)
        assert executable.run(floats(1)).item() == 3
        gate, job = held(ts.Queue())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(job, 0.01)
        task = asyncio.ensure_future(job)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.signal(1)
        assert await job == []
        assert await job == []  # again

    asyncio.run(main())


def test_loop_closed_before_the_job_is_done(doubler: Doubler) -> None:
    gate, job = held(ts.Queue())

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(job, 0.01)

    asyncio.run(main())
    gate.signal(1)
    assert job.result(PATIENCE) == []


def test_a_job_that_nobody_holds_still_runs(doubler: Doubler) -> None:
    gate, _ = held(queue := ts.Queue())
    before = doubler.value()
    for _ in range(3):
        doubler.graph.run_async(operations=[doubler.step], queue=queue)
    gc.collect()
    gate.signal(1)
    assert queue.wait(PATIENCE)
    assert doubler.value() == before + 3


def test_results_outlive_everything() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder((-1,)), graph.variable(floats(1, 2))
    queue = ts.Queue()
    gate, _ = held(queue)
    array = floats(3, 4)
    job = graph.run_async({x: array}, (x * w, w), queue=queue)
    alive = weakref.ref(array)
    del graph, x, w, queue, array
    gc.collect()
    junk = [np.full(2, 7, np.float32) for _ in range(100)]
    assert alive() is not None  # in use by the run
    gate.signal(1)
    product, value = job.result(PATIENCE)
    del job, junk
    gc.collect()
    assert product.tolist() == [3, 8]
    assert value.tolist() == [1, 2]


def test_feeds_are_let_go_when_the_run_is_done(doubler: Doubler) -> None:
    gate, _ = held(queue := ts.Queue())
    array = floats(1)
    alive = weakref.ref(array)
    job = doubler.executable.run_async(array, queue=queue)
    del array
    assert alive() is not None
    gate.signal(1)
    assert job.wait(PATIENCE)
    assert alive() is None


def test_memory_in_flight_cannot_be_resized(doubler: Doubler) -> None:
    gate, _ = held(queue := ts.Queue())
    array, raw = floats(1, 2), bytearray(floats(3, 4).tobytes())
    jobs = [
        doubler.executable.run_async(array, queue=queue),
        doubler.executable.run_async(ts.from_buffer(raw, dtype="float32", shape=(2,)), queue=queue),
    ]
    with pytest.raises(ValueError, match="resize"):
        array.resize(1 << 20)
    with pytest.raises(BufferError):
        raw.extend(bytes(1 << 20))
    gate.signal(1)
    assert [job.result(PATIENCE).tolist() for job in jobs] == [[2, 4], [6, 8]]
    raw.extend(b"more")  # nobody uses it any more


def test_memory_in_flight_cannot_be_resized_by_force(doubler: Doubler) -> None:
    gate, _ = held(queue := ts.Queue())
    array = np.ones(1 << 20, np.float32)
    job = doubler.executable.run_async(array, queue=queue)
    with pytest.raises(ValueError, match="resize"):
        array.resize(1, refcheck=False)
    gate.signal(1)
    assert job.result(PATIENCE)[-1] == 2


def test_targets_are_those_of_the_call(doubler: Doubler) -> None:
    targets = {"y": doubler.double}
    executable = doubler.graph.compile([doubler.x], targets)
    gate, _ = held(queue := ts.Queue())
    job = doubler.graph.run_async({doubler.x: floats(1)}, targets, queue=queue)
    targets.update((k, doubler.x) for k in range(100))
    gate.signal(1)
    assert {key: r.tolist() for key, r in job.result(PATIENCE).items()} == {"y": [2]}
    assert {key: r.tolist() for key, r in executable.run(floats(1)).items()} == {"y": [2]}
    targets.clear()
    assert list(executable.run(floats(1))) == ["y"]


def test_feeds_that_change_while_they_are_read() -> None:
    graph = ts.Graph()
    a, b = graph.placeholder((4,)), graph.placeholder((4,))

    class Hostile:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            feeds.clear()
            gc.collect()
            return np.ones(4, np.float32)

    feeds: dict[ts.Tensor, Any] = {a: Hostile(), b: np.arange(4, dtype=np.float32) + 0}
    assert graph.run(feeds, a + b).tolist() == [1, 2, 3, 4]


def test_beside_concurrent_futures(doubler: Doubler) -> None:
    """A job that is bridged to a Future by a callback, and jobs waited for in a pool."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    gate, job = held(ts.Queue())
    job.add_done_callback(lambda done: future.set_result(done.result()))
    assert not future.done()
    gate.signal(1)
    assert future.result(PATIENCE) == []
    jobs = [doubler.executable.run_async(floats(k)) for k in range(20)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert [r.item() for r in pool.map(lambda job: job.result(PATIENCE), jobs)] == [2.0 * k for k in range(20)]
    gate, _ = held(queue := ts.Queue())
    cancelled = doubler.executable.run_async(floats(1), queue=queue)
    cancelled.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        cancelled.result(PATIENCE)
    gate.signal(1)


def test_a_loop_that_updates_what_it_carries_in_place_can_be_cancelled() -> None:
    """No variable is changed by it; it would not end before the sun does."""
    graph = ts.Graph()
    x = graph.placeholder((), dtype=ts.float64)
    endless = ts.while_loop(lambda s: s < 1e18, lambda s: s + 1.0, x)
    job = graph.run_async({x: 0.0}, [endless])
    while job.status != "running":
        time.sleep(0.001)
    job.cancel()
    assert job.wait(30)
    assert job.status == "cancelled"
