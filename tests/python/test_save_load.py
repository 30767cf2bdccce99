"""Saving and loading: what is written is read back bit for bit, also by the safetensors package, and replaced whole.

Damaged and hostile files are in test_load_hostile.py.
"""

from __future__ import annotations

import errno
import os
import pickle
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import topstitch as ts

DTYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64,
]  # fmt: skip
SHAPES = [(), (1,), (0,), (3, 0, 2), (40,), (2, 3, 7), (1,) * 16, (2,) * 16]


def random_bits(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Any bits: NaNs with payloads, subnormals and infinities among them."""
    count = int(np.prod(shape))
    rng = np.random.default_rng(seed)
    if dtype is np.bool_:
        return rng.integers(0, 2, count).astype(np.bool_).reshape(shape)
    return np.frombuffer(rng.bytes(count * np.dtype(dtype).itemsize), dtype).reshape(shape)


def same_bits(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def linear() -> tuple[ts.Graph, ts.Tensor, ts.Tensor, ts.Tensor, ts.Operation]:
    """y = x @ w + b with a step that changes w; other things beside it that no target needs."""
    rng = np.random.default_rng(1)
    g = ts.Graph()
    unused = g.constant(rng.standard_normal((50, 50)).astype(np.float32), name="unused")
    x = g.placeholder(("batch", 7), name="x")
    w = g.variable(rng.standard_normal((7, 5)).astype(np.float32), name="w")
    b = g.constant(rng.standard_normal(20).astype(np.float32), name="b")[:5]
    y = ts.tanh(x @ w + b)
    ts.exp(unused)
    step = w.assign(w - 0.1 * ts.gradients(ts.sum(y), [w])[w])
    return g, x, w, y, step


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_arrays_of_every_dtype_and_shape(tmp_path: Path, dtype: Any) -> None:
    arrays = {f"{shape}": random_bits(dtype, shape, k) for k, shape in enumerate(SHAPES)}
    path = tmp_path / "a.safetensors"
    ts.save_arrays(path, arrays)
    loaded = ts.load_arrays(path)
    assert list(loaded) == sorted(arrays)
    assert all(same_bits(loaded[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_graphs_with_constants_and_variables_of_every_dtype(tmp_path: Path, dtype: Any) -> None:
    g = ts.Graph()
    for k, shape in enumerate(SHAPES):
        g.constant(random_bits(dtype, shape, k), name=f"c{k}")
        g.variable(random_bits(dtype, shape, 100 + k))
    g.save(tmp_path / "g")
    loaded = ts.Graph.load(tmp_path / "g")
    assert loaded.structural_hash() == g.structural_hash()
    for old, new in zip(g.operations, loaded.operations, strict=True):
        assert (old.op, old.name, old.outputs[0].shape) == (new.op, new.name, new.outputs[0].shape)
        if old.op == "constant":
            assert same_bits(new.attributes["value"], old.attributes["value"])
        else:
            assert same_bits(loaded.variable_value(new.outputs[0]), g.variable_value(old.outputs[0]))


def test_arrays_of_any_strides(tmp_path: Path) -> None:
    base = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    arrays = {
        "transposed": base.T,
        "reversed": base[::-1, :, ::-2],
        "broadcast": np.broadcast_to(np.float32(3), (2, 2)),
        "list": np.arange(3),
    }
    ts.save_arrays(tmp_path / "a", arrays)
    loaded = ts.load_arrays(str(tmp_path / "a"))
    assert all(same_bits(loaded[name], np.ascontiguousarray(array)) for name, array in arrays.items())


def test_bools_are_saved_as_0_and_1(tmp_path: Path) -> None:
    ts.save_arrays(tmp_path / "a", {"b": np.array([0, 1, 7, 255], np.uint8).view(np.bool_)})
    assert np.asarray(ts.load_arrays(tmp_path / "a")["b"]).view(np.uint8).tolist() == [0, 1, 1, 1]


def test_the_safetensors_package_reads_what_is_written(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {f"{np.dtype(d).name} {s}": random_bits(d, s) for d in DTYPES for s in SHAPES}
    ts.save_arrays(tmp_path / "a", arrays)
    read = numpy.load_file(tmp_path / "a")
    assert sorted(read) == sorted(arrays)
    assert all(same_bits(read[name], arrays[name]) for name in arrays)
    ts.save_arrays(tmp_path / "none", {})
    assert numpy.load_file(tmp_path / "none") == {}


def test_what_the_safetensors_package_writes_is_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = {f"{np.dtype(d).name} {s}": random_bits(d, s) for d in DTYPES for s in SHAPES}
    numpy.save_file(arrays, tmp_path / "a", metadata={"format": "np", 'quoted "é" \n': "\t\U0001f600"})
    read = ts.load_arrays(tmp_path / "a")
    assert sorted(read) == sorted(arrays)
    assert all(same_bits(read[name], arrays[name]) for name in arrays)
    numpy.save_file({}, tmp_path / "none")
    assert ts.load_arrays(tmp_path / "none") == {}


def test_weights_of_another_program_become_variables(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    g, _, w, _, _ = linear()
    value = random_bits(np.float32, (7, 5), 9)
    numpy.save_file({"w": value}, tmp_path / "a")
    g.load_variables(tmp_path / "a")
    assert same_bits(g.variable_value(w), value)


def test_the_data_are_aligned_and_the_bytes_depend_on_the_contents_only(tmp_path: Path) -> None:
    g = linear()[0]
    g.save(tmp_path / "a")
    g.save(tmp_path / "b")
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    assert (8 + int.from_bytes(data[:8], "little")) % 64 == 0
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(tmp_path / "a", "np") as file:
        metadata = file.metadata()
        assert sorted(file.keys()) == ["b", "unused", "w"]
    assert metadata["topstitch.format"] == "1"
    assert metadata["topstitch.kind"] == "graph"
    assert metadata["topstitch.version"] == ts.__version__
    assert 'value=float32(7, 5)external"w"' in metadata["topstitch.graph"]


NAMES = [
    "",
    "plain",
    'quo"ted \\',
    "new\nline\ttab",
    "ünïcödé \U0001f600",
    "nul\0",
    "# no comment",
    "__metadata__",
    "b",
]


def test_graphs_with_everything(tmp_path: Path) -> None:
    g = ts.Graph()
    a = g.placeholder(("n", -1, 3), name="a")
    open_rank = g.placeholder(None, ts.float64)
    ts.exp(open_rank)
    halves = ts.split(a, num_splits=3, axis=2)
    ts.concat([halves[2], halves[0]], axis=0)
    state = g.variable([1.0, 2.0])
    first = state.assign([3.0, 4.0], name="first")
    with g.control_dependencies([first]):
        state.read()
        second = state.assign(ts.square(state.read()))
    for name in NAMES:
        g.constant(np.arange(20), name=name)
        g.constant(np.arange(20), name=name)
        g.constant([1, 2], name=name)
        g.variable(np.float32(1), name=name)
    g.placeholder((2, "2*n + 1"))
    g.save(tmp_path / "g")
    loaded = ts.Graph.load(tmp_path / "g")
    loaded.verify()
    assert loaded.text() == g.text()
    assert loaded.structural_hash() == g.structural_hash()
    assert [o.name for o in loaded.operations] == [o.name for o in g.operations]
    again = loaded.operations[g.operations.index(second)]
    assert same_bits(loaded.run(operations=[again], targets=loaded.variables[0]), g.run(None, state, [second]))
    assert same_bits(loaded.variable_value(loaded.variables[0]), np.float32([9, 16]))
    ts.Graph().save(tmp_path / "empty")
    assert ts.Graph.load(tmp_path / "empty").operations == []


def test_variables_keep_their_present_values(tmp_path: Path) -> None:
    g, x, w, y, step = linear()
    batch = random_bits(np.uint8, (4, 7)).astype(np.float32)
    g.run({x: batch}, operations=step)
    g.save(tmp_path / "g")
    loaded = ts.Graph.load(tmp_path / "g")
    value = g.variable_value(w)
    g.run({x: batch}, operations=step)
    (kept,) = loaded.variables
    assert same_bits(loaded.variable_value(kept), value)
    target = loaded.operations[g.operations.index(y.operation)].outputs[0]
    g.set_variable_value(w, value)
    assert same_bits(loaded.run({loaded.placeholders[0]: batch}, target), g.run({x: batch}, y))


def test_the_text_of_a_saved_graph_alone_has_no_arrays(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    linear()[0].save(tmp_path / "g")
    with safetensors.safe_open(tmp_path / "g", "np") as file:
        text = file.metadata()["topstitch.graph"]
    with pytest.raises(ts.UserError, match=r'line 2, .*"unused" is kept outside of this text.*Graph\.load'):
        ts.Graph.parse(text)


# --- Executables


@pytest.mark.parametrize(
    "options", [{}, {"stitch": False}, {"interpret": True, "threads": 1}], ids=["usual", "unstitched", "interpreted"]
)
def test_executables(tmp_path: Path, options: dict[str, Any]) -> None:
    g, x, w, y, step = linear()
    exe = g.compile([x], [y, ts.sum(y)], [step], **options)
    batches = [np.random.default_rng(n).standard_normal((n, 7), np.float32) for n in (1, 2, 5)]
    for batch in batches:
        exe.run(batch)
    path = tmp_path / "e"
    exe.save(path)
    loaded = ts.Executable.load(path)
    assert loaded.variants == exe.variants == 2
    assert [feed.name for feed in loaded.feeds] == ["x"]
    assert loaded.feeds[0].shape == ("batch", 7)
    assert ("tanh" in loaded.source()) == ("tanh" in exe.source())
    graph = loaded.feeds[0].graph
    assert not any(operation.name == "unused" for operation in graph.operations)
    assert graph != g
    for batch in [*batches, np.zeros((9, 7), np.float32)]:
        for ours, theirs in zip(loaded.run(batch), exe.run(batch), strict=True):
            assert same_bits(ours, theirs)
    assert same_bits(graph.variable_value(graph.variables[0]), g.variable_value(w))
    assert loaded.variants == exe.variants
    loaded.save(tmp_path / "again")
    assert ts.Executable.load(tmp_path / "again").variants == exe.variants


def test_narrowed_feeds_stay_narrow(tmp_path: Path) -> None:
    g = ts.Graph()
    x, n = g.placeholder(None), g.placeholder((-1, 3))
    exe = g.compile({x: ts.ShapedType(("a", 2)), n: ts.ShapedType((4, 3))}, [ts.exp(x), ts.sum(n)])
    exe.save(tmp_path / "e")
    loaded = ts.Executable.load(tmp_path / "e")
    with pytest.raises(ts.UserError, match="axis 0 must be 4"):
        loaded.run(np.zeros((1, 2), np.float32), np.zeros((5, 3), np.float32))
    with pytest.raises(ts.UserError, match="rank 2"):
        loaded.run(np.zeros(2, np.float32), np.zeros((4, 3), np.float32))


def test_results_keep_their_form(tmp_path: Path) -> None:
    g = ts.Graph()
    x = g.placeholder((2,))
    w = g.variable([0.0, 0.0], name="w")
    y, z = x + 1, x * 2
    path = tmp_path / "e"
    for targets in (y, [y], [y, z], (y, z), {"z": z, "é\n": y}, []):
        exe = g.compile([x], targets, [w.assign(x)])
        exe.save(path)
        before, after = exe.run([1, 2]), ts.Executable.load(path).run([1, 2])
        assert type(after) is type(before)
        if isinstance(before, dict):
            assert list(after) == list(before)
            before, after = list(before.values()), list(after.values())
        assert np.array_equal(np.asarray(after), np.asarray(before))
    g.compile([x], None, [w.assign(x)]).save(path)
    assert ts.Executable.load(path).run([1, 2]) == []
    with pytest.raises(ts.DTypeError, match="keys of the targets must be strings"):
        g.compile([x], {y: y}).save(path)


def test_feeds_without_use_and_no_feeds(tmp_path: Path) -> None:
    g = ts.Graph()
    x, unused = g.placeholder((2,)), g.placeholder((-1,), name="unused")
    g.compile([unused, x], ts.exp(x)).save(tmp_path / "e")
    loaded = ts.Executable.load(tmp_path / "e")
    assert [feed.name for feed in loaded.feeds] == ["unused", ""]
    assert loaded.run([1, 2, 3], [0, 0]).tolist() == [1, 1]
    count = g.variable(0, dtype=ts.int64)
    g.compile(None, None, count.assign(count + 1)).save(tmp_path / "e")
    counter = ts.Executable.load(tmp_path / "e")
    for _ in range(3):
        counter.run()
    assert counter.variants == 1


# --- Variables


def test_variables(tmp_path: Path) -> None:
    g = ts.Graph()
    values = {name: random_bits(np.float32, (k, 2), k) for k, name in enumerate(["w", "layer.0/b", 'é"\n'])}
    variables = {name: g.variable(value, name=name) for name, value in values.items()}
    g.save_variables(tmp_path / "v")
    for variable in variables.values():
        g.set_variable_value(variable, np.zeros(variable.shape, np.float32))
    g.load_variables(tmp_path / "v")
    assert all(same_bits(g.variable_value(variables[name]), values[name]) for name in values)
    assert sorted(ts.load_arrays(tmp_path / "v")) == sorted(values)


def test_variables_need_names_of_their_own(tmp_path: Path) -> None:
    g = ts.Graph()
    g.variable([1.0])
    for use in (g.save_variables, g.load_variables):
        with pytest.raises(ts.UserError, match=r"%0 : float32\(1,\) .*has no name.*name=\"w\""):
            use(tmp_path / "v")
    g = ts.Graph()
    g.variable([1.0], name="w")
    g.variable([2.0], name="w")
    with pytest.raises(ts.UserError, match='two variables are called "w"'):
        g.save_variables(tmp_path / "v")
    assert list(tmp_path.iterdir()) == []


def test_variables_are_loaded_all_or_none(tmp_path: Path) -> None:
    saved = ts.Graph()
    saved.variable([1.0], name="same")
    saved.variable([1.0, 2.0], name="shape")
    saved.variable([1], name="dtype")
    saved.variable([1.0], name="extra")
    saved.save_variables(tmp_path / "v")
    g = ts.Graph()
    same = g.variable([5.0], name="same")
    g.variable([1.0], name="shape")
    g.variable([1.0], name="dtype")
    g.variable([1.0], name="absent")
    with pytest.raises(ts.UserError) as info:
        g.load_variables(tmp_path / "v")
    message = str(info.value)
    assert "missing in the file: absent; unknown in the graph: extra; of another type: " in message
    assert "dtype is float32(1,) and in the file int32(1,), shape is float32(1,) and in the file float32(2,)" in message
    assert g.variable_value(same).tolist() == [5.0]


# --- Files


def test_kinds_are_not_mixed_up(tmp_path: Path) -> None:
    g, x, _, y, _ = linear()
    g.save(tmp_path / "graph")
    g.compile([x], y).save(tmp_path / "executable")
    g.save_variables(tmp_path / "variables")
    ts.save_arrays(tmp_path / "arrays", {"w": np.zeros(3)})
    loaders = {"graph": ts.Graph.load, "executable": ts.Executable.load, "variables": g.load_variables}
    for wanted, load in loaders.items():
        for kind in loaders:
            if kind != wanted:
                with pytest.raises(ts.UserError, match=r"holds .*, not .*; load it with .*load"):
                    load(tmp_path / kind)
    for load in (ts.Graph.load, ts.Executable.load):
        with pytest.raises(ts.UserError, match="holds arrays only"):
            load(tmp_path / "arrays")
    assert sorted(ts.load_arrays(tmp_path / "graph")) == ["b", "unused", "w"]


def test_missing_and_forbidden_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot be opened: No such file") as info:
        ts.Graph.load(tmp_path / "absent")
    assert isinstance(info.value, ts.FileError)
    assert info.value.errno == errno.ENOENT
    with pytest.raises(ts.FileError, match="cannot be written"):
        ts.save_arrays(tmp_path / "absent" / "a", {})
    with pytest.raises(ts.FileError):
        ts.save_arrays(tmp_path / ("x" * 300), {})
    if os.geteuid() != 0:
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(PermissionError):
            ts.save_arrays(tmp_path / "closed" / "a", {})
    with pytest.raises(TypeError):
        ts.Graph.load(3)  # type: ignore[arg-type]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, what in ((tmp_path, "is a folder"), (fifo, "no regular file"), (Path("/dev/null"), "no regular file")):
        with pytest.raises(ts.UserError, match=what):
            ts.save_arrays(path, {"a": np.zeros(3)})
        with pytest.raises(ts.UserError, match=what):
            ts.load_arrays(path)
    assert list(tmp_path.iterdir()) == [fifo]


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    ts.save_arrays(real, {})
    real.chmod(0o600)
    link.symlink_to(real)
    ts.save_arrays(link, {"a": np.zeros(3)})
    assert link.is_symlink()
    assert list(ts.load_arrays(real)) == ["a"]
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    mask = os.umask(0o027)
    try:
        ts.save_arrays(tmp_path / "new", {})
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ts.save_arrays(path, {"old": np.arange(3)})
    before = path.read_bytes()
    program = f"""
import resource, signal, numpy as np, topstitch as ts
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    ts.save_arrays({str(path)!r}, {{"new": np.zeros(1_000_000)}})
except OSError as error:
    print(type(error).__name__, error.errno, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"FileError {errno.EFBIG} [save_arrays] ")
    assert str(path) in done.stdout
    assert "File too large" in done.stdout
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_readers_see_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    contents = [np.full(50_000, k, np.float64) for k in range(2)]
    ts.save_arrays(path, {"a": contents[0]})
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for array in contents:
                ts.save_arrays(path, {"a": array})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            found = np.asarray(ts.load_arrays(path)["a"])
            assert found.shape == (50_000,)
            assert (found == found[0]).all()
    finally:
        stop.set()
        writer.join()
    assert list(tmp_path.iterdir()) == [path]


def test_values_are_those_of_one_moment(tmp_path: Path) -> None:
    """Runs that change two variables together are not seen half done."""
    g = ts.Graph()
    a, b = (g.variable(np.zeros(20_000, np.int64), name=name) for name in "ab")
    step = [a.assign(a + 1), b.assign(b + 1)]
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            g.run(operations=step)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(20):
            g.save_variables(tmp_path / "v")
            found = ts.load_arrays(tmp_path / "v")
            assert same_bits(found["a"], found["b"])
    finally:
        stop.set()
        worker.join()


def test_loaded_memory_is_its_own(tmp_path: Path) -> None:
    """A file that is cut off after it was loaded does no harm."""
    path = tmp_path / "a"
    ts.save_arrays(path, {"a": np.arange(100_000)})
    loaded = np.asarray(ts.load_arrays(path)["a"])
    os.truncate(path, 0)
    assert loaded.sum() == 99_999 * 50_000
    assert loaded.flags.writeable


def test_names_that_files_cannot_have(tmp_path: Path) -> None:
    with pytest.raises(ts.UserError, match="__metadata__"):
        ts.save_arrays(tmp_path / "a", {"__metadata__": np.zeros(2)})
    with pytest.raises(ts.DTypeError, match="must be strings"):
        ts.save_arrays(tmp_path / "a", {3: np.zeros(2)})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_pickles_are_named_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(pickle.dumps(resource.getrlimit))
    with pytest.raises(ts.UserError, match="pickle, which topstitch does not read"):
        ts.Graph.load(path)
