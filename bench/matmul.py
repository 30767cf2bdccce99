"""Matrix products, square and skinny, and a linear layer with GELU, against NumPy, PyTorch and JAX.

Each row is followed by our speed in GFLOP/s.
"""

from __future__ import annotations

from collections.abc import Iterator

import common  # first: it sets the thread counts of the peers
import numpy as np

SQUARE = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
SKINNY = ((1, 1024, 4096), (64, 784, 128), (1, 784, 128), (4096, 1024, 1), (16, 1024, 1024), (2048, 64, 16))
SIZES = [(n, n, n) for n in SQUARE] + list(SKINNY)
FUSED = (512, 512, 2048)


def name_of(size: tuple[int, int, int]) -> str:
    return " x ".join(map(str, size))


def operands(size: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The factors, and a bias, of the sizes that layers have: the results' variance is about that of the rows."""
    m, k, n = size
    rng = np.random.default_rng(0)
    rows, columns, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n), (n,)))
    return rows, columns / np.float32(np.sqrt(k)), bias


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts

    def case(arrays: list[np.ndarray], fused: bool) -> common.Case:
        graph = ts.Graph()
        placeholders = [graph.placeholder(a.shape) for a in arrays]
        y = ts.matmul(*placeholders[:2])
        if fused:
            y = ts.gelu(y + placeholders[2])
        executable = graph.compile(placeholders, y)
        sources = [ts.NDArray(a) for a in arrays]
        out = ts.NDArray(np.empty(tuple(y.shape), np.float32))
        return lambda: executable.run(*sources, out=out)

    for size in SIZES:
        yield name_of(size), {"topstitch": case(list(operands(size)[:2]), False)}
    arrays = list(operands(FUSED))
    yield "linear_gelu", {"topstitch": case(arrays, True), "product alone": case(arrays[:2], False)}


def numpy_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    for size in SIZES:
        a, b, _ = operands(size)
        out = np.empty((size[0], size[2]), np.float32)
        yield name_of(size), {"numpy": lambda a=a, b=b, out=out: np.matmul(a, b, out=out)}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    torch.set_num_threads(common.THREADS)
    for size in SIZES:
        a, b, _ = (torch.from_numpy(v) for v in operands(size))
        out = torch.empty((size[0], size[2]))
        yield name_of(size), {"torch": lambda a=a, b=b, out=out: torch.matmul(a, b, out=out)}
    a, b, c = (torch.from_numpy(v) for v in operands(FUSED))
    yield "linear_gelu", {"torch": lambda: torch.nn.functional.gelu(torch.addmm(c, a, b))}


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    product = jax.jit(jax.numpy.matmul)
    for size in SIZES:
        a, b, _ = (jax.numpy.asarray(v) for v in operands(size))
        yield name_of(size), {"jax": lambda a=a, b=b: product(a, b).block_until_ready()}
    arrays = [jax.numpy.asarray(v) for v in operands(FUSED)]
    fused = jax.jit(lambda x, w, c: jax.nn.gelu(x @ w + c, approximate=False))
    yield "linear_gelu", {"jax": lambda: fused(*arrays).block_until_ready()}


def speed(name: str, times: dict[str, float]) -> str:
    m, k, n = FUSED if name == "linear_gelu" else map(int, name.split(" x "))
    return f"; {2e-9 * m * n * k / times['topstitch']:.1f} GFLOP/s"


if __name__ == "__main__":
    common.compare("matrix products, float32", [topstitch_rows, numpy_rows, torch_rows, jax_rows], speed)
