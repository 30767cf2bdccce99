"""The digit classifier: its numbers are PyTorch's, its training repeats and resumes bit for bit, and it learns.

What goes wrong with files, settings and Ctrl-C is in test_training_runs.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from example_data import write_mnist
from topstitch.examples import cnn_train
from topstitch.examples.cnn_train import DigitClassifier

BATCH = 8


def batch() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    return random.standard_normal((BATCH, 1, 28, 28), dtype=np.float32), random.integers(0, 10, BATCH).astype(np.int32)


def torch_parameters(model: DigitClassifier) -> list[Any]:
    """The parameters of a model as float64 leaves of PyTorch."""
    torch = pytest.importorskip("torch")
    values = [np.asarray(model.graph.variable_value(parameter), np.float64) for parameter in model.parameters]
    return [torch.tensor(value, requires_grad=True) for value in values]


def torch_logits(parameters: list[Any], images: np.ndarray) -> Any:
    import torch
    from torch.nn import functional as F

    conv1, bias1, conv2, bias2, dense1, bias3, dense2, bias4 = parameters
    x = torch.from_numpy(images).double()
    x = F.max_pool2d(F.relu(F.conv2d(x, conv1, bias1, padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, conv2, bias2, padding=2)), 2)
    return F.relu(x.flatten(1) @ dense1 + bias3) @ dense2 + bias4


def torch_loss(parameters: list[Any], images: np.ndarray, labels: np.ndarray) -> Any:
    import torch
    from torch.nn import functional as F

    return F.cross_entropy(torch_logits(parameters, images), torch.from_numpy(labels).long())


def assert_close(ours: object, theirs: Any, factor: float, what: str) -> None:
    """The largest difference is at most `factor` times the largest element."""
    expected = theirs.detach().numpy()
    difference = np.abs(np.asarray(ours, np.float64) - expected).max()
    assert difference <= factor * np.abs(expected).max(), what


def test_values_and_gradients_are_those_of_pytorch() -> None:
    model = DigitClassifier(momentum=0, seed=1)
    images, labels = batch()
    parameters = torch_parameters(model)
    loss = torch_loss(parameters, images, labels)
    loss.backward()
    gradients = ts.gradients(model.loss, model.parameters)
    assert len(gradients) == 8
    got = model.graph.run(
        {model.images: images, model.labels: labels},
        {"logits": model.logits, "loss": model.loss, **{p.name: gradients[p] for p in model.parameters}},
    )
    assert_close(got["logits"], torch_logits(parameters, images), 2e-6, "logits")
    assert_close(got["loss"], loss, 1e-6, "loss")
    for parameter, theirs in zip(model.parameters, parameters, strict=True):
        assert_close(got[parameter.name], theirs.grad, 5e-6, parameter.name)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_those_of_pytorch(momentum: float) -> None:
    model = DigitClassifier(momentum=momentum, seed=2)
    images, labels = batch()
    parameters = torch_parameters(model)
    import torch

    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=momentum)
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch_loss(parameters, images, labels)
        loss.backward()
        optimizer.step()
        assert model.train_step(images, labels, 0.01) == pytest.approx(loss.item(), rel=1e-5)
    for parameter, theirs in zip(model.parameters, parameters, strict=True):
        assert_close(model.graph.variable_value(parameter), theirs, 1e-5, parameter.name)


def run_example(*arguments: object) -> bytes:
    """Run the command line; returns the bytes of its checkpoint."""
    words = [str(argument) for argument in arguments]
    assert cnn_train.main([*words, "--batch", "16"]) == 0
    return (Path(words[words.index("--output") + 1]) / "checkpoint.safetensors").read_bytes()


def test_training_repeats_and_resumes_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    data = tmp_path / "data"
    write_mnist(data)
    first = run_example("--data", data, "--output", tmp_path / "a", "--epochs", 3)
    assert run_example("--data", data, "--output", tmp_path / "b", "--epochs", 3) == first
    assert run_example("--data", data, "--output", tmp_path / "c", "--epochs", 3, "--seed", 1) != first

    one = run_example("--data", data, "--output", tmp_path / "d", "--epochs", 1)
    assert one != first
    assert run_example("--data", data, "--output", tmp_path / "d", "--epochs", 3, "--resume") == first
    assert run_example("--data", data, "--output", tmp_path / "d", "--epochs", 3, "--resume") == first
    assert "has 3 epochs already" in capsys.readouterr().out
    assert (tmp_path / "d" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_training_repeats_on_one_thread(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_mnist(tmp_path / "data")
    threads = ts.num_threads()
    try:
        ts.set_num_threads(1)
        runs = [run_example("--data", tmp_path / "data", "--output", tmp_path / name, "--epochs", 2) for name in "ab"]
    finally:
        ts.set_num_threads(threads)
    assert runs[0] == runs[1]


def test_held_out_digits_are_recognized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    assert cnn_train.main(["--output", str(tmp_path)]) == 0
    accuracy = ts.load_arrays(tmp_path / "checkpoint.safetensors")["curve/accuracy"]
    assert float(accuracy[-1]) >= 0.985
    assert f"accuracy {float(accuracy[-1]):.2%} on 359" in capsys.readouterr().out
