"""The order that sorting is checked against: NumPy's stable sort, with NaN as the largest both ways.

Descending, a row is sorted from its end, so that equal elements stay in their order.
"""

from __future__ import annotations

import numpy as np


def order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """A stable order, with NaN as the largest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    turned = np.flip(x, axis)
    return np.flip(x.shape[axis] - 1 - np.argsort(turned, axis=axis, kind="stable"), axis)
