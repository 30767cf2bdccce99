"""Dropout: masks by the generator, anew in each run, the same for the gradient, and reproducible training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import random_reference as reference
import topstitch as ts


def kept(run: int, stream: int, seed: int, shape: tuple[int, ...], rate: float) -> np.ndarray:
    words = reference.words((0, (stream << 40) + run, seed), int(np.prod(shape)))[:, 0]
    return words.reshape(shape) < round((1 - rate) * 2**32)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("shape", [(1000,), (7, 3, 41)])
def test_mask(rate: float, shape: tuple[int, ...]) -> None:
    graph = ts.Graph(seed=3)
    x = graph.placeholder((-1,) * len(shape))
    y = ts.dropout(x, rate)
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    for run in range(3):
        expected = np.where(kept(run, 0, 3, shape, rate), array.astype(np.float64) / (1 - rate), 0)
        np.testing.assert_allclose(np.asarray(graph.run({x: array}, y)), expected, rtol=3e-7)


@pytest.mark.parametrize("stitch", [True, False])
def test_masks_of_several_axes_are_drawn_along_memory(stitch: bool) -> None:
    graph = ts.Graph(seed=5)
    x = graph.placeholder((-1, 8, 14, 14))
    executable = graph.compile([x], ts.dropout(x, 0.4), stitch=stitch)
    shape = (3, 8, 14, 14)
    expected = kept(0, 0, 5, shape, 0.4)
    np.testing.assert_array_equal(np.asarray(executable.run(np.ones(shape, np.float32))) != 0, expected)
    # Neighbours share blocks of random words, which a loop over one axis of the four would draw again and again.
    schedules = {region["operations"][0].split(" ")[0]: region["schedule"] for region in executable.report().regions}
    assert "i0(1568*s000)" in schedules["draw_bernoulli"]


def test_masks_are_not_drawn_by_products() -> None:
    graph = ts.Graph(seed=2)
    x = graph.placeholder((-1, 3, 14, 14))
    weights = graph.constant(np.ones((4, 3, 3, 3), np.float32))
    executable = graph.compile([x], ts.dropout(ts.conv2d(x, weights, padding=1), 0.3))
    refusals = [reason for reason in executable.report().kept_apart if "draw_bernoulli" in reason]
    assert any("gains from loops along memory" in reason for reason in refusals)
    result = np.asarray(executable.run(np.ones((2, 3, 14, 14), np.float32)))
    np.testing.assert_array_equal(result != 0, kept(0, 0, 2, (2, 4, 14, 14), 0.3))
    middle = result[:, :, 1:-1, 1:-1]
    np.testing.assert_allclose(middle[middle != 0], 27 / 0.7, rtol=1e-6)  # 3 * 3 * 3 ones, scaled


def test_expected_value() -> None:
    graph = ts.Graph(seed=1)
    y = ts.dropout(graph.constant(np.ones(1 << 18, np.float32)), 0.3)
    result = np.asarray(graph.run({}, y))
    assert abs((result == 0).mean() - 0.3) < 5 * np.sqrt(0.21 / result.size)
    assert abs(result.mean() - 1) < 0.01


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str) -> None:
    graph = ts.Graph(seed=3)
    x = graph.placeholder((257,), dtype=dtype)
    y = ts.dropout(x, 0.25)
    array = np.asarray(graph.run({}, ts.cast(graph.constant(np.linspace(-2, 2, 257)), dtype)))
    result = np.asarray(graph.run({x: array}, y)).astype(np.float64)
    scaled = array.astype(np.float64) / 0.75
    if dtype != "float64":  # computed in float32, rounded once
        scaled = scaled.astype(np.float32).astype(array.dtype).astype(np.float64)
    np.testing.assert_allclose(result, np.where(kept(0, 0, 3, (257,), 0.25), scaled, 0), rtol=1e-15)


def test_dropped_values_do_not_matter() -> None:
    graph = ts.Graph(seed=3)
    x = graph.placeholder((64,))
    y = ts.dropout(x, 0.5)
    gradient = ts.gradients(ts.sum(y * y), [x])[x]
    mask = kept(0, 0, 3, (64,), 0.5)
    array = np.where(mask, 1, np.nan).astype(np.float32)
    results = graph.run({x: array}, [y, gradient])
    np.testing.assert_array_equal(np.asarray(results[0]), np.where(mask, 2, 0))
    np.testing.assert_array_equal(np.asarray(results[1]), np.where(mask, 8, 0))


@pytest.mark.parametrize("stitch", [True, False])
def test_gradient_has_the_mask_of_its_run(stitch: bool) -> None:
    graph = ts.Graph(seed=5)
    x = graph.placeholder((-1, 33))
    y = ts.dropout(ts.tanh(x), 0.4)
    gradient = ts.gradients(ts.sum(y * y), [x])[x]
    array = np.random.default_rng(1).normal(size=(9, 33)).astype(np.float32)
    for run in range(3):
        mask = kept(run, 0, 5, (9, 33), 0.4) / 0.6
        t = np.tanh(array.astype(np.float64))
        value, slope = graph.run({x: array}, [y, gradient], stitch=stitch)
        np.testing.assert_allclose(np.asarray(value), t * mask, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(slope), 2 * t * mask**2 * (1 - t * t), rtol=1e-5, atol=1e-7)


def test_inference_and_rate_0_pass_on() -> None:
    graph = ts.Graph()
    x = graph.placeholder((4,))
    array = np.array([1, -2, np.nan, np.inf], np.float32)
    for y in (ts.dropout(x, 0.9, training=False), ts.dropout(x, 0.0)):
        np.testing.assert_array_equal(np.asarray(graph.run({x: array}, y)), array)
    assert graph.variables == []


def test_rate_1_gives_zeros() -> None:
    graph = ts.Graph()
    x = graph.placeholder((3,))
    y = ts.dropout(x, 1.0)
    gradient = ts.gradients(ts.sum(y), [x])[x]
    for result in graph.run({x: np.array([1, np.nan, np.inf], np.float32)}, [y, gradient]):
        np.testing.assert_array_equal(np.asarray(result), 0)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_bad_rates(rate: float) -> None:
    graph = ts.Graph()
    with pytest.raises(ts.UserError, match="a probability is at least 0"):
        ts.dropout(graph.placeholder((3,)), rate)


def test_integers_are_refused() -> None:
    with pytest.raises(ts.DTypeError, match="floating-point"):
        ts.dropout(ts.Graph().placeholder((3,), dtype="int32"), 0.5)


class Training:
    """Least squares with two layers of dropout and momentum."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.graph = ts.Graph(seed=11)
        self.x = self.graph.placeholder((-1, 20))
        w = [self.graph.variable(rng.normal(size=s).astype(np.float32), name=f"w{s[0]}") for s in ((20, 30), (30, 1))]
        v = [self.graph.variable(np.zeros(tuple(t.shape), np.float32), name=t.name + ".velocity") for t in w]
        hidden = ts.dropout(ts.tanh(ts.dropout(self.x, 0.2) @ w[0]), 0.5)
        self.loss = ts.mean(ts.square(hidden @ w[1]))
        gradients = ts.gradients(self.loss, w)
        self.steps = []
        for variable, velocity in zip(w, v, strict=True):
            values = ts.sgd_momentum(variable, gradients[variable], velocity, 0.01)
            self.steps += [variable.assign(values[0]), velocity.assign(values[1])]

    def run(self, first: int, last: int) -> list[float]:
        batches = [np.random.default_rng(k).normal(size=(16, 20)).astype(np.float32) for k in range(first, last)]
        return [float(self.graph.run({self.x: batch}, self.loss, self.steps)) for batch in batches]


def test_resumed_training_equals_uninterrupted_training(tmp_path: Path) -> None:
    whole = Training().run(0, 8)
    first = Training()
    assert first.run(0, 4) == whole[:4]
    first.graph.save_variables(tmp_path / "state.safetensors")
    second = Training()
    second.graph.load_variables(tmp_path / "state.safetensors")
    assert second.run(4, 8) == whole[4:]


def test_runs_with_and_without_updates_share_the_count() -> None:
    training = Training()
    training.run(0, 1)
    training.graph.run({training.x: np.zeros((1, 20), np.float32)}, training.loss)
    (state,) = [v for v in training.graph.variables if v.name == "random_state"]
    assert np.asarray(training.graph.variable_value(state)).tolist() == [2, 11]
