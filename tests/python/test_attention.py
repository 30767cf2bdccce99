"""Scaled dot product attention against NumPy in float64 and PyTorch: values, gradients, masks, memory, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from attention_reference import Attention, attend, attend_with_sinks
from op_cases import np_dtype
from oracle import EPSILON, assert_matches, to_numpy

SEEDS = range(24)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return rng.standard_normal(shape).astype(np_dtype(dtype))


def run(arrays: list[np.ndarray], mask: np.ndarray | None = None, gradients: bool = True, **options: Any) -> list[Any]:
    """The result and, for a random gradient by it, those by query, key and value: (gradient, results...)."""
    attrs = {key: options.pop(key) for key in ("scale", "causal") if key in options}
    dynamic = options.pop("dynamic", False)
    graph = ts.Graph()
    feeds = {}

    def feed(array: np.ndarray) -> ts.Tensor:
        shape = (-1,) * array.ndim if dynamic else array.shape
        placeholder = graph.placeholder(shape, dtype=array.dtype.name)
        feeds[placeholder] = array
        return placeholder

    inputs = [feed(a) for a in arrays]
    y = ts.scaled_dot_product_attention(*inputs, None if mask is None else feed(mask), **attrs)
    targets = [y]
    seed = np.zeros(())
    if gradients:
        seed = normal(np.random.default_rng(5), attend(*arrays).shape, arrays[0].dtype.name)
        found = ts.gradients(y, inputs, seed=feed(seed))
        targets += [found[x] for x in inputs]
    return [seed, *graph.run(feeds, targets, **options)]


def check(arrays: list[np.ndarray], mask: np.ndarray | None = None, gradients: bool = True, **options: Any) -> None:
    attrs = {key: options[key] for key in ("scale", "causal") if key in options}
    seed, *results = run(arrays, mask, gradients, **options)
    wide = [to_numpy(a) for a in arrays]
    problem = Attention(*wide, None if mask is None else mask if mask.dtype == bool else to_numpy(mask), **attrs)
    expected = [problem.output()]
    if gradients:
        expected += problem.gradients(to_numpy(seed))[:3]
    name = arrays[0].dtype.name
    # Scores are sums of products, and an exponential makes of their errors relative ones.
    inner = EPSILON["float32"] / EPSILON[name] if name in ("float16", "bfloat16") else 1.0
    features, kv_tokens = arrays[1].shape[-1], arrays[1].shape[-2]
    scores = np.abs(problem.q) @ np.abs(problem.k.swapaxes(-1, -2)) * abs(problem.scale or 0)
    steepness = float(scores.max(initial=1.0))
    tolerance = 4 + inner * (4 * steepness + features**0.5 + kv_tokens**0.5)
    for k, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        what = ("output", "query gradient", "key gradient", "value gradient")[k]
        assert np.asarray(result).shape == wanted.shape
        # Gradients by query and key are differences: their terms set the scale.
        scale = float(np.abs(wide[2]).max(initial=1.0)) if k == 0 else 4.0
        assert_matches(result, wanted, tolerance * (1 if k == 0 else 4), f"{what} {attrs} {options}", scale)


def random_problem(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray | None, dict[str, Any]]:
    """Tokens and features around the sizes of lanes, panels and blocks; broadcast batches, grouped heads, masks."""
    rank = int(rng.integers(2, 6))
    batch = [int(n) for n in rng.integers(1, 4, max(rank - 3, 0))]
    kv_heads, group = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    tokens, kv_tokens = (int(rng.choice([1, 2, 13, 31, 33, 64, 100, 141])) for _ in range(2))
    kv_tokens += int(rng.choice([0, 0, 150]))
    features, value_features = (int(rng.choice([1, 3, 16, 17, 40, 64, 71, 130])) for _ in range(2))
    dtype = str(rng.choice(["float32", "float32", "float32", "float64", "float16", "bfloat16"]))
    if rank == 2:
        kv_heads = group = 1

    def shape(heads: int, count: int, width: int, partly: bool) -> tuple[int, ...]:
        dims = [1 if partly and rng.random() < 0.3 else n for n in batch]
        return (*dims, heads, count, width)[-rank:]

    arrays = [
        normal(rng, shape(heads, count, width, partly), dtype)
        for heads, count, width, partly in (
            (kv_heads * group, tokens, features, False),
            (kv_heads, kv_tokens, features, True),
            (kv_heads, kv_tokens, value_features, True),
        )
    ]
    scores = [*batch, kv_heads * group, tokens, kv_tokens][-rank:]
    mask = None
    kind = rng.choice(["none", "bool", "float"])
    if kind != "none":
        dims = [1 if rng.random() < 0.4 else n for n in scores][int(rng.integers(0, rank)) :]
        mask = rng.random(dims) < 0.7 if kind == "bool" else normal(rng, tuple(dims), dtype)
        if kind == "float":
            mask[rng.random(dims) < 0.2] = -np.inf
    attrs: dict[str, Any] = {"causal": bool(rng.random() < 0.4)}
    if rng.random() < 0.3:
        attrs["scale"] = float(rng.choice([0.3, -0.2, 0.0]))
    return arrays, mask, attrs


@pytest.mark.parametrize("seed", SEEDS)
def test_random_problems(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays, mask, attrs = random_problem(rng)
    check(arrays, mask, **attrs, dynamic=seed % 4 == 3, threads=int(rng.integers(1, 5)))


@pytest.mark.parametrize("seed", range(6))
def test_random_problems_unstitched(seed: int) -> None:
    """The definition, from other operations."""
    arrays, mask, attrs = random_problem(np.random.default_rng(100 + seed))
    check(arrays, mask, **attrs, stitch=False)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_interpreter(causal: bool, masked: bool) -> None:
    """It checks every index of the kernels."""
    rng = np.random.default_rng(3)
    arrays = [normal(rng, shape) for shape in ((2, 4, 37, 5), (1, 2, 18, 5), (2, 2, 18, 3))]
    mask = rng.random((4, 1, 18)) < 0.7 if masked else None
    check(arrays, mask, causal=causal, interpret=True)


@pytest.mark.parametrize(
    ("queries", "keys"),
    [((1, 2, 0, 4), (1, 2, 5, 4)), ((1, 2, 5, 4), (1, 2, 0, 4)), ((1, 2, 5, 0), (1, 2, 5, 0)),
     ((0, 2, 5, 4), (0, 2, 5, 4)), ((1, 0, 5, 4), (1, 0, 5, 4))],
)  # fmt: skip
@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_of_zero(queries: tuple[int, ...], keys: tuple[int, ...], dynamic: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = [normal(rng, queries), normal(rng, keys), normal(rng, (*keys[:-1], 3))]
    check(arrays, dynamic=dynamic)
    check(arrays, causal=True, dynamic=dynamic)


@pytest.mark.parametrize("features", [200, 256, 1000])
def test_many_features(features: int) -> None:
    rng = np.random.default_rng(features)
    check([normal(rng, (2, 75, features)), normal(rng, (2, 130, features)), normal(rng, (2, 130, 257))])


def test_saved_with_its_gradient(tmp_path: Any) -> None:
    """The operations of the gradient are none that users name, and one of them has two results."""
    rng = np.random.default_rng(12)
    arrays = [normal(rng, (2, 9, 4)) for _ in range(3)]
    graph = ts.Graph()
    inputs = [graph.placeholder((2, -1, 4), name=name) for name in ("q", "k", "v")]
    y = ts.scaled_dot_product_attention(*inputs, causal=True)
    by_key = ts.gradients(ts.sum(y), inputs)[inputs[1]]
    feeds = dict(zip(inputs, arrays, strict=True))
    expected = np.asarray(graph.run(feeds, by_key)).copy()
    executable = graph.compile({x: ts.ShapedType((2, 9, 4)) for x in inputs}, [by_key])
    executable.save(tmp_path / "attention.safetensors")
    loaded = ts.Executable.load(tmp_path / "attention.safetensors")
    (again,) = loaded.run(*arrays)
    np.testing.assert_array_equal(again, expected)


def test_no_features_attends_evenly() -> None:
    value = np.array([[1.0], [2.0], [6.0]], np.float32)
    empty = np.zeros((3, 0), np.float32)
    _, y = run([empty, empty, value], gradients=False)
    np.testing.assert_allclose(y, np.full((3, 1), 3.0), rtol=1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_one_token_for_each_head(kv_heads: int, dynamic: bool) -> None:
    """As when text is generated: heads that share a key meet it together."""
    rng = np.random.default_rng(kv_heads)
    arrays = [normal(rng, shape) for shape in ((2, 6, 1, 16), (2, kv_heads, 70, 16), (1, kv_heads, 70, 8))]
    masks = [None, rng.random(70) < 0.5, normal(rng, (2, 1, 1, 70)), rng.random((6, 1, 70)) < 0.5]
    for mask in masks:
        check(arrays, mask, dynamic=dynamic)
    check(arrays, causal=True, dynamic=dynamic)


@pytest.mark.parametrize("stitch", [True, False])
def test_rows_that_attend_to_nothing(stitch: bool) -> None:
    """Zeros, and no NaN in any gradient."""
    rng = np.random.default_rng(1)
    arrays = [normal(rng, (2, 40, 8)) for _ in range(3)]
    boolean = np.ones((40, 40), bool)
    boolean[7] = boolean[39] = False
    added = np.where(boolean, 0, -np.inf).astype(np.float32)
    for mask in (boolean, added):
        check(arrays, mask, stitch=stitch)
        _, y, by_query, *_ = run(arrays, mask, stitch=stitch)
        assert not np.asarray(y)[:, [7, 39]].any()
        assert not np.asarray(by_query)[:, [7, 39]].any()
    check(arrays, np.zeros((40, 40), bool), stitch=stitch)


@pytest.mark.parametrize("stitch", [True, False])
def test_special_numbers_in_the_mask(stitch: bool) -> None:
    rng = np.random.default_rng(2)
    arrays = [normal(rng, (3, 50, 8)) for _ in range(3)]
    mask = normal(rng, (50, 50))
    mask[3, 5], mask[4, 6], mask[5, :40], mask[6, 49] = np.nan, np.inf, -np.inf, -1e30
    mask[:, 17] = -np.inf
    check(arrays, mask, gradients=False, stitch=stitch)
    (_, y) = run(arrays, mask, gradients=False, stitch=stitch)
    bad = np.isnan(np.asarray(y)).any((0, 2))
    assert bad.nonzero()[0].tolist() == [3, 4]


def test_large_scores_do_not_overflow() -> None:
    rng = np.random.default_rng(4)
    query, key = (300 * normal(rng, (2, 150, 16)) for _ in range(2))
    value = normal(rng, (2, 150, 16))
    scores = query.astype(np.float64) @ key.astype(np.float64).swapaxes(-1, -2) / 4
    gap = np.partition(scores, -2, -1)
    clear = gap[..., -1] - gap[..., -2] > 50  # elsewhere two keys share a row, and rounding decides how
    assert clear.mean() > 0.9
    (_, y) = run([query, key, value], gradients=False)
    picked = np.take_along_axis(value, scores.argmax(-1)[..., None], -2)
    np.testing.assert_allclose(np.asarray(y)[clear], picked[clear], rtol=1e-6)


def test_causal_counts_from_the_first_token() -> None:
    """Query i sees keys 0 to i, whatever their numbers; by hand."""
    value = np.array([[1.0], [3.0], [8.0]], np.float32)
    zeros = np.zeros((3, 2), np.float32)
    _, y = run([zeros, zeros, value], gradients=False, causal=True)
    np.testing.assert_allclose(np.asarray(y)[:, 0], [1, 2, 4], rtol=1e-6)
    _, y = run([np.zeros((5, 2), np.float32), zeros, value], gradients=False, causal=True)
    np.testing.assert_allclose(np.asarray(y)[:, 0], [1, 2, 4, 4, 4], rtol=1e-6)
    _, y = run([np.zeros((2, 2), np.float32), zeros, value], gradients=False, causal=True)
    np.testing.assert_allclose(np.asarray(y)[:, 0], [1, 2], rtol=1e-6)


def test_same_bits_for_any_thread_count() -> None:
    rng = np.random.default_rng(6)
    arrays = [normal(rng, shape) for shape in ((1, 4, 300, 24), (1, 2, 210, 24), (1, 2, 210, 40))]
    mask = rng.random((300, 210)) < 0.8
    first = [np.asarray(r).tobytes() for r in run(arrays, mask, threads=1)]
    for threads in (1, 2, 3, 16):
        assert [np.asarray(r).tobytes() for r in run(arrays, mask, threads=threads)] == first


def test_views_are_read_in_place() -> None:
    """Heads split from features and moved: the usual way to get there, without a copy of its own."""
    rng = np.random.default_rng(7)
    batch, tokens, heads, features = 2, 70, 4, 16
    packed = normal(rng, (batch, tokens, 3 * heads * features))
    graph = ts.Graph()
    x = graph.placeholder((-1, tokens, 3 * heads * features))
    split = ts.transpose(ts.reshape(x, (-1, tokens, 3, heads, features)), (2, 0, 3, 1, 4))
    y = ts.scaled_dot_product_attention(*(split[k] for k in range(3)))
    merged = ts.reshape(ts.transpose(y, (0, 2, 1, 3)), (-1, tokens, heads * features))
    parts = packed.reshape(batch, tokens, 3, heads, features).transpose(2, 0, 3, 1, 4)
    expected = attend(*parts).transpose(0, 2, 1, 3).reshape(batch, tokens, heads * features)
    assert_matches(graph.run({x: packed}, merged), expected, 64, "packed", 3.0)
    report = graph.compile({x: ts.ShapedType(packed.shape)}, merged).report()
    assert len(report.regions) <= 2  # attention, and its result in the other order


def memory(tokens: int, backward: bool, **options: Any) -> int:
    graph = ts.Graph()
    inputs = [graph.placeholder((1, 2, tokens, 32)) for _ in range(3)]
    y = ts.scaled_dot_product_attention(*inputs, causal=True)
    targets = [y, *ts.gradients(ts.sum(y * y), inputs).values()] if backward else [y]
    return int(graph.compile(inputs, targets, **options).report().arena_bytes)


@pytest.mark.parametrize("backward", [False, True])
def test_memory_grows_with_the_tokens_only(backward: bool) -> None:
    small, large = memory(512, backward), memory(4096, backward)
    assert large <= 9 * small
    assert large < 4096 * 4096  # a quarter of one matrix of scores, where there are two
    assert memory(512, backward, stitch=False) > 2 * 4 * 512 * 512


def test_gradient_by_a_mask() -> None:
    rng = np.random.default_rng(8)
    arrays = [normal(rng, shape, "float64") for shape in ((2, 4, 9, 5), (2, 2, 11, 5), (2, 2, 11, 3))]
    bias = normal(rng, (4, 1, 11), "float64")
    seed = normal(rng, (2, 4, 9, 3), "float64")
    graph = ts.Graph()
    inputs = [graph.placeholder((-1, *a.shape[1:]), dtype="float64") for a in arrays]
    mask, weights = graph.placeholder(bias.shape, dtype="float64"), graph.placeholder(seed.shape, dtype="float64")
    y = ts.scaled_dot_product_attention(*inputs, mask)
    found = ts.gradients(y, [mask], seed=weights)[mask]
    feeds = dict(zip([*inputs, mask, weights], [*arrays, bias, seed], strict=True))
    expected = Attention(*arrays, bias).gradients(seed)[3].sum((0, 2), keepdims=True)[0]
    np.testing.assert_allclose(graph.run(feeds, found), expected, rtol=1e-10, atol=1e-12)


def test_sinks() -> None:
    rng = np.random.default_rng(9)
    arrays = [normal(rng, shape) for shape in ((2, 4, 70, 8), (2, 2, 33, 8), (2, 2, 33, 8))]
    sinks = np.array([0.5, -np.inf, 3, 100], np.float32)
    mask = rng.random((70, 33)) < 0.8
    mask[5] = False
    graph = ts.Graph()
    inputs = [graph.placeholder(a.shape) for a in (*arrays, sinks)]
    with_mask = graph.placeholder(mask.shape, dtype="bool")
    plain = ts.scaled_dot_product_attention_with_sinks(*inputs, causal=True)
    masked = ts.scaled_dot_product_attention_with_sinks(*inputs, with_mask)
    feeds = dict(zip([*inputs, with_mask], [*arrays, sinks, mask], strict=True))
    results = graph.run(feeds, [plain, masked])
    wide = [a.astype(np.float64) for a in (*arrays, sinks)]
    assert_matches(results[0], attend_with_sinks(*wide, causal=True), 64, "causal", 3.0)
    wide[3][1] = -1e300  # the reference would divide 0 by 0 where all is masked
    assert_matches(results[1], attend_with_sinks(*wide, mask), 64, "masked", 3.0)


# --- PyTorch.


def against_torch(arrays: list[np.ndarray], mask: np.ndarray | None = None, **attrs: Any) -> None:
    torch = pytest.importorskip("torch")
    seed, *results = run(arrays, mask, **attrs)
    leaves = [torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in arrays]
    options = {"is_causal": attrs.get("causal", False), "scale": attrs.get("scale")}
    if arrays[0].shape[-3] != arrays[1].shape[-3]:
        options["enable_gqa"] = True
    attn_mask = None if mask is None else torch.from_numpy(mask if mask.dtype == bool else mask.astype(np.float64))
    y = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=attn_mask, **options)
    y.backward(torch.from_numpy(seed.astype(np.float64)))
    expected = [y.detach(), *(leaf.grad for leaf in leaves)]
    for k, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert_matches(result, wanted.numpy(), 64 if k == 0 else 256, f"result {k} {attrs}", 3.0)


@pytest.mark.parametrize("attrs", [{}, {"causal": True}, {"scale": 0.05}], ids=str)
def test_against_torch(attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(10)
    against_torch([normal(rng, (2, 3, 130, 64)) for _ in range(3)], **attrs)


def test_against_torch_with_masks_and_groups() -> None:
    rng = np.random.default_rng(11)
    arrays = [normal(rng, shape) for shape in ((2, 6, 65, 20), (2, 2, 150, 20), (2, 2, 150, 20))]
    against_torch(arrays)
    mask = rng.random((2, 1, 65, 150)) < 0.6
    mask[:, :, 8] = False
    against_torch(arrays, mask)
    against_torch(arrays, normal(rng, (65, 150)))


# --- Errors.

F = "float32"


@pytest.mark.parametrize(
    ("shapes", "dtypes", "words"),
    [
        (((2, 3, 4), (2, 5, 6), (2, 5, 6)), (F, F, F), "features, 4 and 6, must be equal"),
        (((2, 3, 4), (2, 5, 4), (2, 6, 4)), (F, F, F), "tokens of key and value, 5 and 6"),
        (((3, 3, 4), (2, 5, 4), (2, 5, 4)), (F, F, F), "3 heads and the key 2"),
        (((2, 3, 4), (0, 5, 4), (0, 5, 4)), (F, F, F), "2 heads and the key 0"),
        (((2, 3, 4), (2, 5, 4), (1, 5, 4)), (F, F, F), "2 heads and the value 1"),
        (((4,), (5, 4), (5, 4)), (F, F, F), "expand_dims"),
        (((3, 4), (5, 4), (5, 4)), (F, "float16", F), "cast"),
        (((3, 4), (5, 4), (5, 4)), ("int32", "int32", "int32"), "floating-point"),
        (((2, 1, 3, 4), (3, 1, 5, 4), (3, 1, 5, 4)), (F, F, F), "broadcast"),
        (((3, 4), (5, 4), (5, 4), (3, 4)), (F, F, F, "bool"), "does not broadcast to the scores' (3, 5)"),
        (((3, 4), (5, 4), (5, 4), (1, 3, 5)), (F, F, F, F), "does not broadcast"),
        (((3, 4), (5, 4), (5, 4), (3, 5)), (F, F, F, "float16"), "the mask has dtype float16"),
    ],
)
def test_errors(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...], words: str) -> None:
    graph = ts.Graph()
    inputs = [graph.placeholder(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)]
    with pytest.raises((ValueError, TypeError)) as error:
        ts.scaled_dot_product_attention(*inputs)
    assert str(error.value).startswith("[scaled_dot_product_attention]")
    assert words in str(error.value)


def test_heads_that_do_not_fit_at_run_time() -> None:
    graph = ts.Graph()
    query, key = graph.placeholder((-1, 3, 4)), graph.placeholder((-1, 5, 4))
    y = ts.scaled_dot_product_attention(query, key, key)
    for heads in (3, 4, 3, 6, 2, 1):  # what is compiled for one number is not used for another
        feeds = {query: np.ones((heads, 3, 4), "f"), key: np.ones((2, 5, 4), "f")}
        if heads % 2 == 0:
            np.testing.assert_allclose(graph.run(feeds, y), np.ones((heads, 3, 4)), rtol=1e-6)
            continue
        with pytest.raises(ValueError, match="multiple of the key's"):
            graph.run(feeds, y)
