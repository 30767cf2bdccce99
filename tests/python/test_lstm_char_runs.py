"""What can go wrong with the text generator: one message, an exit status that is not 0, and an intact checkpoint.

What its training shares with the other examples is in test_training_runs.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import topstitch as ts
from topstitch.examples import cnn_train, lstm_char

pytest.importorskip("matplotlib")

PROSE = "How much wood would a woodchuck chuck if a woodchuck could chuck wood? " * 4


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text(PROSE, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def one_epoch(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint of one epoch."""
    folder = tmp_path_factory.mktemp("run")
    assert lstm_char.main(arguments(text, folder, "--epochs", 1)) == 0
    return folder


@pytest.fixture
def trained(one_epoch: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(one_epoch, tmp_path / "run"))


def arguments(text: Path, output: Path, *more: object, hidden: int = 40) -> list[str]:
    words = ["--text", text, "--output", output, "--batch", 2, "--window", 8, "--hidden", hidden, "--length", 5]
    return [str(word) for word in (*words, *more)]


def refusal(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The message of a command line that fails."""
    capsys.readouterr()
    assert lstm_char.main(words) == 1
    error = capsys.readouterr().err
    assert error.startswith("lstm_char: ")
    assert error.count("\n") == 1
    return error


def nothing(path: Path) -> None:
    del path


TEXTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing in it": (lambda path: path.write_bytes(b""), "is empty"),
    "a byte order mark alone": (lambda path: path.write_bytes(b"\xef\xbb\xbf"), "is empty"),
    "one character": (lambda path: path.write_bytes(b"a"), "has no character but 'a'"),
    "one character many times": (lambda path: path.write_bytes(b"\n" * 1000), r"has no character but '\n'"),
    "less than a step": (lambda path: path.write_bytes(b"0123456789abcdef"), "has 16 characters, but a step takes 2"),
    "no such file": (nothing, "there is no "),
    "a folder": (lambda path: path.mkdir(), "names a file, but "),
    "another encoding": (lambda path: path.write_bytes("déjà vu".encode("latin-1")), "is no UTF-8 text"),
    "cut off in a character": (lambda path: path.write_bytes("dé".encode()[:-1]), "unexpected end of data at byte 1"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_to_learn_nothing_from(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, message = TEXTS[name]
    make(tmp_path / "bad")
    assert message in refusal(capsys, arguments(tmp_path / "bad", tmp_path / "run"))
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_prompt_that_the_text_cannot_go_on_from(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, arguments(text, tmp_path / "run", "--prompt", "How é"))
    assert "'How é' has 'é', which is nowhere in" in message
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_resume_with_another_text(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained / "checkpoint.safetensors").read_bytes()
    other = tmp_path / "other"
    other.write_text(PROSE.upper(), encoding="utf-8")
    assert "give --text as it was given then" in refusal(capsys, arguments(other, trained, "--resume", "--epochs", 2))
    assert (trained / "checkpoint.safetensors").read_bytes() == before


def test_resume_with_another_size(text: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refusal(capsys, arguments(text, trained, "--resume", "--epochs", 2, hidden=41))
    assert "--hidden 40, not 41" in message


def test_checkpoint_of_another_example(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from example_data import write_mnist

    write_mnist(tmp_path / "data")
    run = tmp_path / "run"
    assert cnn_train.main(["--data", str(tmp_path / "data"), "--output", str(run), "--epochs", "1"]) == 0
    before = (run / "checkpoint.safetensors").read_bytes()
    assert "is no checkpoint of this example" in refusal(capsys, arguments(text, run, "--resume", "--epochs", 2))
    assert (run / "checkpoint.safetensors").read_bytes() == before


CHANGES: dict[str, tuple[str, np.ndarray | None, str]] = {
    "a layer less": ("variable/lstm1.recurrent", None, "of another model: it lacks lstm1.recurrent"),
    "a layer more": ("variable/lstm2.bias", np.ones(160, np.float32), "lstm2.bias is unknown"),
    "another alphabet": ("variable/output", np.ones((40, 9), np.float32), "output is float32[40, 9], not float32[40, "),
    "no size": ("setting/hidden", None, "no checkpoint of this example"),
    "a size of no sense": ("setting/hidden", np.array(-40), "must be an integer of at least 1"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_checkpoint_of_another_model(text: Path, trained: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    key, array, message = CHANGES[name]
    checkpoint = trained / "checkpoint.safetensors"
    arrays: dict[str, object] = dict(ts.load_arrays(checkpoint))
    arrays.pop(key, None)
    if array is not None:
        arrays[key] = array
    ts.save_arrays(checkpoint, arrays)
    before = checkpoint.read_bytes()
    assert message in refusal(capsys, arguments(text, trained, "--resume", "--epochs", 2))
    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize("keep", [0, 7, 1000, -1])
def test_truncated_checkpoint(text: Path, trained: Path, capsys: pytest.CaptureFixture[str], keep: int) -> None:
    checkpoint = trained / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:keep])
    assert "checkpoint.safetensors" in refusal(capsys, arguments(text, trained, "--resume", "--epochs", 2))


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))  # writing more fails as on a full disk
from topstitch.examples import lstm_char
sys.exit(lstm_char.main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits for processes")
def test_full_disk(text: Path, trained: Path) -> None:
    checkpoint = trained / "checkpoint.safetensors"
    before = checkpoint.read_bytes()
    assert len(before) > 1 << 16
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments(text, trained, "--resume", "--epochs", 2)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("lstm_char: ")
    assert "checkpoint.safetensors" in done.stderr
    assert "Traceback" not in done.stderr
    assert checkpoint.read_bytes() == before
    assert [path.name for path in trained.iterdir() if path.name.startswith(".topstitch")] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_text_written_to_a_full_disk(text: Path, trained: Path) -> None:
    with open("/dev/full", "w") as full:
        words = arguments(text, trained, "--resume", "--epochs", 1)
        command = [sys.executable, "-m", "topstitch", "lstm_char", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_terminal_cannot_show_is_replaced(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("αβ" * 50, encoding="utf-8")
    words = arguments(text, tmp_path / "run", "--epochs", 1, "--prompt", "αβ")
    program = "import sys; from topstitch.examples import lstm_char; sys.stdout.reconfigure(encoding='ascii'); "
    done = subprocess.run(
        [sys.executable, "-c", program + "sys.exit(lstm_char.main(sys.argv[1:]))", *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n" + "?" * 7 + "\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "-0.5"),
        ("--temperature", "nan"),
        ("--temperature", "inf"),
        ("--temperature", "warm"),
        ("--length", "0"),
        ("--length", "1.5"),
        ("--prompt", ""),
        ("--draw", "-1"),
        ("--batch", "0"),
        ("--window", "0"),
        ("--hidden", "0"),
        ("--learning-rate", "0"),
    ],
)
def test_values_of_no_sense(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        lstm_char.main([f"{option}={value}"])
    assert exit_.value.code == 2
    assert f"argument {option}: must " in capsys.readouterr().err
