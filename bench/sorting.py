"""Cumulative sums, sort, argsort and top-k of float32, against PyTorch, JAX and NumPy.

One long row, a square matrix along both axes, many short rows, and the first ten of long rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import common  # first: it sets the thread counts of the peers
import numpy as np

K = 10
ROWS = [
    ("cumsum 1M", (1_000_000,), "cumsum", 0),
    ("cumsum 1000x1000", (1000, 1000), "cumsum", 1),
    ("cumsum 1000x1000 down", (1000, 1000), "cumsum", 0),
    ("cumsum 8192x4096", (8192, 4096), "cumsum", 1),
    ("cummax 1000x1000", (1000, 1000), "cummax", 1),
    ("cumprod 1000x1000", (1000, 1000), "cumprod", 1),
    ("sort 1M", (1_000_000,), "sort", 0),
    ("sort 1000x1000", (1000, 1000), "sort", 1),
    ("sort 100000x32", (100_000, 32), "sort", 1),
    ("argsort 1M", (1_000_000,), "argsort", 0),
    ("argsort 1000x1000", (1000, 1000), "argsort", 1),
    ("argsort 100000x32", (100_000, 32), "argsort", 1),
    ("top 10 of 1000x50000", (1000, 50_000), "top_k", 1),
    ("top 10 of 1M", (1_000_000,), "top_k", 0),
]


def data(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def rows(
    make: Callable[[str, np.ndarray, int], dict[str, common.Case]],
) -> Iterator[tuple[str, dict[str, common.Case]]]:
    for name, shape, kind, axis in ROWS:
        yield name, make(kind, data(shape), axis)


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts

    def case(kind: str, array: np.ndarray, axis: int) -> dict[str, common.Case]:
        graph = ts.Graph()
        x = graph.placeholder(array.shape)
        y: Any = {
            "cumsum": lambda: ts.cumulative_sum(x, axis=axis),
            "cumprod": lambda: ts.cumulative_product(x, axis=axis),
            "cummax": lambda: ts.cumulative_maximum(x, axis=axis),
            "sort": lambda: ts.sort(x, axis=axis),
            "argsort": lambda: ts.argsort(x, axis=axis),
            "top_k": lambda: list(ts.top_k(x, K, axis=axis)),
        }[kind]()
        executable = graph.compile([x], y)
        source = ts.NDArray(array)
        return {"topstitch": lambda: executable.run(source)}

    return rows(case)


def numpy_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    def case(kind: str, array: np.ndarray, axis: int) -> dict[str, common.Case]:
        def top_k() -> np.ndarray:
            places = np.argpartition(array, -K, axis)
            places = np.take(places, np.arange(-K, 0), axis)
            few = np.take_along_axis(array, places, axis)
            return np.take_along_axis(few, np.argsort(-few, axis), axis)

        return {
            "numpy": {
                "cumsum": lambda: np.cumsum(array, axis),
                "cumprod": lambda: np.cumprod(array, axis),
                "cummax": lambda: np.maximum.accumulate(array, axis),
                "sort": lambda: np.sort(array, axis),
                "argsort": lambda: np.argsort(array, axis, kind="stable"),
                "top_k": top_k,
            }[kind]
        }

    return rows(case)


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    torch.set_num_threads(common.THREADS)

    def case(kind: str, array: np.ndarray, axis: int) -> dict[str, common.Case]:
        x = torch.from_numpy(array)
        return {
            "torch": {
                "cumsum": lambda: torch.cumsum(x, axis),
                "cumprod": lambda: torch.cumprod(x, axis),
                "cummax": lambda: torch.cummax(x, axis),
                "sort": lambda: torch.sort(x, axis),
                "argsort": lambda: torch.argsort(x, stable=True, dim=axis),
                "top_k": lambda: torch.topk(x, K, axis),
            }[kind]
        }

    return rows(case)


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    def case(kind: str, array: np.ndarray, axis: int) -> dict[str, common.Case]:
        x = jax.numpy.asarray(array)
        function = jax.jit(
            {
                "cumsum": lambda a: jax.numpy.cumsum(a, axis),
                "cumprod": lambda a: jax.numpy.cumprod(a, axis),
                "cummax": lambda a: jax.lax.cummax(a, axis),
                "sort": lambda a: jax.numpy.sort(a, axis),
                "argsort": lambda a: jax.numpy.argsort(a, axis),
                "top_k": lambda a: jax.lax.top_k(a, K),
            }[kind]
        )
        return {"jax": lambda: jax.block_until_ready(function(x))}

    return rows(case)


if __name__ == "__main__":
    common.compare(
        "Cumulative sums and sorting, float32", [topstitch_rows, torch_rows, jax_rows, numpy_rows], common.best_peer
    )
