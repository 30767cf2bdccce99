"""Scaled dot product attention, alone and with its gradients, against PyTorch (eager and compiled) and JAX.

Each row is followed by our speed in GFLOP/s, of the products that the definition has: two forward, five backward.
"""

from __future__ import annotations

from collections.abc import Iterator

import common  # first: it sets the thread counts of the peers
import numpy as np

# batch, heads, heads of key and value, tokens, features
Problem = tuple[int, int, int, int, int]
PROBLEMS: dict[str, Problem] = {
    "sdpa": (2, 8, 8, 512, 64),
    "causal": (2, 8, 8, 512, 64),
    "grouped": (1, 16, 4, 1024, 128),
    "long": (1, 4, 4, 4096, 64),
}
ROWS = [(name, backward) for name in PROBLEMS for backward in (False, True)]


def row_name(name: str, backward: bool) -> str:
    return f"{name} + gradients" if backward else name


def operands(problem: Problem) -> list[np.ndarray]:
    """Query, key, value, and the gradient by the result."""
    batch, heads, kv_heads, tokens, features = problem
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((batch, count, tokens, features), dtype=np.float32)
        for count in (heads, kv_heads, kv_heads, heads)
    ]


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts

    for name, backward in ROWS:
        arrays = operands(PROBLEMS[name])[: 4 if backward else 3]
        graph = ts.Graph()
        placeholders = [graph.placeholder(a.shape) for a in arrays]
        y = ts.scaled_dot_product_attention(*placeholders[:3], causal=name == "causal")
        targets = [y]
        if backward:
            gradients = ts.gradients(y, placeholders[:3], seed=placeholders[3])
            targets += [gradients[p] for p in placeholders[:3]]
        executable = graph.compile(placeholders, targets)
        sources = [ts.NDArray(a) for a in arrays]
        yield row_name(name, backward), {"topstitch": lambda e=executable, s=sources: e.run(*s)}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    torch.set_num_threads(common.THREADS)
    for name, backward in ROWS:
        arrays = [torch.from_numpy(a) for a in operands(PROBLEMS[name])]
        options = {"is_causal": name == "causal", "enable_gqa": name == "grouped"}

        def attend(q, k, v, options=options):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        def case(function, arrays=arrays, backward=backward):
            if not backward:
                with torch.no_grad():
                    return function(*arrays[:3])
            leaves = [a.detach().requires_grad_() for a in arrays[:3]]
            return torch.autograd.grad(function(*leaves), leaves, arrays[3])

        compiled = torch.compile(attend)
        yield (
            row_name(name, backward),
            {
                "torch": lambda case=case, attend=attend: case(attend),
                "torch.compile": lambda case=case, compiled=compiled: case(compiled),
            },
        )


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    for name, backward in ROWS:
        # JAX has its tokens before its heads.
        arrays = [jax.numpy.asarray(a.swapaxes(1, 2)) for a in operands(PROBLEMS[name])]

        def attend(q, k, v, causal=name == "causal"):
            return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

        def with_gradients(q, k, v, g, attend=attend):
            y, pull = jax.vjp(attend, q, k, v)
            return y, *pull(g)

        function = jax.jit(with_gradients if backward else attend)
        chosen = arrays if backward else arrays[:3]
        yield row_name(name, backward), {"jax": lambda f=function, c=chosen: jax.block_until_ready(f(*c))}


def speed(row: str, times: dict[str, float]) -> str:
    name = row.split(" ")[0]
    batch, heads, _, tokens, features = PROBLEMS[name]
    products = (7 if "gradients" in row else 2) / (2 if name == "causal" else 1)
    return f"; {2e-9 * products * batch * heads * tokens**2 * features / times['topstitch']:.1f} GFLOP/s"


if __name__ == "__main__":
    common.compare("attention, float32", [topstitch_rows, torch_rows, jax_rows], speed)
