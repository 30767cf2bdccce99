"""Random numbers: the generator, the distributions, states, and the graph's own randomness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (names bfloat16 for NumPy)
import numpy as np
import pytest
import scipy.stats as stats

import random_reference as reference
import topstitch as ts

STATE = (2**64 - 7, 41, 0x0123456789ABCDEF)  # the low counter overflows
COUNT = 1000


def draw(op: str, shape: Any = (COUNT,), state: tuple[int, int, int] = STATE, **attrs: Any) -> tuple[Any, Any]:
    graph = ts.Graph()
    given = graph.placeholder((3,), dtype="uint64")
    values, new_state = graph.run(
        {given: np.array(state, np.uint64)}, list(getattr(ts, op)(shape, state=given, **attrs))
    )
    return np.asarray(values), np.asarray(new_state)


# --- The generator.


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known answers that Random123 publishes
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ],
)  # fmt: skip
def test_known_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    state = (counter[0] | counter[1] << 32, counter[2] | counter[3] << 32, key[0] | key[1] << 32)
    values, _ = draw("random_bits", (64,), state)
    assert [int(values[16 * k]) for k in range(4)] == expected
    assert reference.philox(np.array([counter], np.uint64), (key[0], key[1]))[0].tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 15, 64, 65, 1000, 4099])
def test_bits(count: int) -> None:
    values, state = draw("random_bits", (count,))
    assert values.dtype == np.uint32
    np.testing.assert_array_equal(values, reference.words(STATE, count)[:, 0])
    np.testing.assert_array_equal(state, reference.after(STATE, count))


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_narrow_bits(dtype: str) -> None:
    values, _ = draw("random_bits", dtype=dtype)
    np.testing.assert_array_equal(values, reference.words(STATE, COUNT)[:, 0].astype(dtype))


def test_wide_bits() -> None:
    values, state = draw("random_bits", dtype="uint64")
    np.testing.assert_array_equal(values, reference.words64(STATE, COUNT))
    np.testing.assert_array_equal(state, reference.after(STATE, COUNT, 2))


def test_shapes_take_the_words_in_order() -> None:
    flat, _ = draw("random_bits", (3 * 5 * 67,))
    values, _ = draw("random_bits", (3, 5, 67))
    np.testing.assert_array_equal(values, flat.reshape(3, 5, 67))


@pytest.mark.parametrize("options", [{"stitch": False}, {"interpret": True}, {"threads": 1}, {"threads": 2}], ids=str)
def test_every_way_to_run_gives_the_same_numbers(options: dict[str, Any]) -> None:
    graph = ts.Graph()
    state = ts.random_state(7, graph=graph)
    targets = []
    for op, attrs in [("random_normal", {"method": "box_muller"}), ("random_normal", {}), ("random_uniform", {}),
                      ("random_integer", {"minimum": -5, "maximum": 5})]:  # fmt: skip
        values, state = getattr(ts, op)((31, 70), state=state, **attrs)
        targets.append(ts.transpose(values) * 2)
    # The interpreter has the logarithm, sine and cosine of the C library.
    tolerance = 1e-6 if "interpret" in options else 0
    for k, (result, wanted) in enumerate(zip(graph.run({}, targets, **options), graph.run({}, targets), strict=True)):
        np.testing.assert_allclose(np.asarray(result), np.asarray(wanted), rtol=tolerance if k < 2 else 0)


def test_a_state_leads_to_the_next_numbers() -> None:
    """Two draws from one stream are those of one draw of both."""
    graph = ts.Graph()
    state = ts.random_state(3, graph=graph)
    first, state = ts.random_bits((128,), state=state)
    second, _ = ts.random_bits((64,), state=state)
    both, _ = ts.random_bits((192,), state=ts.random_state(3, graph=graph))
    a, b, c = (np.asarray(x) for x in graph.run({}, [first, second, both]))
    np.testing.assert_array_equal(np.concatenate([a, b]), c)


def test_random_state_has_what_it_was_given() -> None:
    graph = ts.Graph()
    state = ts.random_state(-1, counter_low=2, counter_high=-3, graph=graph)
    assert np.asarray(graph.run({}, state)).tolist() == [2, 2**64 - 3, 2**64 - 1]


# --- Distributions.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform(dtype: str) -> None:
    values, _ = draw("random_uniform", dtype=dtype)
    np.testing.assert_array_equal(values, reference.unit(STATE, COUNT, dtype))
    values, _ = draw("random_uniform", dtype=dtype, minimum=-3.0, maximum=5.0)
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(values, reference.unit(STATE, COUNT, dtype) * 8 - 3, rtol=0, atol=8 * tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("minimum", "maximum"), [(0.0, 1.0), (1.0, 1.01), (-2.0, -1.0), (0.1, 0.3), (1000.0, 1008.0), (-6e4, 6e4)]
)
def test_uniform_stays_inside(dtype: str, minimum: float, maximum: float) -> None:
    values, _ = draw("random_uniform", (1 << 16,), dtype=dtype, minimum=minimum, maximum=maximum)
    values = values.astype(np.float64)
    assert values.min() >= minimum
    assert values.max() < maximum
    assert abs(values.mean() - (minimum + maximum) / 2) < 0.02 * (maximum - minimum) + 0.004 * abs(maximum)


def test_uniform_over_almost_all_floats() -> None:
    values, _ = draw("random_uniform", minimum=-3e38, maximum=3e38)
    np.testing.assert_allclose(values, (reference.unit(STATE, COUNT) * 2 - 1) * 3e38, atol=1e32)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 4e-7), ("float64", 4e-15)])
def test_normal(dtype: str, tolerance: float) -> None:
    values, _ = draw("random_normal", (1 << 14,), dtype=dtype)
    np.testing.assert_allclose(values, reference.standard_normal(STATE, 1 << 14, dtype), rtol=tolerance)
    values, _ = draw("random_normal", (1 << 14,), dtype=dtype, mean=-2.0, standard_deviation=0.5)
    expected = reference.standard_normal(STATE, 1 << 14, dtype) * 0.5 - 2
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)


def test_box_muller() -> None:
    values, _ = draw("random_normal", method="box_muller")
    np.testing.assert_allclose(values, reference.box_muller(STATE, COUNT), rtol=4e-6, atol=2e-6)


DISTRIBUTIONS = [
    ("random_uniform", {"minimum": -1.0, "maximum": 3.0}, stats.uniform(-1, 4)),
    ("random_normal", {"mean": 1.0, "standard_deviation": 2.0}, stats.norm(1, 2)),
    ("random_normal", {"mean": 1.0, "standard_deviation": 2.0, "method": "box_muller"}, stats.norm(1, 2)),
    ("random_truncated_normal", {}, stats.truncnorm(-2, 2)),
    ("random_truncated_normal", {"minimum": 0.5, "maximum": 9.0, "mean": 1.0, "standard_deviation": 2.0},
     stats.truncnorm(-0.25, 4.0, 1, 2)),
    ("random_truncated_normal", {"minimum": 10.0, "maximum": 11.0}, stats.truncnorm(10, 11)),
    ("random_truncated_normal", {"minimum": -31.0, "maximum": -30.0}, stats.truncnorm(-31, -30)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "distribution"), DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distribution(op: str, attrs: dict[str, Any], distribution: Any, dtype: str) -> None:
    """Kolmogorov and Smirnov's test, and that neighbours and elements that share a block are independent."""
    values, _ = draw(op, (1 << 16,), dtype=dtype, **attrs)
    values = values.astype(np.float64)
    assert stats.kstest(values, distribution.cdf).pvalue > 1e-3
    ranks = distribution.cdf(values)
    for distance in (1, 16, 32, 48):
        assert abs(np.corrcoef(ranks[:-distance], ranks[distance:])[0, 1]) < 4 / np.sqrt(len(values))
    if "minimum" in attrs:
        assert values.min() >= attrs["minimum"]
        assert values.max() < attrs["maximum"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["random_normal", "random_truncated_normal"])
def test_16_bits_are_float32_rounded(op: str, dtype: str) -> None:
    half, _ = draw(op, dtype=dtype)
    single, _ = draw(op)
    expected = single.astype(np.dtype(dtype)).astype(np.float32)
    if op == "random_truncated_normal":  # the maximum itself does not occur
        assert half.astype(np.float32).max() < 2
        expected = np.minimum(expected, half.astype(np.float32).max())
    np.testing.assert_array_equal(half.astype(np.float32), expected)


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.25, 0.5, 0.999, 1.0])
def test_bernoulli(p: float) -> None:
    values, _ = draw("random_bernoulli", p=p)
    assert values.dtype == np.bool_
    np.testing.assert_array_equal(values, reference.words(STATE, COUNT)[:, 0] < round(p * 2**32))
    numbers, _ = draw("random_bernoulli", p=p, dtype="float16")
    np.testing.assert_array_equal(numbers, values.astype(np.float16))


@pytest.mark.parametrize(
    ("dtype", "minimum", "maximum"),
    [("int32", 0, 9), ("int32", -(2**31), 2**31 - 1), ("int8", -128, 127), ("uint8", 7, 7), ("int64", -5, 2**32 - 6),
     ("int64", -5, 2**32 - 5), ("int64", -(2**63), 2**63 - 1), ("int64", -(3 * 2**61), 3 * 2**61),
     ("uint64", 1, 2**62)],
)  # fmt: skip
def test_integers(dtype: str, minimum: int, maximum: int) -> None:
    values, state = draw("random_integer", dtype=dtype, minimum=minimum, maximum=maximum)
    assert [int(v) for v in values] == reference.integers(STATE, COUNT, minimum, maximum)
    each = 4 if 2**32 < maximum - minimum + 1 < 2**64 else 2
    np.testing.assert_array_equal(state, reference.after(STATE, COUNT, each))


def test_integers_include_both_ends() -> None:
    values, _ = draw("random_integer", minimum=-1, maximum=1)
    assert np.unique(values).tolist() == [-1, 0, 1]


# --- Shapes that are known late.


def test_named_dims() -> None:
    graph = ts.Graph()
    x = graph.placeholder(("batch", 3))
    values, state = ts.random_uniform(("batch", 5), state=ts.random_state(1, graph=graph))
    for batch in (0, 1, 30, 77):
        result, after = graph.run({x: np.zeros((batch, 3), np.float32)}, [values, state])
        np.testing.assert_array_equal(np.asarray(result).ravel(), reference.unit((0, 0, 1), batch * 5))
        np.testing.assert_array_equal(np.asarray(after), reference.after((0, 0, 1), batch * 5))


def test_like_takes_open_dims() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), dtype="int8")
    values, _ = ts.random_uniform_like(x, ts.random_state(1, graph=graph))
    for shape in [(0, 4), (1, 1), (3, 50), (11, 13)]:
        result = np.asarray(graph.run({x: np.zeros(shape, np.int8)}, values))
        np.testing.assert_array_equal(result, reference.unit((0, 0, 1), int(np.prod(shape))).reshape(shape))


# --- Errors.


@pytest.mark.parametrize(
    ("op", "attrs", "error", "message"),
    [
        ("random_uniform", {"minimum": 1.0, "maximum": 1.0}, ValueError, "the minimum must be less"),
        ("random_uniform", {"minimum": float("nan")}, ValueError, "minimum is nan"),
        ("random_uniform", {"maximum": 1e6, "dtype": "float16"}, ValueError, "a finite number of float16"),
        ("random_uniform", {"minimum": 1.001, "maximum": 1.002, "dtype": "bfloat16"}, ValueError, "no bfloat16 lies"),
        ("random_uniform", {"dtype": "int32"}, TypeError, "must be floating-point"),
        ("random_normal", {"standard_deviation": -1.0}, ValueError, "must not be negative"),
        ("random_truncated_normal", {"minimum": 50.0, "maximum": 51.0}, ValueError, "too far from the mean"),
        ("random_truncated_normal", {"standard_deviation": 0.0}, ValueError, "must be positive"),
        ("random_bernoulli", {"p": 1.5}, ValueError, "p is 1.5"),
        ("random_integer", {"minimum": 2, "maximum": 1}, ValueError, "must not be greater"),
        ("random_integer", {"minimum": 0, "maximum": 300, "dtype": "uint8"}, ValueError, "uint8 does not hold"),
        ("random_integer", {"minimum": -1, "maximum": 3, "dtype": "uint64"}, ValueError, "uint64 does not hold"),
        ("random_bits", {"dtype": "int32"}, TypeError, "bits are unsigned"),
    ],
)  # fmt: skip
def test_bad_attributes(op: str, attrs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        getattr(ts, op)((4,), graph=ts.Graph(), **attrs)


def test_bad_states_and_shapes() -> None:
    graph = ts.Graph()
    with pytest.raises(TypeError, match="make one with random_state"):
        ts.random_uniform((4,), state=graph.constant(np.zeros(3, np.float32)))
    with pytest.raises(TypeError, match="make one with random_state"):
        ts.random_uniform((4,), state=graph.constant(np.zeros(2, np.uint64)))
    with pytest.raises(ValueError, match="random_uniform_like"):
        ts.random_uniform((4, -1), graph=graph)


# --- The graph's own randomness.


def noise(seed: int = 0, shape: tuple[int, ...] = (100,)) -> tuple[ts.Graph, ts.Tensor]:
    graph = ts.Graph(seed=seed)
    return graph, ts.random_bits(shape, graph=graph)[0]


def runs(graph: ts.Graph, target: ts.Tensor, count: int) -> list[list[int]]:
    return [np.asarray(graph.run({}, target)).tolist() for _ in range(count)]


def test_each_run_has_numbers_of_its_own() -> None:
    graph, bits = noise(5)
    for run, values in enumerate(runs(graph, bits, 4)):
        assert values == reference.words((0, run, 5), 100)[:, 0].tolist()


def test_each_operation_has_a_stream_of_its_own() -> None:
    graph, first = noise(5)
    second, _ = ts.random_bits((100,), graph=graph)
    for run in range(2):
        a, b = graph.run({}, [first, second])
        assert np.asarray(a).tolist() == reference.words((0, run, 5), 100)[:, 0].tolist()
        assert np.asarray(b).tolist() == reference.words((0, (1 << 40) + run, 5), 100)[:, 0].tolist()


def test_equal_programs_give_equal_numbers() -> None:
    assert runs(*noise(5), 3) == runs(*noise(5), 3)
    assert runs(*noise(5), 3) != runs(*noise(6), 3)


def test_seeds_can_be_set_between_runs() -> None:
    graph, bits = noise(1)
    first = runs(graph, bits, 2)
    graph.set_seed(2)
    assert runs(graph, bits, 2) == runs(*noise(2), 2)
    graph.set_seed(1)
    assert runs(graph, bits, 2) == first
    graph.set_seed(-1)
    assert runs(graph, bits, 1)[0] == reference.words((0, 0, 2**64 - 1), 100)[:, 0].tolist()
    with pytest.raises(TypeError, match="must be an integer"):
        graph.set_seed(1.5)  # type: ignore[arg-type]


def test_the_state_is_a_variable() -> None:
    graph, bits = noise(9)
    (variable,) = graph.variables
    assert variable.name == "random_state"
    runs(graph, bits, 3)
    assert np.asarray(graph.variable_value(variable)).tolist() == [3, 9]
    graph.set_variable_value(variable, np.array([1, 9], np.uint64))
    assert runs(graph, bits, 2) == runs(*noise(9), 3)[1:]


def test_only_runs_that_draw_count() -> None:
    graph, bits = noise(9)
    other = graph.constant(2.0) * 3.0
    runs(graph, bits, 1)
    graph.run({}, other)
    assert np.asarray(graph.variable_value(graph.variables[0])).tolist() == [1, 9]


def test_executables_of_one_graph_share_it() -> None:
    graph, bits = noise(4)
    a = graph.compile({}, [bits])
    b = graph.compile({}, [bits], stitch=False)
    results = [np.asarray(exe.run([])[0]).tolist() for exe in (a, b, a, b)]
    assert results == runs(*noise(4), 4)


def test_a_failed_run_counts_nothing() -> None:
    graph = ts.Graph(seed=3)
    x = graph.placeholder((-1,))
    y = graph.placeholder((-1,))
    values, _ = ts.random_uniform_like(x)
    target = values + y
    ones = np.ones(4, np.float32)
    with pytest.raises(ts.UserError):
        graph.run({x: ones, y: np.ones(3, np.float32)}, target)
    first = np.asarray(graph.run({x: ones, y: ones}, target))
    np.testing.assert_array_equal(first, (reference.unit((0, 0, 3), 4) + 1).astype(np.float32))


def test_graphs_are_saved_with_their_randomness(tmp_path: Path) -> None:
    graph, bits = noise(8)
    expected = runs(*noise(8), 5)
    assert runs(graph, bits, 2) == expected[:2]
    graph.save(tmp_path / "graph.safetensors")
    loaded = ts.Graph.load(tmp_path / "graph.safetensors")
    again = loaded.operations[graph.operations.index(bits.operation)].outputs[0]
    assert runs(loaded, again, 3) == expected[2:]
    more, _ = ts.random_bits((100,), graph=loaded)  # goes on with the streams
    assert len(loaded.variables) == 1
    assert np.asarray(loaded.run({}, more)).tolist() == reference.words((0, (1 << 40) + 5, 8), 100)[:, 0].tolist()


def test_executables_and_variables_are_saved_with_it(tmp_path: Path) -> None:
    graph, bits = noise(8)
    expected = runs(*noise(8), 4)
    runs(graph, bits, 2)
    graph.save_variables(tmp_path / "variables.safetensors")
    graph.compile({}, [bits]).save(tmp_path / "executable.safetensors")
    loaded = ts.Executable.load(tmp_path / "executable.safetensors")
    assert [np.asarray(loaded.run([])[0]).tolist() for _ in range(2)] == expected[2:]
    fresh, same_bits = noise(0)
    fresh.load_variables(tmp_path / "variables.safetensors")
    assert runs(fresh, same_bits, 2) == expected[2:]


def test_text_has_the_streams() -> None:
    graph, _ = noise(8)
    parsed = ts.Graph.parse(graph.text())
    assert parsed.text() == graph.text()
    assert parsed.structural_hash() == graph.structural_hash()
    ts.random_bits((3,), graph=parsed)
    ts.random_bits((3,), graph=graph)
    assert parsed.text() == graph.text()


def test_variables_can_count_runs() -> None:
    graph = ts.Graph()
    (count,) = graph.apply("variable", [], {"value": np.float32(1), "step": np.float32(0.5)}, "count")
    doubled = count * 2.0
    assert [float(graph.run({}, doubled)) for _ in range(3)] == [2, 3, 4]
    step = graph.assign(count, graph.constant(10.0))
    assert float(graph.run({}, doubled, step)) == 5  # assigned in this run: nothing is added
    assert float(graph.variable_value(count)) == 10
    with pytest.raises(ts.UserError, match="they must be of one type"):
        graph.apply("variable", [], {"value": np.float32(1), "step": np.int32(1)}, "wrong")
