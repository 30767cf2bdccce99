"""Layers that take their weights from a source: an object that loads them when they are needed, and lets go of them.

`Convolution` and `FullyConnected` put their weights into a graph as constants, in the precision that the source names.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, Protocol

from . import _ops
from ._core import DType, DTypeError, NDArray, Tensor, UserError, load_arrays
from ._types import ArrayLike, DTypeLike

Padding = int | Sequence[int] | Literal["valid", "same", "same_lower"]

_LAYOUTS = ("OIHW", "HWIO", "OHWI")


class WeightSource(Protocol):
    """Where a layer gets its weights from. Any object with these members is one.

    A layer calls `load`, then `weights` and `bias`, then `purge`, each time that it is put into a graph, and keeps none
    of the arrays. `purge` is called also when something before it fails.
    """

    @property
    def kernel_weights_dtype(self) -> DTypeLike | None:
        """The floating-point dtype in which the graph keeps the weights; None keeps what `weights` returns."""

    def load(self) -> object:
        """Make the weights available. False means that this is not possible, as does an exception."""

    def weights(self) -> ArrayLike:
        """The weights: of a convolution in the layer's layout, of a dense layer [outputs, inputs]."""

    def bias(self) -> ArrayLike | None:
        """One number for each output channel, or None."""

    def purge(self) -> None:
        """Let go of what `load` made available."""


class ArrayWeights:
    """A source of weights that are in memory anyway."""

    def __init__(
        self, weights: ArrayLike, bias: ArrayLike | None = None, kernel_weights_dtype: DTypeLike | None = None
    ) -> None:
        self.kernel_weights_dtype = kernel_weights_dtype
        self._weights = weights
        self._bias = bias

    def load(self) -> None:
        pass

    def weights(self) -> ArrayLike:
        return self._weights

    def bias(self) -> ArrayLike | None:
        return self._bias

    def purge(self) -> None:
        pass


class FileWeights:
    """A source that reads a safetensors file, which is in memory only between `load` and `purge`.

    `weights` and `bias` are the names of the arrays in the file; a bias of None is none.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        weights: str = "weights",
        bias: str | None = "bias",
        kernel_weights_dtype: DTypeLike | None = None,
    ) -> None:
        self.kernel_weights_dtype = kernel_weights_dtype
        self._path = path
        self._names = weights, bias
        self._arrays: dict[str, NDArray] = {}

    def load(self) -> None:
        self._arrays = load_arrays(self._path)

    def weights(self) -> NDArray:
        return self._array(self._names[0])

    def bias(self) -> NDArray | None:
        name = self._names[1]
        return None if name is None else self._array(name)

    def purge(self) -> None:
        self._arrays = {}

    def _array(self, name: str) -> NDArray:
        if name not in self._arrays:
            held = ", ".join(self._arrays) or "nothing: call load() first"
            raise UserError(f"[FileWeights] {self._path} has no array named {name!r}; it has {held}")
        return self._arrays[name]


class _Layer:
    """What layers share: how weights come from a source into a graph."""

    def __init__(self, source: WeightSource, *, name: str = "") -> None:
        self._source = source
        self._name = name

    def _load(self, x: Tensor, rank: int, outputs_axis: int) -> tuple[Tensor, Tensor | None]:
        """Weights and bias in the graph of `x` and in its dtype. The source is purged whatever happens."""
        try:
            if self._source.load() is False:
                raise self._error("the weight source could not load: load() returned False")
            weights = NDArray(self._source.weights())
            bias = self._source.bias()
            if weights.ndim != rank:
                raise self._error(f"weights should have rank {rank}, but have the shape {weights.shape}")
            kept = self._constant(x, weights, "weights", self._kept_dtype(weights))
            if bias is None:
                return kept, None
            bias, outputs = NDArray(bias), weights.shape[outputs_axis]
            if bias.shape != (outputs,):
                raise self._error(f"the bias should have the shape ({outputs},), but has {bias.shape}")
            return kept, self._constant(x, bias, "bias", self._floating(bias, "the bias is"))
        finally:
            self._source.purge()

    def _error(self, what: str, kind: type[UserError] = UserError) -> UserError:
        return kind(f"[{type(self).__name__}] {what}")

    def _floating(self, array: NDArray, what: str) -> DType:
        dtype = DType.of(array.dtype)
        if not dtype.is_floating:
            hint = "use float16, bfloat16, float32 or float64; a source of integers dequantizes them"
            raise self._error(f"{what} {dtype}; {hint}", DTypeError)
        return dtype

    def _kept_dtype(self, weights: NDArray) -> DType:
        """The dtype of the constant. Nothing is rounded unless the source says so."""
        given = self._floating(weights, "weights are")
        wanted = self._source.kernel_weights_dtype
        if wanted is None:
            return given
        kept = DType.of(wanted)
        if not kept.is_floating or kept.itemsize > given.itemsize:
            hint = "it names the same or a smaller floating-point dtype"
            raise self._error(f"kernel_weights_dtype is {kept}, but weights are {given}; {hint}", DTypeError)
        return kept

    def _constant(self, x: Tensor, array: NDArray, what: str, dtype: DType) -> Tensor:
        if array.dtype != dtype.numpy:
            array = array.astype(dtype)
        constant = x.graph.constant(array, name=f"{self._name}.{what}" if self._name else "")
        return constant if dtype == x.dtype else _ops.cast(constant, x.dtype)


class Convolution(_Layer):
    """A two-dimensional convolution, and its bias. Attributes are those of `ts.conv2d`.

    `weights_layout` may also be "OHWI", the order of MPSCNNConvolution.
    """

    def __init__(
        self,
        source: WeightSource,
        *,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: Padding = 0,
        groups: int = 1,
        data_layout: Literal["NCHW", "NHWC"] = "NCHW",
        weights_layout: Literal["OIHW", "HWIO", "OHWI"] = "OIHW",
        name: str = "",
    ) -> None:
        super().__init__(source, name=name)
        if weights_layout not in _LAYOUTS:
            raise self._error(f"weights_layout is {weights_layout!r}; use one of {', '.join(_LAYOUTS)}")
        self._attributes: dict[str, Any] = {
            "stride": stride, "dilation": dilation, "padding": padding, "groups": groups, "data_layout": data_layout,
        }  # fmt: skip
        self._layout = weights_layout
        self._channels_first = data_layout == "NCHW"

    def __call__(self, x: Tensor) -> Tensor:
        """The convolution of `x`, in the dtype of `x`. The weights are loaded, copied into the graph, and purged."""
        weights, bias = self._load(x, 4, self._layout.index("O"))
        layout = self._layout
        if layout == "OHWI":
            weights, layout = _ops.transpose(weights, (0, 3, 1, 2)), "OIHW"
        y = _ops.conv2d(x, weights, **self._attributes, weights_layout=layout)
        if bias is None:
            return y
        return y + (_ops.expand_dims(bias, axis=(1, 2)) if self._channels_first else bias)


class FullyConnected(_Layer):
    """A dense layer over the last axis: x @ weights.T + bias, with weights [outputs, inputs]."""

    def __call__(self, x: Tensor) -> Tensor:
        """The result for `x`, in the dtype of `x`. The weights are loaded, copied into the graph, and purged."""
        weights, bias = self._load(x, 2, 0)
        y = _ops.matmul(x, weights.T)
        return y if bias is None else y + bias
