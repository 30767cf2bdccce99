"""Compares results with references, in units of the dtype's rounding.

Integers, booleans and NaNs have to agree exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52, "complex64": 2.0**-23}


def to_numpy(result: Any) -> np.ndarray:
    """A result as NumPy sees it; 16-bit floats widened to float64."""
    array = np.asarray(result)
    return array.astype(np.float64) if array.dtype.name in ("float16", "bfloat16") else array


def widen(array: np.ndarray) -> np.ndarray:
    """What a reference computes with: float64 or complex128, and int64/uint64 kept exact."""
    if array.dtype.name in ("float16", "bfloat16", "float32"):
        return array.astype(np.float64)
    return array.astype(np.complex128) if array.dtype.name == "complex64" else array


def assert_matches(result: Any, expected: Any, tolerance: float, what: str, scale: float = 0.0) -> None:
    """Within `tolerance` roundings of the result's dtype, relative to the largest expected magnitude (or `scale`)."""
    array = np.asarray(result)
    expected = np.asarray(expected)
    assert array.shape == expected.shape, f"{what}: shape {array.shape}, expected {expected.shape}"
    name = array.dtype.name
    if name not in EPSILON:
        wanted = expected.astype(array.dtype) if expected.dtype != array.dtype else expected
        np.testing.assert_array_equal(array, wanted, err_msg=what)
        return
    got = to_numpy(array)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), err_msg=f"{what}: NaNs")
    np.testing.assert_array_equal(
        got[~finite & ~np.isnan(expected)], expected[~finite & ~np.isnan(expected)], err_msg=what
    )
    if not finite.any():
        return
    magnitude = max(float(np.abs(expected[finite]).max()), scale)
    allowed = tolerance * EPSILON[name] * max(magnitude, np.finfo(np.float32).tiny)
    error = float(np.abs(got[finite] - expected[finite]).max())
    assert error <= allowed, f"{what}: error {error:.3g}, allowed {allowed:.3g} ({name}, largest value {magnitude:.3g})"


def assert_sum_of_products(got: Any, expected: np.ndarray, magnitude: np.ndarray, count: int, what: str) -> None:
    """A sum of `count` products errs by about as many roundings of the sum of their magnitudes, at most."""
    got = np.asarray(got)
    assert got.shape == expected.shape, what
    if got.dtype.name not in EPSILON:
        np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=what)
        return
    narrow = got.dtype.name in ("float16", "bfloat16")
    epsilon = 2.0**-23 if narrow else EPSILON[got.dtype.name]
    allowed = (4 + count**0.5) * epsilon * magnitude + EPSILON[got.dtype.name] * np.abs(expected) + 1e-30
    error = np.abs(got.astype(np.float64) - expected)
    assert (error <= allowed).all(), f"{what}: {error.max()} at {np.unravel_index(error.argmax(), error.shape)}"
