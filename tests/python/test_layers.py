"""Layers with weight sources: values against PyTorch's definitions in NumPy, precision, and who holds weights when.

Expected values are computed in float64, by SciPy where there is a convolution.
"""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import correlate2d

import topstitch as ts
from topstitch.layers import ArrayWeights, Convolution, FileWeights, FullyConnected


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def run(layer: Convolution | FullyConnected, x: np.ndarray) -> np.ndarray:
    graph = ts.Graph()
    feed = graph.placeholder(x.shape, str(x.dtype))
    result = layer(feed)
    assert result.dtype == feed.dtype
    return np.asarray(graph.run({feed: x}, result))


def convolved(x: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """NCHW by OIHW with "same" padding, in float64."""
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    return np.array(
        [
            [sum(correlate2d(plane, tap, "same") for plane, tap in zip(image, w, strict=True)) for w in weights]
            for image in x
        ]
    ) + bias.astype(np.float64).reshape(-1, 1, 1)


@pytest.mark.parametrize("layout", ["OIHW", "HWIO", "OHWI"])
@pytest.mark.parametrize("data_layout", ["NCHW", "NHWC"])
def test_convolution(layout: str, data_layout: str) -> None:
    x, weights, bias = random((2, 3, 6, 7)), random((4, 3, 3, 3), 1), random((4,), 2)
    given = weights.transpose([("OIHW").index(axis) for axis in layout])
    layer = Convolution(
        ArrayWeights(given, bias), padding="same", data_layout=data_layout, weights_layout=layout
    )  # fmt: skip
    got = run(layer, x if data_layout == "NCHW" else x.transpose(0, 2, 3, 1))
    got = got if data_layout == "NCHW" else got.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(got, convolved(x, weights, bias), rtol=1e-5, atol=1e-5)


def test_convolution_with_strides_and_groups() -> None:
    x, weights = random((1, 4, 9, 9)), random((2, 2, 3, 3), 1)
    got = run(Convolution(ArrayWeights(weights), stride=2, padding=1, groups=2), x)
    halves = [convolved(x[:, 2 * k : 2 * k + 2], weights[k : k + 1], np.zeros(1)) for k in range(2)]
    np.testing.assert_allclose(got, np.concatenate(halves, 1)[:, :, ::2, ::2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("with_bias", [True, False])
def test_fully_connected(with_bias: bool) -> None:
    x, weights, bias = random((2, 5, 8)), random((3, 8), 1), random((3,), 2)
    got = run(FullyConnected(ArrayWeights(weights, bias if with_bias else None)), x)
    expected = x.astype(np.float64) @ weights.T.astype(np.float64) + (bias if with_bias else 0)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_float32_weights_stay_float32() -> None:
    """Weights that differ from 1 by less than float16 can tell."""
    weights = (1 + np.arange(6, dtype=np.float32) * np.float32(2**-20)).reshape(6, 1)
    x = np.ones((1, 1), np.float32)
    np.testing.assert_array_equal(run(FullyConnected(ArrayWeights(weights)), x), weights.T)
    same = ArrayWeights(weights, kernel_weights_dtype=ts.float32)
    np.testing.assert_array_equal(run(FullyConnected(same), x), weights.T)
    half = ArrayWeights(weights, kernel_weights_dtype=ts.float16)
    np.testing.assert_array_equal(run(FullyConnected(half), x), np.ones((1, 6)))


@pytest.mark.parametrize("kept", ["float16", "bfloat16"])
def test_weights_are_kept_in_the_precision_asked_for(kept: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    weights, x, bias = random((5, 16)), random((3, 16), 1), random((5,), 2)
    got = run(FullyConnected(ArrayWeights(weights, bias, kernel_weights_dtype=kept)), x)
    rounded = weights.astype(np.float16 if kept == "float16" else ml_dtypes.bfloat16).astype(np.float64)
    expected = x.astype(np.float64) @ rounded.T + bias  # the bias is not rounded
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(got - (x.astype(np.float64) @ weights.T.astype(np.float64) + bias)).max() > 1e-4


class Recorder:
    """A source that notes what is asked of it, and whether its weights are still alive."""

    kernel_weights_dtype = None

    def __init__(self, shape: tuple[int, ...] = (3, 4), loads: bool | None = None) -> None:
        self.calls: list[str] = []
        self._shape = shape
        self._loads = loads
        self._weights: np.ndarray | None = None
        self.alive: weakref.ref[np.ndarray] | None = None

    def load(self) -> bool | None:
        self.calls.append("load")
        self._weights = np.ones(self._shape, np.float32)
        self.alive = weakref.ref(self._weights)
        return self._loads

    def weights(self) -> Any:
        self.calls.append("weights")
        return self._weights

    def bias(self) -> None:
        self.calls.append("bias")

    def purge(self) -> None:
        self.calls.append("purge")
        self._weights = None


def test_weights_are_held_only_while_they_are_needed() -> None:
    source = Recorder()
    layer = FullyConnected(source)
    assert source.calls == []
    graph = ts.Graph()
    x = graph.placeholder((-1, 4))
    y = layer(x)
    assert source.calls == ["load", "weights", "bias", "purge"]
    gc.collect()
    assert source.alive is not None
    assert source.alive() is None
    np.testing.assert_array_equal(graph.run({x: np.ones((2, 4), np.float32)}, y), np.full((2, 3), 4))


@pytest.mark.parametrize("problem", ["rank", "load", "graph"])
def test_purged_whatever_happens(problem: str) -> None:
    source = Recorder(shape=(3, 4, 1) if problem == "rank" else (3, 4), loads=False if problem == "load" else None)
    x = ts.Graph().placeholder((2, 5 if problem == "graph" else 4))
    message = {"rank": r"rank 2, but have the shape \(3, 4, 1\)", "load": "returned False", "graph": "matmul"}[problem]
    with pytest.raises(ts.UserError, match=message):
        FullyConnected(source)(x)
    assert source.calls[-1] == "purge"


@pytest.mark.parametrize(
    ("weights", "bias", "kept", "message"),
    [
        (np.ones((3, 4), np.uint8), None, None, "weights are uint8"),
        (np.ones((3, 4), np.float16), None, "float32", "kernel_weights_dtype is float32, but weights are float16"),
        (np.ones((3, 4), np.float32), None, "int8", "kernel_weights_dtype is int8"),
        (np.ones((3, 4), np.float32), np.ones(4, np.float32), None, r"shape \(3,\), but has \(4,\)"),
        (np.ones((3, 4), np.float32), np.ones(3, np.int32), None, "the bias is int32"),
    ],
)
def test_what_is_refused(weights: np.ndarray, bias: np.ndarray | None, kept: str | None, message: str) -> None:
    x = ts.Graph().placeholder((2, 4))
    with pytest.raises(ts.UserError, match=rf"^\[FullyConnected\] .*{message}"):
        FullyConnected(ArrayWeights(weights, bias, kept))(x)


def test_layout_of_no_sense() -> None:
    with pytest.raises(ts.UserError, match=r"\[Convolution\] weights_layout is 'IOHW'"):
        Convolution(ArrayWeights(random((1, 1, 1, 1))), weights_layout="IOHW")  # type: ignore[arg-type]


def test_weights_from_a_file(tmp_path: Path) -> None:
    weights, bias, x = random((3, 8)), random((3,), 1), random((2, 8), 2)
    path = tmp_path / "dense.safetensors"
    ts.save_arrays(path, {"kernel": weights, "bias": bias})
    got = run(FullyConnected(FileWeights(path, "kernel", kernel_weights_dtype="float32")), x)
    np.testing.assert_allclose(got, x.astype(np.float64) @ weights.T + bias, rtol=1e-5, atol=1e-6)
    with pytest.raises(ts.UserError, match="no array named 'weights'; it has bias, kernel"):
        run(FullyConnected(FileWeights(path)), x)
    with pytest.raises(FileNotFoundError):
        run(FullyConnected(FileWeights(tmp_path / "none")), x)
    source = FileWeights(path)
    with pytest.raises(ts.UserError, match=r"call load\(\) first"):
        source.weights()
