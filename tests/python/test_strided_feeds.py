"""Feeds and results of any strides: read and written in place where the layout allows it, always with the right values.

References are NumPy's, computed in float64 from a packed copy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import topstitch as ts

Array = npt.NDArray[np.generic]


def _views() -> dict[str, Array]:
    base = np.random.default_rng(7).standard_normal((12, 10, 14)).astype(np.float32)
    return {
        "every other": base[::2, :, ::2],
        "reversed": base[::-1, :, ::-1],
        "transposed": base.transpose(2, 0, 1),
        "part": base[3:9, 2:7, 5:11],
        "one column": base[:, :, 3:4],
        "broadcast": np.broadcast_to(base[:1, :, :1], (5, 10, 6)),
        "fortran": np.asfortranarray(base),
        "reversed and transposed": base[:, ::-3].T,
        "overlapping": np.lib.stride_tricks.sliding_window_view(base[0, 0], 5)[:, :, None] + np.zeros((1, 1, 1), "f"),
        "windows": np.lib.stride_tricks.sliding_window_view(base[0, 0], 5)[:, None, :],
        "empty": base[:0, ::2],
    }


FUNCTIONS: dict[str, tuple[Callable[[ts.Tensor], ts.Tensor], Callable[[Array], Array]]] = {
    "elementwise": (lambda x: ts.tanh(x) * 2 + x, lambda x: np.tanh(x) * 2 + x),
    "last axis": (lambda x: ts.sum(x, axis=-1), lambda x: x.sum(axis=-1)),
    "first axis": (lambda x: ts.max(ts.pad(x, [1, 1, 1], [1, 1, 1]), axis=0), lambda x: np.pad(x, 1).max(axis=0)),
    "softmax": (lambda x: ts.softmax(x, axis=1), lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)),
    "views": (lambda x: ts.transpose(x)[::-1, 1:], lambda x: x.T[::-1, 1:]),
    "product": (lambda x: x @ ts.transpose(x, [0, 2, 1]), lambda x: x @ x.transpose(0, 2, 1)),
    "itself": (lambda x: x, lambda x: x),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("interpret", [False, True])
def test_values(function: str, dynamic: bool, interpret: bool) -> None:
    build, reference = FUNCTIONS[function]
    for name, view in _views().items():
        graph = ts.Graph()
        x = graph.placeholder((-1, -1, -1) if dynamic else view.shape)
        result = np.asarray(graph.run({x: view}, build(x), interpret=interpret))
        expected = reference(view.astype(np.float64))
        assert result.shape == expected.shape, name
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("dtype", [ts.bool_, ts.int8, ts.int64, ts.float16, ts.bfloat16, ts.float64, ts.complex64])
def test_dtypes(dtype: ts.DType) -> None:
    packed = ts.NDArray(np.arange(60).reshape(6, 10) % 2, dtype=dtype) if dtype is ts.bool_ else ts.NDArray(
        np.arange(60).reshape(6, 10), dtype=dtype
    )  # fmt: skip
    view = packed[::2, ::-3]
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), dtype)
    result = graph.run({x: view}, ts.concat([x, x], axis=0))
    expected = np.concatenate([np.asarray(view), np.asarray(view)])
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_a_pattern_of_strides_is_compiled_once() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    executable = graph.compile([x], ts.exp(x))
    base = np.random.default_rng(0).standard_normal((64, 50)).astype(np.float32)
    executable.run(base[::2, ::3])
    known = executable.variants
    for rows, columns in ((3, 4), (5, 6), (7, 4)):  # other strides of the same pattern
        view = base[::rows, ::columns]
        np.testing.assert_allclose(np.asarray(executable.run(view)), np.exp(view), rtol=1e-6)
    assert executable.variants == known
    assert "strided" in executable.explain()


def test_misaligned_strides_are_packed() -> None:
    record = np.zeros(5, dtype=[("flag", "u1"), ("value", "<f4")])
    record["value"] = [1, 2, 3, 4, 5]
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    np.testing.assert_array_equal(np.asarray(graph.run({x: record["value"]}, x + 1)), [2, 3, 4, 5, 6])


def test_results_of_any_strides() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 4))
    executable = graph.compile([x], [x + 1, ts.sum(x, axis=1)])
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    holder = np.full((6, 8), -1, np.float32)
    sums = np.zeros(6, np.float32)
    executable.run(given, out=[holder[::2, ::-2], sums[::2]])
    np.testing.assert_array_equal(holder[::2, ::-2], given + 1)
    assert (holder[1::2] == -1).all()
    assert (holder[::2, ::2] == -1).all()
    np.testing.assert_array_equal(sums, [6, 0, 22, 0, 38, 0])


def test_result_over_its_own_feed() -> None:
    graph = ts.Graph()
    x = graph.placeholder((4, 4))
    executable = graph.compile([x], x @ x)
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    expected = array.T.astype(np.float64) @ array.T.astype(np.float64)
    executable.run(array.T, out=array)
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.broadcast_to(np.zeros(1, np.float32), (3,)), "writable"),
        (np.zeros(3, np.float64), "is float32"),
        (np.zeros(4, np.float32), "is float32"),
    ],
)
def test_results_that_do_not_fit(out: Array, message: str) -> None:
    graph = ts.Graph()
    x = graph.placeholder((3,))
    with pytest.raises(ValueError, match=message):
        graph.compile([x], x + 1).run(np.ones(3, np.float32), out=out)


def test_broadcast_result_is_refused() -> None:
    graph = ts.Graph()
    x = graph.placeholder((3,))
    shared = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3,), (0,), writeable=True)
    with pytest.raises(ValueError, match="one element for all positions"):
        graph.compile([x], x + 1).run(np.ones(3, np.float32), out=shared)


def test_random_layouts() -> None:
    """Slices, steps, transposes and broadcasts at random, seeded."""
    random = np.random.default_rng(2024)
    graph = ts.Graph()
    x = graph.placeholder(None)
    y = ts.square(x) - 3 * x
    for _ in range(150):
        rank = int(random.integers(1, 5))
        view: Array = random.standard_normal([int(n) for n in random.integers(1, 9, rank)]).astype(np.float32)
        view = view.transpose(random.permutation(rank))
        for axis in range(rank):
            step = int(random.choice([-3, -2, -1, 1, 2, 3]))
            view = view[(slice(None),) * axis + (slice(None, None, step),)]
        if random.random() < 0.3:
            view = np.broadcast_to(view, (2, *view.shape))
        expected = view.astype(np.float64) ** 2 - 3 * view.astype(np.float64)
        np.testing.assert_allclose(np.asarray(graph.run({x: view}, y)), expected, rtol=1e-5, atol=1e-5)
