"""Recurrent layers and their steps against loops in NumPy float64, and against PyTorch's layers where it is installed.

Gradients are compared with central differences of the same loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from recurrent_reference import DEFAULTS, FEATURES, GATES, STATES, Arrays, H, N, T, arrays, one_step, reference
from test_control_gradients import differences


def build(kind: str, given: Arrays, options: dict[str, Any], dtype: Any = ts.float64) -> tuple[Any, list[Any]]:
    graph = ts.Graph()
    inputs = {name: graph.placeholder(value.shape, dtype=dtype, name=name) for name, value in given.items()}
    return inputs, getattr(ts, kind)(**inputs, **options)


OPTIONAL = {
    "rnn": ["input_weight", "bias", "initial_state", "mask"],
    "lstm": ["input_weight", "bias", "initial_state", "initial_cell", "mask", "peephole"],
    "gru": ["input_weight", "bias", "initial_state", "mask", "secondary_bias"],
}
VARIANTS = {
    "rnn": [{}, {"activation": "tanh"}, {"activation": "none", "reverse": True}],
    "lstm": [
        {},
        {"forget_gate_last": True, "reverse": True},
        {"activation": "relu", "input_gate_activation": "hard_sigmoid"},
    ],
    "gru": [
        {},
        {"reset_after": True},
        {"reset_gate_first": True, "reset_after": True, "flip_z": True},
        {"flip_z": True, "output_gate_activation": "sigmoid", "reverse": True},
    ],
}
CASES = [(kind, options) for kind, variants in VARIANTS.items() for options in variants]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_layers_with_every_subset_of_optional_inputs(kind: str, options: dict[str, Any], bidirectional: bool) -> None:
    names = OPTIONAL[kind]
    subsets = [[], names, *([name] for name in names), *([n for n in names if n != name] for name in names)]
    for names in subsets:
        given = arrays(kind, names, 2 if bidirectional else 1)
        flags = {**options, "bidirectional": bidirectional}
        inputs, results = build(kind, given, flags)
        got = results[0].graph.run({inputs[name]: value for name, value in given.items()}, list(results))
        for value, expected in zip(got, reference(kind, given, flags), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"stitch": False}, {"interpret": True}, {"threads": 1}])
@pytest.mark.parametrize("kind", list(GATES))
def test_every_way_to_run_gives_the_same(kind: str, options: dict[str, Any]) -> None:
    given = arrays(kind, OPTIONAL[kind])
    inputs, results = build(kind, given, {})
    feeds = {inputs[name]: value for name, value in given.items()}
    for value, expected in zip(
        results[0].graph.run(feeds, list(results), **options), reference(kind, given, {}), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", list(GATES))
def test_a_single_step(kind: str) -> None:
    names = [name for name in OPTIONAL[kind] if not name.startswith("initial")]
    given = arrays(kind, names)
    given["source"] = given["source"][0]
    rng = np.random.default_rng(1)
    states = [rng.standard_normal((N, H)) for _ in range(STATES[kind])]
    graph = ts.Graph()
    inputs = {name: graph.placeholder(value.shape, dtype=ts.float64) for name, value in given.items()}
    state_names = ["state", "cell"][: STATES[kind]]
    for name, state in zip(state_names, states, strict=True):
        inputs[name] = graph.placeholder(state.shape, dtype=ts.float64)
        given[name] = state
    results = getattr(ts, f"{kind}_step")(**inputs)
    got = graph.run({inputs[name]: value for name, value in given.items()}, list(results))
    projected = given["source"] @ given["input_weight"].T + given["bias"]
    new, gates = one_step(kind, projected, states, given, DEFAULTS[kind])
    for value, expected in zip(got, [*new, gates], strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"), [("rnn", {"activation": "tanh"}), ("lstm", {}), ("gru", {"reset_after": True}), ("gru", {})]
)
def test_gradients_of_everything(kind: str, options: dict[str, Any], bidirectional: bool) -> None:
    given = arrays(kind, OPTIONAL[kind], 2 if bidirectional else 1)
    flags = {**options, "bidirectional": bidirectional}
    inputs, results = build(kind, given, flags)
    loss = sum((ts.sum(ts.sin(result)) for result in results[1:]), ts.sum(ts.square(results[0])))
    names = list(given)
    gradients = ts.gradients(loss, [inputs[name] for name in names])
    feeds = {inputs[name]: value for name, value in given.items()}
    got = loss.graph.run(feeds, [gradients[inputs[name]] for name in names])

    def function(*values: np.ndarray) -> float:
        outputs = reference(kind, dict(zip(names, values, strict=True)), flags)
        return float((outputs[0] ** 2).sum() + sum(np.sin(output).sum() for output in outputs[1:]))

    for value, expected in zip(got, differences(function, [given[name] for name in names]), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-7)


def test_lengths_and_batches_known_only_at_run_time() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, "batch", FEATURES))
    given = arrays("lstm", ["input_weight", "bias"])
    weights = {
        name: graph.constant(given[name].astype(np.float32)) for name in ("recurrent_weight", "input_weight", "bias")
    }
    states, _, _ = ts.lstm(x, **weights)
    assert states.shape == (-1, "batch", H)
    for length, batch in [(4, 3), (0, 2), (9, 1), (1, 6)]:
        value = np.random.default_rng(length).standard_normal((length, batch, FEATURES)).astype(np.float32)
        got = graph.run({x: value}, states)
        assert got.shape == (length, batch, H)
        if length:
            expected = reference("lstm", {**given, "source": value}, {})[0]
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16])
def test_halves(dtype: Any) -> None:
    given = arrays("gru", OPTIONAL["gru"])
    inputs, results = build("gru", given, {}, dtype)
    feeds = {inputs[name]: ts.NDArray(value, dtype=dtype) for name, value in given.items()}
    got = np.asarray(results[0].graph.run(feeds, results[0])).astype(np.float64)
    rounded = {name: np.asarray(ts.NDArray(value, dtype=dtype)).astype(np.float64) for name, value in given.items()}
    np.testing.assert_allclose(got, reference("gru", rounded, {})[0], atol=0.02 if dtype == ts.float16 else 0.1)


def test_pytorch_agrees() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    x = rng.standard_normal((T, N, FEATURES)).astype(np.float32)
    for kind, layer in (
        ("lstm", torch.nn.LSTM(FEATURES, H)),
        ("gru", torch.nn.GRU(FEATURES, H)),
        ("rnn", torch.nn.RNN(FEATURES, H)),
    ):
        weights = {name: value.detach().numpy() for name, value in layer.named_parameters()}
        source = torch.tensor(x, requires_grad=True)
        expected = layer(source)[0]
        (expected**2).sum().backward()
        graph = ts.Graph()
        feed = graph.placeholder(x.shape)
        variables = [
            graph.variable(weights[name], name=name)
            for name in ("weight_hh_l0", "weight_ih_l0", "bias_ih_l0", "bias_hh_l0")
        ]
        recurrent, inputs, bias, recurrent_bias = variables
        if kind == "gru":  # the bias of the recurrent product of the output gate lies inside of the reset gate
            parts = ts.split(recurrent_bias, 3, axis=0)
            both = bias + ts.concat([parts[0], parts[1], ts.full_like(parts[2], 0, dtype=ts.float32)], axis=0)
            options = {"reset_gate_first": True, "reset_after": True, "secondary_bias": parts[2]}
        else:
            both, options = bias + recurrent_bias, {"activation": "tanh"} if kind == "rnn" else {}
        states = getattr(ts, kind)(feed, recurrent, inputs, both, **options)[0]
        gradients = ts.gradients(ts.sum(ts.square(states)), [feed, *variables])
        got = graph.run({feed: x}, [states, *gradients.values()])
        np.testing.assert_allclose(got[0], expected.detach().numpy(), rtol=1e-5, atol=1e-6)
        by_torch = [source.grad, *(getattr(layer, v.name).grad for v in variables)]
        for value, other in zip(got[1:], by_torch, strict=True):
            np.testing.assert_allclose(value, other.numpy(), rtol=1e-4, atol=1e-5)


def test_mistakes_are_named() -> None:
    graph = ts.Graph()
    x = graph.placeholder((T, N, FEATURES))
    r = graph.placeholder((4 * H, H))
    w = graph.placeholder((4 * H, FEATURES))
    with pytest.raises(ValueError, match=r"\[lstm\].*without input_weight its last axis must be 8"):
        ts.lstm(x, r)
    with pytest.raises(ValueError, match="must have 3 axes"):
        ts.lstm(w, r)
    with pytest.raises(ValueError, match="its rows must be 6"):
        ts.gru(x, r, w)
    with pytest.raises(ValueError, match=r"`bias`.*its length must be 8"):
        ts.lstm(x, r, w, graph.placeholder((3,)))
    with pytest.raises(ValueError, match=r"makes N = 7"):
        ts.lstm(x, r, w, initial_state=graph.placeholder((7, H)))
    with pytest.raises(TypeError, match=r"float64.*cast"):
        ts.lstm(x, r, w, graph.placeholder((4 * H,), dtype=ts.float64))
    with pytest.raises(ValueError, match=r"first axis must be 2|must have 3 axes"):
        ts.lstm(x, r, w, bidirectional=True)
    with pytest.raises(TypeError, match="needs a tensor as 'recurrent_weight'"):
        ts.lstm(x, None)  # type: ignore[arg-type]
