"""The text of the text generator: characters as numbers, windows that follow one another, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from topstitch.examples._command_line import ExampleError
from topstitch.examples._text import chosen_text, make_text


def test_codes_are_places_in_the_alphabet() -> None:
    text = make_text("a text", "cabbage 𝄞é")
    assert text.alphabet == " abcegé𝄞"
    np.testing.assert_array_equal(text.codes, [3, 1, 2, 2, 1, 5, 4, 0, 7, 6])
    assert text.codes.dtype == np.int32
    assert text.decode(text.codes) == "cabbage 𝄞é"
    np.testing.assert_array_equal(text.encode("gab"), [5, 1, 2])


def test_characters_that_the_text_lacks() -> None:
    with pytest.raises(ExampleError, match="'abzy' has 'y', which is nowhere in a text"):
        make_text("a text", "ab").encode("abzy")


@pytest.mark.parametrize(
    ("length", "batch", "window", "steps"), [(25, 2, 3, 4), (26, 2, 3, 4), (7, 3, 2, 1), (9, 1, 4, 2)]
)
def test_windows_of_a_column_follow_one_another(length: int, batch: int, window: int, steps: int) -> None:
    text = make_text("a text", "".join(chr(ord("a") + k) for k in range(length)))  # the codes are 0, 1, 2, ...
    windows = list(text.windows(batch, window))
    assert len(windows) == text.steps(batch, window) == steps
    part = (length - 1) // batch
    for step, codes in enumerate(windows):
        expected = [[column * part + step * window + row for column in range(batch)] for row in range(window + 1)]
        np.testing.assert_array_equal(codes, expected)


def test_text_that_is_just_long_enough() -> None:
    make_text("a text", "ab" * 6 + "a").check_length(batch=3, window=4)
    with pytest.raises(ExampleError, match=r"has 12 characters, but a step takes 3 windows of 4 .*, 13 in all"):
        make_text("a text", "ab" * 6).check_length(batch=3, window=4)


def test_other_texts_have_another_checksum() -> None:
    sums = {make_text("a text", text).checksum() for text in ("abab", "acac", "abba", "ababa")}
    assert len(sums) == 4
    assert make_text("a text", "abab").checksum() == make_text("another name", "abab").checksum()


def test_a_byte_order_mark_is_no_character(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    text = chosen_text(path)
    assert text.decode(text.codes) == "one\ntwo"


def test_prose_of_python() -> None:
    pytest.importorskip("pydoc_data")
    text = chosen_text(None)
    assert len(text.codes) > 100_000
    assert "statement" in text.decode(text.codes[:1000])
