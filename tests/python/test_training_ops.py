"""Normalisations and optimizers where formulas are not all: corner cases, errors, schedules, and PyTorch's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts

RNG = np.random.default_rng(0)


# --- Normalisations.


def test_variance_does_not_cancel() -> None:
    """Where E[x^2] - E[x]^2 has no correct digit in float32."""
    graph = ts.Graph()
    x = (1e4 + 0.1 * np.random.default_rng(0).normal(size=(64, 3, 5, 5))).astype(np.float32)
    y, mean, variance = graph.run({}, list(ts.batch_norm(graph.constant(x))))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(np.asarray(mean), wide.mean((0, 2, 3)), rtol=3e-7)
    np.testing.assert_allclose(np.asarray(variance), wide.var((0, 2, 3)), rtol=1e-3)
    assert abs(np.asarray(y)).max() < 6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_with_float32_parameters(dtype: str) -> None:
    graph = ts.Graph()
    x = graph.placeholder((8, 3, 6), dtype=dtype)
    gamma, beta = (graph.constant(RNG.normal(size=3).astype(np.float32)) for _ in range(2))
    y, mean, variance = ts.batch_norm(x, gamma, beta)
    assert (y.dtype.name, mean.dtype.name, variance.dtype.name) == (dtype, "float32", "float32")
    gradient = ts.gradients(ts.sum(ts.cast(y, "float32")), [x, gamma])
    assert gradient[x].dtype.name == dtype
    assert gradient[gamma].dtype.name == "float32"


def test_one_number_for_each_channel() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("batch", 2))
    y, mean, variance = ts.batch_norm(x)
    old = graph.constant(np.array([1, 1], np.float32))
    updated = ts.batch_norm_update(old, old, mean, variance, x, momentum=0.5)
    results = graph.run({x: np.array([[3, 5]], np.float32)}, [y, mean, variance, *updated])
    expected = [[[0, 0]], [3, 5], [0, 0], [2, 3], [0.5, 0.5]]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(result), wanted)


def test_gradients_with_open_dims() -> None:
    """The shapes are decided in the run only; the values are those of decided shapes."""
    array = RNG.normal(size=(2, 6, 3, 5)).astype(np.float32)
    for make in (
        lambda x: ts.batch_norm(x)[0],
        lambda x: ts.layer_norm(x, axis=(2, 3)),
        lambda x: ts.instance_norm(x),
        lambda x: ts.group_norm(x, 3),
    ):
        results = []
        for shape in ((2, 6, 3, 5), (-1, 6, -1, -1)):
            graph = ts.Graph()
            x = graph.placeholder(shape)
            gradient = ts.gradients(ts.sum(ts.square(ts.square(make(x)))), [x])[x]
            results.append(np.asarray(graph.run({x: array}, gradient)))
        np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=2e-5)  # of up to 30


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g, x: ts.batch_norm(x, g.constant(np.zeros(4, np.float32))), "one number for each of the 6 channels"),
        (lambda g, x: ts.batch_norm(x, epsilon=-1.0), "must not be negative"),
        (lambda g, x: ts.batch_norm(x, g.constant(np.zeros(6))), "must have the dtype of x"),
        (lambda g, x: ts.gradients(ts.sum(ts.batch_norm(g.placeholder(None, name="p"))[0]), g.placeholders[1:]),
         "unknown rank"),
        (lambda g, x: ts.batch_norm(x, axis=4), "axis"),
        (lambda g, x: ts.group_norm(x, 4), "divides the 6 channels"),
        (lambda g, x: ts.group_norm(x, 2, axis=0), "the first one"),
        (lambda g, x: ts.instance_norm(g.placeholder((2, 3))), "at least one more axis"),
        (lambda g, x: ts.layer_norm(x, g.constant(np.zeros(4, np.float32))), "broadcast"),
        (lambda g, x: ts.normalization(g.placeholder((1, 3)), g.constant(np.zeros((2, 3), np.float32)),
                                       g.constant(np.zeros(3, np.float32))), "does not broadcast"),
        (lambda g, x: ts.layer_norm(g.placeholder((3,), dtype="int32")), "floating-point"),
    ],
)  # fmt: skip
def test_errors(make: Any, message: str) -> None:
    graph = ts.Graph()
    with pytest.raises((ValueError, TypeError), match=message):
        make(graph, graph.placeholder((2, 6, 3, 5)))


# --- Optimizers.


def test_clip_of_special_values() -> None:
    graph = ts.Graph()
    a, b = graph.placeholder((2,)), graph.placeholder(())
    clipped = ts.clip_by_global_norm([a, b], 1.0)
    gradient = ts.gradients(ts.sum(clipped[0]) + clipped[1], [a])[a]

    def run(first: list[float], second: float) -> list[Any]:
        feeds = {a: np.array(first, np.float32), b: np.float32(second)}
        return [np.asarray(r).tolist() for r in graph.run(feeds, [*clipped, gradient])]

    assert run([0, 0], 0) == [[0, 0], 0, 0, [1, 1]]
    assert run([0.3, 0], 0.4) == [[np.float32(0.3), 0], np.float32(0.4), pytest.approx(0.5), [1, 1]]
    large, small = 3e30, 4e30  # their squares are no float32
    np.testing.assert_allclose(run([large, 0], small)[0], [0.6, 0], rtol=1e-6)
    np.testing.assert_allclose(run([3e-30, 0], 4e-30)[2], 5e-30, rtol=1e-6)
    nothing = run([np.nan, 1], 1)
    assert np.isnan(nothing[0]).all()
    assert np.isnan([nothing[1], nothing[2]]).all()
    infinite = run([np.inf, 1], 1)
    assert np.isnan(infinite[0][0])
    assert infinite[0][1] == infinite[1] == 0
    assert infinite[2] == np.inf


def test_clip_errors() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2,))
    for limit in (0.0, -1.0, float("nan")):
        with pytest.raises(ts.UserError, match="must be positive"):
            ts.clip_by_global_norm([x], limit)
    with pytest.raises(ts.DTypeError, match="floating-point"):
        ts.clip_by_global_norm([graph.placeholder((2,), dtype="int32")], 1.0)


def test_momentum_of_rmsprop_needs_a_velocity() -> None:
    graph = ts.Graph()
    x = graph.placeholder((2,))
    with pytest.raises(ts.UserError, match="needs the velocity"):
        ts.rmsprop(x, x, x, 0.1, momentum=0.9)


# (operation, names of its states, attributes, PyTorch's class and options); `step` is counted.
OPTIMIZERS = [
    ("sgd", [], {"weight_decay": 0.1}, "SGD", {"weight_decay": 0.1}),
    ("sgd_momentum", ["m"], {"weight_decay": 0.1}, "SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ("sgd_momentum", ["m"], {"momentum": 0.8, "nesterov": True}, "SGD", {"momentum": 0.8, "nesterov": True}),
    ("adam", ["m", "s", "step"], {"weight_decay": 0.1}, "Adam", {"weight_decay": 0.1}),
    ("adamw", ["m", "s", "step"], {}, "AdamW", {}),
    ("amsgrad", ["m", "s", "h", "step"], {}, "Adam", {"amsgrad": True}),
    ("rmsprop", ["s"], {"weight_decay": 0.1}, "RMSprop", {"weight_decay": 0.1}),
    ("rmsprop", ["s", "rate", "velocity"], {"momentum": 0.9}, "RMSprop", {"momentum": 0.9}),
    ("rmsprop_centered", ["s", "m", "rate", "velocity"], {"momentum": 0.9}, "RMSprop",
     {"momentum": 0.9, "centered": True}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "states", "attrs", "peer", "options"), OPTIMIZERS)
def test_steps_are_those_of_pytorch(
    op: str, states: list[str], attrs: dict[str, Any], peer: str, options: dict[str, Any]
) -> None:
    """Twenty steps on a quadratic, with a schedule of the learning rate as a feed."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    matrix = rng.normal(size=(6, 6)).astype(np.float32)
    start = rng.normal(size=(6, 2)).astype(np.float32)
    rates = [0.02 * 0.9**k for k in range(20)]

    graph = ts.Graph()
    w = graph.variable(start)
    rate = graph.placeholder(())
    gradient = ts.gradients(ts.sum(ts.square(graph.constant(matrix) @ w)), [w])[w]
    arguments: list[Any] = []
    targets = [w]
    operations = []
    for name in [*states, *([] if "rate" in states else ["rate"])]:
        if name == "rate":
            arguments.append(rate)
        elif name == "step":
            step = graph.variable(np.float32(1))
            arguments.append(step)
            operations.append(step.assign(step + 1.0))
        else:
            targets.append(graph.variable(np.zeros_like(start)))
            arguments.append(targets[-1])
    values = getattr(ts, op)(w, gradient, *arguments, **attrs)
    values = values if isinstance(values, list) else [values]
    operations += [target.assign(value) for target, value in zip(targets, values, strict=False)]

    parameter = torch.tensor(start.copy(), requires_grad=True)
    optimizer = getattr(torch.optim, peer)([parameter], lr=rates[0], **options)
    for value in rates:
        graph.run({rate: np.float32(value)}, [], operations)
        optimizer.param_groups[0]["lr"] = value
        optimizer.zero_grad()
        (torch.tensor(matrix) @ parameter).square().sum().backward()
        optimizer.step()
    np.testing.assert_allclose(np.asarray(graph.variable_value(w)), parameter.detach().numpy(), rtol=2e-4, atol=2e-5)


def test_batch_norm_is_that_of_pytorch() -> None:
    """Values, gradients and running statistics, after several batches of training and in inference."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.BatchNorm2d(3)
    graph = ts.Graph()
    x = graph.placeholder(("batch", 3, 4, 5))
    gamma, beta, old_mean = (graph.variable(np.array(v, np.float32)) for v in ([1, 1, 1], [0, 0, 0], [0, 0, 0]))
    old_variance = graph.variable(np.ones(3, np.float32))
    y, mean, variance = ts.batch_norm(x, gamma, beta)
    updated = ts.batch_norm_update(old_mean, old_variance, mean, variance, x)
    operations = [v.assign(u) for v, u in zip((old_mean, old_variance), updated, strict=True)]
    gradients = ts.gradients(ts.sum(ts.sin(y)), [x, gamma, beta])
    for batch in (2, 5, 9):
        array = (3 + 2 * np.random.default_rng(batch).normal(size=(batch, 3, 4, 5))).astype(np.float32)
        results = graph.run({x: array}, [y, *gradients.values()], operations)
        fed = torch.tensor(array, requires_grad=True)
        layer.zero_grad()
        expected = layer(fed)
        torch.sin(expected).sum().backward()
        wanted = [expected.detach(), fed.grad, layer.weight.grad, layer.bias.grad]
        for result, value in zip(results, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(result), value.numpy(), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(np.asarray(graph.variable_value(old_mean)), layer.running_mean.numpy(), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(graph.variable_value(old_variance)), layer.running_var.numpy(), rtol=1e-6)
    served = np.asarray(graph.run({x: array}, ts.batch_norm_inference(x, old_mean, old_variance, gamma, beta)))
    np.testing.assert_allclose(served, layer.eval()(torch.tensor(array)).detach().numpy(), rtol=2e-6, atol=2e-6)


def test_variables_of_lesser_rank_take_one_step() -> None:
    """Both are scaled by a norm over the axes of the larger one, along one of which the lesser is the same."""
    graph = ts.Graph()
    shapes = (11, 128), (11,), (128,)
    arrays = [np.random.default_rng(k).normal(size=shape).astype(np.float32) for k, shape in enumerate(shapes)]
    variables = [graph.variable(np.zeros(shape, np.float32)) for shape in shapes]
    feeds = {graph.placeholder(shape): array for shape, array in zip(shapes, arrays, strict=True)}
    *clipped, _ = ts.clip_by_global_norm(list(feeds), max_norm=1.0)
    operations = [v.assign(0.9 * v + part) for v, part in zip(variables, clipped, strict=True)]
    norm = np.sqrt(sum(float(np.square(array.astype(np.float64)).sum()) for array in arrays))
    for scale in (1.0, 1.9):
        graph.run(feeds, None, operations)
        for variable, array in zip(variables, arrays, strict=True):
            np.testing.assert_allclose(graph.variable_value(variable), scale * array / norm, rtol=1e-5)
