"""The cost of a run that computes next to nothing, and of compiling small and middling graphs.

Two 16-element vectors are added from Python; a five-operation graph and the digits training graph are compiled.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import common
import numpy as np

import topstitch as ts
from topstitch.examples.digits import Classifier


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


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    a, b = np.arange(16, dtype=np.float32), np.ones(16, np.float32)
    graph = ts.Graph()
    x, y = graph.placeholder((16,)), graph.placeholder((16,))
    z = x + y
    executable = graph.compile([x, y], z)
    na, nb = ts.NDArray(a), ts.NDArray(b)
    yield (
        "add 16 + 16",
        {
            "executable, NDArray": lambda: executable.run(na, nb),
            "executable, NumPy": lambda: executable.run(a, b),
            "Graph.run": lambda: graph.run({x: a, y: b}, z),
        },
    )


def numpy_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    a, b = np.arange(16, dtype=np.float32), np.ones(16, np.float32)
    yield "add 16 + 16", {"numpy": lambda: a + b}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    a, b = torch.arange(16.0), torch.ones(16)
    yield "add 16 + 16", {"torch": lambda: a + b}


def main() -> None:
    common.compare("overhead", [topstitch_rows, numpy_rows, torch_rows])
    print(f"{'compile, 5 operations':>24}: {statistics.median(five_operations(k) for k in range(9)):.1f} ms")
    milliseconds, kernels = digits()
    print(f"{'compile, digits training':>24}: {milliseconds:.1f} ms ({kernels} kernels, none cached)")


if __name__ == "__main__":
    main()
