"""The scripts in examples/ do what they say; how fast is the business of bench/.

Skipped where examples/ does not lie beside the tests.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts import load_script

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="examples/ is not beside the tests")


def test_overlapped_batches_give_the_serial_results() -> None:
    overlap = load_script(EXAMPLES / "overlap.py")
    model = overlap.make_model(features=16, layers=2)
    prepare = overlap.make_preparation(rows=8, features=16, steps=2)
    serial = overlap.run_serially(prepare, model, 12)
    overlapped = overlap.run_overlapped(prepare, model, 12)
    assert len(serial) == len(overlapped) == 12
    for a, b in zip(serial, overlapped, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(serial[0], serial[1])
