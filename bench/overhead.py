"""The cost of a run that computes next to nothing, and of compiling small and middling graphs.

Two 16-element vectors are added from Python; a five-operation graph and the digits training graph are compiled.
"""

from __future__ import annotations

import statistics
import time

import common
import numpy as np

import topstitch as ts
from topstitch.digits import Classifier


def five_operations(k: int) -> float:
    """Compile a graph that no earlier one shares a kernel with (another constant); returns milliseconds."""
    graph = ts.Graph()
    x = graph.placeholder((1000,))
    y = 0.5 * x * (1 + ts.erf(x * (0.5 + k / 1000)))
    start = time.perf_counter()
    graph.compile([x], y)
    return (time.perf_counter() - start) * 1e3


def digits() -> tuple[float, int]:
    """Compile the digits training graph for a batch of 64; returns milliseconds and the number of kernels."""
    model = Classifier(2e-3, 0)
    start = time.perf_counter()
    executable = model.graph.compile(
        {model.images: ts.ShapedType((64, 64)), model.labels: ts.ShapedType((64,), ts.int32)}, model.loss, model.updates
    )
    return (time.perf_counter() - start) * 1e3, executable.report().kernels


def main() -> None:
    table = common.Table("overhead")
    a, b = np.arange(16, dtype=np.float32), np.ones(16, np.float32)
    graph = ts.Graph()
    x, y = graph.placeholder((16,)), graph.placeholder((16,))
    z = x + y
    executable = graph.compile([x, y], z)
    na, nb = ts.NDArray(a), ts.NDArray(b)
    cases: dict[str, common.Case] = {
        "executable, NDArray": lambda: executable.run(na, nb),
        "executable, NumPy": lambda: executable.run(a, b),
        "Graph.run": lambda: graph.run({x: a, y: b}, z),
        "numpy": lambda: a + b,
    }
    torch = common.optional_import("torch")
    if torch:
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        cases["torch"] = lambda: ta + tb
    table.row("add 16 + 16", cases)
    print(f"{'compile, 5 operations':>24}: {statistics.median(five_operations(k) for k in range(9)):.1f} ms")
    milliseconds, kernels = digits()
    print(f"{'compile, digits training':>24}: {milliseconds:.1f} ms ({kernels} kernels, none cached)")
    table.finish()


if __name__ == "__main__":
    main()
