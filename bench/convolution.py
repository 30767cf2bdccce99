"""Convolutions of the reference workloads and their gradients, against PyTorch and JAX.

Layers of the digit classifier and of the GAN (NCHW), of ResNet-50 (NCHW) and of MobileNet (NHWC, depthwise).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import common  # first: it sets the thread counts of the peers
import numpy as np


@dataclass(frozen=True)
class Layer:
    """A square convolution with symmetric padding."""

    name: str
    batch: int
    channels: int
    size: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1
    channels_last: bool = False
    gradients: bool = True

    @property
    def out(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        taps = self.channels // self.groups * self.kernel**2
        return 2 * self.batch * self.outputs * self.out**2 * taps

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Data, weights (OIHW or HWIO) and the gradient of the result."""
        rng = np.random.default_rng(0)
        x = rng.standard_normal((self.batch, self.channels, self.size, self.size), dtype=np.float32)
        w = rng.standard_normal(
            (self.outputs, self.channels // self.groups, self.kernel, self.kernel), dtype=np.float32
        )
        g = rng.standard_normal((self.batch, self.outputs, self.out, self.out), dtype=np.float32)
        if self.channels_last:
            x, g = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, g))
            w = np.ascontiguousarray(w.transpose(2, 3, 1, 0))
        return x, w, g


LAYERS = (
    Layer("cnn 5x5, 1 to 32", 64, 1, 28, 32, 5, padding=2),
    Layer("cnn 5x5, 32 to 64", 64, 32, 14, 64, 5, padding=2),
    # The data gradients of these are the generator's transposed convolutions, the other way round.
    Layer("gan 5x5 / 2, 1 to 64", 64, 1, 28, 64, 5, stride=2, padding=2),
    Layer("gan 5x5 / 2, 64 to 128", 64, 64, 14, 128, 5, stride=2, padding=2),
    Layer("resnet 3x3, 64 to 64", 1, 64, 56, 64, 3, padding=1),
    Layer("resnet 1x1, 64 to 256", 1, 64, 56, 256, 1),
    Layer("mobilenet depthwise 3x3", 1, 128, 56, 128, 3, padding=1, groups=128, channels_last=True, gradients=False),
)
PARTS = ("forward", "data", "weights")


def parts(layer: Layer) -> tuple[str, ...]:
    return PARTS if layer.gradients else PARTS[:1]


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts

    for layer in LAYERS:
        x, w, g = layer.arrays()
        attributes = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
        if layer.channels_last:
            attributes |= {"data_layout": "NHWC", "weights_layout": "HWIO"}
        for part in parts(layer):
            graph = ts.Graph()
            tx, tw, tg = (graph.placeholder(a.shape) for a in (x, w, g))
            if part == "forward":
                feeds, y, arrays = [tx, tw], ts.conv2d(tx, tw, **attributes), [x, w]
            elif part == "data":
                feeds, y, arrays = [tg, tw, tx], ts.conv2d_data_gradient(tg, tw, tx, **attributes), [g, w, x]
            else:
                feeds, y, arrays = [tg, tx, tw], ts.conv2d_weights_gradient(tg, tx, tw, **attributes), [g, x, w]
            executable = graph.compile(feeds, y)
            sources = [ts.NDArray(a) for a in arrays]
            out = ts.NDArray(np.empty(tuple(y.shape), np.float32))
            yield f"{layer.name}, {part}", {"topstitch": lambda e=executable, s=sources, o=out: e.run(*s, out=o)}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch

    torch.set_num_threads(common.THREADS)
    for layer in LAYERS:
        x, w, g = (torch.from_numpy(a) for a in layer.arrays())
        if layer.channels_last:  # the same memory under PyTorch's names for it
            x, g = (a.permute(0, 3, 1, 2) for a in (x, g))
            w = w.permute(3, 2, 0, 1).contiguous()
        pair = [layer.stride] * 2, [layer.padding] * 2, [1, 1]
        for part in parts(layer):
            if part == "forward":
                case = lambda x=x, w=w, y=layer: torch.conv2d(  # noqa: E731
                    x, w, stride=y.stride, padding=y.padding, groups=y.groups
                )
            else:
                mask = [part == "data", part == "weights", False]
                case = lambda x=x, w=w, g=g, m=mask, p=pair, y=layer: torch.ops.aten.convolution_backward(  # noqa: E731
                    g, x, w, None, *p, False, [0, 0], y.groups, m
                )
            yield f"{layer.name}, {part}", {"torch": case}


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    for layer in LAYERS:
        x, w, g = (jax.numpy.asarray(a) for a in layer.arrays())
        layouts = ("NHWC", "HWIO", "NHWC") if layer.channels_last else ("NCHW", "OIHW", "NCHW")

        def forward(x, w, y=layer, d=layouts):
            return jax.lax.conv_general_dilated(
                x, w, (y.stride, y.stride), [(y.padding, y.padding)] * 2, dimension_numbers=d,
                feature_group_count=y.groups,
            )  # fmt: skip

        for part in parts(layer):
            if part == "forward":
                f = jax.jit(forward)
                case = lambda f=f, x=x, w=w: f(x, w).block_until_ready()  # noqa: E731
            elif part == "data":
                f = jax.jit(lambda x, w, g, f=forward: jax.vjp(lambda data, w=w: f(data, w), x)[1](g)[0])
                case = lambda f=f, x=x, w=w, g=g: f(x, w, g).block_until_ready()  # noqa: E731
            else:
                f = jax.jit(lambda x, w, g, f=forward: jax.vjp(lambda weights, x=x: f(x, weights), w)[1](g)[0])
                case = lambda f=f, x=x, w=w, g=g: f(x, w, g).block_until_ready()  # noqa: E731
            yield f"{layer.name}, {part}", {"jax": case}


def speed(name: str, times: dict[str, float]) -> str:
    layer = next(layer for layer in LAYERS if name.startswith(layer.name + ","))
    return f"; {layer.flops / times['topstitch'] * 1e-9:.1f} GFLOP/s"


if __name__ == "__main__":
    common.compare("convolutions, float32", [topstitch_rows, torch_rows, jax_rows], speed)
