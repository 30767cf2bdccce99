"""The rows of op_cases.py for convolutions: small shapes, with strides, dilations, groups and both layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import conv_reference as reference
from op_cases import FLOATS, REALS, Case

Function = Callable[..., np.ndarray]


def last(axes: int) -> dict[str, str]:
    names = "DHW"[-axes:]
    return {"data_layout": f"N{names}C", "weights_layout": f"{names}IO"}


def data_first(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, -1, 1)


def weights_first(w: np.ndarray) -> np.ndarray:
    return w.transpose([w.ndim - 1, w.ndim - 2, *range(w.ndim - 2)])


def channels_last(function: Function, weights: bool = False) -> Function:
    """A function of (data, weights) or, with `weights`, of two data that gives weights, in the layouts of last()."""

    def wrapped(a: np.ndarray, b: np.ndarray, like: np.ndarray | None = None) -> np.ndarray:
        if weights:
            y = function(data_first(a), data_first(b), None if like is None else weights_first(like))
            return y.transpose([*range(2, y.ndim), 1, 0])
        y = function(data_first(a), weights_first(b), None if like is None else data_first(like))
        return np.moveaxis(y, 1, -1)

    return wrapped


def rows_of(axes: int) -> dict[str, list[Case]]:
    name = f"conv{axes}d"
    stride, dilation = [2, 1, 1][:axes], [1, 2, 1][:axes]
    padding = [(1, 1), (2, 1), (0, 0)][:axes]
    kernel, extents = (3, 2, 1)[:axes], (6, 5, 3)[:axes]
    geometry = stride, dilation, padding
    out = tuple(reference.windows(extents, kernel, *geometry))
    x, w, y = (2, 4, *extents), (6, 2, *kernel), (2, 6, *out)
    attrs: dict[str, Any] = {
        "stride": stride, "dilation": dilation, "padding": [n for pair in padding for n in pair], "groups": 2,
    }  # fmt: skip

    def forward(x: np.ndarray, w: np.ndarray, like: Any = None) -> np.ndarray:
        return reference.conv(x, w, *geometry, 2)

    def data(g: np.ndarray, w: np.ndarray, like: np.ndarray) -> np.ndarray:
        return reference.data_gradient(g, w, like.shape[2:], *geometry, 2)

    def weights(g: np.ndarray, x: np.ndarray, like: np.ndarray) -> np.ndarray:
        return reference.weights_gradient(x, g, like.shape[2:], *geometry, 2)

    def transposed(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return reference.data_gradient(x, w, extents, *geometry, 2)

    def depthwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        channels, multiplier = x.shape[1], w.shape[0]
        grouped = w.swapaxes(0, 1).reshape(channels * multiplier, 1, *w.shape[2:])
        return reference.conv(x, grouped, *geometry, channels)

    def moved(shape: tuple[int, ...], is_weights: bool = False) -> tuple[int, ...]:
        return (*shape[2:], shape[1], shape[0]) if is_weights else (shape[0], *shape[2:], shape[1])

    smallest = [(n - 1) * s + (k - 1) * d + 1 - sum(p)
                for n, s, k, d, p in zip(out, stride, kernel, dilation, padding, strict=True)]  # fmt: skip
    more = [n - m for n, m in zip(extents, smallest, strict=True)]
    options: dict[str, Any] = {"dtypes": (*FLOATS, "int32"), "tolerance": 64}
    like = {"grad_inputs": (0, 1), "dtypes": REALS, "tolerance": 64}
    depth = {key: value for key, value in attrs.items() if key != "groups"}
    return {
        name: [
            Case(forward, (x, w), attrs=attrs, **options),
            Case(channels_last(forward), (moved(x), moved(w, True)), attrs=attrs | last(axes), dtypes=REALS,
                 tolerance=64),
        ],
        f"{name}_data_gradient": [
            Case(data, (y, w, x), attrs=attrs, **like),
            Case(channels_last(data), (moved(y), moved(w, True), moved(x)), attrs=attrs | last(axes), **like),
        ],
        f"{name}_weights_gradient": [
            Case(weights, (y, x, w), attrs=attrs, **like),
            Case(channels_last(weights, True), (moved(y), moved(x), moved(w, True)), attrs=attrs | last(axes), **like),
        ],
        f"conv_transpose{axes}d": [
            Case(transposed, (y, w), attrs=attrs | {"output_padding": more}, **options),
            Case(transposed, (y, w), attrs=attrs | {"output_shape": extents}, dtypes=REALS, tolerance=64),
        ],
        f"depthwise_conv{axes}d": [Case(depthwise, (x, (3, 4, *kernel)), attrs=depth, **options)],
    }  # fmt: skip


ROWS = rows_of(1) | rows_of(2) | rows_of(3)
