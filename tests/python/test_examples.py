"""The examples that come with the package do what they say; how fast is the business of bench/.

Those that train have files of their own.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from topstitch.__main__ import EXAMPLES
from topstitch.examples import overlap


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_of_each_example(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", "topstitch", name, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: python -m topstitch {name}")


def test_overlapped_batches_give_the_serial_results() -> None:
    model = overlap.make_model(features=16, layers=2)
    prepare = overlap.make_preparation(rows=8, features=16, steps=2)
    serial = overlap.run_serially(prepare, model, 12)
    overlapped = overlap.run_overlapped(prepare, model, 12)
    assert len(serial) == len(overlapped) == 12
    for a, b in zip(serial, overlapped, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(serial[0], serial[1])
