"""Pooling in NumPy, window by window, written from the definitions: values, indices, and gradients by scattering.

Only the spatial axes are looped over; everything in front of them is one axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


def per_axis(value: Any, axes: int) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * axes if len(values) == 1 else values


@dataclass
class Axis:
    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    windows: int

    @classmethod
    def make(cls, extent: int, kernel: int, stride: int, dilation: int, padding: Any, ceil: bool) -> Axis:
        span = (kernel - 1) * dilation + 1
        if padding == "valid":
            padding = (0, 0)
        if isinstance(padding, str):
            windows = -(-extent // stride)
            total = max((windows - 1) * stride + span - extent, 0)
            small, large = total // 2, total - total // 2
            before, after = (small, large) if padding == "same" else (large, small)
            return cls(extent, kernel, stride, dilation, before, after, windows)
        before, after = padding
        windows = len(range(0, extent + before + after - span + 1, stride))
        # One more for what is left over, if it begins before the padding at the end.
        begins = windows * stride
        leftover = (extent + before + after - span) % stride != 0
        if ceil and leftover and begins < extent + before:
            windows += 1
        return cls(extent, kernel, stride, dilation, before, after, windows)

    def positions(self, window: int) -> list[int]:
        return [window * self.stride + tap * self.dilation - self.before for tap in range(self.kernel)]


class Pool:
    """The windows over arrays of one shape, whose last axes are the spatial ones."""

    def __init__(
        self,
        shape: tuple[int, ...],
        axes: int,
        kernel: Any,
        stride: Any = None,
        dilation: Any = 1,
        padding: Any = 0,
        ceil_mode: bool = False,
    ) -> None:
        kernels = per_axis(kernel, axes)
        strides = kernels if stride is None else per_axis(stride, axes)
        if isinstance(padding, str):
            paddings = [padding] * axes
        elif isinstance(padding, (list, tuple)) and len(padding) == 2 * axes:
            paddings = pairs(padding)
        else:
            paddings = [(amount, amount) for amount in per_axis(padding, axes)]
        self.leading, self.spatial = shape[: len(shape) - axes], shape[len(shape) - axes :]
        self.axes = [
            Axis.make(*facts, ceil_mode)
            for facts in zip(self.spatial, kernels, strides, per_axis(dilation, axes), paddings, strict=True)
        ]
        self.out_shape = (*self.leading, *(axis.windows for axis in self.axes))

    def windows(self) -> Iterator[tuple[tuple[int, ...], list[int], list[int], int]]:
        """Of each window: its place, its positions (flat) inside of the input, their taps, and the number of positions
        inside of the padded input."""
        for place in np.ndindex(*(axis.windows for axis in self.axes)):
            positions, taps, padded = [], [], 0
            rows = [axis.positions(window) for axis, window in zip(self.axes, place, strict=True)]
            for tap, position in enumerate(itertools.product(*rows)):
                facts = list(zip(self.axes, position, strict=True))
                padded += all(-axis.before <= p < axis.extent + axis.after for axis, p in facts)
                if all(0 <= p < axis.extent for axis, p in facts):
                    positions.append(int(np.ravel_multi_index(position, self.spatial)))
                    taps.append(tap)
            yield place, positions, taps, padded

    def flat(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(int(np.prod(self.leading)), int(np.prod(self.spatial)))

    def maximum(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values, global indices, local indices."""
        rows = self.flat(x)
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        values = np.full((len(rows), *self.out_shape[len(self.leading) :]), lowest, x.dtype)
        globally = np.full(values.shape, -1)
        locally = np.full(values.shape, -1)
        for place, positions, taps, _ in self.windows():
            if positions and len(rows):
                best = rows[:, positions].argmax(1)  # the first one, or the first NaN
                values[(slice(None), *place)] = np.take_along_axis(rows[:, positions], best[:, None], 1)[:, 0]
                globally[(slice(None), *place)] = np.array(positions)[best]
                locally[(slice(None), *place)] = np.array(taps)[best]
        return tuple(result.reshape(self.out_shape) for result in (values, globally, locally))

    def average(self, x: np.ndarray, include_padding: bool = False) -> np.ndarray:
        rows = self.flat(x)
        result = np.zeros((len(rows), *self.out_shape[len(self.leading) :]))
        for place, positions, _, padded in self.windows():
            count = padded if include_padding else len(positions)
            result[(slice(None), *place)] = rows[:, positions].sum(1) / max(count, 1)
        return result.reshape(self.out_shape)

    def norm(self, x: np.ndarray) -> np.ndarray:
        rows = self.flat(x)
        result = np.zeros((len(rows), *self.out_shape[len(self.leading) :]))
        for place, positions, _, _ in self.windows():
            result[(slice(None), *place)] = np.sqrt((rows[:, positions] ** 2).sum(1))
        return result.reshape(self.out_shape)

    def gradient(self, kind: str, x: np.ndarray, seed: np.ndarray, include_padding: bool = False) -> np.ndarray:
        """Of sum(pool(x) * seed)."""
        rows = self.flat(x)
        seeds = seed.reshape(len(rows), *self.out_shape[len(self.leading) :])
        result = np.zeros(rows.shape)
        for place, positions, _, padded in self.windows():
            if not positions or not len(rows):
                continue
            window = rows[:, positions]
            slope = seeds[(slice(None), *place)]
            if kind == "max":
                best = np.array(positions)[window.argmax(1)]
                np.add.at(result, (np.arange(len(rows)), best), slope)
            elif kind == "avg":
                count = padded if include_padding else len(positions)
                np.add.at(result, (slice(None), positions), slope[:, None] / count)
            else:
                norm = np.sqrt((window**2).sum(1, keepdims=True))
                np.add.at(result, (slice(None), positions), slope[:, None] * window / np.where(norm == 0, 1, norm))
        return result.reshape(x.shape)


def pairs(numbers: Any) -> list[tuple[int, int]]:
    return [(numbers[2 * k], numbers[2 * k + 1]) for k in range(len(numbers) // 2)]


def pooled(kind: str, axes: int, **options: Any) -> Any:
    """A function of an array in the layout "NCHW" or the like, for the rows of op_cases.py."""
    include = {"include_padding": options.pop("include_padding")} if "include_padding" in options else {}
    last = options.pop("data_layout", "").endswith("C")

    def reference(x: np.ndarray) -> Any:
        x = np.moveaxis(x, -1, 1) if last else x
        pool = Pool(x.shape, axes, **options)
        if kind == "max":
            result: Any = pool.maximum(x)
        else:
            result = pool.average(x, **include) if kind == "avg" else pool.norm(x)
        result = result if isinstance(result, tuple) else (result,)
        result = tuple(np.moveaxis(y, 1, -1) for y in result) if last else result
        return result if kind == "max" else result[0]

    return reference
