"""GELU from its five elementary operations, stitched and not, against NumPy/SciPy, PyTorch and JAX.

The limit is the machine's own two-thread copy of the same bytes.
"""

from __future__ import annotations

from itertools import pairwise

import common  # first: it sets the thread counts of the peers
import numpy as np

import topstitch as ts


def topstitch_case(x: np.ndarray, stitch: bool) -> common.Case:
    graph = ts.Graph()
    placeholder = graph.placeholder(x.shape)
    y = 0.5 * placeholder * (1 + ts.erf(placeholder * 0.5**0.5))
    executable = graph.compile({placeholder: ts.ShapedType(x.shape)}, y, stitch=stitch)
    out = ts.NDArray(np.empty_like(x))
    source = ts.NDArray(x)
    return lambda: executable.run(source, out=out)


def copy_case(x: np.ndarray) -> common.Case:
    """Both threads copy half each; NumPy releases the GIL while it copies."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(common.THREADS)
    out = np.empty_like(x)
    edges = np.linspace(0, x.size, common.THREADS + 1).astype(int)
    pieces = list(pairwise(edges))

    def run() -> None:
        list(pool.map(lambda piece: np.copyto(out[piece[0] : piece[1]], x[piece[0] : piece[1]]), pieces))

    return run


def scipy_case(x: np.ndarray) -> common.Case:
    from scipy.special import erf

    return lambda: 0.5 * x * (1 + erf(x * np.float32(0.5**0.5)))


def main() -> None:
    table = common.Table("GELU, float32")
    torch = common.optional_import("torch")
    jax = common.optional_import("jax")
    rng = np.random.default_rng(0)
    for power in (16, 20, 24):
        x = rng.standard_normal(2**power, dtype=np.float32)
        cases: dict[str, common.Case] = {
            "stitched": topstitch_case(x, True),
            "stitch=False": topstitch_case(x, False),
            "copy": copy_case(x),
            "numpy+scipy": scipy_case(x),
        }
        if torch:
            torch.set_num_threads(common.THREADS)
            t = torch.from_numpy(x)
            cases["torch 5 ops"] = lambda t=t: 0.5 * t * (1 + torch.erf(t * 0.5**0.5))
            cases["torch F.gelu"] = lambda t=t: torch.nn.functional.gelu(t)
        if jax:
            import jax.numpy as jnp

            j = jnp.asarray(x)
            f = jax.jit(lambda a: 0.5 * a * (1 + jax.scipy.special.erf(a * 0.5**0.5)))
            cases["jax jit"] = lambda j=j, f=f: f(j).block_until_ready()
        table.row(f"2^{power}", cases)
    table.finish()


if __name__ == "__main__":
    main()
