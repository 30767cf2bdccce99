"""Every row of the tables in docs/arrays.md: which sources are read in place, which are copied, which are refused.

Pointers prove that memory is shared; rows of torch, jax, pandas, pyarrow and Pillow skip where these are not installed.
"""

import array
import contextlib
import json
import mmap
import os
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import topstitch as ts
from ndarray_cases import LegacyDLPack, address, bits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "arrays.md"


def doubled(*shape, dtype="float32"):
    """An executable that doubles one feed."""
    g = ts.Graph()
    x = g.placeholder(shape, dtype=dtype)
    return g.compile([x], x + x)


def in_place(source, where):
    """The source is read where it lies, also when a copy is forbidden."""
    nd = ts.NDArray(source, copy=False)
    assert address(nd.numpy().view("u1" if nd.dtype == ml_dtypes.bfloat16 and nd.ndim else nd.dtype)) == where
    return nd


def copied(source):
    """The source is read, but not when a copy is forbidden."""
    with pytest.raises(ts.UserError, match="copy is False"):
        ts.NDArray(source, copy=False)
    return ts.NDArray(source)


def refused(source, hint):
    with pytest.raises(ts.UserError, match=hint) as info:
        ts.NDArray(source)
    assert str(info.value).startswith("NDArray: ")


# ---- In: NumPy ----

BASE = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "a",
    [
        BASE,
        BASE.T,
        np.asfortranarray(BASE),
        BASE[::2, 1::3],
        BASE[::-1, ::-2],
        np.broadcast_to(BASE, (3, 4, 6)),
        BASE[1:1],
        BASE[2, 3, ...],
        BASE.astype(bool),
        BASE.astype(np.float64),
        BASE.astype(ml_dtypes.bfloat16),
        np.zeros(3, [("x", "f4"), ("y", "f4")])["y"],
    ],
    ids=["C", "T", "F", "steps", "negative", "broadcast", "empty", "scalar", "bool", "f64", "bf16", "field"],
)
def test_numpy_is_read_in_place(a):
    nd = ts.NDArray(a, copy=False)
    assert bits(nd) == bits(a)
    assert nd.shape == a.shape
    if a.size:
        assert nd.strides == a.strides
        assert address(nd.numpy()) == address(a)


def test_numpy_misaligned_is_copied():
    a = np.ndarray((2, 3), np.float32, bytes(range(25)), 1)
    nd = copied(a)
    assert bits(nd) == bits(a)
    packed_records = np.zeros(3, [("flag", "u1"), ("x", "f4")])
    assert bits(copied(packed_records["x"])) == bits(packed_records["x"])


def test_numpy_refused():
    refused(BASE.astype(">f4"), "newbyteorder")
    refused(np.zeros(3, [("x", "f4")]), "one field at a time")
    refused(np.ma.masked_array(BASE, BASE > 3), "filled")
    refused(np.ma.masked, "filled")
    refused(np.array([None, 1]), "Python objects")
    refused(np.array(["2020-01-01"], "M8[s]"), "a time")
    refused(np.array([1], "m8[s]"), "a time")
    refused(np.array(["a"]), "text")


def test_feeds_keep_their_dtype():
    run = doubled(4, 6).run
    for wrong in ("float64", "bool", "int64", "float16"):
        with pytest.raises(ts.DTypeError, match=rf"{wrong}.*float32.*astype"):
            run(BASE.astype(wrong))
    assert run(BASE.astype("float64").tolist()).dtype == "float32"


def test_memmap_is_read_in_place(tmp_path):
    a = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 6))
    a[...] = BASE
    nd = in_place(a, address(a))
    a[0, 0] = -1
    assert nd[0, 0] == -1
    frozen = np.memmap(tmp_path / "a", np.float32, "r", shape=(4, 6))
    assert in_place(frozen, address(frozen)).readonly


# ---- In: Python ----


@pytest.mark.parametrize("source", [3.0, 3, True, 1 + 2j, [1.0, 2], (1, 2), [[1], [2]], [BASE, BASE], range(3)])
def test_python_is_copied(source):
    copied(source)


@pytest.mark.parametrize(
    "source", [bytearray(8), memoryview(bytearray(8)), memoryview(b"12345678"), array.array("d", [1, 2])]
)
def test_buffers_are_read_in_place(source):
    in_place(source, address(np.frombuffer(source, np.uint8)))


def test_bytes_are_text_for_numpy_and_memory_for_from_buffer():
    refused(b"12345678", "text")
    memory = b"12345678"
    assert address(ts.from_buffer(memory, 2)) == address(np.frombuffer(memory, np.uint8))


def test_mmap_is_read_in_place():
    mapped = mmap.mmap(-1, 4096)
    nd = ts.from_buffer(mapped, (32, 32))
    mapped[:4] = np.float32(5).tobytes()
    assert nd[0, 0] == 5
    with pytest.raises(BufferError):
        mapped.close()
    del nd
    mapped.close()


def test_safetensors_file_is_read_in_place(tmp_path):
    """By hand: eight bytes of length, a JSON header, the tensors."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}}).encode()
    header += b" " * (-len(header) % 8)
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + BASE.tobytes())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(mapped[:8], "little")
    entry = json.loads(mapped[8 : 8 + length])["w"]
    nd = ts.from_buffer(mapped, entry["shape"], "float32", offset=8 + length + entry["data_offsets"][0])
    assert nd.readonly
    assert address(nd.numpy()) == address(np.frombuffer(mapped, np.uint8)) + 8 + length
    assert bits(doubled(4, 6).run(nd)) == bits(2 * BASE)


# ---- In: other libraries ----


def test_torch():
    torch = pytest.importorskip("torch")
    t = torch.arange(24.0).reshape(4, 6)
    for view in (t, t.T, t[::2, 1::3], t.expand(3, 4, 6)):
        nd = in_place(view, view.data_ptr())
        assert nd.strides == tuple(4 * stride for stride in view.stride())
        assert not nd.readonly
    half = t.bfloat16()
    assert in_place(half, half.data_ptr()).dtype == "bfloat16"
    grows = t.clone().requires_grad_()
    refused(grows, "detach")
    in_place(grows.detach(), grows.data_ptr())
    assert ts.NDArray(torch.zeros(0, 3)).shape == (0, 3)
    refused(t.to_sparse(), "dense")
    refused(t.to("meta"), "cpu")
    refused(t.to(torch.complex128), "128 bits")
    twisted = torch.tensor([1 + 2j]).to(torch.complex64).conj()
    refused(twisted, "resolve_conj")
    refused(twisted.imag, "resolve_neg")
    assert ts.NDArray(twisted.imag.resolve_neg()).tolist() == [-2]


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(24.0).reshape(4, 6)
    for source in (x, x > 3, x.astype(jnp.bfloat16)):
        assert in_place(source, source.unsafe_buffer_pointer()).readonly
    refused(x.astype(jnp.int4), "int4")


def test_another_device_is_refused():
    class OnGpu(LegacyDLPack):
        def __dlpack_device__(self):
            return (2, 0)

        def __array__(self, dtype=None, copy=None):
            raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    refused(OnGpu(BASE), r"device .*\.cpu\(\)")


def test_pandas():
    pd = pytest.importorskip("pandas")
    series = pd.Series([1.0, 2, 3])
    in_place(series, address(series.to_numpy()))
    frame = pd.DataFrame(np.zeros((3, 2)))
    in_place(frame, address(frame.to_numpy()))
    mixed = pd.DataFrame({"a": [1, 2], "b": [1.5, 2]})
    assert copied(mixed).dtype == "float64"
    assert np.isnan(copied(pd.Series([1, None], dtype="Int64"))[1])
    refused(pd.DataFrame({"a": [1], "b": ["x"]}), "Python objects")
    refused(pd.Series(pd.to_datetime(["2020-01-01"])), "a time")


def test_arrow():
    pa = pytest.importorskip("pyarrow")
    numbers = pa.array([1.0, 2, 3])
    assert in_place(numbers, numbers.buffers()[1].address).readonly
    in_place(numbers[1:], numbers.buffers()[1].address + 8)
    assert np.isnan(copied(pa.array([1, None]))[1])
    assert copied(pa.array([True, False])).tolist() == [True, False]
    copied(pa.chunked_array([[1.0], [2.0]]))
    refused(pa.array(["a"]), "DLPack.*string")
    memory = pa.py_buffer(bytearray(8))
    assert address(ts.from_buffer(memory, 2)) == memory.address


def test_pillow():
    image = pytest.importorskip("PIL.Image").new("RGB", (3, 2))
    nd = ts.NDArray(image)  # a copy that Pillow makes
    assert nd.shape == (2, 3, 3)
    assert nd.readonly
    image.putpixel((0, 0), (1, 2, 3))
    assert nd[0, 0].tolist() == [0, 0, 0]


# ---- In: at the run ----


@contextlib.contextmanager
def sixteen_terabytes():
    """Memory that is there but of which no machine could make a copy: only pages that are touched exist."""
    if not hasattr(mmap, "MAP_ANONYMOUS") or not os.path.exists("/proc/sys/vm/overcommit_memory"):
        pytest.skip("needs Linux")
    # Under 1 a copy would be promised and then kill the process; under 2 the map itself is refused.
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "0":
        pytest.skip("memory is not given out by the heuristics of Linux")
    no_reserve = 0x4000
    try:
        mapped = mmap.mmap(-1, 1 << 44, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except OSError as error:
        pytest.skip(f"no address space: {error}")
    yield mapped
    mapped.close()


def run_on_a_part(mapped, shape, strides):
    """Reads a few elements of a huge feed, which a copy of the feed could not serve."""
    g = ts.Graph()
    x = g.placeholder(shape)
    nd = ts.from_buffer(mapped, shape, strides=strides)
    nd[-1, 5] = 7
    assert g.run({x: nd}, x[-1, 4:7] + 1).tolist() == [1, 8, 1]
    assert g.run({x: nd.numpy()}, x[-1, 4:7] + 1).tolist() == [1, 8, 1]


def test_contiguous_feeds_are_not_copied_at_the_run():
    with sixteen_terabytes() as mapped:
        run_on_a_part(mapped, (1 << 21, 1 << 21), (1 << 23, 4))


@pytest.mark.parametrize("strides", [(1 << 23, 8), (1 << 24, 4)], ids=["steps", "rows"])
def test_strided_feeds_are_not_copied_at_the_run(strides):
    with sixteen_terabytes() as mapped:
        run_on_a_part(mapped, (1 << 20, 1 << 20), strides)


# ---- Out ----


def test_results_are_read_in_place():
    result = doubled(4, 6).run(BASE)
    for view in (np.asarray(result), result.numpy(), np.from_dlpack(result), np.asarray(memoryview(result))):
        assert address(view) == address(result)
        assert view.flags.writeable
    with pytest.raises(ValueError, match="copy"):
        np.array(result, dtype=np.float64, copy=False)


def test_results_to_torch_and_jax():
    result = doubled(4, 6).run(BASE)
    with contextlib.suppress(ImportError):
        import torch

        for tensor in (torch.from_dlpack(result), torch.asarray(result), torch.from_numpy(result.numpy())):
            assert tensor.data_ptr() == address(result)
    with contextlib.suppress(ImportError):
        import jax.numpy as jnp

        assert jnp.from_dlpack(result).unsafe_buffer_pointer() == address(result)


def outs():
    numpy = np.zeros((4, 6), np.float32)
    yield numpy, numpy
    memory = bytearray(96)
    yield ts.from_buffer(memory, (4, 6)), np.frombuffer(memory, np.float32).reshape(4, 6)
    big = np.zeros((9, 6), np.float32)
    yield big[2:6], big[2:6]
    nd = ts.NDArray(np.zeros((4, 6), np.float32))
    yield nd, nd.numpy()
    numbers = array.array("f", bytes(96))
    yield memoryview(numbers).cast("B").cast("f", (4, 6)), np.frombuffer(numbers, np.float32).reshape(4, 6)


@pytest.mark.parametrize(("out", "seen"), list(outs()), ids=["numpy", "from_buffer", "rows", "ndarray", "memoryview"])
def test_out_is_written_in_place(out, seen):
    assert doubled(4, 6).run(BASE, out=out) is out
    assert np.array_equal(seen, 2 * BASE)


def test_out_of_torch():
    torch = pytest.importorskip("torch")
    out = torch.zeros(4, 6)
    doubled(4, 6).run(BASE, out=out)
    assert torch.equal(out, torch.from_numpy(2 * BASE))


class Copying:
    """An array only by copying, so that nobody would see what is written into it."""

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("a copy is needed")
        return np.zeros((4, 6), np.float32)


@pytest.mark.parametrize(
    ("out", "hint"),
    [
        (ts.from_buffer(bytes(96), (4, 6)), "writable"),
        (np.zeros((4, 6)), "float64"),
        (np.zeros((6, 4), np.float32), r"result 0 is float32\(4, 6\)"),
        (np.ndarray((4, 6), np.float32, bytearray(97), 1), "aligned"),
        (np.zeros((4, 6), ">f4"), "byte order"),
        ([[[0.0] * 6] * 4], "has to be copied"),
        ([[np.zeros(6, np.float32)] * 4], "has to be copied"),
        (Copying(), "has to be copied"),
    ],
    ids=["readonly", "f64", "shape", "misaligned", "endian", "list", "rows", "copying"],
)
def test_out_is_never_copied(out, hint):
    with pytest.raises(ts.UserError, match=hint):
        doubled(4, 6).run(BASE, out=out)


@pytest.mark.parametrize(
    "out", [np.zeros((6, 4), np.float32).T, np.zeros((4, 12), np.float32)[:, ::-2]], ids=["F", "steps"]
)
def test_out_of_any_strides(out):
    assert doubled(4, 6).run(BASE, out=out) is out
    np.testing.assert_array_equal(out, 2 * BASE)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 cannot forbid a copy")
def test_copy_false_is_heard_by_the_source():
    refused_copy = pytest.raises(ts.UserError, match=r"Copying has to be copied.*copy is False")
    with refused_copy:
        ts.NDArray(Copying(), copy=False)
    assert ts.NDArray(Copying()).shape == (4, 6)


# ---- Lifetimes ----


def test_memory_in_use_is_neither_resized_nor_closed():
    memory, numbers, a = bytearray(8), array.array("f", [1, 2]), np.zeros(4)
    held = [ts.NDArray(memory), ts.from_buffer(memory, 2), ts.NDArray(numbers), ts.NDArray(a)]
    with pytest.raises(BufferError):
        memory.append(0)
    with pytest.raises(BufferError):
        numbers.append(0)
    with pytest.raises(ValueError, match="resize"):
        a.resize(1000)
    held.clear()
    memory.append(0)
    numbers.append(0)
    a.resize(1000)


def test_huge_strides_are_refused():
    a = np.zeros(4, np.float32)
    for shape, strides in (
        ((3,), (1 << 62,)),
        ((3,), (-(1 << 62),)),
        ((2, 2, 2), (1 << 62,) * 3),
        ((2, 2), (1 << 62, -(1 << 62))),
    ):
        refused(as_strided(a, shape, strides), "63 bits")


@pytest.mark.skipif(not PAGE.exists(), reason="docs/ is not beside the tests")
def test_every_test_that_the_page_names_exists():
    tests = Path(__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in tests.glob("test_*.py"))
    names = re.findall(r"`(test_\w+(?:\.py)?)`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 30
    for name in names:
        assert (tests / name).exists() if name.endswith(".py") else f"def {name}(" in text, name
