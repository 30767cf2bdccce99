"""What can go wrong while an example trains: one message, an exit status that is not 0, and an intact checkpoint.

By the example of cnn_train; gan_train shares the code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import topstitch as ts
from example_data import write_mnist
from topstitch.examples import cnn_train

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder)
    return folder


@pytest.fixture
def trained(data: Path, tmp_path: Path) -> Path:
    """A folder with the checkpoint of one epoch."""
    assert cnn_train.main(arguments(data, tmp_path, "--epochs", 1)) == 0
    return tmp_path


def arguments(data: Path, output: Path, *more: object) -> list[str]:
    return [str(word) for word in ("--data", data, "--output", output, *more)]


def refusal(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The message of a command line that fails."""
    capsys.readouterr()
    assert cnn_train.main(words) == 1
    error = capsys.readouterr().err
    assert error.startswith("cnn_train: ")
    assert error.count("\n") == 1
    return error


def test_data_folder_without_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no train-images-idx3-ubyte" in refusal(capsys, arguments(tmp_path, tmp_path / "out"))


def test_resume_without_a_checkpoint(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "leave --resume out" in refusal(capsys, arguments(data, tmp_path, "--resume"))


def test_resume_with_other_settings(data: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, arguments(data, trained, "--resume", "--epochs", 2, "--learning-rate", 0.5))
    assert "--learning-rate 0.02, not 0.5" in message


def test_resume_with_other_data(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_mnist(tmp_path / "other", train=50)
    assert "other data" in refusal(capsys, arguments(tmp_path / "other", trained, "--resume", "--epochs", 2))


def rewrite(path: Path, changes: dict[str, np.ndarray | None]) -> None:
    """Change arrays in a checkpoint, or take them away."""
    arrays: dict[str, object] = dict(ts.load_arrays(path))
    for name, array in changes.items():
        arrays.pop(name, None)
        if array is not None:
            arrays[name] = array
    ts.save_arrays(path, arrays)


CHANGES: dict[str, tuple[dict[str, np.ndarray | None], str]] = {
    "a variable less": ({"variable/conv1.weights": None}, "of another model: it lacks conv1.weights"),
    "a variable more": ({"variable/conv3.weights": np.ones(3, np.float32)}, "conv3.weights is unknown"),
    "another shape": ({"variable/conv1.bias": np.ones(33, np.float32)}, r"conv1.bias is float32[33], not float32[32]"),
    "another dtype": ({"variable/conv1.bias": np.ones(32)}, "conv1.bias is float64[32], not float32[32]"),
    "a setting less": ({"setting/batch": None}, "no checkpoint of this example"),
    "a setting of no sense": ({"setting/batch": np.array(-3)}, "must be an integer of at least 1"),
    "a setting that is no number": ({"setting/seed": np.array(float("nan"))}, "must be an integer"),
    "a setting of many values": ({"setting/decay": np.ones(3)}, "must be a finite number"),
    "no epochs": ({"epochs": np.array(0)}, "at least 1"),
    "a curve of rank 2": ({"curve/loss": np.ones((2, 2))}, "no checkpoint of this example"),
    "a curve less": ({"curve/loss": None}, "no checkpoint of this example"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_checkpoint_of_another_model(data: Path, trained: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    changes, message = CHANGES[name]
    checkpoint = trained / "checkpoint.safetensors"
    rewrite(checkpoint, changes)
    before = checkpoint.read_bytes()
    assert message in refusal(capsys, arguments(data, trained, "--resume", "--epochs", 2))
    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize("keep", [0, 7, 1000, -1])
def test_truncated_checkpoint(data: Path, trained: Path, capsys: pytest.CaptureFixture[str], keep: int) -> None:
    checkpoint = trained / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:keep])
    assert "checkpoint.safetensors" in refusal(capsys, arguments(data, trained, "--resume", "--epochs", 2))


def test_output_that_cannot_be_a_folder(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("here")
    assert "cannot write into the folder" in refusal(capsys, arguments(data, tmp_path / "file"))
    assert "cannot write into the folder" in refusal(capsys, arguments(data, tmp_path / "file" / "below"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_output_folder_without_permission(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    assert "cannot write into the folder" in refusal(capsys, arguments(data, tmp_path))


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # writing more fails as on a full disk
from topstitch.examples import cnn_train
sys.exit(cnn_train.main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits for processes")
def test_full_disk(data: Path, trained: Path) -> None:
    checkpoint = trained / "checkpoint.safetensors"
    before = checkpoint.read_bytes()
    for more in (["--resume", "--epochs", 2], ["--epochs", 1]):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, *arguments(data, trained, *more)], capture_output=True, text=True
        )
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith("cnn_train: ")
        assert "checkpoint.safetensors" in done.stderr
        assert "Traceback" not in done.stderr
        assert checkpoint.read_bytes() == before
    assert [path.name for path in trained.iterdir() if path.name.startswith(".topstitch")] == []


INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what they run in the background ignore it
from topstitch.examples import cnn_train
sys.exit(cnn_train.main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_leaves_the_last_checkpoint(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = arguments(data, tmp_path, "--epochs", 100_000)
    checkpoint = tmp_path / "checkpoint.safetensors"
    with subprocess.Popen([sys.executable, "-c", INTERRUPTIBLE, *words], stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + 120
            while not checkpoint.exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, error
    assert "cnn_train: interrupted; " in error
    assert f"--resume goes on from {checkpoint}" in error
    assert "Traceback" not in error
    done = int(ts.load_arrays(checkpoint)["epochs"])
    assert cnn_train.main(arguments(data, tmp_path, "--resume", "--epochs", done + 1)) == 0
    assert int(ts.load_arrays(checkpoint)["epochs"]) == done + 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("option", "value"),
    [("--batch", "0"), ("--epochs", "x"), ("--learning-rate", "nan"), ("--momentum", "1"), ("--seed", "-1")],
)
def test_values_of_no_sense(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        cnn_train.main([option, value])
    assert exit_.value.code == 2
    assert f"argument {option}: must be" in capsys.readouterr().err
