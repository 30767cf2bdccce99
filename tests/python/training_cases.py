"""Rows of op_cases.py for what training takes: random numbers, dropout, normalisations and optimizers.

The references are NumPy in float64, written from the formulas of the papers and of PyTorch's documentation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special as special

import random_reference as reference
from op_cases import REALS, Case

# --- Optimizers: value, gradient, states, rates.


def _adam(v, g, m, s, t, lr, b1=0.9, b2=0.999, eps=1e-8, decay=0.0, decoupled=0.0):
    """D. P. Kingma and J. Ba, with the corrections folded into the rate."""
    g = g + decay * v
    v = v * (1 - lr * decoupled)
    m = b1 * m + (1 - b1) * g
    s = b2 * s + (1 - b2) * g * g
    rate = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
    return v - rate * m / (np.sqrt(s) + eps), m, s


def _amsgrad(v, g, m, s, high, t, lr, b1=0.9, b2=0.999, eps=1e-8):
    m = b1 * m + (1 - b1) * g
    s = b2 * s + (1 - b2) * g * g
    high = np.maximum(high, s)
    rate = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
    return v - rate * m / (np.sqrt(high) + eps), m, s, high


def _sgd_momentum(v, g, m, lr, momentum=0.9, nesterov=False, decay=0.0):
    g = g + decay * v
    m = momentum * m + g
    return v - lr * (g + momentum * m if nesterov else m), m


def _rmsprop(v, g, s, lr, velocity=0.0, momentum=0.0, decay=0.0, alpha=0.99):
    g = g + decay * v
    s = alpha * s + (1 - alpha) * g * g
    velocity = momentum * velocity + g / (np.sqrt(s) + 1e-8)
    return v - lr * velocity, s, velocity


def _rmsprop_centered(v, g, s, mean, lr, velocity=0.0, momentum=0.0, alpha=0.9):
    s = alpha * s + (1 - alpha) * g * g
    mean = alpha * mean + (1 - alpha) * g
    velocity = momentum * velocity + g / (np.sqrt(s - mean * mean) + 1e-8)
    return v - lr * velocity, s, mean, velocity


def _clip(limit: float) -> Any:
    def clip(*tensors):
        norm = np.sqrt(sum(np.sum(x.astype(np.float64) ** 2) for x in tensors))
        return (*(x * min(1.0, limit / norm) for x in tensors), norm)

    return clip


def step(reference_: Any, tensors: int, attrs: dict[str, Any] | None = None, **options: Any) -> Case:
    """`tensors` of one shape, then the scalars that `options` has domains for."""
    shapes = ((3, 5),) * tensors + ((),) * (max(options["domains"]) + 1 - tensors)
    return Case(reference_, shapes, attrs=attrs or {}, grad=False, dtypes=REALS, tolerance=16, **options)


OPTIMIZERS = {
    "sgd": [
        Case(lambda v, g, lr: v - lr * g, ((3, 5), (3, 5), ()), domains={2: (0.1, 0.2)}, grad=False),
        step(lambda v, g, lr: v - lr * (g + 0.1 * v), 2, {"weight_decay": 0.1}, domains={2: (0.1, 0.2)}),
    ],
    "sgd_momentum": [
        step(_sgd_momentum, 3, domains={3: (0.1, 0.2)}),
        step(lambda *x: _sgd_momentum(*x, 0.8, True, 0.1), 3,
             {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}, domains={3: (0.1, 0.2)}),
    ],
    "adam": [
        step(_adam, 4, domains={3: (0.1, 2.0), 4: (2.0, 3.0), 5: (0.01, 0.02)}),
        step(lambda *x: _adam(*x, decay=0.1), 4, {"weight_decay": 0.1},
             domains={3: (0.1, 2.0), 4: (2.0, 3.0), 5: (0.01, 0.02)}),
    ],
    "adamw": [step(lambda *x: _adam(*x, decoupled=0.01), 4, domains={3: (0.1, 2.0), 4: (2.0, 3.0), 5: (0.01, 0.02)})],
    "amsgrad": [step(_amsgrad, 5, domains={3: (0.1, 2.0), 4: (0.1, 2.0), 5: (2.0, 3.0), 6: (0.01, 0.02)})],
    "rmsprop": [
        step(_rmsprop, 3, domains={2: (0.1, 2.0), 3: (0.01, 0.02)}),
        Case(lambda *x: _rmsprop(*x, 0.9, 0.1), ((3, 5), (3, 5), (3, 5), (), (3, 5)), grad=False, dtypes=REALS,
             tolerance=16, attrs={"momentum": 0.9, "weight_decay": 0.1}, domains={2: (0.1, 2.0), 3: (0.01, 0.02)}),
    ],
    "rmsprop_centered": [
        step(_rmsprop_centered, 4, {"alpha": 0.9}, domains={2: (1.0, 2.0), 3: (-0.3, 0.3), 4: (0.01, 0.02)}),
        Case(lambda *x: _rmsprop_centered(*x, 0.9), ((3, 5),) * 4 + ((), (3, 5)), grad=False, dtypes=REALS,
             tolerance=16, attrs={"momentum": 0.9, "alpha": 0.9},
             domains={2: (1.0, 2.0), 3: (-0.3, 0.3), 4: (0.01, 0.02)}),
    ],
    "clip_by_global_norm": [
        Case(_clip(1.5), ((3, 5), (4,), ()), attrs={"max_norm": 1.5}),
        Case(_clip(100.0), ((3, 5), (4,)), attrs={"max_norm": 100.0}, dtypes=REALS),
    ],
}  # fmt: skip

# --- Normalisations.


def _normalized(x, mean, variance, gamma=1.0, beta=0.0, epsilon=1e-5):
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def _by_own_statistics(axes: tuple[int, ...], epsilon: float = 1e-5) -> Any:
    """gamma and beta as they broadcast against x."""
    return lambda x, *affine: _normalized(
        x, x.mean(axes, keepdims=True), x.var(axes, keepdims=True), *affine, epsilon=epsilon
    )


def _along(axis: int, rank: int, vector: np.ndarray) -> np.ndarray:
    return vector.reshape([-1 if k == axis % rank else 1 for k in range(rank)])


def _batch_norm(axis: int, epsilon: float = 1e-5) -> Any:
    def batch_norm(x, *affine):
        axes = tuple(k for k in range(x.ndim) if k != axis % x.ndim)
        affine = tuple(_along(axis, x.ndim, vector) for vector in affine)
        return _by_own_statistics(axes, epsilon)(x, *affine), x.mean(axes), x.var(axes)

    return batch_norm


def _batch_norm_inference(axis: int) -> Any:
    return lambda x, *vectors: _normalized(x, *(_along(axis, x.ndim, vector) for vector in vectors))


def _batch_norm_update(running_mean, running_variance, mean, variance, x):
    count = x.size / len(mean)
    return 0.75 * running_mean + 0.25 * mean, 0.75 * running_variance + 0.25 * variance * count / (count - 1)


def _group_norm(groups: int) -> Any:
    """NCHW."""

    def group_norm(x, *affine):
        parts = x.reshape(x.shape[0], groups, -1)
        y = _normalized(parts, parts.mean(2, keepdims=True), parts.var(2, keepdims=True)).reshape(x.shape)
        gamma, beta = (_along(1, x.ndim, vector) for vector in affine)
        return y * gamma + beta

    return group_norm


IMAGES = (4, 3, 5, 2)  # NCHW
PER_CHANNEL = (IMAGES, (3,), (3,))
NORMALIZATIONS = {
    "normalization": [
        Case(_normalized, (IMAGES, (3, 1, 1), (3, 1, 1), (3, 1, 1), (3, 1, 1)), domains={2: (0.5, 2.0)}, tolerance=16),
        Case(lambda *x: _normalized(*x, epsilon=0.1), ((4, 5), (4, 1), (4, 1)), domains={2: (0.5, 2.0)}, dtypes=REALS,
             attrs={"epsilon": 0.1}, tolerance=16),
    ],
    "batch_norm_inference": [
        Case(_batch_norm_inference(1), (IMAGES, (3,), (3,), (3,), (3,)), domains={2: (0.5, 2.0)}, tolerance=16),
        Case(_batch_norm_inference(-1), ((4, 5, 3), (3,), (3,)), domains={2: (0.5, 2.0)}, attrs={"axis": -1},
             dtypes=REALS, tolerance=16),
    ],
    "batch_norm": [
        Case(_batch_norm(1), PER_CHANNEL, tolerance=32, dtypes=REALS),
        Case(_batch_norm(-1, 0.1), ((4, 5, 2, 3), (3,)), attrs={"axis": -1, "epsilon": 0.1}, tolerance=32,
             dtypes=REALS),
        Case(_batch_norm(0), ((3, 37),), attrs={"axis": 0}, tolerance=32, dtypes=REALS),
    ],
    "batch_norm_update": [
        Case(_batch_norm_update, ((3,), (3,), (3,), (3,), IMAGES), attrs={"momentum": 0.25}, grad_inputs=(0, 1, 2, 3),
             tolerance=8),
    ],
    "layer_norm": [
        Case(_by_own_statistics((-1,)), ((4, 3, 37), (37,), (37,)), tolerance=32),
        Case(_by_own_statistics((1, 2)), ((4, 3, 7), (3, 7)), attrs={"axis": (1, 2)}, tolerance=32, dtypes=REALS),
        Case(_by_own_statistics((0,), 0.1), ((9, 4),), attrs={"axis": 0, "epsilon": 0.1}, tolerance=32, dtypes=REALS),
    ],
    "instance_norm": [
        Case(lambda x, *a: _by_own_statistics((2, 3))(x, *(_along(1, 4, v) for v in a)), PER_CHANNEL, tolerance=32),
        Case(_by_own_statistics((1, 2)), ((4, 5, 2, 3),), attrs={"axis": -1}, tolerance=32, dtypes=REALS),
    ],
    "group_norm": [
        Case(_group_norm(2), ((3, 6, 4, 5), (6,), (6,)), attrs={"num_groups": 2}, tolerance=32,
             by_name=("gamma", "beta")),
        Case(lambda x: np.moveaxis(_group_norm(3)(np.moveaxis(x, -1, 1), np.ones(6), np.zeros(6)), 1, -1),
             ((3, 4, 6),), attrs={"num_groups": 3, "axis": -1}, tolerance=32, dtypes=REALS),
    ],
}  # fmt: skip

# --- Random numbers: each gets the state that it draws from, so that it can be followed in NumPy.

SHAPE = (4, 33)
COUNT = 4 * 33


def _state(array: np.ndarray) -> tuple[int, int, int]:
    return int(array[0]), int(array[1]), int(array[2])


def draw(values: Any, dtype: str, each: int = 1, **attrs: Any) -> Case:
    """A draw of SHAPE by `values(state, count)`."""

    def follow(array):
        state = _state(array)
        return np.array(values(state, COUNT)).reshape(SHAPE), reference.after(state, COUNT, each)

    return Case(follow, ((3,),), attrs={"shape": SHAPE, "dtype": dtype, **attrs}, dtypes=("uint64",), grad=False,
                integer_domains={0: (0, 2**40)}, by_name=("state",))  # fmt: skip


def draw_like(case: Case) -> Case:
    attrs = {key: value for key, value in case.attrs.items() if key != "shape"}
    return Case(lambda like, state: case.reference(state), (SHAPE, (3,)), attrs=attrs, dtypes=("float32", "int8"),
                input_dtypes=(None, "uint64"), grad=False, integer_domains={1: (0, 2**40)},
                by_name=("state",))  # fmt: skip


def _truncated(state, count):
    low, high = special.ndtr([-2.0, 2.0])
    u = (reference.words(state, count)[:, 0].astype(np.float64) + 0.5) * 2.0**-32
    return special.ndtri(low + u * (high - low))


def _dropout(x, state):
    words = reference.words(_state(state), x.size)[:, 0].reshape(x.shape)
    return np.where(words < 0.75 * 2**32, x / 0.75, 0)


DRAWS = {
    "random_bits": [draw(lambda s, n: reference.words(s, n)[:, 0], "uint32"),
                    draw(reference.words64, "uint64", 2)],
    "random_uniform": [draw(reference.unit, "float32"),
                       draw(lambda s, n: reference.unit(s, n, "float64") * 3 - 1, "float64", 2, minimum=-1.0,
                            maximum=2.0)],
    "random_normal": [draw(reference.standard_normal, "float32"),
                      draw(reference.box_muller, "float32", method="box_muller"),
                      draw(lambda s, n: reference.standard_normal(s, n, "float64"), "float64", 2)],
    "random_truncated_normal": [draw(_truncated, "float32")],
    "random_bernoulli": [draw(lambda s, n: reference.words(s, n)[:, 0] < 0.25 * 2**32, "bool", p=0.25)],
    "random_integer": [draw(lambda s, n: reference.integers(s, n, -3, 9), "int32", 2, minimum=-3, maximum=9)],
}  # fmt: skip

RANDOM = {
    "random_state": [Case(lambda: np.array([2, 3, 2**64 - 1], np.uint64), (), attrs={"seed": -1, "counter_low": 2,
                                                                                      "counter_high": 3},
                          dtypes=("uint64",), grad=False)],
    **DRAWS,
    **{name + "_like": [draw_like(case) for case in rows] for name, rows in DRAWS.items()},
    "dropout": [
        Case(_dropout, ((5, 33), (3,)), attrs={"rate": 0.25}, input_dtypes=(None, "uint64"),
             integer_domains={1: (0, 2**40)}, by_name=("state",)),
        Case(lambda x: x, ((3, 5),), attrs={"rate": 0.25, "training": False}),
        Case(np.zeros_like, ((3, 5),), attrs={"rate": 1.0}),
    ],
}  # fmt: skip

ROWS = RANDOM | NORMALIZATIONS | OPTIMIZERS
