"""Softmax and layer norm over the last axis of [2048, 4096], against PyTorch, torch.compile, JAX and NumPy.

Each is one kernel here, with the row kept in cache.
"""

from __future__ import annotations

import common  # first: it sets the thread counts of the peers
import numpy as np

import topstitch as ts

SHAPE = (2048, 4096)


def topstitch_case(build, arrays: list[np.ndarray]) -> common.Case:
    graph = ts.Graph()
    placeholders = [graph.placeholder(a.shape) for a in arrays]
    executable = graph.compile(placeholders, build(*placeholders))
    sources = [ts.NDArray(a) for a in arrays]
    out = ts.NDArray(np.empty(SHAPE, np.float32))
    return lambda: executable.run(*sources, out=out)


def layernorm(x, gain, bias):
    mean = ts.mean(x, axis=-1, keepdims=True)
    variance = ts.variance(x, axis=-1, keepdims=True)
    return (x - mean) * ts.rsqrt(variance + 1e-5) * gain + bias


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def main() -> None:
    table = common.Table("row kernels, float32 [2048, 4096]")
    torch = common.optional_import("torch")
    jax = common.optional_import("jax")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE, dtype=np.float32)
    gain, bias = rng.standard_normal((2, SHAPE[1]), dtype=np.float32)
    softmax: dict[str, common.Case] = {"topstitch": topstitch_case(lambda x: ts.softmax(x, axis=-1), [x])}
    norm: dict[str, common.Case] = {"topstitch": topstitch_case(layernorm, [x, gain, bias])}
    softmax["numpy"] = lambda: numpy_softmax(x)
    if torch:
        torch.set_num_threads(common.THREADS)
        t, g, b = (torch.from_numpy(a) for a in (x, gain, bias))
        softmax["torch"] = lambda: torch.softmax(t, -1)
        norm["torch"] = lambda: torch.nn.functional.layer_norm(t, SHAPE[1:], g, b, 1e-5)
        try:
            compiled_softmax = torch.compile(lambda a: torch.softmax(a, -1))
            compiled_norm = torch.compile(lambda a, c, d: torch.nn.functional.layer_norm(a, SHAPE[1:], c, d, 1e-5))
            compiled_softmax(t), compiled_norm(t, g, b)
            softmax["torch.compile"] = lambda: compiled_softmax(t)
            norm["torch.compile"] = lambda: compiled_norm(t, g, b)
        except Exception as error:  # needs a compiler at run time
            print(f"torch.compile is left out: {type(error).__name__}")
    if jax:
        import jax.numpy as jnp

        j, jg, jb = (jnp.asarray(a) for a in (x, gain, bias))
        jit_softmax = jax.jit(lambda a: jax.nn.softmax(a, -1))
        jit_norm = jax.jit(
            lambda a, c, d: (a - a.mean(-1, keepdims=True)) * jax.lax.rsqrt(a.var(-1, keepdims=True) + 1e-5) * c + d
        )
        softmax["jax"] = lambda: jit_softmax(j).block_until_ready()
        norm["jax"] = lambda: jit_norm(j, jg, jb).block_until_ready()
    table.row("softmax", softmax)
    table.row("layernorm", norm)
    table.finish()


if __name__ == "__main__":
    main()
