"""Attention and its gradients in NumPy, from the definition: the scores as one matrix, everything in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Attention:
    """Broadcast batches; each head of the key serves as many neighbours of the query's as there are."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None = None
    scale: float | None = None
    causal: bool = False

    def __post_init__(self) -> None:
        heads = [a.shape[-3] if a.ndim > 2 else 1 for a in (self.query, self.key)]
        self.group = heads[0] // heads[1] if heads[1] else 1
        self.q = self.query.astype(np.float64)
        self.k, self.v = (self._repeat(a.astype(np.float64)) for a in (self.key, self.value))
        if self.scale is None:
            features = self.query.shape[-1]
            self.scale = features**-0.5 if features else 1.0

    def _repeat(self, array: np.ndarray) -> np.ndarray:
        return np.repeat(array, self.group, axis=-3) if array.ndim > 2 else array

    def _sum_to(self, array: np.ndarray, like: np.ndarray, heads: bool) -> np.ndarray:
        """The adjoint of repeating and broadcasting."""
        if heads and like.ndim > 2:
            array = array.reshape(*array.shape[:-3], like.shape[-3], self.group, *array.shape[-2:]).sum(-3)
        array = array.sum(tuple(range(array.ndim - like.ndim)))
        return array.sum(tuple(k for k in range(like.ndim) if like.shape[k] != array.shape[k]), keepdims=True)

    def probabilities(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            scores = (self.q * self.scale) @ self.k.swapaxes(-1, -2)
            if self.mask is not None:
                scores = np.where(self.mask, scores, -np.inf) if self.mask.dtype == bool else scores + self.mask
            if self.causal:
                scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
            largest = scores.max(-1, keepdims=True, initial=-np.inf)
            weights = np.exp(scores - np.where(largest == -np.inf, 0, largest))
            total = weights.sum(-1, keepdims=True)
            return weights / np.where(total == 0, 1, total)  # a row without any key gives zeros

    def output(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self.probabilities() @ self.v

    def gradients(self, by_output: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """By query, key, value, and the scores."""
        g = by_output.astype(np.float64)
        p = self.probabilities()
        by_weights = g @ self.v.swapaxes(-1, -2)
        by_scores = p * (by_weights - (p * by_weights).sum(-1, keepdims=True))
        return (
            self._sum_to(by_scores @ self.k * self.scale, self.query, False),
            self._sum_to(by_scores.swapaxes(-1, -2) @ self.q * self.scale, self.key, True),
            self._sum_to(p.swapaxes(-1, -2) @ g, self.value, True),
            by_scores,
        )


def attend(*arrays: np.ndarray, **options: object) -> np.ndarray:
    return Attention(*arrays, **options).output()  # type: ignore[arg-type]


def attend_with_sinks(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, sinks: np.ndarray, *mask: np.ndarray, **options: object
) -> np.ndarray:
    """A sink is a key of its own: here it really is one, with a value of 0."""
    problem = Attention(query, key, value, *mask, **options)  # type: ignore[arg-type]
    scores = (problem.q * problem.scale) @ problem.k.swapaxes(-1, -2)
    if problem.mask is not None:
        scores = np.where(problem.mask, scores, -np.inf) if problem.mask.dtype == bool else scores + problem.mask
    if problem.causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    column = np.broadcast_to(np.reshape(sinks, (-1, 1, 1)), (*scores.shape[:-1], 1))
    scores = np.concatenate([scores, column], -1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True))[..., :-1] @ problem.v
