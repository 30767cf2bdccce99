"""Rows of op_cases.py for cumulative operations and sorting; references are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from op_cases import BOOL, NUMBERS, REALS, Case
from sort_reference import order

Cumulative = Callable[..., np.ndarray]


def walked(
    accumulate: Cumulative, start: Callable[[np.dtype], Any], axis: int, exclusive: bool, reverse: bool
) -> Cumulative:
    """NumPy's accumulate, along an axis, behind a first value, or from the other end."""

    def reference(x: np.ndarray) -> np.ndarray:
        line = np.flip(x, axis) if reverse else x
        result = accumulate(line, axis=axis)
        if exclusive:
            first = np.full_like(np.take(result, [0], axis), start(result.dtype))
            result = np.concatenate([first, np.delete(result, -1, axis)], axis)
        return np.flip(result, axis) if reverse else result

    return reference


def lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def largest(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def cumulative(
    accumulate: Cumulative, start: Callable[[np.dtype], Any], dtypes: tuple[str, ...], **options: Any
) -> list[Case]:
    rows = []
    for k, (shape, axis, exclusive, reverse) in enumerate([
        ((3, 37), -1, False, False), ((37, 9), 0, False, True), ((3, 21, 5), 1, True, False), ((4, 37), -1, True, True)
    ]):  # fmt: skip
        attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
        reference = walked(accumulate, start, axis, exclusive, reverse)
        infinite = exclusive and start in (lowest, largest)  # which finite differences cannot see
        rows.append(
            Case(reference, (shape,), attrs=attrs, dtypes=dtypes if k == 0 else REALS, grad=not infinite, **options)
        )
    return rows


def _sum(x: np.ndarray, axis: int) -> np.ndarray:
    wide = np.int64 if x.dtype.kind == "b" else x.dtype
    return np.add.accumulate(x, axis=axis, dtype=wide)


def _product(x: np.ndarray, axis: int) -> np.ndarray:
    wide = np.int64 if x.dtype.kind == "b" else x.dtype
    return np.multiply.accumulate(x, axis=axis, dtype=wide)


def first(k: int, axis: int, descending: bool) -> Callable[[np.ndarray], tuple[np.ndarray, ...]]:
    def reference(x: np.ndarray) -> tuple[np.ndarray, ...]:
        places = np.take(order(x, axis, descending), np.arange(k), axis)
        return np.take_along_axis(x, places, axis), places

    return reference


def _sorted(axis: int, descending: bool) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.take_along_axis(x, order(x, axis, descending), axis)


ALL = (*NUMBERS, *BOOL)
ROWS = {
    "cumulative_sum": [
        *cumulative(_sum, lambda _: 0, (*ALL, "complex64"), tolerance=16),
    ],
    "cumulative_product": [
        *cumulative(_product, lambda _: 1, ALL, tolerance=64, domain=(0.7, 1.3)),
    ],
    "cumulative_minimum": cumulative(np.minimum.accumulate, largest, ALL, second=False, distinct=True),
    "cumulative_maximum": cumulative(np.maximum.accumulate, lowest, ALL, second=False, distinct=True),
    "sort": [
        Case(_sorted(-1, False), ((3, 37),), dtypes=ALL, second=False, distinct=True),
        Case(_sorted(0, True), ((150, 4),), attrs={"axis": 0, "descending": True}, dtypes=ALL, second=False,
             distinct=True),
    ],
    "argsort": [
        Case(lambda x: order(x, -1, True), ((3, 37),), attrs={"descending": True}, dtypes=ALL, grad=False),
        Case(lambda x: order(x, 1, False), ((2, 150, 3),), attrs={"axis": 1}, dtypes=ALL, grad=False),
    ],
    "top_k": [
        Case(first(5, -1, True), ((3, 37),), attrs={"k": 5}, dtypes=ALL, grad=False, distinct=True),
        Case(first(7, 0, True), ((150, 2),), attrs={"k": 7, "axis": 0}, dtypes=ALL, grad=False, distinct=True),
    ],
    "bottom_k": [
        Case(first(5, -1, False), ((3, 37),), attrs={"k": 5}, dtypes=ALL, grad=False, distinct=True),
        Case(first(100, 1, False), ((2, 150),), attrs={"k": 100, "axis": 1}, dtypes=ALL, grad=False, distinct=True),
    ],
}  # fmt: skip
