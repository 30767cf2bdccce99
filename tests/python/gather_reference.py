"""What gather and scatter mean, element by element in Python: each position of what is picked has a place, or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Place = tuple[int, ...]


def _wrapped(index: int, length: int) -> int | None:
    index = index + length if index < 0 else index
    return index if 0 <= index < length else None


def _slices(shape: Place, indices: np.ndarray, axis: int = 0, batch_dims: int = 0) -> Iterator[tuple[Place, Any]]:
    axis %= len(shape)
    inner = indices.ndim - batch_dims
    picked = shape[:axis] + indices.shape[batch_dims:] + shape[axis + 1 :]
    for at in np.ndindex(*picked):
        k = _wrapped(int(indices[at[:batch_dims] + at[axis : axis + inner]]), shape[axis])
        yield at, None if k is None else (*at[:axis], k, *at[axis + inner :])


def _nd(shape: Place, indices: np.ndarray, batch_dims: int = 0) -> Iterator[tuple[Place, Any]]:
    length = indices.shape[-1]
    outer = indices.ndim - 1
    for at in np.ndindex(*indices.shape[:-1], *shape[batch_dims + length :]):
        position = [_wrapped(int(k), shape[batch_dims + n]) for n, k in enumerate(indices[at[:outer]])]
        yield at, None if None in position else (*at[:batch_dims], *position, *at[outer:])


def _along_axis(shape: Place, indices: np.ndarray, axis: int = -1) -> Iterator[tuple[Place, Any]]:
    axis %= len(shape)
    others = np.broadcast_shapes(
        (*shape[:axis], 1, *shape[axis + 1 :]), (*indices.shape[:axis], 1, *indices.shape[axis + 1 :])
    )
    picked = (*others[:axis], indices.shape[axis], *others[axis + 1 :])
    indices = np.broadcast_to(indices, picked)
    for at in np.ndindex(*picked):
        k = _wrapped(int(indices[at]), shape[axis])
        inside = tuple(0 if shape[n] == 1 else i for n, i in enumerate(at))
        yield at, None if k is None else (*inside[:axis], k, *inside[axis + 1 :])


PLACES: dict[str, Callable[..., Iterator[tuple[Place, Any]]]] = {"": _slices, "_nd": _nd, "_along_axis": _along_axis}


def gather(kind: str, x: np.ndarray, indices: np.ndarray, **where: int) -> np.ndarray:
    places = list(PLACES[kind](x.shape, indices, **where))
    shape = tuple(np.max([at for at, _ in places], axis=0) + 1) if places and places[0][0] else ()
    result = np.zeros(shape, x.dtype)
    for at, place in places:
        if place is not None:
            result[at] = x[place]
    return result


def _divide(a: Any, b: Any) -> Any:
    if np.issubdtype(a.dtype, np.integer):
        return a.dtype.type(0) if b == 0 else a.dtype.type(math.trunc(int(a) / int(b)))
    return a / b


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda a, b: b,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divide,
    "min": np.minimum,
    "max": np.maximum,
}


def scatter(
    kind: str, data: np.ndarray, indices: np.ndarray, updates: np.ndarray, mode: str = "set", **where: int
) -> np.ndarray:
    """In the dtype of `data`: what is rounded or wraps does so after each update."""
    places = list(PLACES[kind](data.shape, indices, **where))
    shape = tuple(np.max([at for at, _ in places], axis=0) + 1) if places else updates.shape
    updates = np.broadcast_to(updates, shape) if places else updates
    result = data.copy()
    for at, place in places:
        if place is not None:
            result[place] = COMBINE[mode](result[place], updates[at])
    return result
