"""The data that the examples train on: scikit-learn's handwritten digits, or MNIST's own files.

Images are float32 in [0, 1], labels int32. Files are checked before they are believed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topstitch.examples._command_line import ExampleError, missing_package

Array = npt.NDArray[Any]

_READ = 1 << 20  # bytes; what a header claims is read in pieces, so that only what is there takes memory
_IDX_UINT8 = 0x08


@dataclass(frozen=True)
class Digits:
    """Images and labels to train with, and others that are held out to judge by."""

    images: Array
    labels: Array
    held_out_images: Array
    held_out_labels: Array

    def checksum(self) -> int:
        """A number that tells these data from others."""
        value = 0
        for array in (self.images, self.labels, self.held_out_images, self.held_out_labels):
            value = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, value)
        return value


def small_digits(seed: int) -> Digits:
    """The 1,797 digits that come with scikit-learn, [n, 8, 8], shuffled; a fifth is held out."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing_package(error, "the digits come with scikit-learn") from error
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images = (images[order] / 16).astype(np.float32).reshape(-1, 8, 8)
    labels = labels[order].astype(np.int32)
    held_out = len(images) // 5
    return Digits(images[held_out:], labels[held_out:], images[:held_out], labels[:held_out])


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """The option that `chosen_data` goes by."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with MNIST's four IDX files, perhaps .gz")


def chosen_data(options: argparse.Namespace, seed: int) -> Digits:
    """MNIST where --data names its folder, else scikit-learn's digits."""
    return digits_28x28(seed) if options.data is None else mnist(options.data)


def digits_28x28(seed: int) -> Digits:
    """The same digits, scaled to the size of MNIST's: [n, 28, 28]."""
    small = small_digits(seed)
    return Digits(scale(small.images, 28), small.labels, scale(small.held_out_images, 28), small.held_out_labels)


def scale(images: Array, size: int) -> Array:
    """Square images [n, s, s] in another size, each pixel mixed from the nearest two along both axes."""
    old = images.shape[-1]
    place = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)  # the centres of pixels, in old pixels
    mix = np.maximum(0, 1 - np.abs(place[:, None] - np.arange(old))).astype(np.float32)
    return np.asarray(mix @ images @ mix.T, dtype=np.float32)


def mnist(folder: Path) -> Digits:
    """MNIST, or a set in the same format and size, from its four IDX files, which may be compressed."""
    if not folder.is_dir():
        raise ExampleError(f"--data names a folder with MNIST's files, but {folder} is no folder")
    images, labels = _mnist_part(folder, "train")
    held_out_images, held_out_labels = _mnist_part(folder, "t10k")
    return Digits(images, labels, held_out_images, held_out_labels)


def _mnist_part(folder: Path, part: str) -> tuple[Array, Array]:
    images_path = _find(folder, f"{part}-images-idx3-ubyte")
    labels_path = _find(folder, f"{part}-labels-idx1-ubyte")
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (28, 28) or len(images) == 0:
        raise ExampleError(f"{images_path} should hold images, [n, 28, 28] with n > 0, but holds {list(images.shape)}")
    if labels.shape != images.shape[:1]:
        raise ExampleError(f"{labels_path} should hold {len(images)} labels, but holds {list(labels.shape)}")
    if labels.max() > 9:
        raise ExampleError(f"{labels_path} should hold labels from 0 to 9, but holds {labels.max()}")
    return images.astype(np.float32) / np.float32(255), labels.astype(np.int32)


def _find(folder: Path, name: str) -> Path:
    candidates = [name, f"{name}.gz", name.replace("-idx", ".idx"), f"{name.replace('-idx', '.idx')}.gz"]
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    raise ExampleError(
        f"{folder} has no {name} and no {name}.gz; MNIST is four files: images and labels, each of train and t10k"
    )


def read_idx(path: Path) -> Array:
    """The array of bytes in an IDX file: two zeros, the type, the rank, big-endian dims, the elements."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            start = _read(opened, 4)
            if len(start) < 4 or start[:2] != b"\0\0" or start[2] != _IDX_UINT8 or start[3] not in (1, 3):
                raise ExampleError(f"{path} is no IDX file of bytes; it begins with {start.hex(' ') or 'nothing'}")
            dims = _read(opened, 4 * start[3])
            if len(dims) < 4 * start[3]:
                raise ExampleError(f"{path} is cut off within its header")
            shape = [int(dim) for dim in np.frombuffer(dims, ">u4")]
            count = int(np.prod(shape, dtype=object))
            data = _read(opened, count + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ExampleError(f"{path} is damaged: {error}") from error
    if len(data) != count:
        found = f"only {len(data)}" if len(data) < count else "more"
        raise ExampleError(f"{path} is damaged: its header announces {shape}, {count} bytes, but there are {found}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _read(opened: io.BufferedIOBase, most: int) -> bytes:
    """Up to `most` bytes."""
    data = bytearray()
    while len(data) < most and (piece := opened.read(min(_READ, most - len(data)))):
        data += piece
    return bytes(data)


def batches(count: int, size: int, seed: int, epoch: int) -> Iterator[tuple[Array, np.random.Generator]]:
    """Indices of random batches that cover all of `count` once, of which the last may be smaller.

    With each comes the epoch's generator, for what else is random in a batch. All follows from the seed and the epoch,
    so that a run that is resumed has no generator to restore.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(count)
    for start in range(0, count, size):
        yield order[start : start + size], random


def shifted(images: Array, most: int, random: np.random.Generator) -> Array:
    """Copies of images [n, height, width], each moved by up to `most` pixels along both axes; what comes in is 0."""
    count, height, width = images.shape
    padded = np.pad(images, ((0, 0), (most, most), (most, most)))
    down, right = random.integers(0, 2 * most + 1, (2, count))
    rows = down[:, None, None] + np.arange(height)[:, None]
    columns = right[:, None, None] + np.arange(width)
    return np.asarray(padded[np.arange(count)[:, None, None], rows, columns])
