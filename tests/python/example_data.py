"""Small data for the tests of the examples that train: files as MNIST has them.

The images are blocks whose place tells the label, so that a few steps teach something.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    """An IDX file of bytes."""
    dims = b"".join(int(dim).to_bytes(4, "big") for dim in array.shape)
    return bytes([0, 0, 8, array.ndim]) + dims + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, train: int = 40, held_out: int = 16, compressed: bool = False) -> dict[str, np.ndarray]:
    """The four files of a small set; returns what is in them by name."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)
    arrays = {}
    for part, count in (("train", train), ("t10k", held_out)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            row, column = 4 + 10 * (label // 5), 2 + 5 * (label % 5)
            image[row : row + 8, column : column + 4] = 255
        arrays[f"{part}-images-idx3-ubyte"] = images
        arrays[f"{part}-labels-idx1-ubyte"] = labels
    for name, array in arrays.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return arrays
