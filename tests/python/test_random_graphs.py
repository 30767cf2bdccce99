"""Random graphs: stitched == one kernel for each operation == the loop IR interpreter.

The seed is in the test's name; a failing graph is shrunk by deleting nodes, and its text is printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import topstitch as ts

SEEDS = range(int(os.environ.get("TOPSTITCH_RANDOM_GRAPHS", "60")))
EXTENTS = (1, 2, 3, 8, 17, 33)


@dataclass
class Node:
    """One operation: how to build it from the tensors of earlier nodes."""

    inputs: tuple[int, ...]
    build: Callable[..., Any]
    text: str


def _bounded(x: Any) -> Any:
    """Keeps values in a range in which nothing overflows and errors stay comparable."""
    return ts.tanh(x)


UNARY: list[tuple[str, Callable[..., Any]]] = [
    ("exp(tanh)", lambda x: ts.exp(_bounded(x))),
    ("erf", ts.erf),
    ("sigmoid", ts.sigmoid),
    ("negative", ts.negative),
    ("square(tanh)", lambda x: ts.square(_bounded(x))),
    ("relu", ts.relu),
    ("abs", ts.absolute),
    ("x*2+1", lambda x: x * 0.5 + 1.0),
    ("gelu", ts.gelu),
    ("sin", ts.sin),
]
BINARY: list[tuple[str, Callable[..., Any]]] = [
    ("add", lambda a, b: a + b),
    ("multiply", lambda a, b: _bounded(a) * _bounded(b)),
    ("subtract", lambda a, b: a - b),
    ("maximum", ts.maximum),
    ("divide", lambda a, b: a / (ts.square(_bounded(b)) + 1.0)),
    ("where", lambda a, b: ts.where(ts.less(a, b), a, b * 0.25)),
]


class RandomGraph:
    """A list of nodes over a few feeds; can be rebuilt with any subset of its nodes."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.dynamic = bool(rng.integers(0, 2))
        self.differentiated = bool(rng.integers(0, 2))
        rank = int(rng.integers(1, 4))
        shape = tuple(int(rng.choice(EXTENTS)) for _ in range(rank))
        shapes = [shape, shape, tuple(1 if rng.random() < 0.5 else n for n in shape)]
        self.feeds = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        self.nodes: list[Node] = []
        self.grow(rng, int(rng.integers(4, 22)))
        count = len(self.feeds) + len(self.nodes)
        self.targets = sorted({count - 1, *map(int, rng.integers(len(self.feeds), count, 2))})

    def grow(self, rng: np.random.Generator, count: int) -> None:
        """Adds nodes whose shapes fit, found by building them in a scratch graph."""
        graph = ts.Graph()
        tensors = [graph.placeholder(feed.shape) for feed in self.feeds]
        while len(self.nodes) < count:
            node = self.propose(rng, tensors)
            try:
                result = node.build(*[tensors[k] for k in node.inputs])
            except ts.UserError:
                continue
            if int(np.prod(result.shape)) > 40000:
                continue
            self.nodes.append(node)
            tensors.append(result)

    def propose(self, rng: np.random.Generator, tensors: list[Any]) -> Node:
        # Recent tensors are likelier, so that chains grow long.
        def pick() -> int:
            return int(len(tensors) - 1 - min(rng.geometric(0.3) - 1, len(tensors) - 1))

        a = pick()
        rank = len(tensors[a].shape)
        axis = int(rng.integers(0, rank)) if rank else 0
        kind = rng.random()
        if kind < 0.35 or rank == 0:
            name, function = UNARY[rng.integers(0, len(UNARY))]
            return Node((a,), function, name)
        if kind < 0.6:
            name, function = BINARY[rng.integers(0, len(BINARY))]
            return Node((a, pick()), function, name)
        if kind < 0.75:
            keep = bool(rng.integers(0, 2))
            name = str(rng.choice(["mean", "max", "min", "sum/n", "variance"]))
            if name == "sum/n":
                extent = max(int(tensors[a].shape[axis]), 1)
                return Node(
                    (a,), lambda x: ts.sum(x, axis=axis, keepdims=keep) * (1.0 / extent), f"sum/n {axis} {keep}"
                )
            return Node((a,), lambda x: getattr(ts, name)(x, axis=axis, keepdims=keep), f"{name} {axis} {keep}")
        if kind < 0.8:
            return Node((a,), lambda x: ts.softmax(x, axis=axis), f"softmax {axis}")
        if kind < 0.87:
            return self.propose_walk(rng, a, axis, max(int(tensors[a].shape[axis]), 1))
        return self.propose_movement(rng, a, rank, axis, tensors)

    def propose_walk(self, rng: np.random.Generator, a: int, axis: int, extent: int) -> Node:
        """Along a row. Where a tie goes to depends on roundings: of operations that decide, no gradients are taken."""
        reverse = bool(rng.integers(0, 2))
        name = (
            "cumulative_sum" if self.differentiated else str(rng.choice(["cumulative_sum", "cumulative_max", "sort"]))
        )
        text = f"{name} {axis} {reverse}"
        if name == "sort":
            return Node((a,), lambda x: ts.sort(x, axis=axis, descending=reverse), text)
        if name == "cumulative_max":
            return Node((a,), lambda x: ts.cumulative_maximum(x, axis=axis, reverse=reverse), text)
        exclusive = bool(rng.integers(0, 2))
        return Node(
            (a,),
            lambda x: ts.cumulative_sum(x * (1.0 / extent), axis=axis, exclusive=exclusive, reverse=reverse),
            f"{text} {exclusive}",
        )

    @staticmethod
    def propose_movement(rng: np.random.Generator, a: int, rank: int, axis: int, tensors: list[Any]) -> Node:
        shape = tuple(tensors[a].shape)
        choice = int(rng.integers(0, 8))
        if choice == 0:
            order = tuple(int(k) for k in rng.permutation(rank))
            return Node((a,), lambda x: ts.transpose(x, order), f"transpose {order}")
        if choice == 1:
            flat = (-1,) if rng.random() < 0.5 else (-1, shape[-1])
            return Node((a,), lambda x: ts.reshape(x, flat), f"reshape {flat}")
        if choice == 2:
            return Node((a,), lambda x: ts.reverse(x, axis=axis), f"reverse {axis}")
        if choice == 3 and shape[axis] > 2:
            return Node((a,), lambda x: ts.slice(x, [1], [-1], axis=[axis]), f"slice {axis}")
        if choice == 4:
            left, right = ([int(v) for v in rng.integers(0, 3, rank)] for _ in range(2))
            return Node((a,), lambda x: ts.pad(x, left, right, value=0.5), f"pad {left} {right}")
        if choice == 5:
            return Node((a, a), lambda x, y: ts.concat([x, y * 0.5], axis=axis), f"concat {axis}")
        if choice == 6:
            return Node((a,), lambda x: ts.expand_dims(x, axis=axis), f"expand_dims {axis}")
        return (
            Node((a,), lambda x: x @ ts.swap_axes(x, -1, -2) * 0.1, "x @ x.T")
            if rank >= 2
            else Node((a,), ts.tanh, "tanh")
        )

    def evaluate(self, kept: list[int], targets: list[int], **options: Any) -> list[np.ndarray] | None:
        """Results of `targets` over the kept nodes; None when a node lost an input or no longer fits."""
        graph = ts.Graph()
        tensors: dict[int, Any] = {}
        for k, feed in enumerate(self.feeds):
            tensors[k] = graph.placeholder((-1,) * feed.ndim if self.dynamic else feed.shape)
        for k in kept:
            node = self.nodes[k]
            if not all(i in tensors for i in node.inputs):
                return None
            try:
                tensors[len(self.feeds) + k] = node.build(*[tensors[i] for i in node.inputs])
            except ts.UserError:
                return None
        feeds = {tensors[k]: feed for k, feed in enumerate(self.feeds)}
        wanted = [tensors[t] for t in targets]
        if self.differentiated:
            wanted.append(ts.gradients(ts.mean(wanted[0]), [tensors[0]])[tensors[0]])
        results = graph.run(feeds, wanted, **options)
        return [np.array(result) for result in results]

    def disagreement(self, kept: list[int], targets: list[int]) -> str:
        """What differs between the three ways to run, or an empty string."""
        stitched = self.evaluate(kept, targets)
        if stitched is None:
            return ""
        for name, options in (("stitch=False", {"stitch": False}), ("interpreter", {"interpret": True})):
            others = self.evaluate(kept, targets, **options)
            assert others is not None
            for target, a, b in zip([*targets, "gradient"], stitched, others, strict=False):
                if a.shape != b.shape:
                    return f"node {target}: shape {a.shape} stitched, {b.shape} with {name}"
                error = np.abs(a.astype(np.float64) - b)
                scale = max(1.0, float(np.abs(b).max(initial=0)))
                if (
                    not np.array_equal(np.isnan(a), np.isnan(b))
                    or error[~np.isnan(error)].max(initial=0) > 5e-5 * scale
                ):
                    return f"node {target}: differs from {name} by {np.nanmax(error):.3g}"
        return ""

    def shrink(self) -> tuple[list[int], list[int]]:
        """Deletes nodes and targets as long as the disagreement stays."""
        kept, targets = list(range(len(self.nodes))), list(self.targets)
        changed = True
        while changed:
            changed = False
            for target in list(targets):
                rest = [t for t in targets if t != target]
                if rest and self.disagreement(kept, rest):
                    targets, changed = rest, True
            for node in reversed(kept):
                rest = [k for k in kept if k != node]
                if (
                    node + len(self.feeds) not in targets
                    and self.evaluate(rest, targets) is not None
                    and self.disagreement(rest, targets)
                ):
                    kept, changed = rest, True
        return kept, targets

    def describe(self, kept: list[int], targets: list[int]) -> str:
        lines = [f"feed {k}: {feed.shape}" for k, feed in enumerate(self.feeds)]
        lines += [f"{len(self.feeds) + k} = {self.nodes[k].text} {self.nodes[k].inputs}" for k in kept]
        return "\n".join([*lines, f"targets {targets}, dynamic={self.dynamic}, differentiated={self.differentiated}"])


@pytest.mark.parametrize("seed", SEEDS)
def test_ways_to_run_agree(seed: int) -> None:
    graph = RandomGraph(seed)
    everything = list(range(len(graph.nodes)))
    problem = graph.disagreement(everything, graph.targets)
    if problem:
        kept, targets = graph.shrink()
        pytest.fail(
            f"seed {seed}: {problem}; shrunk: {graph.disagreement(kept, targets)}\n{graph.describe(kept, targets)}"
        )
