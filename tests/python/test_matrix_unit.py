"""Large products of float32, 16-bit floats and bytes, which processors with a matrix unit multiply in tiles.

Everything is compared with NumPy in float64 of the same numbers, on machines without such a unit too. The interpreter's
machine has one everywhere, and checks each access.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import topstitch as ts
from execution_helpers import run_child

Build = Callable[[Any, Any], Any]
SHAPE = (321, 353, 337)  # just large enough: 9 * 2^22 products, in sides of 120 or more
LIMIT = 3e-7  # of errors, relative to the sum of the absolute values of the products
ON_UNIT = "on the matrix unit"


def pair(shape: tuple[int, int, int], seed: int = 0, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    m, k, n = shape
    return rng.standard_normal((m, k)).astype(kind), rng.standard_normal((k, n)).astype(kind)


def product(a: np.ndarray, b: np.ndarray, build: Build = ts.matmul, **options: Any) -> tuple[np.ndarray, str]:
    graph = ts.Graph()
    ta, tb = graph.placeholder(a.shape, a.dtype.name), graph.placeholder(b.shape, b.dtype.name)
    executable = graph.compile([ta, tb], build(ta, tb), **options)
    return np.asarray(executable.run(a, b)), str(executable.report())


@functools.cache
def has_unit() -> bool:
    return ON_UNIT in product(*pair(SHAPE))[1]


def check(got: np.ndarray, a: np.ndarray, b: np.ndarray, limit: float = LIMIT) -> None:
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert got.shape == (x @ y).shape
    assert (np.abs(got.astype(np.float64) - x @ y) <= limit * (np.abs(x) @ np.abs(y))).all()


def check_special(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Element by element: the sums of float64, where these are finite those of float32 within its precision."""
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        exact, scale = np.einsum("ik,kj->ij", x, y), np.einsum("ik,kj->ij", np.abs(x), np.abs(y))
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(got[~finite], rounded[~finite])
        # Below the normal range each of the additions may lose half of the smallest number.
        lost = a.shape[1] * 2.0**-149
        assert (np.abs(got.astype(np.float64) - exact)[finite] <= (LIMIT * scale + lost)[finite]).all()


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Any:
    before = ts.num_threads()
    ts.set_num_threads(request.param)
    yield request.param
    ts.set_num_threads(before)


# --- Shapes.


@pytest.mark.parametrize(
    "shape",
    [SHAPE, (384, 384, 384), (129, 1031, 301), (120, 2700, 131), (1100, 120, 320), (121, 7000, 125), (160, 192, 1300)],
    ids=str,
)
def test_shapes(shape: tuple[int, int, int], threads: int) -> None:
    a, b = pair(shape)
    got, report = product(a, b)
    assert has_unit() == (ON_UNIT in report)
    check(got, a, b)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_transposed(left: bool, right: bool) -> None:
    a, b = pair(SHAPE, 1)
    got, _ = product(
        np.ascontiguousarray(a.T) if left else a,
        np.ascontiguousarray(b.T) if right else b,
        lambda x, y: (ts.transpose(x) if left else x) @ (ts.transpose(y) if right else y),
    )
    check(got, a, b)


def test_transposed_and_sliced_feeds() -> None:
    wide_a, wide_b = pair((2 * SHAPE[0], 400, 3 * SHAPE[2]), 2)
    a, b = wide_a[::-2, 5 : 5 + SHAPE[1]], wide_b[: SHAPE[1], 2::3]
    check(product(a, b)[0], a, b)
    check(product(b.T, a.T)[0], b.T, a.T)


@pytest.mark.parametrize("batches", [((5,), (5,)), ((5,), ()), ((), (5,)), ((2, 1), (1, 3))], ids=str)
def test_batches(batches: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((*batches[0], 161, 257)).astype(np.float32)
    b = rng.standard_normal((*batches[1], 257, 190)).astype(np.float32)
    got, report = product(a, b)
    assert has_unit() == (ON_UNIT in report)
    check(got, a, b)


@pytest.mark.parametrize("dims", [(-1, 353, 337), (321, -1, 337), (321, 353, -1), (-1, -1, -1)], ids=str)
def test_sizes_that_are_known_at_run_time(dims: tuple[int, int, int], threads: int) -> None:
    graph = ts.Graph()
    ta, tb = graph.placeholder(dims[:2]), graph.placeholder(dims[1:])
    executable = graph.compile([ta, tb], ta @ tb)
    for sizes in (SHAPE, (400, 512, 400), (321, 513, 337), (33, 129, 31), (1, 1, 1), (0, 5, 3), (4, 0, 3), (5, 3, 0)):
        shape = [given if given >= 0 else size for given, size in zip(dims, sizes, strict=True)]
        a, b = pair((shape[0], shape[1], shape[2]), 4)
        check(np.asarray(executable.run(a, b)), a, b)


@pytest.mark.parametrize("steps", [4224, 4352, 7000])
def test_splits(steps: int) -> None:
    """The last of the splits has fewer blocks than the others."""
    a, b = pair((128, steps, 128), 5)
    for threads in (24, 40):
        before = ts.num_threads()
        ts.set_num_threads(threads)
        try:
            got, report = product(a, b)
        finally:
            ts.set_num_threads(before)
        assert not has_unit() or "split in" in report
        check(got, a, b)


@pytest.mark.parametrize("deterministic", [False, True])
def test_interpreter(deterministic: bool) -> None:
    """Of one part, which takes the least time there."""
    a, b = pair((63, 1600, 64), 6, "bfloat16")
    got, report = product(a, b, lambda x, y: ts.cast(x @ y, "float32"), interpret=True, deterministic=deterministic)
    assert ON_UNIT in report
    assert deterministic == ("split in" in report)
    check(got, a, b, 2.0**-8)


# --- What is stitched to a product.


def test_factors_are_stitched() -> None:
    a, b = pair(SHAPE, 7)
    kept = np.random.default_rng(8).random(a.shape) < 0.8
    graph = ts.Graph()
    ta, tb, mask = graph.placeholder(a.shape), graph.placeholder(b.shape), graph.placeholder(a.shape, "bool")
    y = ts.where(mask, ts.relu(ta) * 1.25, 0.0) @ (tb - 1.0)
    (got,) = graph.run({ta: a, tb: b, mask: kept}, [y])
    left = np.where(kept, np.maximum(a, 0) * np.float32(1.25), np.float32(0))
    check(np.asarray(got), left, b - np.float32(1), 1e-6)  # all sums grow in one direction


def test_what_a_factor_makes_of_nothing_is_not_added() -> None:
    a, b = pair(SHAPE, 9)
    got, _ = product(a, b, lambda x, y: ts.exp(x) @ (y + 3.0))
    check(got, np.exp(a.astype(np.float64)), b.astype(np.float64) + 3, 6e-7)


def test_results_are_stitched() -> None:
    a, b = pair(SHAPE, 10)
    rng = np.random.default_rng(11)
    bias, residual = rng.standard_normal(SHAPE[2]), rng.standard_normal((SHAPE[0], SHAPE[2]))
    graph = ts.Graph()
    ta, tb = graph.placeholder(a.shape), graph.placeholder(b.shape)
    linear = ta @ tb * 0.05 + graph.constant(bias.astype(np.float32))
    got = np.asarray(graph.run({ta: a, tb: b}, ts.gelu(linear, approximate="tanh") + residual.astype(np.float32)))
    x = a.astype(np.float64) @ b * 0.05 + bias
    expected = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) + residual
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_gradients() -> None:
    a, b = pair(SHAPE, 12)
    seed = np.random.default_rng(13).standard_normal((SHAPE[0], SHAPE[2])).astype(np.float32)
    graph = ts.Graph()
    ta, tb, ts_seed = (graph.placeholder(array.shape) for array in (a, b, seed))
    found = ts.gradients(ta @ tb, [ta, tb], seed=ts_seed)
    by_a, by_b = graph.run({ta: a, tb: b, ts_seed: seed}, [found[ta], found[tb]])
    check(np.asarray(by_a), seed, b.T)
    check(np.asarray(by_b), a.T, seed)


# --- Types and options.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [SHAPE, (130, 2600, 127), (65, 1100, 66)], ids=str)
def test_narrow_types(dtype: str, shape: tuple[int, int, int], threads: int) -> None:
    a, b = pair(shape, 14, dtype)
    graph = ts.Graph()
    ta, tb = graph.placeholder(a.shape, dtype), graph.placeholder(b.shape, dtype)
    executable = graph.compile([ta, tb], ta @ tb)
    assert shape != SHAPE or has_unit() == (ON_UNIT in str(executable.report()))
    got = np.asarray(ts.NDArray(executable.run(a, b)).astype("float32")).astype(np.float64)
    x, y = a.astype(np.float64), b.astype(np.float64)
    bound = np.abs(x) @ np.abs(y) * 1e-6 + np.abs(x @ y) * (2.0**-8 if dtype == "bfloat16" else 2.0**-11)
    assert (np.abs(got - x @ y) <= bound).all()


def bytes_at_random(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    info = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    values[..., : shape[-1] // 2] = info.min if info.min < 0 else info.max  # the largest sums
    return values


def product_of_bytes(a: Any, b: Any) -> Any:
    return ts.cast(a, "int32") @ ts.cast(b, "int32")


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(257, 259, 261), (65, 3333, 66)], ids=str)
def test_bytes(shape: tuple[int, int, int], left: str, right: str, threads: int) -> None:
    a, b = bytes_at_random(shape[:2], left, 21), bytes_at_random(shape[1:], right, 22)
    got, report = product(a, b, product_of_bytes)
    assert has_unit() == (ON_UNIT in report)
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("deterministic", [False, True])
def test_bytes_in_the_interpreter(deterministic: bool) -> None:
    a, b = bytes_at_random((63, 3201), "int8", 23), bytes_at_random((3201, 61), "uint8", 24)
    got, report = product(a, b, product_of_bytes, interpret=True, deterministic=deterministic)
    assert ON_UNIT in report
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_bytes_of_sizes_that_are_known_at_run_time() -> None:
    graph = ts.Graph()
    ta, tb = graph.placeholder((-1, -1), "int8"), graph.placeholder((-1, -1), "uint8")
    executable = graph.compile([ta, tb], product_of_bytes(ta, tb))
    for m, k, n in ((257, 259, 261), (65, 4000, 66), (33, 65, 31), (1, 1, 1), (0, 5, 3), (4, 0, 3)):
        a, b = bytes_at_random((m, k), "int8", 25), bytes_at_random((k, n), "uint8", 26)
        np.testing.assert_array_equal(np.asarray(executable.run(a, b)), a.astype(np.int64) @ b.astype(np.int64))


def test_strict_math_and_float64_do_without() -> None:
    a, b = pair(SHAPE, 15)
    got, report = product(a, b, math="strict")
    assert ON_UNIT not in report
    check(got, a, b, 1e-6)
    wide, report = product(a.astype(np.float64), b.astype(np.float64))
    assert ON_UNIT not in report
    check(wide, a, b, 1e-14)


# --- Numbers that have no parts.

LARGEST = np.finfo(np.float32).max
PAYLOADS = np.array([0x7F800001, 0x7FC12345, 0xFF80FFFF, 0xFFFF0000], np.uint32).view(np.float32)


def sparse_with(values: Any, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """Normal factors with each of the values somewhere in the first."""
    a, b = pair(shape, 16)
    values = np.asarray(values, np.float32)
    a[np.arange(values.size) * 37 % shape[0], np.arange(values.size) * 101 % shape[1]] = values
    return a, b


SPECIAL = {
    "infinite": [np.inf, -np.inf],
    "NaN": PAYLOADS,
    "largest": [LARGEST, -LARGEST],
    "huge": [1e30, -3e25, 2.0**62, -(2.0**62), 2.0**61 * 1.99999],
    "subnormal": [1e-45, -1e-40, 1.1e-38],
    "tiny": [2.0**-102, 2.0**-103, -1e-33, 1e-36],
    "zeros": [0.0, -0.0],
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_special_elements(kind: str) -> None:
    a, b = sparse_with(SPECIAL[kind])
    check_special(product(a, b)[0], a, b)
    check_special(product(b.T, a.T)[0], b.T, a.T)


def test_infinity_times_zero() -> None:
    a, b = sparse_with([np.inf])
    b[0, ::3] = 0
    got, _ = product(a, b)
    assert np.isnan(got[0, ::3]).all()
    check_special(got, a, b)


def test_products_beyond_the_largest_number_are_infinite() -> None:
    """Their parts have both signs, and must not meet as infinities."""
    rng = np.random.default_rng(17)
    a, b = np.zeros(SHAPE[:2], np.float32), rng.standard_normal(SHAPE[1:]).astype(np.float32) * np.float32(1e30)
    a[:, 7] = rng.standard_normal(SHAPE[0]) * 1e30
    got, _ = product(a, b)
    assert np.isinf(got).any()
    check_special(got, a, b)


@pytest.mark.parametrize("exponents", [(-74, -74), (-126, -20), (-140, 20), (-149, 100), (-52, -52)], ids=str)
def test_small_products(exponents: tuple[int, int]) -> None:
    """Results that are subnormal, or just above."""
    a, b = pair(SHAPE, 18)
    a, b = a * np.float32(2.0 ** exponents[0]), b * np.float32(2.0 ** exponents[1])
    check_special(product(a, b)[0], a, b)


def test_scales_that_differ_by_row_and_column() -> None:
    a, b = pair(SHAPE, 19)
    a *= np.logspace(-18, 0, SHAPE[0], dtype=np.float32)[:, None]
    b *= np.logspace(0, -18, SHAPE[2], dtype=np.float32)
    check_special(product(a, b)[0], a, b)
    steps = np.logspace(-18, 18, SHAPE[1], dtype=np.float32)
    check_special(product(a * steps, b / steps[:, None])[0], a * steps, b / steps[:, None])


def test_rows_of_zeros_among_small_numbers() -> None:
    a, b = pair(SHAPE, 20)
    a[::2], b[:, 1::2] = 0, -0.0
    a *= np.float32(2.0**-90)
    check_special(product(a, b)[0], a, b)


def test_special_elements_in_the_interpreter() -> None:
    a, b = sparse_with([np.inf, np.nan, 1e30, 1e-40, LARGEST], (121, 2701, 125))
    got, report = product(a, b, interpret=True, deterministic=True)
    assert ON_UNIT in report
    check_special(got, a, b)


@pytest.mark.parametrize("dims", [(-1, -1, -1), (128, -1, 128)], ids=str)
def test_special_elements_of_a_split_sum(dims: tuple[int, int, int]) -> None:
    a, b = sparse_with([np.inf, np.nan, 1e-40], (128, 4224, 128))
    graph = ts.Graph()
    ta, tb = graph.placeholder(dims[:2]), graph.placeholder(dims[1:])
    before = ts.num_threads()
    ts.set_num_threads(24)
    try:
        check_special(np.asarray(graph.run({ta: a, tb: b}, ta @ tb)), a, b)
    finally:
        ts.set_num_threads(before)


# --- Processes.


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are set with sigaltstack of Linux")
def test_signal_stacks_without_room_for_tiles() -> None:
    """Linux refuses the unit to a process that has one; there the product is computed as everywhere."""
    code = f"""
        import ctypes
        class Stack(ctypes.Structure):
            _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
        memory = ctypes.create_string_buffer(8192)
        ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 8192)), None)
        import numpy as np, topstitch as ts
        a, b = np.ones({SHAPE[:2]}, np.float32), np.ones({SHAPE[1:]}, np.float32)
        graph = ts.Graph()
        ta, tb = graph.placeholder(a.shape), graph.placeholder(b.shape)
        assert (np.asarray(graph.run({{ta: a, tb: b}}, ta @ tb)) == {SHAPE[1]}).all()
        """
    run_child(code, prelude="")


def test_many_threads_at_once_and_forks() -> None:
    code = f"""
        a = np.random.default_rng(0).standard_normal({SHAPE[:2]}).astype(np.float32)
        b = np.random.default_rng(1).standard_normal({SHAPE[1:]}).astype(np.float32)
        exact, wrong = a.astype(np.float64) @ b, []
        def multiply():
            graph = ts.Graph()
            ta, tb = graph.placeholder(a.shape), graph.placeholder(b.shape)
            executable = graph.compile([ta, tb], ta @ tb)
            for _ in range(5):
                wrong.append(np.abs(np.asarray(executable.run(a, b)) - exact).max() > 1e-3)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        threads = [threading.Thread(target=multiply) for _ in range(5)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        child = os.fork()
        multiply()
        if child == 0: os._exit(any(wrong))
        assert os.waitpid(child, 0)[1] == 0 and not any(wrong) and len(wrong) == 30
        """
    run_child(code)
