"""Products of 16-bit factors, which are multiplied in pairs: int8 and the like to int32, and bfloat16.

Integers are compared with NumPy in int64, wrapped to int32; bfloat16 with NumPy in float64.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import topstitch as ts

SIZES = [(24, 16, 64), (33, 17, 70), (64, 255, 96), (25, 1100, 66), (130, 2051, 35), (300, 64, 256)]


def wrapped(value: np.ndarray) -> np.ndarray:
    return value.astype(np.int64).astype(np.int32)


def whole_range(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values.flat[:2] = info.min, info.max
    return values


def product(a: np.ndarray, b: np.ndarray, build: Any = None, **options: Any) -> tuple[np.ndarray, str]:
    """cast(a, int32) @ cast(b, int32), and the report of how it was compiled."""
    graph = ts.Graph()
    ta, tb = graph.placeholder(a.shape, str(a.dtype)), graph.placeholder(b.shape, str(b.dtype))
    left, right = ts.cast(ta, "int32"), ts.cast(tb, "int32")
    y = build(left, right) if build else left @ right
    executable = graph.compile([ta, tb], y, **options)
    return np.asarray(executable.run(a, b)), str(executable.report())


def in_pairs(report: str, kind: str = "int16") -> bool:
    return f"pairs of {kind}" in report


@pytest.fixture(params=[1, 2, 16])
def threads(request: pytest.FixtureRequest) -> Any:
    before = ts.num_threads()
    ts.set_num_threads(request.param)
    yield request.param
    ts.set_num_threads(before)


@pytest.mark.parametrize(
    "dtypes", [("int8", "int8"), ("uint8", "int8"), ("int16", "int8"), ("int16", "int16")], ids=str
)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_integers(size: tuple[int, int, int], dtypes: tuple[str, str], threads: int) -> None:
    m, k, n = size
    rng = np.random.default_rng(k)
    a, b = whole_range(rng, dtypes[0], (m, k)), whole_range(rng, dtypes[1], (k, n))
    got, _ = product(a, b)
    np.testing.assert_array_equal(got, wrapped(a.astype(np.int64) @ b.astype(np.int64)))


@pytest.mark.parametrize("k", [16, 17, 64])
def test_interpreter(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = whole_range(rng, "int8", (40, k)), whole_range(rng, "uint8", (k, 64))
    got, report = product(a, b, interpret=True)
    assert in_pairs(report)
    np.testing.assert_array_equal(got, wrapped(a.astype(np.int64) @ b.astype(np.int64)))


@pytest.mark.parametrize("low", [-32768, -128])
def test_pairs_of_the_lowest_number_wrap(low: int) -> None:
    """Two products of -32768 are 2^31, the one sum of a pair that has no room in int32."""
    a, b = np.full((32, 64), low, np.int16), np.full((64, 64), low, np.int16)
    got, _ = product(a, b)
    np.testing.assert_array_equal(got, wrapped(a.astype(np.int64) @ b.astype(np.int64)))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_transposed_and_batched(left: bool, right: bool) -> None:
    rng = np.random.default_rng(1)
    a = whole_range(rng, "int8", (3, 77, 50) if left else (3, 50, 77))
    b = whole_range(rng, "int8", (96, 77) if right else (77, 96))
    got, _ = product(
        a, b, lambda x, y: (ts.swap_axes(x, axis1=1, axis2=2) if left else x) @ (ts.transpose(y) if right else y)
    )
    wide = (a.swapaxes(1, 2) if left else a).astype(np.int64) @ (b.T if right else b).astype(np.int64)
    np.testing.assert_array_equal(got, wrapped(wide))


def test_zero_points_constants_and_scales_are_stitched() -> None:
    rng = np.random.default_rng(2)
    a, b = whole_range(rng, "int8", (64, 90)), whole_range(rng, "int8", (90, 64))
    graph = ts.Graph()
    ta = graph.placeholder(a.shape, "int8")
    weights = ts.cast(graph.constant(b), "int32")
    y = ts.cast((ts.cast(ta, "int32") - 7) @ weights, "float32") * 0.125
    executable = graph.compile([ta], y)
    wide = (a.astype(np.int64) - 7) @ b.astype(np.int64)
    np.testing.assert_array_equal(np.asarray(executable.run(a)), wide.astype(np.float32) * np.float32(0.125))


def test_numbers_of_many_origins() -> None:
    """What a tensor may hold is found in time that does not grow with the ways to it."""
    rng = np.random.default_rng(9)
    a, b = whole_range(rng, "int8", (32, 64)), whole_range(rng, "int8", (64, 64))

    def build(x: ts.Tensor, y: ts.Tensor) -> ts.Tensor:
        for _ in range(7):
            x = ts.concat([x[:16], x[16:]], axis=0) + ts.minimum(x, x) - x
        return x @ y

    got, _ = product(a, b, build)
    np.testing.assert_array_equal(got, wrapped(a.astype(np.int64) @ b.astype(np.int64)))


@pytest.mark.parametrize("dims", [(-1, 200, 80), (64, -1, 80), (64, 200, -1), (-1, -1, -1)], ids=str)
def test_sizes_that_are_known_at_run_time(dims: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(3)
    graph = ts.Graph()
    ta, tb = graph.placeholder((dims[0], dims[1]), "int8"), graph.placeholder((dims[1], dims[2]), "int8")
    y = ts.cast(ta, "int32") @ ts.cast(tb, "int32")
    for m, k, n in ((64, 200, 80), (65, 301, 83), (1, 7, 1), (0, 5, 3), (4, 0, 3)):
        sizes = [given if given >= 0 else size for given, size in zip(dims, (m, k, n), strict=True)]
        a, b = whole_or_empty(rng, (sizes[0], sizes[1])), whole_or_empty(rng, (sizes[1], sizes[2]))
        (got,) = graph.run({ta: a, tb: b}, [y])
        np.testing.assert_array_equal(np.asarray(got), wrapped(a.astype(np.int64) @ b.astype(np.int64)))


def whole_or_empty(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.integers(-128, 128, shape, np.int8)


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_numbers_that_do_not_fit_are_multiplied_whole(dtype: str) -> None:
    rng = np.random.default_rng(4)
    a, b = whole_range(rng, dtype, (48, 64)), whole_range(rng, "int8", (64, 64))
    got, report = product(a, b)
    assert not in_pairs(report)
    np.testing.assert_array_equal(got, wrapped(a.astype(np.int64) @ b.astype(np.int64)))


def test_sums_that_leave_16_bits_are_multiplied_whole() -> None:
    rng = np.random.default_rng(5)
    a, b = whole_range(rng, "int16", (48, 64)), whole_range(rng, "int8", (64, 64))
    got, report = product(a, b, lambda x, y: (x + 1) @ y)
    assert not in_pairs(report)
    np.testing.assert_array_equal(got, wrapped((a.astype(np.int64) + 1) @ b.astype(np.int64)))


# --- bfloat16.

bfloat16 = ml_dtypes.bfloat16


def bfloat16_product(a: np.ndarray, b: np.ndarray, **options: Any) -> tuple[np.ndarray, str]:
    graph = ts.Graph()
    ta, tb = graph.placeholder(a.shape, "bfloat16"), graph.placeholder(b.shape, "bfloat16")
    executable = graph.compile([ta, tb], ta @ tb, **options)
    result = ts.NDArray(executable.run(a, b)).astype("float32")
    return np.asarray(result).astype(np.float64), str(executable.report())


@pytest.mark.parametrize("math", ["standard", "strict"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bfloat16(size: tuple[int, int, int], math: str, threads: int) -> None:
    m, k, n = size
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)).astype(bfloat16), rng.standard_normal((k, n)).astype(bfloat16)
    got, report = bfloat16_product(a, b, math=math)
    assert math == "standard" or not in_pairs(report, "bfloat16")
    x, y = a.astype(np.float64), b.astype(np.float64)
    # Sums are float32, results are rounded to 8 bits.
    bound = np.abs(x) @ np.abs(y) * k * 2.0**-24 + np.abs(x @ y) * 2.0**-8
    assert (np.abs(got - x @ y) <= bound).all()


@pytest.mark.parametrize("k", [16, 17, 65])
def test_bfloat16_in_pairs(k: int) -> None:
    """The interpreter's machine has pairs on every host."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((40, k)).astype(bfloat16), rng.standard_normal((k, 64)).astype(bfloat16)
    got, report = bfloat16_product(a, b, interpret=True)
    assert in_pairs(report, "bfloat16")
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(got - x @ y) <= np.abs(x) @ np.abs(y) * k * 2.0**-24 + np.abs(x @ y) * 2.0**-8).all()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_bfloat16_special_values_stay_in_their_rows(special: float) -> None:
    a, b = np.ones((32, 33), bfloat16), np.ones((33, 64), bfloat16)
    a[5, 32] = special
    got, _ = bfloat16_product(a, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(got, expected)


def test_bfloat16_stitched_into_a_factor() -> None:
    """It is rounded where factors are packed in pairs, and need not be elsewhere."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((64, 65)).astype(bfloat16), rng.standard_normal((65, 64)).astype(bfloat16)
    graph = ts.Graph()
    ta, tb = graph.placeholder(a.shape, "bfloat16"), graph.placeholder(b.shape, "bfloat16")
    (got,) = graph.run({ta: a, tb: b}, [ts.cast((ta * ta) @ tb, "float32")])
    squares, y = a.astype(np.float64) ** 2, b.astype(np.float64)
    bound = squares @ np.abs(y) * (2.0**-9 + 65 * 2.0**-24) + np.abs(squares @ y) * 2.0**-8
    assert (np.abs(np.asarray(got) - squares @ y) <= bound).all()


def test_bfloat16_of_large_and_small_magnitudes() -> None:
    a, b = np.full((32, 64), 1e-30, bfloat16), np.full((64, 64), 1e30, bfloat16)
    got, _ = bfloat16_product(a, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(got - expected) <= 2.0**-8 * expected).all()


@pytest.mark.parametrize("channels", [16, 33, 300])
def test_pointwise_convolutions(channels: int) -> None:
    rng = np.random.default_rng(channels)
    x, w = whole_range(rng, "int8", (2, channels, 9, 11)), whole_range(rng, "int8", (40, channels, 1, 1))
    got, _ = product(x, w, lambda left, right: ts.conv2d(left, right))
    expected = np.einsum("nchw,oc->nohw", x.astype(np.int64), w[:, :, 0, 0].astype(np.int64))
    np.testing.assert_array_equal(got, wrapped(expected))
