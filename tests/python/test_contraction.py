"""Matrix products in tiles: every edge, layout and dtype, with what is stitched to them, against float64.

The sizes are chosen around the register panels and the blocks of all targets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from oracle import assert_sum_of_products


def random(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.startswith(("int", "uint")):
        return rng.integers(0 if dtype[0] == "u" else -9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def check(a: np.ndarray, b: np.ndarray, **options: Any) -> None:
    graph = ts.Graph()
    x = graph.placeholder(a.shape, str(a.dtype))
    w = graph.placeholder(b.shape, str(b.dtype))
    result = graph.run({x: a, w: b}, ts.matmul(x, w), **options)
    wide = np.int64 if a.dtype.kind in "iu" else np.float64
    with np.errstate(over="ignore"):
        expected = np.matmul(a.astype(wide), b.astype(wide))
    bound = np.matmul(np.abs(a.astype(wide)), np.abs(b.astype(wide)))
    assert_sum_of_products(result, expected, bound, a.shape[-1], f"{a.dtype} {a.shape} @ {b.shape} {options}")


SIZES = (1, 2, 5, 6, 7, 12, 15, 16, 17, 31, 33, 64, 97)


@pytest.mark.parametrize("seed", range(12))
def test_sizes_around_the_panels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        m, n, k = (int(rng.choice(SIZES)) + int(rng.choice((0, 0, 128))) for _ in range(3))
        check(random((m, k), seed=seed), random((k, n), seed=seed + 1))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int8", "uint16", "int64"])
def test_dtypes(dtype: str) -> None:
    check(random((70, 90), dtype), random((90, 53), dtype, 1))


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = random((70, 90)).astype(ml_dtypes.bfloat16), random((90, 53)).astype(ml_dtypes.bfloat16)
    check(a, b)


def test_kernels_for_any_size_are_right_at_every_size() -> None:
    """Whichever sizes come first decide about the tiles, and the kernels serve all others too."""
    sizes = [(5, 200, 64), (17, 33, 4000), (200, 3, 40), (2, 900, 700), (70, 65, 129), (400, 30, 64)]
    for first in sizes:
        ts.clear_caches()  # of programs, which equal graphs share
        graph = ts.Graph()
        x, w = graph.placeholder((-1, -1)), graph.placeholder((-1, -1))
        product = ts.matmul(x, w)
        for rows, columns, depth in (first, *sizes):
            a, b = random((rows, depth)), random((depth, columns), seed=1)
            expected = a.astype(np.float64) @ b
            np.testing.assert_allclose(graph.run({x: a, w: b}, product), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("inner", [511, 512, 513, 1100, 32769])
def test_blocks_of_the_reduced_axis(inner: int) -> None:
    check(random((19, inner)), random((inner, 37), seed=1))


def test_wide_results() -> None:
    check(random((50, 40)), random((40, 32769), seed=1))


@pytest.mark.parametrize(("m", "n", "k"), [(0, 50, 60), (50, 0, 60), (50, 60, 0), (0, 0, 0)])
def test_empty(m: int, n: int, k: int) -> None:
    check(random((m, k)), random((k, n)))


def test_threads_give_the_same_bits() -> None:
    a, b = random((200, 700)), random((700, 130), seed=1)
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape), graph.placeholder(b.shape)
    y = ts.matmul(x, w)
    first = np.asarray(graph.run({x: a, w: b}, y, threads=1)).copy()
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(np.asarray(graph.run({x: a, w: b}, y, threads=threads)), first)


@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_transposed_operands_and_results(transposed_a: bool, transposed_b: bool, swapped: bool) -> None:
    a = random((70, 90)) if not transposed_a else random((90, 70))
    b = random((90, 65), seed=1) if not transposed_b else random((65, 90), seed=1)
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape), graph.placeholder(b.shape)
    y = ts.matmul(ts.transpose(x) if transposed_a else x, ts.transpose(w) if transposed_b else w)
    y = ts.transpose(y) if swapped else y
    left, right = (a.T if transposed_a else a).astype(np.float64), (b.T if transposed_b else b).astype(np.float64)
    expected, bound = left @ right, np.abs(left) @ np.abs(right)
    assert_sum_of_products(
        graph.run({x: a, w: b}, y), expected.T if swapped else expected, bound.T if swapped else bound, 90, "layout"
    )


def test_strided_feeds() -> None:
    a = random((140, 180))[::-2, 1::2]
    b = np.broadcast_to(random((1, 64), seed=1), (90, 64))
    check(a, b)
    check(np.asfortranarray(random((70, 90))), random((64, 90), seed=1).T)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 40, 50), (50, 60)), ((40, 50), (3, 50, 60)), ((2, 1, 40, 50), (3, 50, 60)), ((5, 40, 50), (5, 50, 60))],
)
def test_batches(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(random(left), random(right, seed=1))


def test_unknown_dims_compile_once() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder(("m", "k")), graph.placeholder(("k", "n"))
    executable = graph.compile({x: ts.ShapedType(("m", "k")), w: ts.ShapedType(("k", "n"))}, ts.matmul(x, w))
    for m, n, k in ((64, 80, 96), (65, 81, 97), (200, 33, 600), (3, 400, 257), (70, 90, 2), (64, 0, 7), (64, 64, 512)):
        a, b = random((m, k)), random((k, n), seed=1)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        assert_sum_of_products(
            executable.run(a, b), expected, np.abs(a).astype(np.float64) @ np.abs(b), k, f"{m} {n} {k}"
        )


def gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x * 0.5**0.5))


@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 128), (61, 83, 90), (64, 96, 1030), (61, 83, 1030)])
def test_bias_and_activation_are_stitched(m: int, n: int, k: int) -> None:
    a, b, bias = random((m, k)), random((k, n), seed=1), random((n,), seed=2)
    graph = ts.Graph()
    x, w, c = graph.placeholder(a.shape), graph.placeholder(b.shape), graph.placeholder(bias.shape)
    z = ts.matmul(x, w) + c
    y = ts.gelu(z)
    executable = graph.compile({t: ts.ShapedType(v.shape) for t, v in ((x, a), (w, b), (c, bias))}, [y, z])
    assert str(executable.report()).count("product of") == 1
    got_y, got_z = executable.run(a, b, bias)
    expected = a.astype(np.float64) @ b + bias
    bound = np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(bias)
    assert_sum_of_products(got_z, expected, bound, k, "bias")
    assert_sum_of_products(got_y, gelu(expected), 1.2 * bound, k, "gelu")


@pytest.mark.parametrize("rows", [61, -1])
@pytest.mark.parametrize("activated", [False, True])
def test_results_that_lie_across_memory(rows: int, activated: bool) -> None:
    a, b, bias = random((61, 90)), random((90, 83), seed=1), random((83,), seed=2)
    graph = ts.Graph()
    x = graph.placeholder((rows, 90))
    y = x @ graph.constant(b) + bias
    y = ts.transpose(ts.gelu(y) if activated else y, (1, 0))
    executable = graph.compile([x], y)
    assert executable.report().regions[-1]["schedule"].startswith("product of")
    expected = a.astype(np.float64) @ b + bias
    expected = (gelu(expected) if activated else expected).T
    np.testing.assert_allclose(np.asarray(executable.run(a)), expected, atol=1e-4)


def test_update_in_place() -> None:
    a, g, w0 = random((300, 70)), random((300, 50), seed=1), random((70, 50), seed=2)
    graph = ts.Graph()
    x, dy = graph.placeholder(a.shape), graph.placeholder(g.shape)
    w = graph.variable(w0)
    step = w.assign(w - 0.125 * ts.matmul(ts.transpose(x), dy))
    for _ in range(2):
        graph.run({x: a, dy: g}, [], step)
    change = a.astype(np.float64).T @ g
    bound = np.abs(a).astype(np.float64).T @ np.abs(g) + np.abs(w0)
    assert_sum_of_products(graph.variable_value(w), w0 - 0.25 * change, bound, 300, "update")


def test_residual_and_scale_at_the_edges() -> None:
    a, b, r = random((71, 100)), random((100, 67), seed=1), random((71, 67), seed=2)
    scale = random((71, 1), seed=3)
    graph = ts.Graph()
    x, w, res, s = (graph.placeholder(v.shape) for v in (a, b, r, scale))
    y = graph.run({x: a, w: b, res: r, s: scale}, res + s * ts.matmul(x, w))
    expected = r + scale * (a.astype(np.float64) @ b)
    assert_sum_of_products(
        y, expected, np.abs(r) + np.abs(scale) * (np.abs(a).astype(np.float64) @ np.abs(b)), 100, "residual"
    )


@pytest.mark.parametrize("interpret", [False, True])
def test_special_values_stay_in_their_rows(interpret: bool) -> None:
    a, b = random((65, 33)), random((33, 65), seed=1)
    a[3, 4], a[64, 32], b[2, 64] = np.nan, np.inf, -np.inf
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape), graph.placeholder(b.shape)
    got = np.asarray(graph.run({x: a, w: b}, ts.matmul(x, w), interpret=interpret))
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))


@pytest.mark.parametrize(("m", "n", "k"), [(65, 70, 600), (48, 64, 50)])
def test_the_interpreter_agrees(m: int, n: int, k: int) -> None:
    check(random((m, k)), random((k, n), seed=1), interpret=True)


@pytest.mark.parametrize("inner", [1, 5, 700, 4096, 50000])
def test_a_reduced_axis_of_any_length_is_split(inner: int) -> None:
    """Compiled for a length that many threads share, run with one that is too short for that."""
    before = ts.num_threads()
    ts.set_num_threads(8)
    try:
        graph = ts.Graph()
        x, w = graph.placeholder((24, -1)), graph.placeholder((-1, 32))
        executable = graph.compile([x, w], ts.matmul(x, w))
        for length in (20000, inner):
            a, b = random((24, length), seed=length), random((length, 32), seed=1)
            expected = a.astype(float) @ b.astype(float)
            bound = np.abs(a.astype(float)) @ np.abs(b.astype(float))
            assert_sum_of_products(executable.run(a, b), expected, bound, length, f"24 x {length} x 32")
    finally:
        ts.set_num_threads(before)


def test_sums_of_products_keep_their_tiles() -> None:
    a, b, c, d = (random((90, 90), seed=seed) for seed in range(4))
    graph = ts.Graph()
    feeds = {graph.placeholder(array.shape): array for array in (a, b, c, d)}
    x, w, y, v = feeds
    z = ts.relu(x @ w + y @ v)
    expected = np.concatenate([a, c], 1).astype(np.float64) @ np.concatenate([b, d]).astype(np.float64)
    bound = np.abs(np.concatenate([a, c], 1)) @ np.abs(np.concatenate([b, d]))
    assert_sum_of_products(graph.run(feeds, z), np.maximum(expected, 0), bound, 180, "x @ w + y @ v")
    assert [region["schedule"][:10] for region in graph.compile([*feeds], z).report().regions] == ["product of"] * 2


@pytest.mark.parametrize(
    ("left", "right", "turn", "axes"),
    [
        ((40, 50), (50, 60), lambda y: ts.transpose(y), (1, 0)),
        ((40, 50), (50, 60), lambda y: ts.swap_axes(y, axis1=-1, axis2=0), (1, 0)),
        ((3, 40, 50), (50, 60), lambda y: ts.transpose(y, (0, -1, 1)), (0, 2, 1)),
        ((3, 40, 50), (50, 60), lambda y: ts.transpose(y), (2, 1, 0)),
        ((2, 1, 40, 50), (3, 50, 60), lambda y: ts.swap_axes(y, axis1=2, axis2=3), (0, 1, 3, 2)),
        ((3, 40, 50), (50,), lambda y: ts.transpose(y), (1, 0)),
        ((40, 50), (50, 1), lambda y: ts.transpose(y), (1, 0)),
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_transposes_of_products(left: Any, right: Any, turn: Any, axes: Any, both: bool) -> None:
    """Whether or not the product itself is read too, and with something between it and the result."""
    a, b = random(left), random(right, seed=1)
    graph = ts.Graph()
    x, w = graph.placeholder(left), graph.placeholder(right)
    y = ts.matmul(x, w)
    targets = [turn(y) * 0.5 + 1, *([y] if both else [])]
    got = graph.run({x: a, w: b}, targets)
    product = a.astype(np.float64) @ b
    bound = np.abs(a.astype(np.float64)) @ np.abs(b)
    assert_sum_of_products(got[0], np.transpose(product, axes) * 0.5 + 1, np.transpose(bound, axes) + 1, 50, "turned")
    if both:
        assert_sum_of_products(got[1], product, bound, 50, "product")


def test_the_transpose_of_a_product_is_read_along_memory() -> None:
    """An update in place by the gradient of `x @ w.T` is a plain loop over the weight."""
    graph = ts.Graph()
    x = graph.placeholder((64, 128))
    w = graph.variable(random((256, 128)), name="w")
    gradient = ts.gradients(ts.sum(ts.square(x @ ts.transpose(w))), [w])[w]
    exe = graph.compile([x], ts.sum(gradient), w.assign(w - 0.1 * gradient))
    (update,) = [r for r in exe.report().regions if r["in_place"]]
    assert "128 columns" in update["schedule"] or update["schedule"].startswith("parallel vector i0(32768)")
    before, value = np.asarray(graph.variable_value(w)).astype(np.float64), random((64, 128), seed=3)
    exe.run(value)
    expected = before - 0.2 * (value @ before.T).T @ value
    np.testing.assert_allclose(np.asarray(graph.variable_value(w)), expected, rtol=2e-4, atol=2e-4)


def test_a_reduction_reads_a_product_that_is_stored_anyway() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder((64, 128)), graph.placeholder((128, 256))
    y = x @ w
    norm = ts.sqrt(ts.sum(ts.square(ts.cast(y, dtype=ts.float64))))
    exe = graph.compile([x, w], [y / ts.cast(norm, dtype=ts.float32), norm])
    by_operation = {}
    for region in exe.report().regions:
        by_operation |= {described.split()[0]: region["name"] for described in region["operations"]}
    assert by_operation["square"] == by_operation["sum"] != by_operation["matmul"]
    a, b = random((64, 128)), random((128, 256), seed=1)
    product = a.astype(np.float64) @ b
    got, got_norm = exe.run(a, b)
    np.testing.assert_allclose(float(np.asarray(got_norm)), np.linalg.norm(product), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(got), product / np.linalg.norm(product), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize(("m", "k"), [(24, 64), (37, 256), (61, 250), (100, 1032), (2051, 2060), (47, 3000)])
def test_rows_that_lie_along_memory(m: int, k: int, dtype: str) -> None:
    """Factors that are turned as a whole: panels are short pieces of their rows."""
    n = 40
    a, b = random((k, m), dtype), random((k, n), dtype, seed=1)
    if dtype == "int32":
        a, b = (np.random.default_rng(seed).integers(-9, 9, v.shape, np.int32) for seed, v in enumerate((a, b)))
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape, dtype=a.dtype), graph.placeholder(b.shape, dtype=b.dtype)
    got = np.asarray(graph.run({x: a, w: b}, ts.transpose(x) @ w)).astype(np.float64)
    expected = a.astype(np.float64).T @ b.astype(np.float64)
    if dtype == "int32":
        np.testing.assert_array_equal(got, expected)
    elif dtype == "float16":
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * k**0.5)
    else:
        bound = np.abs(a.astype(np.float64)).T @ np.abs(b.astype(np.float64))
        assert_sum_of_products(got.astype(dtype), expected, bound, k, f"{m} x {k} x {n}")


def test_rows_along_memory_that_nobody_may_read_past() -> None:
    """The interpreter checks every index; what is stitched to the factor is computed for its rows only."""
    a, b = random((256, 37)), random((256, 40), seed=1)
    a[:, 36] = np.inf
    graph = ts.Graph()
    x, w = graph.placeholder(a.shape), graph.placeholder(b.shape)
    y = ts.transpose(ts.exp(-ts.absolute(x)) * 2) @ w
    expected = (np.exp(-np.abs(a.astype(np.float64))) * 2).T @ b
    for interpret in (False, True):
        got = np.asarray(graph.run({x: a, w: b}, y, interpret=interpret))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        assert (got[36] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(24, 128, 256), (33, 517, 300), (48, 140, 1000), (61, 1030, 257)])
@pytest.mark.parametrize("threads", [1, 3])
def test_results_that_are_finished_row_by_row(m: int, n: int, k: int, threads: int, dtype: str) -> None:
    """What they are combined with lies in rows of its own; the sums of a tile wait for it."""
    a, b = random((m, k), dtype), random((k, n), dtype, seed=1)
    r, bias = random((m, n), dtype, seed=2), random((n,), dtype, seed=3)
    graph = ts.Graph()
    x, w, res, c = (graph.placeholder(v.shape, dtype=v.dtype) for v in (a, b, r, bias))
    y = x @ w
    feeds = {x: a, w: b, res: r, c: bias}
    product = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    got = graph.run(feeds, y * 0.5 + res, threads=threads)
    assert_sum_of_products(got, product * 0.5 + r, bound + np.abs(r), k, f"residual {m} x {k} x {n}")
    scaled, plain = graph.run(feeds, [ts.maximum(y + c, 0) * res, y], threads=threads)
    assert_sum_of_products(plain, product, bound, k, f"plain {m} x {k} x {n}")
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    expected = np.maximum(product + bias, 0) * r
    np.testing.assert_allclose(np.asarray(scaled), expected, rtol=tolerance, atol=tolerance * k**0.5)
