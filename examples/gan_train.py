"""Train a GAN: a generator that draws digits, against a discriminator that tells them from real ones.

Both are in one graph, and one run takes a step of both. Writes the curves of both losses and a grid of samples.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

import topstitch as ts
from topstitch.examples._command_line import Progress, Setting, at_least, number, run_example
from topstitch.examples._data import Array, add_data_option, batches, chosen_data
from topstitch.examples._pictures import check_pictures, save_curves, save_grid
from topstitch.examples._training import TrainingRun, adam_updates, training_parser

NOISE = 100  # numbers that the generator makes an image of

# Makes the assignments that lower a loss by changing the parameters given, and no others.
Updates = Callable[[ts.Graph, ts.Tensor, Sequence[ts.Tensor]], list[ts.Operation]]


class BatchNorm:
    """Normalizes channels (axis 1) by a batch's mean and variance in training, by their running means elsewhere."""

    def __init__(self, graph: ts.Graph, channels: int, name: str) -> None:
        def variable(value: float, suffix: str) -> ts.Tensor:
            return graph.variable(np.full(channels, value, np.float32), name=f"{name}.{suffix}")

        self.gain, self.bias = variable(1, "gain"), variable(0, "bias")
        self.mean, self.variance = variable(0, "mean"), variable(1, "variance")

    def train(self, x: ts.Tensor) -> tuple[ts.Tensor, list[ts.Operation]]:
        """The result, and the assignments that keep the running means."""
        result, mean, variance = ts.batch_norm(x, self.gain, self.bias)
        new_mean, new_variance = ts.batch_norm_update(self.mean, self.variance, mean, variance, x)
        return result, [self.mean.assign(new_mean), self.variance.assign(new_variance)]

    def infer(self, x: ts.Tensor) -> ts.Tensor:
        return ts.batch_norm_inference(x, self.mean, self.variance, self.gain, self.bias)


class Gan:
    """Generator and discriminator of 28 x 28 images with pixels from -1 to 1, and the training of both, in one graph.

    The discriminator's loss is lowered through its own parameters alone; the generator's leads through the
    discriminator, which it leaves as it is. Both gradients are taken at the same parameters. Each run draws noise and
    dropout anew, from the graph's random state.
    """

    def __init__(self, updates: Updates, *, dropout: float, seed: int) -> None:
        graph = self.graph = ts.Graph(seed=seed)
        self._random = np.random.default_rng(seed)
        self._dropout = dropout
        self.images = graph.placeholder(("batch", 1, 28, 28), name="images")
        self.noise, _ = ts.random_normal(("batch", NOISE), graph=graph)  # for training: as much as there are images
        self.dropped: list[ts.Tensor] = []  # what each dropout leaves, of the real images and then of the fakes

        self._dense = self._weights("generator.dense", (NOISE, 128 * 7 * 7))
        self._expand1 = self._weights("generator.expand1", (128, 64, 5, 5))
        self._expand2 = self._weights("generator.expand2", (64, 1, 5, 5))
        self._pixel_bias = self._bias("generator.expand2", 1)
        self._norms = [BatchNorm(graph, 128, "generator.norm1"), BatchNorm(graph, 64, "generator.norm2")]
        self.generator = [self._dense, self._expand1, self._expand2, self._pixel_bias]
        self.generator += [parameter for norm in self._norms for parameter in (norm.gain, norm.bias)]

        self._convolutions = []
        for name, before, channels in (("discriminator.conv1", 1, 64), ("discriminator.conv2", 64, 128)):
            weights = self._weights(name, (channels, before, 5, 5))
            self._convolutions.append((weights, self._bias(name, channels)))
        self._verdict = self._weights("discriminator.dense", (128 * 7 * 7, 1))
        self._verdict_bias = graph.variable(np.zeros(1, np.float32), name="discriminator.dense.bias")
        self.discriminator = [parameter for pair in self._convolutions for parameter in pair]
        self.discriminator += [self._verdict, self._verdict_bias]

        fakes, running = self._generate(self.noise, training=True)
        real, fake = self._judge(self.images), self._judge(fakes)
        self.fakes, self.verdicts = fakes, (real, fake)
        self.discriminator_loss = self._cross_entropy(real, 1) + self._cross_entropy(fake, 0)
        self.generator_loss = self._cross_entropy(fake, 1)
        self.updates = updates(graph, self.discriminator_loss, self.discriminator)
        self.updates += updates(graph, self.generator_loss, self.generator)
        self.updates += running
        self.sample_noise = graph.placeholder((-1, NOISE), name="sample_noise")
        self.samples, _ = self._generate(self.sample_noise, training=False)

    def train_step(self, images: Array) -> tuple[float, float]:
        """One step of both networks, in one run; returns the losses before it, the discriminator's first."""
        losses = self.graph.run({self.images: images}, [self.discriminator_loss, self.generator_loss], self.updates)
        return float(losses[0]), float(losses[1])

    def draw(self, noise: Array) -> Array:
        """An image [28, 28] for each row of noise."""
        return np.asarray(self.graph.run({self.sample_noise: noise}, self.samples))[:, 0]

    def _weights(self, name: str, shape: tuple[int, ...]) -> ts.Tensor:
        weights = self._random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)  # A. Radford et al., 2015
        return self.graph.variable(weights, name=f"{name}.weights")

    def _bias(self, name: str, channels: int) -> ts.Tensor:
        return self.graph.variable(np.zeros((channels, 1, 1), np.float32), name=f"{name}.bias")

    def _generate(self, noise: ts.Tensor, *, training: bool) -> tuple[ts.Tensor, list[ts.Operation]]:
        """Images of noise, and in training the assignments that keep the norms' running means."""
        running: list[ts.Operation] = []

        def normalize(norm: BatchNorm, x: ts.Tensor) -> ts.Tensor:
            if not training:
                return norm.infer(x)
            result, assignments = norm.train(x)
            running.extend(assignments)
            return result

        def double(x: ts.Tensor, weights: ts.Tensor) -> ts.Tensor:
            """Twice the size along both axes."""
            return ts.conv_transpose2d(x, weights, stride=2, padding=2, output_padding=1)

        x = ts.reshape(noise @ self._dense, (-1, 128, 7, 7))
        x = ts.relu(normalize(self._norms[0], x))
        x = ts.relu(normalize(self._norms[1], double(x, self._expand1)))
        return ts.tanh(double(x, self._expand2) + self._pixel_bias), running

    def _judge(self, images: ts.Tensor) -> ts.Tensor:
        """A logit for each image: positive where it is taken for real."""
        x = images
        for weights, bias in self._convolutions:
            x = ts.leaky_relu(ts.conv2d(x, weights, stride=2, padding=2) + bias, alpha=0.2)
            x = ts.dropout(x, self._dropout)
            self.dropped.append(x)
        return ts.reshape(x, (-1, 128 * 7 * 7)) @ self._verdict + self._verdict_bias

    def _cross_entropy(self, logits: ts.Tensor, label: float) -> ts.Tensor:
        return ts.sigmoid_cross_entropy(logits, ts.full_like(logits, label), reduction="mean")


SETTINGS = (
    Setting("batch", at_least(2), 64, "images in a step"),
    Setting("learning_rate", number(0, open_start=True), 5e-4, "of both networks"),
    Setting("dropout", number(0, below=1), 0.3, "share of the discriminator's values that a step leaves out"),
    Setting("seed", at_least(0), 0, "decides initial weights, all noise, and the order of the data"),
)


def train(options: argparse.Namespace) -> None:
    """Train as the command line says; write a checkpoint after each epoch, and pictures in the end."""
    check_pictures()
    with TrainingRun(options, SETTINGS, curves=("discriminator", "generator")) as run:
        seed, batch = int(run.settings["seed"]), int(run.settings["batch"])
        data = chosen_data(options, seed)
        images = (np.concatenate([data.images, data.held_out_images]) * 2 - 1)[:, None]
        run.use_data(data.checksum())
        rate = run.settings["learning_rate"]
        model = Gan(
            lambda graph, loss, parameters: adam_updates(graph, loss, parameters, rate, beta1=0.5),
            dropout=run.settings["dropout"],
            seed=seed,
        )
        run.restore(model.graph)

        times = []
        steps = -(-len(images) // batch)
        with Progress(options.epochs * steps, "step", done=run.epochs * steps) as progress:
            for epoch in range(run.epochs, options.epochs):
                for pick, _ in batches(len(images), batch, seed, epoch):
                    start = time.perf_counter()
                    discriminator, generator = model.train_step(images[pick])
                    times.append(time.perf_counter() - start)
                    run.record(discriminator=discriminator, generator=generator)
                    progress.advance()
                run.save(model.graph)
                progress.show(discriminator=f"{discriminator:.3f}", generator=f"{generator:.3f}")

        curves, samples = run.folder / "losses.png", run.folder / "samples.png"
        save_curves(curves, [("step", "loss", run.curves)])
        noise = np.random.default_rng([seed]).standard_normal((64, NOISE), dtype=np.float32)
        save_grid(samples, model.draw(noise), columns=8, low=-1, high=1)
        run.print_steps(times, f"{batch} images")
        last = {name: values[-1] for name, values in run.curves.items()}
        print(f"last losses: discriminator {last['discriminator']:.3f}, generator {last['generator']:.3f}")
        print(f"wrote {run.checkpoint}, {curves} and {samples}")


def main(arguments: Sequence[str]) -> int:
    """Run the example; returns the exit status."""
    parser = training_parser("gan_train", __doc__, epochs=40, settings=SETTINGS)
    add_data_option(parser)
    options = parser.parse_args(arguments)
    return run_example("gan_train", lambda: train(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
