"""Recurrent layers as loops in NumPy float64, and the rows of op_cases.py that use them.

The formulas are those of MPSGraph's descriptors, in both directions and with every optional input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

T, N, FEATURES, H = 4, 3, 5, 2  # steps, batch, features, hidden features
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
}
GATES = {"rnn": 1, "lstm": 4, "gru": 3}
STATES = {"rnn": 1, "lstm": 2, "gru": 1}
DEFAULTS = {
    "rnn": {"activation": "relu"},
    "lstm": {
        "forget_gate_last": False,
        "input_gate_activation": "sigmoid",
        "forget_gate_activation": "sigmoid",
        "cell_gate_activation": "tanh",
        "output_gate_activation": "sigmoid",
        "activation": "tanh",
    },
    "gru": {
        "reset_gate_first": False,
        "reset_after": False,
        "flip_z": False,
        "update_gate_activation": "sigmoid",
        "reset_gate_activation": "sigmoid",
        "output_gate_activation": "tanh",
    },
}
Arrays = dict[str, np.ndarray]


def one_step(kind: str, x: np.ndarray, states: list[np.ndarray], given: Arrays, options: dict[str, Any]) -> Any:
    """The new states, and the gates before their activations; `x` is already the inputs' part of the gates."""
    h = states[0]
    r = given["recurrent_weight"]
    masked = h * given["mask"] if "mask" in given else h

    def act(name: str, value: np.ndarray) -> np.ndarray:
        return ACTIVATIONS[options[name]](value)

    if kind == "rnn":
        gate = x + masked @ r.T
        return [act("activation", gate)], gate
    if kind == "lstm":
        c = states[1]
        gates = x + masked @ r.T
        if "peephole" in given:
            gates = gates + given["peephole"] * np.tile(c, 4)
        parts = np.split(gates, 4, axis=-1)
        forget, candidate = (parts[2], parts[1]) if options["forget_gate_last"] else (parts[1], parts[2])
        new = act("forget_gate_activation", forget) * c
        new = new + act("input_gate_activation", parts[0]) * act("cell_gate_activation", candidate)
        return [act("output_gate_activation", parts[3]) * act("activation", new), new], gates
    inputs, rows = np.split(x, 3, axis=-1), np.split(r, 3, axis=0)
    first = options["reset_gate_first"]
    z_gate = inputs[int(first)] + masked @ rows[int(first)].T
    r_gate = inputs[1 - int(first)] + masked @ rows[1 - int(first)].T
    z, reset = act("update_gate_activation", z_gate), act("reset_gate_activation", r_gate)
    if options["reset_after"]:
        o_gate = inputs[2] + reset * (masked @ rows[2].T + given.get("secondary_bias", 0))
    else:
        o_gate = inputs[2] + (masked * reset) @ rows[2].T
    o = act("output_gate_activation", o_gate)
    keep = 1 - z if options["flip_z"] else z
    gates = np.concatenate([r_gate, z_gate, o_gate] if first else [z_gate, r_gate, o_gate], axis=-1)
    return [keep * h + (1 - keep) * o], gates


def one_direction(kind: str, given: Arrays, options: dict[str, Any], reverse: bool) -> list[np.ndarray]:
    source = given["source"].astype(np.float64)
    if "input_weight" in given:
        source = source @ given["input_weight"].T
    source = source + given.get("bias", 0)
    hidden = given["recurrent_weight"].shape[-1]
    zeros = np.zeros((source.shape[1], hidden))
    states = [given.get("initial_state", zeros), given.get("initial_cell", zeros)][: STATES[kind]]
    results: list[list[Any]] = [[None] * len(source) for _ in range(STATES[kind] + 1)]
    for t in reversed(range(len(source))) if reverse else range(len(source)):
        states, gates = one_step(kind, source[t], states, given, options)
        for result, value in zip(results, [*states, gates], strict=True):
            result[t] = value
    return [np.stack(result) for result in results]


def reference(kind: str, given: Arrays, options: dict[str, Any]) -> list[np.ndarray]:
    options = {**DEFAULTS[kind], **options}
    if not options.get("bidirectional"):
        return one_direction(kind, given, options, options.get("reverse", False))
    halves = []
    for d in range(2):
        part: Arrays = {"source": given["source"]}
        for name in ("recurrent_weight", "peephole"):
            if name in given:
                part[name] = given[name][d]
        for name in ("input_weight", "bias", "secondary_bias"):
            if name in given:
                part[name] = np.split(given[name], 2)[d]
        for name in ("initial_state", "initial_cell", "mask"):
            if name in given:
                part[name] = np.split(given[name], 2, axis=-1)[d]
        if "input_weight" not in given:
            part["source"] = np.split(given["source"], 2, axis=-1)[d]
        halves.append(one_direction(kind, part, options, d == 1))
    return [np.concatenate(pair, axis=-1) for pair in zip(*halves, strict=True)]


def arrays(kind: str, names: list[str], directions: int = 1, seed: int = 0) -> Arrays:
    g, d = GATES[kind] * H, directions
    shapes = {
        "source": (T, N, FEATURES if "input_weight" in names else g * d),
        "recurrent_weight": (g, H) if d == 1 else (2, g, H),
        "input_weight": (g * d, FEATURES),
        "bias": (g * d,),
        "initial_state": (N, H * d),
        "initial_cell": (N, H * d),
        "mask": (N, H * d),
        "peephole": (g,) if d == 1 else (2, g),
        "secondary_bias": (H * d,),
    }
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal(shapes[name]) for name in ["source", "recurrent_weight", *names]}
    if "mask" in made:
        made["mask"] = (made["mask"] > -0.5) * 1.5
    return made


def case_reference(kind: str, names: tuple[str, ...], options: dict[str, Any]) -> Any:
    """For inputs in order: the source, the recurrent weight, and those called `names`."""

    def results(*values: np.ndarray) -> tuple[np.ndarray, ...]:
        given = dict(zip(("source", "recurrent_weight", *names), values, strict=True))
        return tuple(reference(kind, given, options))

    return results


def step_reference(kind: str) -> Any:
    """For all inputs of a step but the mask, and what comes after it."""

    def results(source: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        states = list(values[: STATES[kind]])
        recurrent, weight, bias = values[STATES[kind] :]
        options = {**DEFAULTS[kind], **({"activation": "tanh"} if kind == "rnn" else {})}
        new, gates = one_step(kind, source @ weight.T + bias, states, {"recurrent_weight": recurrent}, options)
        return (*new, gates)

    return results
