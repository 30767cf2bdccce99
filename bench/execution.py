"""What running costs besides the kernels: unseen batch sizes, warm starts, overlap, threads, feeds of any strides.

Each figure stands with the bound that it is held to. Overheads of single runs are in overhead.py.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable

import common  # sets the numbers of threads before NumPy is imported
import numpy as np

import topstitch as ts
from topstitch.examples import overlap

WARM = """
import time
start = time.perf_counter()
import numpy as np
import topstitch as ts
imported = time.perf_counter()
graph = ts.Graph()
x = graph.placeholder((-1, 64), name="x")
y, targets = x, []
for k in range(50):  # a product and a sum each: 100 kernels
    y = ts.tanh(y @ np.full((64, 64), 0.01 * (k + 1), np.float32) + 0.1 * k)
    targets.append(ts.sum(y, axis=1))
built = time.perf_counter()
graph.run({x: np.ones((32, 64), np.float32)}, targets)
done = time.perf_counter()
print(imported - start, built - imported, done - built)
"""

# The same from a process that serves a trained model: weights and inputs come from a file, and nothing needs NumPy,
# whose import takes longer than all of topstitch's part.
WARM_ALONE = """
import sys, time
start = time.perf_counter()
import topstitch as ts
imported = time.perf_counter()
arrays = ts.load_arrays(sys.argv[1])
graph = ts.Graph()
x = graph.placeholder((-1, 64), name="x")
y, targets = x, []
for k in range(50):  # a product and a sum each: 100 kernels
    y = ts.tanh(y @ arrays[f"weights{k}"] + 0.1 * k)
    targets.append(ts.sum(y, axis=1))
built = time.perf_counter()
graph.run({x: arrays["x"]}, targets)
done = time.perf_counter()
assert "numpy" not in sys.modules
print(imported - start, built - imported, done - built)
"""


def milliseconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def unseen_batch() -> None:
    """The first run with a batch size, beside the second."""
    graph = ts.Graph()
    x = graph.placeholder((-1, 64), name="x")
    y = x
    for k in range(10):
        y = ts.tanh(y @ np.full((64, 64), 0.01 * (k + 1), np.float32))
    graph.run({x: np.ones((32, 64), np.float32)}, y)
    first, again = [], []
    for batch in range(33, 133):
        array = np.ones((batch, 64), np.float32)
        first.append(milliseconds(lambda array=array: graph.run({x: array}, y)))
        again.append(milliseconds(lambda array=array: graph.run({x: array}, y)))
    extra = statistics.median(a - b for a, b in zip(first, again, strict=True))
    print(f"unseen batch size, 10 kernels: {extra * 1e3:.0f} us more than a seen one (asked: 1000); "
          f"{statistics.median(first):.3f} and {statistics.median(again):.3f} ms")  # fmt: skip


def overlap_gain() -> None:
    serial, overlapped = overlap.measure()
    print(f"overlap of preparation and execution: {serial / overlapped:.2f} times as fast (asked: 1.6); "
          f"{serial * 1e3:.0f} and {overlapped * 1e3:.0f} ms")  # fmt: skip


def many_threads() -> None:
    """Runs of one executable from many threads, of one kernel thread each, beside runs from one."""
    graph = ts.Graph()
    x = graph.placeholder((128, 128), name="x")
    executable = graph.compile([x], ts.softmax(ts.tanh(x @ x), axis=1), threads=1)
    inputs = [np.full((128, 128), 0.01 * k, np.float32) for k in range(16)]
    runs = 100

    def work(k: int) -> None:
        for _ in range(runs):
            executable.run(inputs[k])

    def from_threads(count: int) -> float:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return count * runs / (time.perf_counter() - start)

    rates = {count: statistics.median(from_threads(count) for _ in range(5)) for count in (1, 2, 16)}
    counts = ", ".join(f"{count} threads {rate:.0f}" for count, rate in rates.items())
    print(f"runs a second of one executable: {counts} ({rates[16] / rates[1]:.2f} times; {os.cpu_count()} cores)")


def strided_feeds() -> None:
    """A feed that is not packed, read in place, beside one that is packed for each run."""
    base = np.random.default_rng(0).standard_normal((2048, 4096), dtype=np.float32)
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), name="x")
    y = ts.sum(ts.tanh(x), axis=1)
    for name, view in {
        "every other row": base[::2],
        "columns 100 to 2148": base[:, 100:2148],
        "transposed": base.T,
    }.items():
        times: dict[str, list[float]] = {"in place": [], "packed first": []}
        for _ in range(9):
            times["in place"].append(milliseconds(lambda view=view: graph.run({x: view}, y)))
            times["packed first"].append(milliseconds(lambda view=view: graph.run({x: np.ascontiguousarray(view)}, y)))
        medians = {key: statistics.median(values) for key, values in times.items()}
        print(f"feed of {name}: in place {medians['in place']:.2f} ms, packed first {medians['packed first']:.2f} ms")


def main() -> None:
    print(f"execution; {common.THREADS} threads")
    common.first_runs("100 kernels, NumPy imported too", WARM, asked=(None, None))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/arrays.safetensors"
        weights = {f"weights{k}": np.full((64, 64), 0.01 * (k + 1), np.float32) for k in range(50)}
        ts.save_arrays(path, weights | {"x": np.ones((32, 64), np.float32)})
        common.first_runs("100 kernels", WARM_ALONE, asked=(None, 0.2), arguments=[path])
    unseen_batch()
    overlap_gain()
    many_threads()
    strided_feeds()


if __name__ == "__main__":
    main()
