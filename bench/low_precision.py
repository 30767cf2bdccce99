"""Products of int8 and of bfloat16 beside those of float32, against PyTorch.

int8 is multiplied to int32: `ts.cast(a, "int32") @ ts.cast(b, "int32")`, in PyTorch `torch._int_mm`.
"""

from __future__ import annotations

from collections.abc import Iterator

import common  # first: it sets the thread counts of the peers
import numpy as np

SIZES = ((128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (64, 784, 128), (2048, 512, 512))
KINDS = ("float32", "int8", "bfloat16")


def rows() -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """The kind of a row, its name, and factors as float32 that are whole numbers for int8."""
    rng = np.random.default_rng(0)
    for m, k, n in SIZES:
        for kind in KINDS:
            shapes = (m, k), (k, n)
            if kind == "int8":
                a, b = (rng.integers(-128, 128, shape).astype(np.float32) for shape in shapes)
            else:
                a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
            yield kind, f"{kind} {m} x {k} x {n}", a, b


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts

    for kind, name, a, b in rows():
        graph = ts.Graph()
        factors = [graph.placeholder(v.shape, kind) for v in (a, b)]
        left, right = (ts.cast(f, "int32") for f in factors) if kind == "int8" else factors
        executable = graph.compile(factors, left @ right)
        sources = [ts.NDArray(v).astype(kind) for v in (a, b)]
        out = executable.run(*sources)
        yield name, {"topstitch": lambda e=executable, s=sources, o=out: e.run(*s, out=o)}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    torch.set_num_threads(common.THREADS)
    for kind, name, a, b in rows():
        x, y = (torch.from_numpy(v).to(getattr(torch, kind)) for v in (a, b))
        case = (lambda x=x, y=y: torch._int_mm(x, y)) if kind == "int8" else (lambda x=x, y=y: x @ y)
        yield name, {"torch": case}


def speed(name: str, times: dict[str, float]) -> str:
    m, k, n = map(int, name.split(" ", 1)[1].split(" x "))
    return f"; {2e-9 * m * n * k / times['topstitch']:.1f} GOP/s"


if __name__ == "__main__":
    common.compare("matrix products of narrow numbers", [topstitch_rows, torch_rows], speed)
