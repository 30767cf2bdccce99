"""The text that `lstm_char` trains on: a file, or the prose that comes with CPython; characters as numbers.

Files are checked before they are believed, and what is too short to learn from is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topstitch.examples._command_line import ExampleError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Text:
    """A text as numbers: `codes` are int32 positions in `alphabet`, which has each of its characters once."""

    name: str
    alphabet: str
    codes: Array

    def checksum(self) -> int:
        """A number that tells this text from others."""
        return zlib.crc32(self.codes.tobytes(), zlib.crc32(self.alphabet.encode("utf-8")))

    def encode(self, text: str) -> Array:
        """The codes of a text of the same alphabet."""
        unknown = sorted(set(text) - set(self.alphabet))
        if unknown:
            raise ExampleError(
                f"{text!r} has {unknown[0]!r}, which is nowhere in {self.name}; begin with what is there"
            )
        return np.array([self.alphabet.index(character) for character in text], np.int32)

    def decode(self, codes: Array) -> str:
        return "".join(self.alphabet[code] for code in codes)

    def check_length(self, batch: int, window: int) -> None:
        """Find out whether there is text for one step of training."""
        needed = batch * window + 1
        if len(self.codes) < needed:
            raise ExampleError(
                f"{self.name} has {len(self.codes)} characters, but a step takes {batch} windows of {window} and what "
                f"follows them, {needed} in all; give a longer text, or make --batch or --window smaller"
            )

    def steps(self, batch: int, window: int) -> int:
        """How many windows lie one after the other in each of `batch` equal parts of the text."""
        return (len(self.codes) - 1) // batch // window

    def windows(self, batch: int, window: int) -> Iterator[Array]:
        """What each step reads: [window + 1, batch] codes, of which the last row is the first of the next step.

        Each column goes through a part of the text of its own, so that the state it leaves is what the next one needs.
        """
        starts = np.arange(batch) * ((len(self.codes) - 1) // batch)
        for step in range(self.steps(batch, window)):
            yield self.codes[starts + (step * window + np.arange(window + 1))[:, None]]


def chosen_text(path: Path | None) -> Text:
    """The text in a file or, without one, the prose that comes with CPython."""
    return make_text("the prose of CPython", _python_prose()) if path is None else make_text(str(path), _read(path))


def make_text(name: str, text: str) -> Text:
    """A text of at least two different characters, by which name messages call it."""
    if not text:
        raise ExampleError(f"{name} is empty; there is nothing to learn from")
    points, codes = np.unique(np.frombuffer(text.encode("utf-32-le"), "<u4"), return_inverse=True)
    alphabet = "".join(map(chr, points))
    if len(alphabet) == 1:
        raise ExampleError(f"{name} has no character but {alphabet!r}; a text to learn from has at least two")
    return Text(name, alphabet, codes.astype(np.int32))


def _python_prose() -> str:
    """What Python's help() says about its topics."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ExampleError(f"this Python comes without its prose ({error}); give a text with --text FILE") from error
    return "\n".join(topics.values())


def _read(path: Path) -> str:
    if not path.exists():
        raise ExampleError(f"--text names a file, but there is no {path}")
    if not path.is_file():
        raise ExampleError(f"--text names a file, but {path} is none")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ExampleError(
            f"{path} is no UTF-8 text: {error.reason} at byte {error.start}; save it in UTF-8"
        ) from error
    except OSError as error:
        raise ExampleError(f"cannot read {path}: {error.strerror}") from error
