"""Writes docs/metal_kernels.md: what topstitch makes of seven graphs for Metal, as executable.source("msl") gives it.

It needs a Metal device (on Linux that of a build with the simulation). `--check` writes nothing; it fails when the page
differs from what would be written.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from generated_page import write_or_check

import topstitch as ts

PAGE = Path(__file__).resolve().with_name("metal_kernels.md")

INTRODUCTION = """\
# Kernels for Metal

<!-- Made by docs/make_metal_kernels.py. -->

What `executable.source("msl")` shows of seven graphs that were compiled with `device="metal"`, and the line of
`executable.report()` that tells how each kernel is scheduled. The functions in front of the kernels (`erf_float`,
`exp_float`, `join_sum_float`, ...) are left out here; they are in the source, so that it stands for itself.
[metal.md](metal.md) explains the kernels, and says what of them has been verified.
"""

Graph = tuple[list[ts.Tensor], ts.Tensor]


def gelu() -> Graph:
    graph = ts.Graph()
    x = graph.placeholder((-1, 784), name="x")
    return [x], ts.gelu(x, name="y")


def softmax() -> Graph:
    graph = ts.Graph()
    scores = graph.placeholder((-1, 1000), name="scores")
    return [scores], ts.softmax(scores, axis=1, name="probabilities")


def running_sum() -> Graph:
    graph = ts.Graph()
    x = graph.placeholder((-1, 1000), name="x")
    return [x], ts.cumulative_sum(ts.square(x), axis=1, name="energy")


def sorted_rows() -> Graph:
    graph = ts.Graph()
    x = graph.placeholder((-1, 32), name="x")
    return [x], ts.argsort(x, axis=1, name="order")


def linear_gelu() -> Graph:
    graph = ts.Graph()
    x = graph.placeholder((-1, 784), name="x")
    weights = graph.variable(np.zeros((784, 128), np.float32), name="weights")
    bias = graph.variable(np.zeros(128, np.float32), name="bias")
    return [x], ts.gelu(x @ weights + bias, name="y")


def convolution() -> Graph:
    graph = ts.Graph()
    images = graph.placeholder((-1, 32, 14, 14), name="images")
    weights = graph.variable(np.zeros((64, 32, 5, 5), np.float32), name="weights")
    bias = graph.variable(np.zeros((64, 1, 1), np.float32), name="bias")
    return [images], ts.relu(ts.conv2d(images, weights, padding=2) + bias, name="features")


def attention() -> Graph:
    graph = ts.Graph()
    query = graph.placeholder((-1, 12, 1024, 64), name="query")
    key = graph.placeholder((-1, 12, 1024, 64), name="key")
    value = graph.placeholder((-1, 12, 1024, 64), name="value")
    return [query, key, value], ts.scaled_dot_product_attention(query, key, value, causal=True, name="context")


def section(make: Callable[[], Graph]) -> str:
    feeds, target = make()
    executable = feeds[0].graph.compile(feeds, target, device="metal")
    body = inspect.getsource(make).partition("\n")[2]
    kernels = ["kernel void " + part for part in executable.source("msl").split("kernel void ")[1:]]
    kernels = [part[: part.index("\n}\n") + 3] for part in kernels]
    schedules = [f"{region['name']}: {region['schedule']}" for region in executable.report().regions]
    return "\n".join(
        [
            f"## {make.__name__}\n",
            f"```python\n{inspect.cleandoc(body)}\n```\n",
            *(f"`{schedule}`\n" for schedule in schedules),
            "```cpp\n" + "\n".join(kernels) + "```\n",
        ]
    )


def page() -> str:
    return "\n".join(
        [INTRODUCTION, *map(section, (gelu, softmax, running_sum, sorted_rows, linear_gelu, convolution, attention))]
    )


def main() -> int:
    return write_or_check(PAGE, page, __doc__, "python docs/make_metal_kernels.py with a Metal device")


if __name__ == "__main__":
    sys.exit(main())
