"""Graphs on a Metal device: the system's on macOS, on Linux that of a build with the simulation; else all is skipped.

Values come from NumPy in float64, or from the CPU in float64, whose gradients are held to finite differences.
"""

from __future__ import annotations

import mmap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topstitch as ts
from execution_helpers import run_child
from op_cases import CASES, Case, make_input
from oracle import assert_matches
from test_ops_forward import build, reference, seed_of

METAL = next((device for device in ts.devices() if device.type == "metal"), None)
pytestmark = pytest.mark.skipif(METAL is None, reason="there is no Metal device here")


def run(graph: ts.Graph, feeds: dict[ts.Tensor, Any], targets: Any, **options: Any) -> Any:
    return graph.run(feeds, targets, device=METAL, **options)


ROWS = [pytest.param(op, cases[0], id=op) for op, cases in CASES.items()]


@pytest.mark.parametrize(("op", "case"), ROWS)
def test_operation(op: str, case: Case) -> None:
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    rng = np.random.default_rng(seed_of(op, dtype))
    arrays = [make_input(case, k, dtype, shape, rng) for k, shape in enumerate(case.shapes)]
    scale = max(
        (float(np.abs(a.astype(np.complex128)).max()) for a in arrays if a.size and a.dtype.kind in "fc"), default=0.0
    )
    graph = ts.Graph()
    placeholders, outputs = build(op, graph, [a.shape for a in arrays], arrays, case)
    results = run(graph, dict(zip(placeholders, arrays, strict=True)), outputs)
    for k, (result, wanted) in enumerate(zip(results, reference(case, arrays, dtype), strict=True)):
        assert_matches(result, wanted, case.tolerance, f"{op} output {k}", scale)


GRADIENTS = [
    pytest.param(op, cases[0], id=op)
    for op, cases in CASES.items()
    if cases[0].grad and {"float32", "float64"} <= set(cases[0].dtypes)
]


@pytest.mark.parametrize(("op", "case"), GRADIENTS)
def test_gradient(op: str, case: Case) -> None:
    """In float32 on Metal, beside float64 on the CPU."""
    rng = np.random.default_rng(seed_of(op, "gradient"))
    arrays = [make_input(case, k, "float32", shape, rng) for k, shape in enumerate(case.shapes)]
    weights = rng.uniform(0.5, 1.5, 1 << 12)

    def gradients(dtype: str, device: Any) -> list[np.ndarray]:
        fed = [a.astype(dtype) if a.dtype == np.float32 else a for a in arrays]
        graph = ts.Graph()
        placeholders, outputs = build(op, graph, [a.shape for a in fed], fed, case)
        objective = None
        for output in outputs:
            count = int(np.prod(tuple(output.shape), dtype=np.int64))
            factor = weights[:count].reshape(tuple(output.shape)).astype(output.dtype.name)
            term = ts.sum(output * factor)
            objective = term if objective is None else objective + term
        floating = [k for k, a in enumerate(fed) if a.dtype.name == dtype]
        wanted = [placeholders[k] for k in (case.grad_inputs or floating) if k in floating]
        found = ts.gradients(objective, wanted)
        feeds = dict(zip(placeholders, fed, strict=True))
        return [np.asarray(g) for g in graph.run(feeds, [found[t] for t in wanted], device=device)]

    for got, exact in zip(gradients("float32", METAL), gradients("float64", ts.Device("cpu")), strict=True):
        # A gradient amplifies the rounding of what it is taken at: roots, logarithms and quotients near 0 do.
        scale = float(np.abs(exact).max()) if exact.size else 0.0
        assert_matches(got, exact, 64 * case.tolerance, op, scale)


def test_devices() -> None:
    assert METAL is not None
    assert ts.devices()[0] == ts.Device()
    assert ts.Device("metal") == METAL
    assert METAL.unified_memory
    assert METAL.memory_bytes > 0
    assert METAL.name in repr(METAL)


def linear_gelu() -> tuple[ts.Graph, ts.Tensor, ts.Tensor]:
    graph = ts.Graph()
    x = graph.placeholder((-1, 24), name="x")
    weights = np.random.default_rng(0).standard_normal((24, 17)).astype(np.float32)
    return graph, x, ts.gelu(x @ weights + 0.5)


def test_source_is_readable_and_one_kernel_holds_the_whole() -> None:
    graph, x, y = linear_gelu()
    executable = graph.compile([x], y, device=METAL)
    executable.run(np.ones((3, 24), np.float32))
    source = executable.source("msl")
    assert source.count("kernel void ") == 1
    assert "#include <metal_stdlib>" in source
    assert "x: float32[" in source  # the graph's names, in comments
    assert "erf" in source
    with pytest.raises(ts.UserError, match='Metal has "loopir" and "msl", not "asm"'):
        executable.source("asm")
    cpu = graph.compile([x], y, device="cpu")
    cpu.run(np.ones((3, 24), np.float32))
    with pytest.raises(ts.UserError, match='the CPU has "loopir", "llvm" and "asm", not "msl"'):
        cpu.source("msl")


def test_rows_are_walked_and_sorted() -> None:
    """Sums in blocks, softmax in the same kernel, sorting by digits, and the first few of a row."""
    array = np.random.default_rng(0).standard_normal((3, 1500)).astype(np.float32)
    graph = ts.Graph()
    x = graph.placeholder(array.shape)
    running = ts.cumulative_sum(ts.softmax(x), reverse=True)
    down = ts.cumulative_maximum(x, axis=0, exclusive=True)
    results = run(graph, {x: array}, [running, down, ts.sort(x), ts.argsort(x), *ts.top_k(x, 5)])
    wide = np.exp(array.astype(np.float64))
    exact = np.flip(np.cumsum(np.flip(wide / wide.sum(-1, keepdims=True), -1), -1), -1)
    np.testing.assert_allclose(results[0], exact, rtol=1e-5)
    np.testing.assert_array_equal(results[1], np.vstack([np.full(1500, -np.inf), array[0], np.maximum(*array[:2])]))
    order = np.argsort(array, -1, kind="stable")
    np.testing.assert_array_equal(results[2], np.sort(array, -1))
    np.testing.assert_array_equal(results[3], order)
    np.testing.assert_array_equal(results[4], np.flip(np.sort(array, -1), -1)[:, :5])
    np.testing.assert_array_equal(results[5], np.flip(order, -1)[:, :5])


def test_float64_runs_on_the_cpu_and_the_report_says_so() -> None:
    graph = ts.Graph()
    x = graph.placeholder((5,), dtype="float64")
    single = ts.cast(ts.exp(x), "float32")
    executable = graph.compile([x], [ts.exp(x), ts.tanh(ts.reverse(single, axis=0))], device=METAL)
    values = np.linspace(-1, 1, 5)
    double, tanh = executable.run(values)
    np.testing.assert_allclose(np.asarray(double), np.exp(values), rtol=1e-15)
    np.testing.assert_allclose(np.asarray(tanh), np.tanh(np.exp(values[::-1])), rtol=1e-6)
    report = executable.report()
    assert "runs on the CPU, in the same memory: kernel" in str(report)
    remarks = [region["remark"] for region in report.regions]
    assert any("float64" in remark for remark in remarks)
    assert "// runs on the CPU" in executable.source("msl")


def test_feeds_and_results_of_any_layout() -> None:
    rng = np.random.default_rng(1)
    base = rng.standard_normal((40, 60)).astype(np.float32)
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    y = x * 2.0 + 1.0
    read_only = base[:20].copy()
    read_only.flags.writeable = False
    for view in (base, base.T, base[::-1, ::-2], base[3:30:4, 5:50:3], np.broadcast_to(base[0], (7, 60)), read_only,
                 base[:0]):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(run(graph, {x: view}, y)), view * np.float32(2) + 1)
    target = np.full((40, 120), 7, np.float32)  # every other column is somebody else's
    executable = graph.compile([x], y, device=METAL)
    executable.run(base, out=target[:, ::2])
    np.testing.assert_array_equal(target[:, ::2], base * np.float32(2) + 1)
    assert (target[:, 1::2] == 7).all()


def test_whole_pages_of_a_file_are_used_in_place(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    values = np.arange(2 * 16384 // 4, dtype=np.float32)
    path.write_bytes(values.tobytes())
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        array = np.frombuffer(memory, np.float32)
        graph = ts.Graph()
        x = graph.placeholder(array.shape)
        result = run(graph, {x: array}, x + 1.0)
        np.testing.assert_array_equal(np.asarray(result), values + 1)
        del array, result


def test_variables_are_updated_where_they_are() -> None:
    graph = ts.Graph()
    start = np.linspace(0, 1, 6, dtype=np.float32)
    v = graph.variable(start, name="v")
    w = graph.variable(np.zeros((100, 100), np.float32), name="w")
    x = graph.placeholder((6,))
    steps = [v.assign(v + x), w.assign(w + 1.0)]
    executable = graph.compile([x], v * 10.0, operations=steps, device=METAL)
    for k in range(3):
        np.testing.assert_allclose(
            np.asarray(executable.run(np.full(6, 0.5, np.float32))), (start + 0.5 * k) * 10, rtol=1e-6
        )
    on_cpu = graph.run({}, [v * 1.0, w * 1.0], device="cpu")
    np.testing.assert_allclose(np.asarray(on_cpu[0]), start + 1.5, rtol=1e-6)
    assert (np.asarray(on_cpu[1]) == 3).all()


def test_loops_and_branches() -> None:
    graph = ts.Graph()
    x = graph.placeholder((4,))
    limit = graph.placeholder(())
    doubled, count = ts.while_loop(
        lambda carried: ts.sum(carried[0]) < limit,
        lambda carried: (carried[0] * 2.0, carried[1] + 1),
        (x, graph.constant(0, dtype=ts.int32)),
    )
    chosen = ts.if_else(limit > 50.0, lambda: doubled + 1.0, lambda: doubled - 1.0)
    values = np.array([1, 2, 3, 4], np.float32)
    for bound in (100.0, 15.0, 5.0):
        got, turns = run(graph, {x: values, limit: np.float32(bound)}, [chosen, count])
        expected, number = values.copy(), 0
        while expected.sum() < bound:
            expected, number = expected * 2, number + 1
        np.testing.assert_array_equal(np.asarray(got), expected + (1 if bound > 50 else -1))
        assert int(turns) == number


def test_long_loops_fill_many_command_buffers() -> None:
    graph = ts.Graph()
    x = graph.placeholder((3,))
    total, history = ts.scan(lambda carry, step: (carry * 0.5 + step, carry), x, np.arange(300, dtype=np.float32))
    got, seen = run(graph, {x: np.ones(3, np.float32)}, [total, history])
    carry, expected = np.ones(3), []
    for k in range(300):
        expected.append(carry)
        carry = carry * 0.5 + k
    np.testing.assert_allclose(np.asarray(seen), expected, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(got), carry, rtol=1e-6)


def test_threads_share_an_executable() -> None:
    graph, x, y = linear_gelu()
    executable = graph.compile([x], y, device=METAL)
    inputs = [np.random.default_rng(k).standard_normal((5, 24)).astype(np.float32) for k in range(4)]
    wanted = [np.asarray(graph.run({x: array}, y, device="cpu")) for array in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(5):
            if not np.allclose(np.asarray(executable.run(inputs[k])), wanted[k], rtol=1e-5, atol=1e-6):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_queues_and_saved_executables(tmp_path: Path) -> None:
    graph, x, y = linear_gelu()
    executable = graph.compile([x], y, device=METAL)
    array = np.random.default_rng(3).standard_normal((4, 24)).astype(np.float32)
    expected = np.asarray(graph.run({x: array}, y, device="cpu"))
    queue = ts.Queue(METAL)
    jobs = [executable.run_async(array, queue=queue) for _ in range(3)]
    for job in jobs:
        np.testing.assert_allclose(np.asarray(job.result()), expected, rtol=1e-5, atol=1e-6)
    path = tmp_path / "model"
    executable.save(path)
    again = ts.Executable.load(path, device=METAL)
    np.testing.assert_allclose(np.asarray(again.run(array)), expected, rtol=1e-5, atol=1e-6)


def test_a_program_without_loops_is_one_thread() -> None:
    """Any thread more would count again."""
    graph = ts.Graph()
    v = graph.variable(np.float32(1), name="v")
    executable = graph.compile([], v * 1.0, operations=[v.assign(v * 2.0 + 1.0)], device=METAL)
    values = [float(executable.run()) for _ in range(4)]
    assert values == [1, 3, 7, 15]


def test_pipelines_lie_on_disk(tmp_path: Path) -> None:
    code = """
graph = ts.Graph()
x = graph.placeholder((-1,))
for k in range(3):
    y = graph.run({x: np.arange(4, dtype=np.float32)}, x * (k + 2.5), device="metal")
    assert y.tolist() == [j * (k + 2.5) for j in range(4)]
kernels = ts.cache_statistics()["kernels"]
print(kernels["compiled"], kernels["disk_hits"])
"""
    prelude = "import numpy as np, topstitch as ts\n"
    assert run_child(code, prelude=prelude, TOPSTITCH_CACHE_DIR=str(tmp_path / "cache")).split() == ["3", "0"]
    assert run_child(code, prelude=prelude, TOPSTITCH_CACHE_DIR=str(tmp_path / "cache")).split() == ["0", "3"]
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    assert run_child(code, prelude=prelude, TOPSTITCH_CACHE_DIR=str(tmp_path / "cache")).split() == ["3", "0"]


def test_buffers_of_results() -> None:
    graph, x, y = linear_gelu()
    result = run(graph, {x: np.ones((3, 24), np.float32)}, y)
    address, offset = ts.metal.buffer(result)
    assert address != 0
    assert offset == 0
    assert ts.metal.buffer(result[1:], device=METAL) == (address, 17 * 4)
    # It does not keep the result's memory alive, so that an array over it could outlive that.
    with pytest.raises(ts.UserError, match="use the array that it came from"):
        ts.metal.array(address, (3, 17))
    with pytest.raises(ts.DTypeError, match="must be an object of PyObjC or the address of one, not str"):
        ts.metal.array("buffer", (3,))
    with pytest.raises(ts.DTypeError, match="mtl_shared_event must be an object of PyObjC"):
        ts.metal.event("event")
    with pytest.raises(ts.UserError, match="the shared event is null"):
        ts.metal.event(0)
    with pytest.raises(ts.UserError, match="does not lie in a buffer of this device"):
        ts.metal.buffer(ts.NDArray([1.0, 2.0]))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_in_tiles(dtype: str) -> None:
    """Of matrices in the memory of a group, with what is stitched to the query, and no scores outside of it."""
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal((2, 70, 40)).astype(dtype) for _ in range(3)]
    graph = ts.Graph()
    feeds = [graph.placeholder(array.shape, dtype=dtype) for array in arrays]
    y = ts.scaled_dot_product_attention(feeds[0] * 2.0, feeds[1], feeds[2], causal=True)
    executable = graph.compile(feeds, y, device=METAL)
    result = np.asarray(executable.run(*arrays))
    q, k, v = (array.astype(np.float64) for array in arrays)
    scores = np.where(np.tri(70, dtype=bool), (2 * q @ k.swapaxes(1, 2)) / np.sqrt(40), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5 if dtype == "float32" else 4e-3)
    source = executable.source("msl")
    assert "simdgroup_multiply_accumulate" in source
    assert "simd_shuffle_xor" in source
    assert any("a group of threads for each tile of" in region["schedule"] for region in executable.report().regions)


@pytest.mark.parametrize(
    ("mode", "dtype", "shape", "updates", "words"),
    [
        ("add", "float32", (3000, 40), 1500, "each part those that go there, found among 512 at once"),
        ("add", "float32", (7,), 1100, "found among 512 at once"),
        ("add", "int32", (50,), 1000, "each element joins the updates that name it, in a group"),
        ("set", "float32", (300, 40), 100, "each element joins the updates that name it"),
        ("max", "float16", (20,), 300, "each element joins the updates that name it, in a group"),
    ],
)
def test_scatter_of_all_sizes(mode: str, dtype: str, shape: tuple[int, ...], updates: int, words: str) -> None:
    """Duplicates, negative indices and such that are out of range; to the bit what one after the other gives."""
    rng = np.random.default_rng(6)
    data = (rng.standard_normal(shape) * 8).astype(dtype)
    values = (rng.standard_normal((updates, *shape[1:])) * 8).astype(dtype)
    indices = rng.integers(-shape[0] - 3, shape[0] + 3, updates).astype(np.int32)
    expected = data.copy()
    for index, value in zip(indices, values, strict=True):
        if not -shape[0] <= index < shape[0]:
            continue
        before = expected[index]
        expected[index] = value if mode == "set" else before + value if mode == "add" else np.maximum(before, value)
    graph = ts.Graph()
    feeds = [graph.placeholder(array.shape, dtype=array.dtype.name) for array in (data, indices, values)]
    executable = graph.compile(feeds, ts.scatter(*feeds, mode=mode), device=METAL)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(executable.run(data, indices, values)), expected)
    assert words in executable.report().regions[0]["schedule"]


def test_jobs_without_a_queue() -> None:
    graph, x, y = linear_gelu()
    array = np.ones((3, 24), np.float32)
    expected = np.asarray(graph.run({x: array}, y, device="cpu"))
    job = graph.run_async({x: array}, y, device=METAL)
    np.testing.assert_allclose(np.asarray(job.result()), expected, rtol=1e-5, atol=1e-6)
