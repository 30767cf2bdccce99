"""Writes docs/metal_kernels.md: what topstitch makes of four graphs for Metal, as executable.source("msl") gives it.

It needs a Metal device (on Linux that of a build with the simulation). `--check` writes nothing; it fails when the page
differs from what would be written.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import topstitch as ts

PAGE = Path(__file__).resolve().with_name("metal_kernels.md")

INTRODUCTION = """\
# Kernels for Metal

<!-- Made by docs/make_metal_kernels.py. -->

What `executable.source("msl")` shows of four graphs that were compiled with `device="metal"`, and the line of
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is stale")
    check = parser.parse_args().check
    text = "\n".join([INTRODUCTION, *map(section, (gelu, softmax, linear_gelu, convolution))])
    if not check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE.name} is stale: run python docs/make_metal_kernels.py with a Metal device", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
