"""Softmax and layer norm over the last axis of [2048, 4096], against PyTorch, torch.compile, JAX and NumPy.

Each is one kernel here, with the row kept in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import common  # first: it sets the thread counts of the peers
import numpy as np

SHAPE = (2048, 4096)


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The data, and gain and bias of the norm."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE, dtype=np.float32)
    gain, bias = rng.standard_normal((2, SHAPE[1]), dtype=np.float32)
    return x, gain, bias


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts

    def case(build: Callable[..., Any], arrays: list[np.ndarray]) -> common.Case:
        graph = ts.Graph()
        placeholders = [graph.placeholder(a.shape) for a in arrays]
        executable = graph.compile(placeholders, build(*placeholders))
        sources = [ts.NDArray(a) for a in arrays]
        out = ts.NDArray(np.empty(SHAPE, np.float32))
        return lambda: executable.run(*sources, out=out)

    def layernorm(x: Any, gain: Any, bias: Any) -> Any:
        mean = ts.mean(x, axis=-1, keepdims=True)
        variance = ts.variance(x, axis=-1, keepdims=True)
        return (x - mean) * ts.rsqrt(variance + 1e-5) * gain + bias

    x, gain, bias = inputs()
    yield "softmax", {"topstitch": case(lambda x: ts.softmax(x, axis=-1), [x])}
    yield "layernorm", {"topstitch": case(layernorm, [x, gain, bias])}


def numpy_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    x, _, _ = inputs()

    def softmax() -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    yield "softmax", {"numpy": softmax}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    torch.set_num_threads(common.THREADS)
    x, gain, bias = (torch.from_numpy(a) for a in inputs())

    def softmax(a: Any) -> Any:
        return torch.softmax(a, -1)

    def layernorm(a: Any, c: Any, d: Any) -> Any:
        return torch.nn.functional.layer_norm(a, SHAPE[1:], c, d, 1e-5)

    def cases(function: Callable[..., Any], *arguments: Any) -> dict[str, common.Case]:
        result: dict[str, common.Case] = {"torch": lambda: function(*arguments)}
        try:
            compiled = torch.compile(function)
            compiled(*arguments)
            result["torch.compile"] = lambda: compiled(*arguments)
        except Exception as error:  # needs a compiler at run time
            print(f"torch.compile is left out: {type(error).__name__}")
        return result

    yield "softmax", cases(softmax, x)
    yield "layernorm", cases(layernorm, x, gain, bias)


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    x, gain, bias = (jax.numpy.asarray(a) for a in inputs())
    softmax = jax.jit(lambda a: jax.nn.softmax(a, -1))
    norm = jax.jit(
        lambda a, c, d: (a - a.mean(-1, keepdims=True)) * jax.lax.rsqrt(a.var(-1, keepdims=True) + 1e-5) * c + d
    )
    yield "softmax", {"jax": lambda: softmax(x).block_until_ready()}
    yield "layernorm", {"jax": lambda: norm(x, gain, bias).block_until_ready()}


if __name__ == "__main__":
    common.compare("row kernels, float32 [2048, 4096]", [topstitch_rows, numpy_rows, torch_rows, jax_rows])
