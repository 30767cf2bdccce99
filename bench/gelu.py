"""GELU from its five elementary operations, stitched and not, against NumPy/SciPy, PyTorch and JAX.

The limit is the machine's own two-thread copy of the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import common  # first: it sets the thread counts of the peers
import numpy as np


def inputs() -> Iterator[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    for power in (16, 20, 24):
        yield f"2^{power}", rng.standard_normal(2**power, dtype=np.float32)


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts

    def case(x: np.ndarray, stitch: bool) -> common.Case:
        graph = ts.Graph()
        placeholder = graph.placeholder(x.shape)
        y = 0.5 * placeholder * (1 + ts.erf(placeholder * 0.5**0.5))
        executable = graph.compile({placeholder: ts.ShapedType(x.shape)}, y, stitch=stitch)
        source, out = ts.NDArray(x), ts.NDArray(np.empty_like(x))
        return lambda: executable.run(source, out=out)

    for name, x in inputs():
        yield name, {"stitched": case(x, True), "stitch=False": case(x, False)}


def copy_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    """Both threads copy half each; NumPy releases the GIL while it copies."""
    pool = ThreadPoolExecutor(common.THREADS)
    for name, x in inputs():
        out = np.empty_like(x)
        pieces = list(pairwise(np.linspace(0, x.size, common.THREADS + 1).astype(int)))

        def copy(piece: tuple[int, int], x: np.ndarray = x, out: np.ndarray = out) -> None:
            np.copyto(out[piece[0] : piece[1]], x[piece[0] : piece[1]])

        yield name, {"copy": lambda copy=copy, pieces=pieces: list(pool.map(copy, pieces))}


def scipy_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    from scipy.special import erf

    for name, x in inputs():
        yield name, {"numpy+scipy": lambda x=x: 0.5 * x * (1 + erf(x * np.float32(0.5**0.5)))}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    torch.set_num_threads(common.THREADS)
    for name, x in inputs():
        t = torch.from_numpy(x)
        yield (
            name,
            {
                "torch 5 ops": lambda t=t: 0.5 * t * (1 + torch.erf(t * 0.5**0.5)),
                "torch F.gelu": lambda t=t: torch.nn.functional.gelu(t),
            },
        )


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    f = jax.jit(lambda a: 0.5 * a * (1 + jax.scipy.special.erf(a * 0.5**0.5)))
    for name, x in inputs():
        j = jax.numpy.asarray(x)
        yield name, {"jax jit": lambda j=j: f(j).block_until_ready()}


if __name__ == "__main__":
    common.compare("GELU, float32", [topstitch_rows, copy_rows, scipy_rows, torch_rows, jax_rows])
