"""Results in arrays of any strides: kernels store there, without a copy, and change nothing between the elements.

References are NumPy's, computed in float64; what lies between the elements must keep its bytes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import topstitch as ts
from execution_helpers import PATIENCE, run_child

Array = npt.NDArray[Any]


class Place:
    """An array of random layout inside a larger one, of which it knows what lies between its elements."""

    def __init__(self, rng: np.random.Generator, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> None:
        order = rng.permutation(len(shape))
        steps = rng.choice([-3, -2, -1, 1, 1, 1, 2, 3], len(shape))
        gaps = rng.choice([0, 0, 1, 5], len(shape))
        room = [abs(int(step)) * size + int(gap) for step, size, gap in zip(steps, shape, gaps, strict=True)]
        extents = [room[axis] for axis in order]
        fill = rng.integers(0, 2, (int(np.prod(extents)), np.dtype(dtype).itemsize), np.uint8)  # also valid as bool
        self.whole: Array = fill.view(dtype).reshape(extents)
        self.view: Array = self.whole.transpose(np.argsort(order))
        for axis, (step, size) in enumerate(zip(steps, shape, strict=True)):
            first = (room[axis] - abs(step) * size) // 2
            part = slice(first, first + abs(step) * size, abs(step))
            self.view = self.view[(slice(None),) * axis + (part,)]
            self.view = np.flip(self.view, axis) if step < 0 else self.view
        assert self.view.shape == tuple(shape)
        self.before = self.whole.copy()

    def check(self, expected: Array, message: str, rtol: float = 2e-5, atol: float = 2e-5) -> None:
        np.testing.assert_allclose(self.view, expected, rtol=rtol, atol=atol, err_msg=message)
        kept = self.whole.copy()
        offset = self.view.ctypes.data - self.whole.ctypes.data
        for whole in (kept, self.before):
            np.ndarray(self.view.shape, whole.dtype, whole, offset if whole.size else 0, self.view.strides)[...] = 0
        assert kept.tobytes() == self.before.tobytes(), f"{message}: something between the elements was changed"


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# Some give several results, of which one is read for the next or has to be read back.
FUNCTIONS: dict[str, tuple[Callable[[ts.Tensor], list[ts.Tensor]], Callable[[Array], list[Array]]]] = {
    "elementwise": (lambda x: [ts.tanh(x) * 2 + x], lambda x: [np.tanh(x) * 2 + x]),
    "itself, twice": (lambda x: [x, x], lambda x: [x, x]),
    "views": (lambda x: [ts.transpose(x)[::-1, 1:]], lambda x: [x.T[::-1, 1:]]),
    "joined": (lambda x: [ts.concat([x, x * 2], axis=1)], lambda x: [np.concatenate([x, x * 2], axis=1)]),
    "sums": (
        lambda x: [ts.sum(x, axis=-1), ts.sum(x, axis=0, keepdims=True), ts.sum(x)],
        lambda x: [x.sum(axis=-1), x.sum(axis=0, keepdims=True), x.sum()],
    ),
    "softmax": (lambda x: [ts.softmax(x, axis=-1)], lambda x: [softmax(x)]),
    "in passes": (
        lambda x: [y := ts.exp(x), y / ts.sum(y, axis=-1, keepdims=True)],
        lambda x: [np.exp(x), np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)],
    ),
    "read again": (
        lambda x: [y := ts.tanh(x), y @ ts.transpose(y, [0, 2, 1])],
        lambda x: [np.tanh(x), np.tanh(x) @ np.tanh(x).transpose(0, 2, 1)],
    ),
    "product and more": (
        lambda x: [y := x @ ts.transpose(x, [0, 2, 1]), ts.relu(y) + 1, y],
        lambda x: [y := x @ x.transpose(0, 2, 1), np.maximum(y, 0) + 1, y],
    ),
    "positions": (lambda x: [ts.argmax(x, axis=-1)], lambda x: [x.argmax(axis=-1)]),
    "constant": (
        lambda x: [x.graph.constant(np.arange(6, dtype=np.float32).reshape(2, 3)), x + 1],
        lambda x: [np.arange(6.0).reshape(2, 3), x + 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("options", [{}, {"interpret": True}, {"stitch": False}], ids=["", "interpret", "apart"])
def test_values(function: str, options: dict[str, bool]) -> None:
    build, reference = FUNCTIONS[function]
    rng = np.random.default_rng(11)
    for dynamic in (True, False):
        shape = (3, 17, 21)
        graph = ts.Graph()
        x = graph.placeholder((-1, -1, -1) if dynamic else shape)
        executable = graph.compile([x], build(x), **options)
        for _ in range(8):
            if dynamic:
                shape = tuple(int(n) for n in rng.integers(1, 24, 3))
            given = rng.standard_normal(shape).astype(np.float32)
            expected = reference(given.astype(np.float64))
            dtypes = [np.dtype(type_.dtype.name) for type_ in executable.output_types([ts.ShapedType(shape)])]
            places = [Place(rng, np.shape(e), dtype) for e, dtype in zip(expected, dtypes, strict=True)]
            executable.run(given, out=[place.view for place in places])
            for number, (place, value) in enumerate(zip(places, expected, strict=True)):
                place.check(value, f"result {number} of {shape}")


@pytest.mark.parametrize("sizes", [(70, 65, 129), (5, 200, 64), (33, 33, 20000), (200, 3, 40), (1, 300, 300)])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_products(sizes: tuple[int, int, int], dynamic: bool, dtype: npt.DTypeLike) -> None:
    """In tiles, in blocks, split among threads, read in place; with what is stitched to the product."""
    rows, columns, depth = sizes
    rng = np.random.default_rng(rows)
    a, b = rng.integers(-2, 3, (rows, depth)).astype(dtype), rng.integers(-2, 3, (depth, columns)).astype(dtype)
    graph = ts.Graph()
    x = graph.placeholder((-1, -1) if dynamic else a.shape, dtype)
    w = graph.placeholder((-1, -1) if dynamic else b.shape, dtype)
    product = x @ w
    executable = graph.compile([x, w], [product, ts.transpose(product) * 2])
    expected = a.astype(np.int64) @ b.astype(np.int64)  # exact in all of them
    for _ in range(3):
        places = [Place(rng, (rows, columns), dtype), Place(rng, (columns, rows), dtype)]
        executable.run(a, b, out=[place.view for place in places])
        places[0].check(expected, "product", 0, 0)
        places[1].check(expected.T * 2, "transposed", 0, 0)


@pytest.mark.parametrize("shape", [(100, 130), (33, 64), (64, 257), (5, 70, 90)])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("interpret", [True, False])
def test_transposed_in_blocks(shape: tuple[int, ...], dynamic: bool, interpret: bool) -> None:
    rng = np.random.default_rng(6)
    graph = ts.Graph()
    x = graph.placeholder((-1,) * len(shape) if dynamic else shape)
    executable = graph.compile([x], [x * 2, x + 1], interpret=interpret)
    given = rng.integers(-9, 9, shape).astype(np.float32)
    for gap in (0, 3):
        whole = np.full((*shape[:-2], shape[-1] + gap, shape[-2] + gap), 99, np.float32)
        part = whole[..., : shape[-1], : shape[-2]].swapaxes(-1, -2)
        place = Place(rng, shape)
        executable.run(given, out=[part, place.view])
        assert "(32)" in executable.report().regions[0]["schedule"]
        np.testing.assert_array_equal(part, given * 2)
        assert (whole == 99).sum() == whole.size - given.size
        place.check(given + 1, "random", 0, 0)


def test_convolution_and_its_gradients() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.integers(-2, 3, (4, 12, 12, 8)).astype("f"), rng.integers(-2, 3, (3, 3, 8, 16)).astype("f")
    graph = ts.Graph()
    feed, kernel = graph.placeholder((-1, 12, 12, 8)), graph.placeholder(w.shape)
    y = ts.conv2d(feed, kernel, data_layout="NHWC", weights_layout="HWIO")
    slopes = ts.gradients(ts.sum(y * y), [feed, kernel])
    executable = graph.compile([feed, kernel], [y, slopes[feed], slopes[kernel]])
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2)).astype(np.float64)
    wide = w.astype(np.float64)
    expected = np.einsum("nyxcuv,uvco->nyxo", windows, wide)
    towards_w = 2 * np.einsum("nyxcuv,nyxo->uvco", windows, expected)
    towards_x = np.zeros(x.shape)
    for u in range(3):
        for v in range(3):
            towards_x[:, u : u + 10, v : v + 10] += 2 * expected @ wide[u, v].T
    for _ in range(4):
        places = [Place(rng, e.shape) for e in (expected, towards_x, towards_w)]
        executable.run(x, w, out=[place.view for place in places])
        for place, value in zip(places, (expected, towards_x, towards_w), strict=True):
            place.check(value, "convolution", 1e-6, 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_split_sums(threads: int) -> None:
    rng = np.random.default_rng(3)
    given = rng.integers(-8, 9, (70000, 3)).astype("f")
    graph = ts.Graph()
    x = graph.placeholder((-1, 3))
    executable = graph.compile([x], [ts.sum(x, axis=0), ts.argmax(x, axis=0), ts.sum(x) * 2], threads=threads)
    places = [Place(rng, (3,)), Place(rng, (3,), np.int32), Place(rng, ())]
    executable.run(given, out=[place.view for place in places])
    expected = given.sum(0, np.int64), given.argmax(0), given.sum(dtype=np.int64) * 2
    for place, value in zip(places, expected, strict=True):
        place.check(value, "split", 0, 0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex64", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    numpy = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng(1)
    graph = ts.Graph()
    x = graph.placeholder((-1, -1), dtype)
    executable = graph.compile([x], [ts.concat([x, x], axis=0), x if dtype == "bool" else x * x])
    for shape in ((1, 1), (6, 10), (37, 41), (64, 1)):
        given = rng.integers(0, 2 if dtype == "bool" else 5, shape).astype(numpy)
        given = given * (1 + 2j) if dtype == "complex64" else given
        given = given.astype(numpy)
        for _ in range(4):
            places = [Place(rng, (2 * shape[0], shape[1]), numpy), Place(rng, shape, numpy)]
            executable.run(given, out=[place.view for place in places])
            wide = given.astype(np.complex128 if dtype == "complex64" else np.float64)
            squares = wide if dtype == "bool" else wide * wide
            for place, value in zip(places, (np.concatenate([wide, wide]), squares), strict=True):
                place.check(value.astype(numpy), dtype, 0, 0)


def test_pairs_an_odd_number_of_halves_apart() -> None:
    records = np.full(5, -1, dtype=[("value", "<c8"), ("mark", "<f4")])
    graph = ts.Graph()
    x = graph.placeholder((-1,), np.complex64)
    given = (np.arange(5) * (1 + 1j)).astype(np.complex64)
    graph.compile([x], x * 2).run(given, out=records["value"])
    np.testing.assert_array_equal(records["value"], given * 2)
    assert (records["mark"] == -1).all()


def test_fields_of_records() -> None:
    records = np.full(5, -1, dtype=[("a", "<f4"), ("b", "<f4"), ("c", "<f4")])
    graph = ts.Graph()
    x = graph.placeholder((-1,))
    graph.compile([x], [x * 2, x * 3]).run(np.arange(5, dtype="f"), out=[records["a"], records["c"]])
    assert records.tolist() == [(2.0 * k, -1.0, 3.0 * k) for k in range(5)]


def test_sizes_of_none_and_of_rank_16() -> None:
    rng = np.random.default_rng(2)
    graph = ts.Graph()
    x = graph.placeholder(None)
    y = x * 2 + 1
    for shape in ((), (0, 3), (3, 0), (1,) * 16, (2,) * 16, (1, 2) * 8):
        given = rng.standard_normal(shape).astype(np.float32)
        view = np.zeros((2,) * 16, "f")[(slice(None, None, -1),) * 16].T[tuple(slice(n) for n in shape)]
        view = view if len(shape) == 16 else Place(rng, shape).view
        graph.run({x: given}, y, out=view)
        np.testing.assert_allclose(view, given.astype(np.float64) * 2 + 1, rtol=1e-6, atol=1e-6)


def test_a_variable_and_its_new_value() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 4))
    total = graph.variable(np.ones((3, 4), np.float32))
    after = total + x
    step = total.assign(after)
    executable = graph.compile([x], [after, total, after, x], [step])
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    rng = np.random.default_rng(4)
    value = np.ones((3, 4))
    for _ in range(5):
        places = [Place(rng, (3, 4)) for _ in range(4)]
        packed = np.zeros((3, 4), np.float32)
        executable.run(given, out=[places[0].view, places[1].view, packed, places[3].view])
        for place, expected in zip(places, (value + given, value, None, given), strict=True):
            if expected is not None:
                place.check(expected, "variable", 0, 0)
        value = value + given
        np.testing.assert_array_equal(packed, value)
        np.testing.assert_array_equal(np.asarray(graph.variable_value(total)), value)


def counts(executable: ts.Executable) -> tuple[int, int]:
    return executable.variants, ts.cache_statistics()["kernels"]["compiled"]


def test_unseen_strides_compile_nothing() -> None:
    graph = ts.Graph()
    x, w = graph.placeholder((-1, 40)), graph.placeholder((40, 50))
    executable = graph.compile([x, w], ts.tanh(x @ w))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((30, 40)).astype("f"), rng.standard_normal((40, 50)).astype("f")
    executable.run(a, b, out=np.zeros((30, 57), "f")[:, :50])
    known = counts(executable)
    for width in (51, 64, 99, 1000):
        whole = np.full((30, width), 7, "f")
        executable.run(a, b, out=whole[:, 1:51])
        np.testing.assert_allclose(whole[:, 1:51], np.tanh(a.astype("d") @ b), rtol=1e-4, atol=1e-5)
        assert (whole[:, 0] == 7).all()
        assert (whole[:, 51:] == 7).all()
    for rows in (2, 17, 31):  # unseen batches as well
        executable.run(np.resize(a, (rows, 40)), b, out=np.zeros((rows, 57), "f")[:, :50])
    assert counts(executable) == known
    assert "1 strided result" in executable.explain()
    assert "the strides of a feed or a result" in executable.explain()


def test_packed_results_share_the_kernels_of_new_ones() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 8))
    executable = graph.compile([x], [x + 1, ts.sum(x, axis=1)])
    given = np.ones((6, 8), "f")
    executable.run(given)
    known = counts(executable)
    executable.run(given, out=[np.zeros((6, 8), "f"), np.zeros(6, "f")])
    assert counts(executable) == known


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of address space is Linux's")
def test_no_copy_is_made() -> None:
    """Where no memory can be had for a copy, a run into a strided array succeeds, and one into a new array fails."""
    printed = run_child("""
        import resource
        big = graph.placeholder((-1, -1))
        executable = graph.compile([big], ts.tanh(big) + 1, threads=1)
        def whole(rows):
            return np.zeros((rows, 2 * 2048), np.float32)
        small, large = whole(8), whole(8192)
        executable.run(small[:, ::2], out=small[:, 1::2])
        executable.run(small[:, :2048], out=small[:, 2048:])
        executable.run(small[:4, ::2].T, out=small[4:, 1::2].T)
        used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) << 10
        resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), -1))
        large[:, ::2] = 2
        executable.run(large[:, ::2], out=large[:, 1::2])
        assert (large[:, 1::2] == np.tanh(np.float32(2)) + 1).all()
        executable.run(large[:, :2048], out=large[:, 2048:])
        executable.run(large[:4096, ::2].T, out=large[4096:, 1::2].T)
        try:
            executable.run(large[:, ::2])  # 64 MiB
        except MemoryError:
            print("as it should be")
        else:
            raise AssertionError("the limit does not limit")
    """)
    assert printed == "as it should be\n"


@pytest.mark.parametrize("way", ["run", "run_async", "encode", "graph.run", "graph.run_async", "graph.encode"])
@pytest.mark.parametrize("form", [list, dict])
def test_every_way_to_run(way: str, form: type) -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 5))
    targets = {"double": x * 2, "sum": ts.sum(x, axis=1)}
    executable = graph.compile([x], targets)
    commands = ts.CommandBuffer(ts.Queue())
    given = np.arange(20, dtype=np.float32).reshape(4, 5)
    double, total = Place(np.random.default_rng(8), (4, 5)), Place(np.random.default_rng(9), (4,))
    out: Any = [double.view, total.view] if form is list else {"sum": total.view, "double": double.view}
    result = {
        "run": lambda: executable.run(given, out=out),
        "run_async": lambda: executable.run_async(given, out=out).result(PATIENCE),
        "encode": lambda: executable.encode(commands, given, out=out),
        "graph.run": lambda: graph.run({x: given}, targets, out=out),
        "graph.run_async": lambda: graph.run_async({x: given}, targets, out=out).result(PATIENCE),
        "graph.encode": lambda: graph.encode(commands, {x: given}, targets, out=out),
    }[way]()
    commands.commit().result(PATIENCE)
    assert result is out
    double.check(given * 2, way, 0, 0)
    total.check(given.sum(axis=1), way, 0, 0)


def test_one_executable_in_many_threads() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, 33))
    executable = graph.compile([x], ts.softmax(x, axis=1))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(20):
                given = rng.standard_normal((int(rng.integers(1, 50)), 33)).astype(np.float32)
                place = Place(rng, given.shape)
                executable.run(given, out=place.view)
                place.check(softmax(given.astype(np.float64)), f"seed {seed}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failures, failures[0]


def test_slices_of_one_array() -> None:
    """Slices that lie between each other do not overlap; where a feed and a result do, the feed is copied first."""
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    executable = graph.compile([x], [x * 2, x + 1])
    given = np.arange(24, dtype=np.float32).reshape(4, 6)
    whole = np.zeros((4, 18), np.float32)
    whole[:, :6] = given
    executable.run(whole[:, :6], out=[whole[:, 6:12], whole[:, :11:-1]])
    np.testing.assert_array_equal(whole, np.hstack([given, given * 2, given[:, ::-1] + 1]))
    executable.run(whole[:, :6], out=[whole[:, :12:2], whole[:, 1:12:2]])
    np.testing.assert_array_equal(whole[:, :12:2], given * 2)
    np.testing.assert_array_equal(whole[:, 1:12:2], given + 1)
    square = np.arange(25, dtype=np.float32).reshape(5, 5)
    other = np.zeros((5, 5), np.float32)
    before = square.copy()
    executable.run(square, out=[square.T, other])
    np.testing.assert_array_equal(square.T, before * 2)
    np.testing.assert_array_equal(other, before + 1)


def windows(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    return np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), shape, strides, writeable=True)


def test_elements_that_share_memory_are_refused() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    executable = graph.compile([x], x + 1)
    for shape, strides in (((4, 3), (4, 4)), ((5, 3), (8, 12)), ((3, 2), (-4, 8)), ((90, 90), (4, -4))):
        out = windows((10,), (4,))[5:]
        out = np.lib.stride_tricks.as_strided(out, shape, strides, writeable=True)
        with pytest.raises(ts.UserError, match=r"\[run\] the array given for result 0 has elements that share memory"):
            executable.run(np.ones(shape, np.float32), out=out)
    out = windows((3, 2), (8, 12))  # at 0, 2, 4 and 3, 5, 7: between each other
    executable.run(np.arange(6, dtype=np.float32).reshape(3, 2), out=out)
    np.testing.assert_array_equal(out, [[1, 2], [3, 4], [5, 6]])


def test_arrays_that_do_not_fit() -> None:
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    executable = graph.compile([x], {"a": x + 1, "b": x * 2})
    ones, whole = np.ones((3, 4), np.float32), np.zeros((20, 20), np.float32)
    good = whole[:6:2, :8:2]

    def refused(message: str, out: Any, kind: type[Exception] = ts.UserError) -> None:
        with pytest.raises(kind, match=message):
            executable.run(ones, out=out)
        assert not whole.any()

    def transposed(rows: int, columns: int, dtype: npt.DTypeLike = np.float32) -> Array:
        return np.zeros((columns, rows), dtype).T

    for _ in range(2):  # before and after such strides are known
        refused(r"result 1 is float32\(3, 4\), but the given array is float32\(4, 3\)", [good, transposed(4, 3)])
        refused(r"result 1 is float32\(3, 4\), but the given array is float32\(3,\)", [good, transposed(3, 2)[:, 0]])
        refused(r"result 0 is float32\(3, 4\), but the given array is float64", [transposed(3, 4, "d"), good])
        refused("share memory", [good, good])
        refused("share memory", [good, good[::-1, ::-1]])
        refused("out has 1 array, but 2 are needed", [good])
        refused("out has 0 arrays, but 2 are needed", [])
        refused("keys of out must be those of targets", {"a": good})
        refused("keys of out must be those of targets", {"a": good, "c": transposed(3, 4)})
        executable.run(ones, out={"b": transposed(3, 4), "a": transposed(3, 4)})
    refused("must be writable", [np.broadcast_to(np.float32(1), (3, 4)), good])
    with pytest.raises(TypeError, match="out is a dict, but targets is none"):
        graph.run({x: ones}, x + 1, out={"a": good})


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    graph = ts.Graph()
    x = graph.placeholder((-1, -1))
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = torch.zeros(8, 6)[::2, ::2].T
    graph.run({x: given}, x * 2, out=out)
    assert torch.equal(out, torch.from_numpy(given * 2))
