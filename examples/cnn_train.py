"""Train a convolutional classifier of handwritten digits, with checkpoints to go on from.

`python -m topstitch cnn_train` takes scikit-learn's digits; `--data DIR` takes MNIST's own files.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

import topstitch as ts
from topstitch.examples._command_line import Progress, Setting, at_least, number, run_example
from topstitch.examples._data import Array, add_data_option, batches, chosen_data, shifted
from topstitch.examples._pictures import check_pictures, save_curves
from topstitch.examples._training import TrainingRun, sgd_updates, training_parser


def he(fan_in: int) -> float:
    """The deviation of weights that keeps the variance of values through a ReLU (K. He et al., ICCV 2015)."""
    return float((2 / fan_in) ** 0.5)


class DigitClassifier:
    """Two convolutions with pooling, two dense layers, 10 classes; trained by gradient descent in one graph."""

    def __init__(self, *, momentum: float, seed: int) -> None:
        graph = self.graph = ts.Graph()
        random = np.random.default_rng(seed)

        def parameters(name: str, shape: tuple[int, ...], deviation: float) -> tuple[ts.Tensor, ts.Tensor]:
            """Weights with that standard deviation, and a bias for each output channel."""
            weights = random.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
            channels = shape[0] if len(shape) == 4 else shape[1]
            return (
                graph.variable(weights, name=f"{name}.weights"),
                graph.variable(np.zeros(channels, np.float32), name=f"{name}.bias"),
            )

        # A dim of -1 is known when the graph runs: one graph serves batches of any size, and compiles once for all.
        self.images = graph.placeholder((-1, 1, 28, 28), name="images")
        self.labels = graph.placeholder((-1,), dtype=ts.int32, name="labels")
        self.learning_rate = graph.placeholder((), name="learning_rate")  # an input: a schedule compiles nothing anew

        hidden = self.images
        self.parameters = []
        for name, channels_in, channels_out in (("conv1", 1, 32), ("conv2", 32, 64)):
            weights, bias = parameters(name, (channels_out, channels_in, 5, 5), he(channels_in * 25))
            hidden = ts.conv2d(hidden, weights, padding="same") + ts.reshape(bias, (channels_out, 1, 1))
            hidden = ts.max_pool2d(ts.relu(hidden), kernel=2)
            self.parameters += [weights, bias]
        hidden = ts.reshape(hidden, (-1, 64 * 7 * 7))
        weights, bias = parameters("dense1", (64 * 7 * 7, 1024), he(64 * 7 * 7))
        hidden = ts.relu(hidden @ weights + bias)
        self.parameters += [weights, bias]
        weights, bias = parameters("dense2", (1024, 10), 0.01)  # at first all classes are as likely
        self.logits = hidden @ weights + bias
        self.parameters += [weights, bias]

        self.loss = ts.softmax_cross_entropy(self.logits, self.labels, axis=-1, reduction="mean")
        self.updates = sgd_updates(graph, self.loss, self.parameters, self.learning_rate, momentum)

    def train_step(self, images: Array, labels: Array, learning_rate: float) -> float:
        """One step of training; returns the loss before it."""
        feeds = {self.images: images, self.labels: labels, self.learning_rate: np.float32(learning_rate)}
        return float(self.graph.run(feeds, self.loss, self.updates))

    def accuracy(self, images: Array, labels: Array) -> float:
        """The share of images whose most likely class is right."""
        right = 0
        for start in range(0, len(images), 256):
            part = slice(start, start + 256)
            logits = self.graph.run({self.images: images[part]}, self.logits)
            right += int((np.asarray(logits).argmax(axis=1) == labels[part]).sum())
        return right / len(images)


SETTINGS = (
    Setting("batch", at_least(1), 64, "images in a step"),
    Setting("learning_rate", number(0, open_start=True), 0.02, "in the first epoch"),
    Setting("decay", number(0, open_start=True), 0.9, "factor to the learning rate from epoch to epoch"),
    Setting("momentum", number(0, below=1), 0.9, "how much of the last step goes on"),
    Setting("shift", at_least(0), 2, "training images are moved by up to so many pixels"),
    Setting("seed", at_least(0), 0, "decides initial weights, shifts, and the order of the data"),
)


def train(options: argparse.Namespace) -> None:
    """Train as the command line says; write a checkpoint after each epoch, and a picture of the curves."""
    check_pictures()
    with TrainingRun(options, SETTINGS, curves=("loss", "accuracy")) as run:
        seed, batch, shift = (int(run.settings[name]) for name in ("seed", "batch", "shift"))
        data = chosen_data(options, seed)
        held_out = data.held_out_images[:, None]  # with a channel axis
        run.use_data(data.checksum())
        model = DigitClassifier(momentum=run.settings["momentum"], seed=seed)
        run.restore(model.graph)

        times = []
        steps = -(-len(data.images) // batch)
        with Progress(options.epochs * steps, "step", done=run.epochs * steps) as progress:
            for epoch in range(run.epochs, options.epochs):
                learning_rate = run.settings["learning_rate"] * run.settings["decay"] ** epoch
                for pick, random in batches(len(data.images), batch, seed, epoch):
                    images = shifted(data.images[pick], shift, random)[:, None]
                    start = time.perf_counter()
                    run.record(loss=model.train_step(images, data.labels[pick], learning_rate))
                    times.append(time.perf_counter() - start)
                    progress.advance()
                run.record(accuracy=model.accuracy(held_out, data.held_out_labels))
                run.save(model.graph)
                progress.show(loss=f"{run.curves['loss'][-1]:.4f}", accuracy=f"{run.curves['accuracy'][-1]:.2%}")

        picture = run.folder / "curves.png"
        loss, accuracy = run.curves["loss"], run.curves["accuracy"]
        save_curves(
            picture, [("step", "loss", {"loss": loss}), ("epoch", "accuracy, held out", {"accuracy": accuracy})]
        )
        run.print_steps(times, f"{batch} images")
        print(f"last loss {loss[-1]:.4f}, accuracy {accuracy[-1]:.2%} on {len(held_out)} images that were held out")
        print(f"wrote {run.checkpoint} and {picture}")


def main(arguments: Sequence[str]) -> int:
    """Run the example; returns the exit status."""
    parser = training_parser("cnn_train", __doc__, epochs=14, settings=SETTINGS)
    add_data_option(parser)
    options = parser.parse_args(arguments)
    return run_example("cnn_train", lambda: train(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
