"""A training step of the reference GAN against PyTorch, torch.compile and JAX, and its first runs in a new process.

Batch 64: noise, generator with batch norm, discriminator with dropout on real and drawn images, both losses, selective
gradients and both SGD updates. The first runs are timed with an empty and with a filled kernel cache.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import common  # first: it sets the thread counts of the peers
import numpy as np

BATCH, NOISE, RATE, DROPOUT = 64, 100, 1e-3, 0.3

FIRST_RUN = """
import time
start = time.perf_counter()
import numpy as np
import topstitch as ts
from topstitch.examples._training import sgd_updates
from topstitch.examples.gan_train import Gan
imported = time.perf_counter()
gan = Gan(lambda graph, loss, parameters: sgd_updates(graph, loss, parameters, 1e-3), dropout=0.3, seed=0)
built = time.perf_counter()
gan.train_step(np.random.default_rng(0).standard_normal((64, 1, 28, 28), dtype=np.float32))
print(imported - start, built - imported, time.perf_counter() - built)
"""

# A process that goes on with training: the step, with its variables, and a batch come from files, and nothing needs
# NumPy, whose import takes longer than all of topstitch's part.
RESUMED_RUN = """
import sys, time
start = time.perf_counter()
import topstitch as ts
imported = time.perf_counter()
step = ts.Executable.load(sys.argv[1])
images = ts.load_arrays(sys.argv[2])["images"]
loaded = time.perf_counter()
losses = [loss.item() for loss in step.run(images)]
done = time.perf_counter()
assert "numpy" not in sys.modules and all(0 < loss < 10 for loss in losses)
print(imported - start, loaded - imported, done - loaded)
"""


def real_images() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((BATCH, 1, 28, 28), dtype=np.float32)


def weights() -> dict[str, np.ndarray]:
    """Weights of both networks by name: a dense layer is [in, out], a convolution OIHW, also where it is transposed."""
    random = np.random.default_rng(1)
    shapes = {
        "g.dense": (NOISE, 6272), "g.gain1": (128,), "g.bias1": (128,), "g.expand1": (128, 64, 5, 5), "g.gain2": (64,),
        "g.bias2": (64,), "g.expand2": (64, 1, 5, 5), "g.bias3": (1,), "d.conv1": (64, 1, 5, 5), "d.bias1": (64,),
        "d.conv2": (128, 64, 5, 5), "d.bias2": (128,), "d.dense": (6272, 1), "d.bias3": (1,),
    }  # fmt: skip
    values = {name: 0.02 * random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    return {name: 1 + value if "gain" in name else value for name, value in values.items()}


def our_gan() -> Any:
    from topstitch.examples._training import sgd_updates
    from topstitch.examples.gan_train import Gan

    return Gan(lambda graph, loss, values: sgd_updates(graph, loss, values, RATE), dropout=DROPOUT, seed=0)


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    gan = our_gan()
    images = real_images()
    yield "gan_train", {"topstitch": lambda: gan.train_step(images)}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(common.THREADS)
    images = torch.from_numpy(real_images())
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in weights().items()}
    networks = {part: [value for name, value in leaves.items() if name.startswith(part)] for part in "dg"}
    mean, variance = [torch.zeros(128), torch.zeros(64)], [torch.ones(128), torch.ones(64)]

    def norm(x: Any, k: int) -> Any:
        gain, bias = leaves[f"g.gain{k + 1}"], leaves[f"g.bias{k + 1}"]
        return F.relu(F.batch_norm(x, mean[k], variance[k], gain, bias, training=True))

    def judge(x: Any) -> Any:
        for k in (1, 2):
            x = F.leaky_relu(F.conv2d(x, leaves[f"d.conv{k}"], leaves[f"d.bias{k}"], 2, 2), 0.2)
            x = F.dropout(x, DROPOUT)
        return torch.addmm(leaves["d.bias3"], x.flatten(1), leaves["d.dense"])

    def losses() -> tuple[Any, Any]:
        x = norm((torch.randn(BATCH, NOISE) @ leaves["g.dense"]).reshape(-1, 128, 7, 7), 0)
        x = norm(F.conv_transpose2d(x, leaves["g.expand1"], None, 2, 2, 1), 1)
        fakes = torch.tanh(F.conv_transpose2d(x, leaves["g.expand2"], leaves["g.bias3"], 2, 2, 1))
        real, fake = judge(images), judge(fakes)
        entropy, ones = F.binary_cross_entropy_with_logits, torch.ones(BATCH, 1)
        return entropy(real, ones) + entropy(fake, torch.zeros(BATCH, 1)), entropy(fake, ones)

    def step(function: Any) -> list[float]:
        both = function()
        gradients = [
            torch.autograd.grad(loss, networks[part], retain_graph=part == "d")
            for loss, part in zip(both, "dg", strict=True)
        ]
        with torch.no_grad():
            for part, values in zip("dg", gradients, strict=True):
                torch._foreach_add_(networks[part], values, alpha=-RATE)
        return [float(loss.detach()) for loss in both]

    cases: dict[str, common.Case] = {"torch": lambda: step(losses)}
    try:
        import torch._functorch.config

        torch._functorch.config.donated_buffer = False  # or the graph cannot be walked twice
        compiled = torch.compile(losses)
        step(compiled)
    except Exception as error:  # needs a compiler at run time
        print(f"torch.compile is left out: {type(error).__name__}", file=sys.stderr)
    else:
        cases["torch.compile"] = lambda: step(compiled)
    yield "gan_train", cases


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    jnp = jax.numpy
    images = jnp.asarray(real_images())
    start = {name: jnp.asarray(value) for name, value in weights().items()}
    state = [[{k: v for k, v in start.items() if k[0] == part} for part in "dg"], jax.random.key(0)]
    layouts = ("NCHW", "OIHW", "NCHW")

    def norm(x: Any, gain: Any, bias: Any) -> Any:
        mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        return jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain[:, None, None] + bias[:, None, None])

    def expand(x: Any, w: Any) -> Any:
        turned = jnp.flip(w, (2, 3)).swapaxes(0, 1)
        return jax.lax.conv_general_dilated(
            x, turned, (1, 1), [(2, 3)] * 2, lhs_dilation=(2, 2), dimension_numbers=layouts
        )

    def generate(g: Any, noise: Any) -> Any:
        x = norm((noise @ g["g.dense"]).reshape(-1, 128, 7, 7), g["g.gain1"], g["g.bias1"])
        x = norm(expand(x, g["g.expand1"]), g["g.gain2"], g["g.bias2"])
        return jnp.tanh(expand(x, g["g.expand2"]) + g["g.bias3"])

    def judge(d: Any, x: Any, key: Any) -> Any:
        for k, part in zip((1, 2), jax.random.split(key), strict=True):
            x = jax.lax.conv_general_dilated(x, d[f"d.conv{k}"], (2, 2), [(2, 2)] * 2, dimension_numbers=layouts)
            x = jax.nn.leaky_relu(x + d[f"d.bias{k}"][:, None, None], 0.2)
            x = jnp.where(jax.random.bernoulli(part, 1 - DROPOUT, x.shape), x / (1 - DROPOUT), 0)
        return x.reshape(BATCH, -1) @ d["d.dense"] + d["d.bias3"]

    def losses(d: Any, g: Any, keys: Any) -> tuple[Any, Any]:
        fakes = generate(g, jax.random.normal(keys[0], (BATCH, NOISE)))
        real, fake = judge(d, images, keys[1]), judge(d, fakes, keys[2])
        return (jax.nn.softplus(-real) + jax.nn.softplus(fake)).mean(), jax.nn.softplus(-fake).mean()

    @jax.jit
    def train(networks: Any, key: Any) -> tuple[Any, Any, Any]:
        key, *keys = jax.random.split(key, 4)
        d, g = networks
        both, pull = jax.vjp(lambda d, g: losses(d, g, keys), d, g)
        slopes = pull((1.0, 0.0))[0], pull((0.0, 1.0))[1]
        new = [
            jax.tree.map(lambda v, s: v - RATE * s, values, slope) for values, slope in zip((d, g), slopes, strict=True)
        ]
        return both, new, key

    def step() -> list[float]:
        both, state[0], state[1] = train(state[0], state[1])
        return [float(loss) for loss in both]

    yield "gan_train", {"jax": step}


def resumed_runs() -> None:
    import topstitch as ts

    gan = our_gan()
    with tempfile.TemporaryDirectory() as folder:
        step, batch = f"{folder}/step", f"{folder}/batch"
        losses = [gan.discriminator_loss, gan.generator_loss]
        gan.graph.compile([gan.images], losses, operations=gan.updates).save(step)
        ts.save_arrays(batch, {"images": real_images()})
        common.first_runs("gan_train, resumed", RESUMED_RUN, asked=(None, 0.2), arguments=[step, batch])


if __name__ == "__main__":
    common.compare("GAN, float32, batch 64", [topstitch_rows, torch_rows, jax_rows], common.best_peer)
    common.first_runs("gan_train, described anew", FIRST_RUN, asked=(1.0, None))
    resumed_runs()
