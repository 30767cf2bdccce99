"""The main job: train a classifier on scikit-learn's handwritten digits.

`python -m topstitch digits` shows progress, validation accuracy, the time of a step, and what was stitched.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

import topstitch as ts

Array = npt.NDArray[Any]


class MissingPackage(Exception):
    """Something that the example needs is not installed."""


def load_digits(seed: int) -> tuple[Array, Array, Array, Array]:
    """Images scaled to [0, 1] and labels: four fifths for training, one for validation."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise MissingPackage(
            "the digits come with scikit-learn, which is not installed; "
            "install it with: pip install 'topstitch[examples]'"
        ) from error
    images, labels = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images = (images[order] / 16).astype(np.float32)
    labels = labels[order].astype(np.int32)
    held_out = len(images) // 5
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


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

        step = graph.variable(np.float32(0), name="step")
        next_step = step + 1.0
        gradients = ts.gradients(self.loss, parameters)
        self.updates = [graph.assign(step, next_step)]
        for parameter in parameters:
            momentum = graph.variable(np.zeros(parameter.shape, np.float32), name=f"{parameter.name}.momentum")
            velocity = graph.variable(np.zeros(parameter.shape, np.float32), name=f"{parameter.name}.velocity")
            new = ts.adam(parameter, gradients[parameter], momentum, velocity, next_step, learning_rate)
            for variable, value in zip((parameter, momentum, velocity), new, strict=True):
                self.updates.append(graph.assign(variable, value))

    def train_step(self, images: Array, labels: Array) -> float:
        """One step of Adam; returns the loss before it."""
        loss = self.graph.run({self.images: images, self.labels: labels}, self.loss, self.updates)
        return float(loss)

    def accuracy(self, images: Array, labels: Array) -> float:
        """The share of images whose most likely class is right."""
        logits = self.graph.run({self.images: images}, self.logits)
        return float((np.asarray(logits).argmax(axis=1) == labels).mean())


def batches(count: int, size: int, rng: np.random.Generator) -> Iterator[Array]:
    """Indices of random batches that cover all of `count` once; the last may be smaller."""
    order = rng.permutation(count)
    for start in range(0, count, size):
        yield order[start : start + size]


def progress(iterable: Any, total: int) -> Any:
    """A progress bar where there is a terminal and tqdm; the plain iterable elsewhere."""
    try:
        from tqdm import tqdm
    except ImportError:
        return iterable
    return tqdm(iterable, total=total, unit="epoch", disable=None)


def train(model: Classifier, epochs: int, batch: int, seed: int) -> tuple[float, float, float]:
    """Train; returns the last loss, the validation accuracy and the median time of a step in milliseconds."""
    images, labels, held_out_images, held_out_labels = load_digits(seed)
    rng = np.random.default_rng(seed)
    times: list[float] = []
    loss = accuracy = float("nan")
    bar = progress(range(epochs), epochs)
    for _ in bar:
        for pick in batches(len(images), batch, rng):
            start = time.perf_counter()
            loss = model.train_step(images[pick], labels[pick])
            times.append(time.perf_counter() - start)
        accuracy = model.accuracy(held_out_images, held_out_labels)
        if hasattr(bar, "set_postfix"):
            bar.set_postfix(loss=f"{loss:.4f}", accuracy=f"{accuracy:.2%}")
    return loss, accuracy, float(np.median(times)) * 1e3


def main(arguments: Sequence[str]) -> int:
    """Run the example; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m topstitch digits", description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.batch < 1:
        parser.error("--epochs and --batch must be at least 1")
    try:
        model = Classifier(options.learning_rate, options.seed)
        loss, accuracy, milliseconds = train(model, options.epochs, options.batch, options.seed)
    except (MissingPackage, ts.TopstitchError) as error:
        print(f"digits: {error}", file=sys.stderr)
        return 1
    feeds = [model.images, model.labels]
    report = model.graph.compile(feeds, model.loss, model.updates).report()
    print(report)
    print(f"last loss {loss:.4f}, {milliseconds:.3f} ms a step (median)")
    print(f"validation accuracy {accuracy:.2%} on the held-out fifth")
    return 0
