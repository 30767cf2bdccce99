"""The GAN: losses, gradients and steps of both networks are PyTorch's, with the same draws; runs repeat and resume.

Gradients are selective: a step of one network leaves the parameters of the other as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from example_data import write_mnist
from topstitch.examples import gan_train
from topstitch.examples._training import sgd_updates
from topstitch.examples.gan_train import Gan

BATCH = 6
RATE = 0.1


def model(dropout: float) -> Gan:
    """A GAN whose weights are large enough to give gradients of some size."""
    gan = Gan(lambda graph, loss, parameters: sgd_updates(graph, loss, parameters, RATE), dropout=dropout, seed=3)
    for parameter in gan.generator + gan.discriminator:
        if parameter.name.endswith(".weights"):
            gan.graph.set_variable_value(parameter, np.asarray(gan.graph.variable_value(parameter)) * np.float32(3))
    return gan


def feeds_of(gan: Gan, seed: int) -> dict[ts.Tensor, np.ndarray]:
    return {gan.images: np.random.default_rng(seed).standard_normal((BATCH, 1, 28, 28), dtype=np.float32)}


@dataclass
class Step:
    """What a run gave, and what it drew for that: the noise, and which values its dropouts kept."""

    results: dict[str, np.ndarray]
    images: np.ndarray
    noise: np.ndarray
    kept: list[np.ndarray]


def run_step(
    gan: Gan, seed: int, targets: dict[str, ts.Tensor] | None = None, operations: list[ts.Operation] | None = None
) -> Step:
    """Run targets beside both losses."""
    feeds = feeds_of(gan, seed)
    targets = (targets or {}) | {"discriminator": gan.discriminator_loss, "generator": gan.generator_loss}
    draws = {"noise": gan.noise} | {f"dropped{k}": dropped for k, dropped in enumerate(gan.dropped)}
    got = {name: np.asarray(value) for name, value in gan.graph.run(feeds, targets | draws, operations).items()}
    # What is kept is 0 by chance only.
    kept = [got[f"dropped{k}"] != 0 for k in range(len(gan.dropped))]
    return Step({name: got[name] for name in targets}, feeds[gan.images], got["noise"], kept)


class TorchGan:
    """The same two networks in PyTorch, in float64."""

    def __init__(self, gan: Gan, dropout: float) -> None:
        torch = pytest.importorskip("torch")
        self.dropout = dropout
        self.values = {
            parameter.name: torch.tensor(
                np.asarray(gan.graph.variable_value(parameter), np.float64), requires_grad=True
            )
            for parameter in gan.generator + gan.discriminator
        }

    def of(self, network: str) -> dict[str, Any]:
        return {name: value for name, value in self.values.items() if name.startswith(network)}

    def generate(self, noise: Any) -> Any:
        import torch
        from torch.nn import functional as F

        def norm(x: Any, name: str) -> Any:
            gain, bias = (self.values[f"generator.{name}.{part}"].flatten() for part in ("gain", "bias"))
            return F.relu(F.batch_norm(x, None, None, gain, bias, training=True, eps=1e-5))

        x = norm((noise @ self.values["generator.dense.weights"]).reshape(-1, 128, 7, 7), "norm1")
        x = F.conv_transpose2d(x, self.values["generator.expand1.weights"], None, 2, 2, 1)
        x = F.conv_transpose2d(norm(x, "norm2"), self.values["generator.expand2.weights"], None, 2, 2, 1)
        return torch.tanh(x + self.values["generator.expand2.bias"])

    def judge(self, x: Any, kept: list[np.ndarray]) -> Any:
        import torch
        from torch.nn import functional as F

        for name in ("conv1", "conv2"):
            weights, bias = (self.values[f"discriminator.{name}.{part}"] for part in ("weights", "bias"))
            x = F.leaky_relu(F.conv2d(x, weights, bias.flatten(), 2, 2), 0.2)
            if self.dropout:
                x = x * torch.from_numpy(kept.pop(0)) / (1 - self.dropout)
        return x.flatten(1) @ self.values["discriminator.dense.weights"] + self.values["discriminator.dense.bias"]

    def losses(self, step: Step) -> tuple[Any, Any]:
        import torch
        from torch.nn import functional as F

        kept = list(step.kept)
        real = self.judge(torch.from_numpy(step.images).double(), kept)
        fake = self.judge(self.generate(torch.from_numpy(step.noise).double()), kept)
        entropy = F.binary_cross_entropy_with_logits
        ones, zeros = torch.ones_like(real), torch.zeros_like(real)
        return entropy(real, ones) + entropy(fake, zeros), entropy(fake, ones)

    def gradients(self, step: Step) -> tuple[list[float], dict[str, Any]]:
        """Both losses, and the gradient of each network's parameters with respect to its own loss."""
        import torch

        losses = self.losses(step)
        result = {}
        for loss, network in zip(losses, ("discriminator", "generator"), strict=True):
            mine = self.of(network)
            result |= dict(zip(mine, torch.autograd.grad(loss, list(mine.values()), retain_graph=True), strict=True))
        return [loss.item() for loss in losses], result


def assert_close(ours: object, theirs: Any, factor: float, what: str) -> None:
    expected = theirs.detach().numpy()
    difference = np.abs(np.asarray(ours, np.float64).reshape(expected.shape) - expected).max()
    assert difference <= factor * np.abs(expected).max(), what


def assert_losses_equal(step: Step, losses: list[float], rtol: float) -> None:
    np.testing.assert_allclose([step.results[name] for name in ("discriminator", "generator")], losses, rtol=rtol)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_losses_and_gradients_are_those_of_pytorch(dropout: float) -> None:
    gan = model(dropout)
    gradients = ts.gradients(gan.discriminator_loss, gan.discriminator)
    gradients |= ts.gradients(gan.generator_loss, gan.generator)
    step = run_step(gan, 1, {tensor.name: gradient for tensor, gradient in gradients.items()})
    losses, expected = TorchGan(gan, dropout).gradients(step)
    assert len(gradients) == len(expected) == 14
    for name, gradient in expected.items():
        assert_close(step.results[name], gradient, 2e-5, name)
    assert_losses_equal(step, losses, 2e-6)


def test_one_run_takes_a_step_of_both() -> None:
    gan = model(0.3)
    reference = TorchGan(gan, 0.3)
    for seed in range(2):
        step = run_step(gan, seed, operations=gan.updates)
        losses, gradients = reference.gradients(step)
        assert_losses_equal(step, losses, 1e-5)
        for name, gradient in gradients.items():
            reference.values[name].data -= RATE * gradient
    for parameter in gan.generator + gan.discriminator:
        assert_close(gan.graph.variable_value(parameter), reference.values[parameter.name], 2e-5, parameter.name)


def test_each_step_draws_anew() -> None:
    gan = model(0.3)
    steps = [run_step(gan, 0) for _ in range(2)]
    assert not np.array_equal(steps[0].noise, steps[1].noise)
    for first, second in zip(steps[0].kept, steps[1].kept, strict=True):
        assert not np.array_equal(first, second)
        assert abs(first.mean() - 0.7) < 5 * (0.3 * 0.7 / first.size) ** 0.5  # five standard deviations
    noise = steps[0].noise
    assert abs(noise.mean()) < 5 / noise.size**0.5
    assert abs(noise.var() - 1) < 5 * (2 / noise.size) ** 0.5


def test_a_step_of_one_network_leaves_the_other() -> None:
    gan = model(0.0)
    feeds = feeds_of(gan, 1)
    for mine, other, loss in (
        (gan.discriminator, gan.generator, gan.discriminator_loss),
        (gan.generator, gan.discriminator, gan.generator_loss),
    ):
        before = {parameter: np.asarray(gan.graph.variable_value(parameter)) for parameter in mine + other}
        gan.graph.run(feeds, loss, sgd_updates(gan.graph, loss, mine, RATE))
        for parameter in other:
            np.testing.assert_array_equal(gan.graph.variable_value(parameter), before[parameter])
        assert all(not np.array_equal(gan.graph.variable_value(p), before[p]) for p in mine)


def test_samples_use_running_means() -> None:
    gan = model(0.0)
    weights = np.asarray(gan.graph.variable_value(gan.generator[0]))
    noise = run_step(gan, 1, operations=gan.updates).noise
    x = (noise.astype(np.float64) @ weights).reshape(BATCH, 128, 49)
    values = {variable.name: gan.graph.variable_value(variable) for variable in gan.graph.variables}
    mean, variance = (np.asarray(values[f"generator.norm1.{what}"]) for what in ("mean", "variance"))
    np.testing.assert_allclose(mean, 0.1 * x.mean((0, 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * x.var((0, 2), ddof=1), rtol=1e-5)
    # Each sample is drawn for itself: its neighbours in the batch do not matter.
    np.testing.assert_allclose(gan.draw(noise)[2:3], gan.draw(noise[2:3]), atol=1e-6)


def run_example(*words: object) -> bytes:
    arguments = [str(word) for word in words]
    assert gan_train.main([*arguments, "--batch", "16"]) == 0
    return (Path(arguments[arguments.index("--output") + 1]) / "checkpoint.safetensors").read_bytes()


def test_training_repeats_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = tmp_path / "data"
    write_mnist(data, train=24, held_out=8)
    first = run_example("--data", data, "--output", tmp_path / "a", "--epochs", 2)
    assert run_example("--data", data, "--output", tmp_path / "b", "--epochs", 2) == first
    assert run_example("--data", data, "--output", tmp_path / "c", "--epochs", 1) != first
    assert run_example("--data", data, "--output", tmp_path / "c", "--epochs", 2, "--resume") == first
    for picture in ("losses.png", "samples.png"):
        assert (tmp_path / "a" / picture).read_bytes().startswith(b"\x89PNG")


def test_checkpoint_of_another_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from topstitch.examples import cnn_train

    pytest.importorskip("matplotlib")
    write_mnist(tmp_path / "data")
    words = ["--data", str(tmp_path / "data"), "--output", str(tmp_path / "run")]
    assert cnn_train.main([*words, "--epochs", "1"]) == 0
    capsys.readouterr()
    assert gan_train.main([*words, "--epochs", "2", "--resume"]) == 1
    assert "is no checkpoint of this example" in capsys.readouterr().err
