"""The data of the examples: scikit-learn's digits, MNIST's files, and what is said about damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from example_data import idx, write_mnist
from topstitch.examples._command_line import ExampleError
from topstitch.examples._data import batches, digits_28x28, mnist, read_idx, scale, shifted

IMAGES = "train-images-idx3-ubyte"


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist_is_read(tmp_path: Path, compressed: bool) -> None:
    arrays = write_mnist(tmp_path, compressed=compressed)
    data = mnist(tmp_path)
    assert data.images.dtype == np.float32
    assert data.labels.dtype == np.int32
    np.testing.assert_allclose(data.images, arrays[IMAGES] / 255.0, atol=1e-7)
    np.testing.assert_array_equal(data.labels, arrays["train-labels-idx1-ubyte"])
    np.testing.assert_allclose(data.held_out_images, arrays["t10k-images-idx3-ubyte"] / 255.0, atol=1e-7)
    np.testing.assert_array_equal(data.held_out_labels, arrays["t10k-labels-idx1-ubyte"])


def test_names_with_a_dot_are_found(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for path in tmp_path.iterdir():
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert mnist(tmp_path).images.shape == (40, 28, 28)


def test_other_data_have_another_checksum(tmp_path: Path) -> None:
    write_mnist(tmp_path / "a")
    write_mnist(tmp_path / "b")
    write_mnist(tmp_path / "c", train=39)
    sums = [mnist(tmp_path / name).checksum() for name in "abc"]
    assert sums[0] == sums[1] != sums[2]


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match="no folder"):
        mnist(tmp_path / "nowhere")


@pytest.mark.parametrize("missing", [IMAGES, "t10k-labels-idx1-ubyte"])
def test_folder_without_a_file(tmp_path: Path, missing: str) -> None:
    write_mnist(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(ExampleError, match=f"has no {missing}"):
        mnist(tmp_path)


good = idx(np.zeros((3, 28, 28)))
HEADER_OF_4_GIGABYTES = b"\0\0\x08\x03" + b"\0\x10\0\0" + b"\0\0\0\x40" * 2
DAMAGED = {
    "empty": (b"", "begins with nothing"),
    "text": (b"hello, I am no IDX file", "begins with 68 65 6c 6c"),
    "other type": (b"\0\0\x0d\x03" + good[4:], "no IDX file of bytes"),
    "header cut off": (good[:10], "cut off within its header"),
    "elements cut off": (good[:-1], "only 2351"),
    "more elements": (good + b"\0", "there are more"),
    "claims far more than there is": (HEADER_OF_4_GIGABYTES, "only 0"),
    "other size": (idx(np.zeros((3, 27, 28))), r"n, 28, 28"),
    "no images": (idx(np.zeros((0, 28, 28))), "n > 0"),
    "labels": (idx(np.zeros(3)), r"holds \[3\]"),
    "too few images": (good, "should hold 3 labels"),
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_images(tmp_path: Path, name: str, compressed: bool) -> None:
    contents, message = DAMAGED[name]
    write_mnist(tmp_path, compressed=compressed)
    if compressed:
        (tmp_path / f"{IMAGES}.gz").write_bytes(gzip.compress(contents))
    else:
        (tmp_path / IMAGES).write_bytes(contents)
    with pytest.raises(ExampleError, match=message):
        mnist(tmp_path)


@pytest.mark.parametrize("damage", ["cut off", "flipped bit", "not compressed"])
def test_damaged_compression(tmp_path: Path, damage: str) -> None:
    packed = bytearray(gzip.compress(idx(np.arange(28 * 28 * 9).reshape(9, 28, 28) % 251)))
    if damage == "cut off":
        del packed[len(packed) // 2 :]
    elif damage == "flipped bit":
        packed[len(packed) // 2] ^= 16
    else:
        packed[:] = good
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(packed)
    with pytest.raises(ExampleError, match=f"{IMAGES}.gz is damaged"):
        read_idx(path)


def test_label_that_is_no_digit(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.full(16, 10)))
    with pytest.raises(ExampleError, match="labels from 0 to 9, but holds 10"):
        mnist(tmp_path)


def test_digits_are_scaled() -> None:
    pytest.importorskip("sklearn")
    data = digits_28x28(seed=3)
    assert data.images.shape == (1438, 28, 28)
    assert data.held_out_images.shape == (359, 28, 28)
    assert data.images.dtype == np.float32
    assert data.images.min() >= 0
    assert data.images.max() <= 1


def test_scaling_is_linear_between_the_centres_of_pixels() -> None:
    images = np.random.default_rng(1).random((2, 8, 8), dtype=np.float32)
    centres = (np.arange(28) + 0.5) * 8 / 28 - 0.5
    rows = np.array([[np.interp(centres, np.arange(8), column) for column in image.T] for image in images])
    expected = np.array([[np.interp(centres, np.arange(8), row) for row in image.T] for image in rows])
    np.testing.assert_allclose(scale(images, 28), expected, rtol=1e-6)


def test_shifted_images() -> None:
    images = np.random.default_rng(2).random((50, 6, 7), dtype=np.float32)
    seen = set()
    for image, moved in zip(images, shifted(images, 2, np.random.default_rng(3)), strict=True):
        padded = np.pad(image, 2)
        fits = [
            (y, x) for y in range(5) for x in range(5) if np.array_equal(padded[y : y + 6, x : x + 7], moved)
        ]  # fmt: skip
        assert len(fits) == 1
        seen.add(fits[0])
    assert len(seen) > 15  # of 25
    np.testing.assert_array_equal(shifted(images, 0, np.random.default_rng(3)), images)


def test_batches_cover_all_once() -> None:
    parts = [pick for pick, _ in batches(11, 4, seed=1, epoch=2)]
    assert [len(part) for part in parts] == [4, 4, 3]
    assert sorted(np.concatenate(parts)) == list(range(11))
    again = [pick for pick, _ in batches(11, 4, seed=1, epoch=2)]
    other = [pick for pick, _ in batches(11, 4, seed=1, epoch=3)]
    np.testing.assert_array_equal(np.concatenate(parts), np.concatenate(again))
    assert not np.array_equal(np.concatenate(parts), np.concatenate(other))
