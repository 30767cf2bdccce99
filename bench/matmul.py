"""Matrix products, square and skinny, and a linear layer with GELU, against NumPy, PyTorch and JAX.

Each row is followed by our speed in GFLOP/s. The peers' threads may spin beside ours for a while after their turn.
"""

from __future__ import annotations

import common  # first: it sets the thread counts of the peers
import numpy as np

import topstitch as ts

SQUARE = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
SKINNY = ((1, 1024, 4096), (64, 784, 128), (1, 784, 128), (4096, 1024, 1), (16, 1024, 1024), (2048, 64, 16))


def product(a: np.ndarray, b: np.ndarray) -> common.Case:
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape), graph.placeholder(b.shape)
    executable = graph.compile({x: ts.ShapedType(a.shape), w: ts.ShapedType(b.shape)}, ts.matmul(x, w))
    left, right = ts.NDArray(a), ts.NDArray(b)
    out = ts.NDArray(np.empty((a.shape[0], b.shape[1]), np.float32))
    return lambda: executable.run(left, right, out=out)


def linear_gelu(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> common.Case:
    graph = ts.Graph()
    x, w, c = (graph.placeholder(v.shape) for v in (a, b, bias))
    feeds = {t: ts.ShapedType(tuple(t.shape)) for t in (x, w, c)}
    executable = graph.compile(feeds, ts.gelu(ts.matmul(x, w) + c))
    arrays = [ts.NDArray(v) for v in (a, b, bias)]
    out = ts.NDArray(np.empty((a.shape[0], b.shape[1]), np.float32))
    return lambda: executable.run(*arrays, out=out)


def peers(a: np.ndarray, b: np.ndarray) -> dict[str, common.Case]:
    cases: dict[str, common.Case] = {}
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    cases["numpy"] = lambda: np.matmul(a, b, out=out)
    if torch := common.optional_import("torch"):
        torch.set_num_threads(common.THREADS)
        left, right, result = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(np.empty_like(out))
        cases["torch"] = lambda: torch.matmul(left, right, out=result)
    if jax := common.optional_import("jax"):
        left_j, right_j = jax.numpy.asarray(a), jax.numpy.asarray(b)
        f = jax.jit(jax.numpy.matmul)
        cases["jax"] = lambda: f(left_j, right_j).block_until_ready()
    return cases


def fused_peers(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> dict[str, common.Case]:
    cases: dict[str, common.Case] = {}
    if torch := common.optional_import("torch"):
        left, right, c = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(bias)
        cases["torch"] = lambda: torch.nn.functional.gelu(torch.addmm(c, left, right))
    if jax := common.optional_import("jax"):
        f = jax.jit(lambda x, w, c: jax.nn.gelu(x @ w + c, approximate=False))
        arrays = [jax.numpy.asarray(v) for v in (a, b, bias)]
        cases["jax"] = lambda: f(*arrays).block_until_ready()
    return cases


def main() -> None:
    table = common.Table("matrix products, float32")
    rng = np.random.default_rng(0)
    sizes = [(n, n, n) for n in SQUARE] + list(SKINNY)
    for m, k, n in sizes:
        a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
        times = table.row(f"{m} x {k} x {n}", {"topstitch": product(a, b), **peers(a, b)})
        print(f"{'':>26}{2e-9 * m * n * k / times['topstitch']:.1f} GFLOP/s")
    a, b = rng.standard_normal((512, 512), dtype=np.float32), rng.standard_normal((512, 2048), dtype=np.float32)
    bias = rng.standard_normal(2048, dtype=np.float32)
    table.row(
        "linear_gelu", {"topstitch": linear_gelu(a, b, bias), "product alone": product(a, b), **fused_peers(a, b, bias)}
    )
    table.finish()


if __name__ == "__main__":
    main()
