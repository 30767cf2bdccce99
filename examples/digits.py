"""The main job: train a classifier on scikit-learn's handwritten digits.

`python -m topstitch digits` shows progress, validation accuracy, the time of a step, and what was stitched.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import topstitch as ts
from topstitch.examples._command_line import Progress, at_least, number, run_example
from topstitch.examples._data import Array, batches, small_digits
from topstitch.examples._training import adam_updates


class Classifier:
    """64 pixels, two hidden layers with GELU, 10 classes; trained by Adam in one graph."""

    def __init__(self, learning_rate: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        graph = self.graph = ts.Graph()
        self.images = graph.placeholder(("batch", 64), name="images")
        self.labels = graph.placeholder(("batch",), dtype=ts.int32, name="labels")

        parameters = []
        hidden = self.images
        sizes = [64, 128, 64, 10]
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            init = rng.standard_normal((fan_in, fan_out), dtype=np.float32) * np.float32((2 / fan_in) ** 0.5)
            weights = graph.variable(init, name=f"weights{layer}")
            bias = graph.variable(np.zeros(fan_out, np.float32), name=f"bias{layer}")
            parameters += [weights, bias]
            hidden = hidden @ weights + bias
            if layer + 2 < len(sizes):
                hidden = ts.gelu(hidden)
        self.logits = hidden
        self.loss = ts.softmax_cross_entropy(self.logits, self.labels, axis=-1, reduction="mean")

        self.updates = adam_updates(graph, self.loss, parameters, learning_rate)

    def train_step(self, images: Array, labels: Array) -> float:
        """One step of Adam; returns the loss before it."""
        loss = self.graph.run({self.images: images, self.labels: labels}, self.loss, self.updates)
        return float(loss)

    def accuracy(self, images: Array, labels: Array) -> float:
        """The share of images whose most likely class is right."""
        logits = self.graph.run({self.images: images}, self.logits)
        return float((np.asarray(logits).argmax(axis=1) == labels).mean())


def train(model: Classifier, epochs: int, batch: int, seed: int) -> tuple[float, float, float]:
    """Train; returns the last loss, the validation accuracy and the median time of a step in milliseconds."""
    data = small_digits(seed)
    images, held_out = data.images.reshape(-1, 64), data.held_out_images.reshape(-1, 64)
    times: list[float] = []
    loss = accuracy = float("nan")
    with Progress(epochs, "epoch") as progress:
        for epoch in range(epochs):
            for pick, _ in batches(len(images), batch, seed, epoch):
                start = time.perf_counter()
                loss = model.train_step(images[pick], data.labels[pick])
                times.append(time.perf_counter() - start)
            accuracy = model.accuracy(held_out, data.held_out_labels)
            progress.advance()
            progress.show(loss=f"{loss:.4f}", accuracy=f"{accuracy:.2%}")
    return loss, accuracy, float(np.median(times)) * 1e3


def report(options: argparse.Namespace) -> None:
    """Train, and print what was stitched and what came of it."""
    model = Classifier(options.learning_rate, options.seed)
    loss, accuracy, milliseconds = train(model, options.epochs, options.batch, options.seed)
    print(model.graph.compile([model.images, model.labels], model.loss, model.updates).report())
    print(f"last loss {loss:.4f}, {milliseconds:.3f} ms a step (median)")
    print(f"validation accuracy {accuracy:.2%} on the held-out fifth")


def main(arguments: Sequence[str]) -> int:
    """Run the example; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m topstitch digits", description=__doc__)
    parser.add_argument("--epochs", type=at_least(1), default=40)
    parser.add_argument("--batch", type=at_least(1), default=64)
    parser.add_argument("--learning-rate", type=number(0, open_start=True), default=2e-3)
    parser.add_argument("--seed", type=at_least(0), default=0)
    options = parser.parse_args(arguments)
    return run_example("digits", lambda: report(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
