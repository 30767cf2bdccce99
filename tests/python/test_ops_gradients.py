"""Gradients of every differentiable operation against finite differences in float64, first and second order."""

from __future__ import annotations

import numpy as np
import pytest

import topstitch as ts
from op_cases import CASES, Case, make_input
from test_ops_forward import build, seed_of

ROWS = [
    pytest.param(op, case, id=f"{op}-{k}")
    for op, cases in CASES.items()
    for k, case in enumerate(cases)
    if case.grad and "float64" in case.dtypes
]
STEP = 1e-5


class Problem:
    """A scalar function of an operation's inputs: its outputs, weighted by fixed random numbers and summed."""

    def __init__(self, op: str, case: Case) -> None:
        rng = np.random.default_rng(seed_of(op, "gradient"))
        self.arrays = [make_input(case, k, "float64", shape, rng) for k, shape in enumerate(case.shapes)]
        self.graph = ts.Graph()
        self.placeholders, outputs = build(op, self.graph, [a.shape for a in self.arrays], self.arrays, case)
        self.objective = None
        for output in outputs:
            weights = rng.uniform(0.5, 1.5, tuple(output.shape))
            term = ts.sum(output * weights.astype(output.dtype.name))
            self.objective = term if self.objective is None else self.objective + term
        floating = [k for k, array in enumerate(self.arrays) if array.dtype == np.float64]
        self.chosen = [k for k in (case.grad_inputs or floating) if k in floating]
        self.directions = {k: rng.standard_normal(self.arrays[k].shape) for k in self.chosen}

    def value(self, target: ts.Tensor, shift: float) -> float:
        feeds = {
            placeholder: array + shift * self.directions[k] if k in self.directions else array
            for k, (placeholder, array) in enumerate(zip(self.placeholders, self.arrays, strict=True))
        }
        return float(self.graph.run(feeds, target))

    def slope(self, target: ts.Tensor) -> float:
        """The derivative along the directions, by finite differences of fourth order."""
        h = STEP * 30
        near = self.value(target, h) - self.value(target, -h)
        far = self.value(target, 2 * h) - self.value(target, -2 * h)
        return (8 * near - far) / (12 * h)

    def directional(self, target: ts.Tensor) -> ts.Tensor:
        """The same derivative from the gradients, as a tensor."""
        inputs = [self.placeholders[k] for k in self.chosen]
        gradients = ts.gradients(target, inputs)
        total = None
        for k, tensor in zip(self.chosen, inputs, strict=True):
            assert tuple(gradients[tensor].shape) == self.arrays[k].shape
            term = ts.sum(gradients[tensor] * self.directions[k])
            total = term if total is None else total + term
        assert total is not None
        return total


@pytest.mark.parametrize(("op", "case"), ROWS)
def test_gradient(op: str, case: Case) -> None:
    problem = Problem(op, case)
    derivative = problem.directional(problem.objective)
    expected = problem.slope(problem.objective)
    assert problem.value(derivative, 0) == pytest.approx(expected, rel=2e-6, abs=2e-6)
    if not case.second:
        return
    second = problem.directional(derivative)
    assert problem.value(second, 0) == pytest.approx(problem.slope(derivative), rel=2e-5, abs=2e-5)
