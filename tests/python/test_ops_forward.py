"""Every operation against NumPy/SciPy, for every dtype and layout; generated from op_cases.py and the registry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topstitch as ts
from op_cases import CASES, Case, make_input
from oracle import assert_matches, widen

ROWS = [
    pytest.param(op, case, dtype, id=f"{op}-{k}-{dtype}")
    for op, cases in CASES.items()
    for k, case in enumerate(cases)
    for dtype in case.dtypes
]


def reference(case: Case, arrays: list[np.ndarray], dtype: str) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        expected = case.reference(*[widen(array) for array in arrays])
    return expected if isinstance(expected, tuple) else (expected,)


def build(
    op: str, graph: ts.Graph, shapes: list[Any], arrays: list[np.ndarray], case: Case
) -> tuple[list[Any], list[Any]]:
    """The placeholders of an operation's inputs, and its outputs."""
    placeholders = [
        graph.placeholder(shape, dtype=array.dtype.name) for shape, array in zip(shapes, arrays, strict=True)
    ]
    function = getattr(ts, op)
    variadic = op in ("concat", "stack", "interleave", "clip_by_global_norm")
    first_by_name = len(placeholders) - len(case.by_name)
    inputs = [placeholders] if variadic else placeholders[:first_by_name]
    options = dict(zip(case.by_name, placeholders[first_by_name:], strict=True)) | case.attrs
    if not placeholders:
        options["graph"] = graph
    outputs = function(*inputs, **options)
    return placeholders, outputs if isinstance(outputs, list) else [outputs]


def seed_of(op: str, dtype: str) -> int:
    return sum(map(ord, op + dtype))


@pytest.mark.parametrize(("op", "case", "dtype"), ROWS)
def test_matches_reference(op: str, case: Case, dtype: str) -> None:
    rng = np.random.default_rng(seed_of(op, dtype))
    arrays = [make_input(case, k, dtype, shape, rng) for k, shape in enumerate(case.shapes)]
    expected = reference(case, arrays, dtype)
    scale = max((float(np.abs(widen(a)).max()) for a in arrays if a.size and a.dtype.kind in "fcV"), default=0.0)
    for stitch in (True, False):
        graph = ts.Graph()
        placeholders, outputs = build(op, graph, [a.shape for a in arrays], arrays, case)
        results = graph.run(dict(zip(placeholders, arrays, strict=True)), outputs, stitch=stitch)
        assert len(results) == len(expected)
        for k, (result, wanted) in enumerate(zip(results, expected, strict=True)):
            assert_matches(result, wanted, case.tolerance, f"{op} output {k}, stitch={stitch}", scale)
            assert tuple(outputs[k].shape) == np.shape(wanted)


@pytest.mark.parametrize(("op", "case"), [pytest.param(op, cases[0], id=op) for op, cases in CASES.items()])
def test_layouts_and_dynamic_dims(op: str, case: Case) -> None:
    """Feeds of any strides, with every dim known only at run time."""
    rng = np.random.default_rng(seed_of(op, "layout"))
    dtype = case.dtypes[0]
    arrays = [make_input(case, k, dtype, shape, rng) for k, shape in enumerate(case.shapes)]
    graph = ts.Graph()
    shapes = [(-1,) * array.ndim for array in arrays]
    try:
        placeholders, outputs = build(op, graph, shapes, arrays, case)
    except ts.UserError as error:  # some need to know a dim when they are built
        pytest.skip(str(error))
    layouts = {
        "contiguous": arrays,
        "transposed": [np.array(array, order="F") for array in arrays],
        "negative strides": [
            array[(slice(None, None, -1),) * array.ndim].copy()[(slice(None, None, -1),) * array.ndim]
            for array in arrays
        ],
        "every other": [np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array for array in arrays],
    }
    scale = float(np.abs(widen(arrays[0])).max()) if arrays else 1.0
    for name, laid_out in layouts.items():
        results = graph.run(dict(zip(placeholders, laid_out, strict=True)), outputs)
        for result, wanted in zip(results, reference(case, laid_out, dtype), strict=True):
            assert_matches(result, wanted, case.tolerance, f"{op}, {name}", scale)


ELEMENTWISE = [pytest.param(op, case, id=op) for op, cases in CASES.items() for case in cases[:1] if case.elementwise]


@pytest.mark.parametrize(("op", "case"), ELEMENTWISE)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2,) * 6 + (1,) * 10, (67,)], ids=str)
def test_shapes(op: str, case: Case, shape: tuple[int, ...]) -> None:
    """Rank 0, rank 16, empty, one element, and a length that leaves a tail of lanes."""
    rng = np.random.default_rng(seed_of(op, str(shape)))
    dtype = case.dtypes[0]
    arrays = [make_input(case, k, dtype, shape, rng) for k in range(len(case.shapes))]
    graph = ts.Graph()
    placeholders, outputs = build(op, graph, [shape] * len(arrays), arrays, case)
    (result,) = graph.run(dict(zip(placeholders, arrays, strict=True)), outputs)
    assert_matches(result, reference(case, arrays, dtype)[0], case.tolerance, f"{op} {shape}", 3.0)


def test_every_operation_has_a_row() -> None:
    registered = {op["name"] for op in ts._core.ops() if op["family"] != "builtin" and not op["internal"]}
    assert registered - set(CASES) == set(), "operations without a reference in op_cases.py"
    assert set(CASES) - registered == set(), "rows of operations that are not registered"


def test_every_operation_states_its_facts() -> None:
    for op in ts._core.ops():
        assert len(op["doc"]) > 10, f"{op['name']} has no doc"
        assert op["gradient"], f"{op['name']} makes no statement about its gradient"
        for entry in (*op["args"], *op["attributes"]):
            assert entry["doc"], f"{op['name']}: {entry['name']} has no doc"
