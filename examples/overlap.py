"""Prepare the next batch while the last one is computed: double buffering with a queue and a semaphore.

Prints what a loop that does one after the other takes, what the overlapped loop takes, and the gain.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

import topstitch as ts
from topstitch.examples._command_line import at_least, run_example

Batch = npt.NDArray[np.float32]


def make_model(features: int, layers: int) -> ts.Executable:
    """A few dense layers; compiled for any batch size, on one thread, which leaves a core to the preparation."""
    graph = ts.Graph()
    x = graph.placeholder((-1, features), name="x")
    random = np.random.default_rng(0)
    y = x
    for _ in range(layers):
        weights = random.standard_normal((features, features), dtype=np.float32) / np.float32(features**0.5)
        y = ts.gelu(y @ weights)
    return graph.compile([x], ts.mean(y, axis=1), threads=1)


def make_preparation(rows: int, features: int, steps: int) -> Callable[[int], Batch]:
    """What a data pipeline does, here with NumPy: it works on large arrays and lets other threads run."""
    image = np.random.default_rng(1).standard_normal((rows, features), dtype=np.float32)

    def prepare(number: int) -> Batch:
        batch: Batch = image + np.float32(number)
        for _ in range(steps):
            np.sqrt(np.abs(batch), out=batch)
            batch -= batch.mean(axis=1, keepdims=True)
        return batch

    return prepare


def run_serially(prepare: Callable[[int], Batch], model: ts.Executable, batches: int) -> list[npt.NDArray[np.float32]]:
    return [np.asarray(model.run(prepare(number))) for number in range(batches)]


def run_overlapped(
    prepare: Callable[[int], Batch], model: ts.Executable, batches: int, in_flight: int = 2
) -> list[npt.NDArray[np.float32]]:
    """The same results: a batch is handed to the queue and the next one prepared meanwhile.

    The semaphore bounds how many batches are in flight, and so how much memory they take.
    """
    queue = ts.Queue(label="model")
    free = threading.BoundedSemaphore(in_flight)
    jobs = []
    for number in range(batches):
        batch = prepare(number)
        free.acquire()
        job = model.run_async(batch, queue=queue)
        job.add_done_callback(lambda _: free.release())  # also when it fails: the error waits in the job
        jobs.append(job)
    return [np.asarray(job.result()) for job in jobs]


def seconds_of(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def balanced_steps(model: ts.Executable, rows: int, features: int) -> int:
    """How many steps of preparation take as long as the model."""
    prepare = make_preparation(rows, features, 4)
    batch = prepare(0)
    model.run(batch)
    running = min(seconds_of(lambda: model.run(batch)) for _ in range(5))
    step = min(seconds_of(lambda: prepare(1)) for _ in range(5)) / 4
    return max(1, round(running / step))


def measure(
    rows: int = 256, features: int = 512, layers: int = 6, batches: int = 48, rounds: int = 5
) -> tuple[float, float]:
    """Median seconds of the serial and of the overlapped loop, which take turns."""
    model = make_model(features, layers)
    prepare = make_preparation(rows, features, balanced_steps(model, rows, features))
    serial, overlapped = [], []
    for _ in range(rounds):
        serial.append(seconds_of(lambda: run_serially(prepare, model, batches)))
        overlapped.append(seconds_of(lambda: run_overlapped(prepare, model, batches)))
    return sorted(serial)[rounds // 2], sorted(overlapped)[rounds // 2]


def report(batches: int) -> None:
    serial, overlapped = measure(batches=batches)
    print(f"one after the other: {serial * 1e3:.0f} ms; overlapped: {overlapped * 1e3:.0f} ms; ", end="")
    print(f"{serial / overlapped:.2f} times as fast")


def main(arguments: Sequence[str]) -> int:
    """Run the example; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m topstitch overlap", description=__doc__)
    parser.add_argument("--batches", type=at_least(1), default=48)
    options = parser.parse_args(arguments)
    return run_example("overlap", lambda: report(options.batches))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
