"""The models of the reference workloads, trained and run, against PyTorch, torch.compile and JAX.

cnn_train is a step of the digit classifier with a batch of 64: loss, eight gradients, SGD; cnn_infer its forward pass
and loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import common  # first: it sets the thread counts of the peers
import numpy as np

BATCH = 64
RATE = 0.01


def digits() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    images = random.standard_normal((BATCH, 1, 28, 28), dtype=np.float32)
    return images, random.integers(0, 10, BATCH).astype(np.int32)


def parameters() -> list[np.ndarray]:
    """Weights and biases of the digit classifier: OIHW for convolutions, [in, out] for dense layers."""
    random = np.random.default_rng(1)
    arrays = []
    for shape, fan_in in (((32, 1, 5, 5), 25), ((64, 32, 5, 5), 800), ((3136, 1024), 3136), ((1024, 10), 1024)):
        arrays.append(random.standard_normal(shape, dtype=np.float32) * np.float32((1 / fan_in) ** 0.5))
        arrays.append(np.zeros(shape[0] if len(shape) == 4 else shape[1], np.float32))
    return arrays


def topstitch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import topstitch as ts
    from topstitch.examples.cnn_train import DigitClassifier

    images, labels = digits()
    model = DigitClassifier(momentum=0, seed=0)
    for variable, value in zip(model.parameters, parameters(), strict=True):
        model.graph.set_variable_value(variable, value)
    data = [ts.NDArray(images), ts.NDArray(labels)]
    rate = ts.NDArray(np.float32(RATE))
    types = {model.images: ts.ShapedType(images.shape), model.labels: ts.ShapedType(labels.shape, ts.int32)}
    train = model.graph.compile({**types, model.learning_rate: ts.ShapedType(())}, model.loss, model.updates)
    yield "cnn_train", {"topstitch": lambda: float(train.run(*data, rate))}
    infer = model.graph.compile(types, model.loss)
    yield "cnn_infer", {"topstitch": lambda: float(infer.run(*data))}


def torch_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(common.THREADS)
    images, labels = (torch.from_numpy(array) for array in digits())
    labels = labels.long()
    leaves = [torch.tensor(array, requires_grad=True) for array in parameters()]
    optimizer = torch.optim.SGD(leaves, lr=RATE)

    def forward(
        conv1: Any, bias1: Any, conv2: Any, bias2: Any, dense1: Any, bias3: Any, dense2: Any, bias4: Any
    ) -> Any:
        x = F.max_pool2d(F.relu(F.conv2d(images, conv1, bias1, padding=2)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, conv2, bias2, padding=2)), 2)
        x = F.relu(torch.addmm(bias3, x.flatten(1), dense1))
        return F.cross_entropy(torch.addmm(bias4, x, dense2), labels)

    def step(function: Callable[..., Any]) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = function(*leaves)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def infer(function: Callable[..., Any]) -> float:
        return float(function(*leaves))

    compiled = torch.compile(forward)
    for name, run in (("cnn_train", step), ("cnn_infer", infer)):
        cases: dict[str, common.Case] = {"torch": lambda run=run: run(forward)}
        try:
            run(compiled)
        except Exception as error:  # needs a compiler at run time
            print(f"torch.compile is left out: {type(error).__name__}", file=sys.stderr)
        else:
            cases["torch.compile"] = lambda run=run: run(compiled)
        yield name, cases


def jax_rows() -> Iterator[tuple[str, dict[str, common.Case]]]:
    import jax

    images, labels = (jax.numpy.asarray(array) for array in digits())
    state = [[jax.numpy.asarray(array) for array in parameters()]]

    def pool(x: Any) -> Any:
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def convolve(x: Any, weights: Any, bias: Any) -> Any:
        x = jax.lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        return pool(jax.nn.relu(x + bias[:, None, None]))

    def forward(values: list[Any]) -> Any:
        conv1, bias1, conv2, bias2, dense1, bias3, dense2, bias4 = values
        x = convolve(convolve(images, conv1, bias1), conv2, bias2).reshape(BATCH, -1)
        logits = jax.nn.relu(x @ dense1 + bias3) @ dense2 + bias4
        chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -chosen.mean()

    def update(values: list[Any]) -> tuple[Any, list[Any]]:
        loss, gradients = jax.value_and_grad(forward)(values)
        return loss, [value - RATE * gradient for value, gradient in zip(values, gradients, strict=True)]

    train = jax.jit(update, donate_argnums=0)
    infer = jax.jit(forward)

    def step() -> float:
        loss, state[0] = train(state[0])
        return float(loss)

    yield "cnn_train", {"jax": step}
    yield "cnn_infer", {"jax": lambda: float(infer(state[0]))}


if __name__ == "__main__":
    common.compare("models, float32, batch 64", [topstitch_rows, torch_rows, jax_rows], common.best_peer)
