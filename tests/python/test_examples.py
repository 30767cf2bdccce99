"""The scripts in examples/ do what they say; how fast is the business of bench/.

Skipped where examples/ does not lie beside the tests.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="examples/ is not beside the tests")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_overlapped_batches_give_the_serial_results() -> None:
    overlap = load("overlap")
    model = overlap.make_model(features=16, layers=2)
    prepare = overlap.make_preparation(rows=8, features=16, steps=2)
    serial = overlap.run_serially(prepare, model, 12)
    overlapped = overlap.run_overlapped(prepare, model, 12)
    assert len(serial) == len(overlapped) == 12
    for a, b in zip(serial, overlapped, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(serial[0], serial[1])
